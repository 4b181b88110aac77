"""All ops, by name. A new file in bindings/ops is a new op: nothing is edited here."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable

from torch import Tensor

import bindings.ops
from bindings.op import Op

_MODULES = {
    module.name: importlib.import_module(f"bindings.ops.{module.name}")
    for module in pkgutil.iter_modules(bindings.ops.__path__)
}

OPS: dict[str, Op] = {name: module.OP for name, module in _MODULES.items()}

# What a user calls.
FUNCTIONS: dict[str, Callable[..., Tensor]] = {
    name: getattr(module, name) for name, module in _MODULES.items()
}
