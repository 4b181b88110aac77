"""Tells which parts of PyTorch are involved in a call, and its device and stream.

Replaying relies on internals that PyTorch does not promise to keep. They are used in
this file alone; tests/test_replay.py pins them.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch._C import (
    DispatchKey,
    DispatchKeySet,
    _dispatch_keys,
    _dispatch_tls_local_exclude_set,
    _dispatch_tls_local_include_set,
    _is_torch_function_mode_enabled,
    _len_torch_dispatch_stack,
)
from torch._C._autograd import _profiler_enabled
from torch._C._dynamo import guards
from torch.autograd import forward_ad
from torch.utils._python_dispatch import TorchDispatchMode

# Typed only in part.
_guards: Any = guards

# A CPU build of PyTorch has neither, and no CUDA tensors, which alone need them.
current_device: Any = getattr(torch._C, "_cuda_getDevice", None)
current_stream: Any = getattr(torch._C, "_cuda_getCurrentRawStream", None)


def is_watched() -> bool:
    """Whether a mode, a profiler or forward-mode autograd is involved in every call.

    All other parts of PyTorch show in how tensors are dispatched.
    """
    return (
        _len_torch_dispatch_stack() > 0
        or _is_torch_function_mode_enabled()
        or _profiler_enabled()
        or forward_ad._current_level >= 0
    )


def are_plain(tensors: Sequence[Tensor], device_type: str) -> bool:
    """Whether PyTorch would only pass on a call with these tensors.

    They are then on a device of this type, and none is a subclass, a batch of vmap or a
    lazily negated view; and no autograd, autocast, tracer or function transform is
    active.
    """
    needs_gradient = torch.is_grad_enabled() and any(x.requires_grad for x in tensors)
    expected = _keys_of_plain_tensors(device_type, needs_gradient)
    included = _dispatch_tls_local_include_set()
    excluded = _dispatch_tls_local_exclude_set()
    return all(
        type(x) in (Tensor, torch.nn.Parameter)
        and x.device.type == device_type
        and ((_dispatch_keys(x) | included) - excluded) | expected == expected
        for x in tensors
    )


@functools.cache
def _keys_of_plain_tensors(device_type: str, needs_gradient: bool) -> DispatchKeySet:
    """The dispatch keys that plain tensors may have."""
    backend = device_type.upper()
    names = ["BackendSelect", "ADInplaceOrView", backend]
    if not needs_gradient:
        names.append(f"Autograd{backend}")  # which then only passes the call on
    keys = DispatchKeySet(DispatchKey.Undefined)
    for name in names:
        keys = keys.add(getattr(DispatchKey, name))
    return keys


def guard_of(tensors: Sequence[Tensor]) -> Callable[..., bool]:
    """Returns a function that tells whether other tensors are of the same kind.

    They are if each is given once, and they agree in type, shape, strides, dtype,
    device and requires_grad, and in all that the dispatcher looks at. torch.compile
    guards its code by the same function.
    """
    known = _guards.TensorGuards(
        *tensors, dynamic_dims_sizes=None, dynamic_dims_strides=None
    )
    check: Callable[..., bool] = known.check
    return check


def allocator_of(x: Tensor) -> Callable[[], Tensor]:
    """Returns a function that allocates tensors like x, which is on the current device.

    The code that torch.compile makes allocates likewise. It takes half the time of
    torch.empty_like.
    """
    name = f"_empty_strided_{x.device.type}"
    return functools.partial(
        getattr(_guards, name), tuple(x.shape), x.stride(), x.dtype
    )


class Allocations(TorchDispatchMode):
    """Collects the tensors whose memory has been allocated but not written to.

    Attributes:
        untouched: Tensors that were allocated in this mode and passed to no operation.
    """

    _ALLOCATING = (
        torch.ops.aten.empty.memory_format,
        torch.ops.aten.empty_like.default,
        torch.ops.aten.empty_strided.default,
        torch.ops.aten.new_empty.default,
        torch.ops.aten.new_empty_strided.default,
    )

    def __init__(self) -> None:
        """Begins without tensors."""
        super().__init__()  # type: ignore[no-untyped-call]
        self.untouched: list[Tensor] = []

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        """Runs an operation and updates `untouched`."""
        result = func(*args, **(kwargs or {}))
        is_untouched = func in self._ALLOCATING
        for x in args:
            if any(x is each for each in self.untouched):
                # torch.empty returns a detached alias of the tensor it allocates.
                is_untouched |= func is torch.ops.aten.detach.default
                self.untouched = [each for each in self.untouched if each is not x]
        if is_untouched:
            self.untouched.append(result)
        return result
