"""All ops, by name. A new file in bindings/ops is a new op: nothing is edited here."""

from __future__ import annotations

import importlib
import pkgutil

import bindings.ops
from bindings.op import Op

OPS: dict[str, Op] = {
    module.name: importlib.import_module(f"bindings.ops.{module.name}").OP
    for module in pkgutil.iter_modules(bindings.ops.__path__)
}
