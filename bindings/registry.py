"""All ops, by name. A new file in bindings/ops adds an op without an edit here."""

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
    if not module.name.startswith("_")  # which is what several ops share
}

# A file describes an op as OP, and its backward, if that has kernels, as BACKWARD.
OPS: dict[str, Op] = {
    op.name: op
    for module in _MODULES.values()
    for op in (module.OP, getattr(module, "BACKWARD", None))
    if op is not None
}

# The functions that users call. An op's in-place form has a name that ends in _, its
# form for sequences of any lengths one that ends in _varlen.
FUNCTIONS: dict[str, Callable[..., Tensor]] = {
    name: getattr(_MODULES[op.source], name)
    for op in OPS.values()
    for name in (op.name, f"{op.name}_", f"{op.name}_varlen")
    if hasattr(_MODULES[op.source], name)
}
