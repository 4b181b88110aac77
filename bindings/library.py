"""Registers ops with torch.library: twin::softmax_cuda, twin::softmax_triton, ..."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad

from bindings import backends, check, replay
from bindings.op import Op, Outputs

NAMESPACE = "twin"

_IN_PLACE = "in_place"

_library = torch.library.Library(NAMESPACE, "DEF")
_overloads: dict[str, Any] = {}


def register(op: Op) -> Op:
    """Registers one torch.library op for each backend, and returns the description.

    All backends and overloads share one fake implementation, the op's own `allocate`,
    so torch.compile sees the same checks, shapes and strides as a real call.
    """
    for backend in backends.NAMES:
        for overload, schema in {"default": op.schema, **op.overloads}.items():
            _register_overload(op, backend, overload, schema)
    return op


def _register_overload(op: Op, backend: str, overload: str, schema: str) -> None:
    packet = f"{op.name}_{backend}"
    name = packet if overload == "default" else f"{packet}.{overload}"
    _library.define(name + schema)
    for device in ("CPU", "CUDA"):
        _library.impl(name, _implementation(op, backend, overload), device)
    torch.library.register_fake(f"{NAMESPACE}::{name}", op.allocate, lib=_library)
    _register_autograd(op, backend, name)
    _overloads[f"{packet}.{overload}"] = getattr(
        getattr(getattr(torch.ops, NAMESPACE), packet), overload
    )


def _register_autograd(op: Op, backend: str, name: str) -> None:
    gradient = op.gradient
    if gradient is None:
        torch.library.register_autograd(
            f"{NAMESPACE}::{name}", _no_backward(name), lib=_library
        )
        return

    def run(op: Op, *args: object, overload: str = "default") -> Any:
        return call_any(op, backend, *args, overload=overload)

    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Outputs) -> None:
        gradient.save(ctx, inputs, output)

    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        return gradient.compute(run, ctx, *grads)

    torch.library.register_autograd(
        f"{NAMESPACE}::{name}", backward, setup_context=setup_context, lib=_library
    )


def call(op: Op, backend: str, *args: object, overload: str = "default") -> Tensor:
    """Runs an op that has one output, visibly to every part of PyTorch."""
    result: Tensor = call_any(op, backend, *args, overload=overload)
    return result


def call_any(op: Op, backend: str, *args: object, overload: str = "default") -> Any:
    """Runs any op likewise; returns a tuple where it has several outputs."""
    is_compiling = torch.compiler.is_compiling()
    if not is_compiling and overload != _IN_PLACE:
        outputs = replay.call(op, backend, overload, args)
        if outputs is not None:
            return outputs
    check.one_of(op.name, "backend", backend, backends.NAMES)
    overloaded = _overloads[f"{op.name}_{backend}.{overload}"]
    if is_compiling:
        return overloaded(*args)
    _refuse_forward_mode(f"{op.name}_{backend}", args)
    try:
        return overloaded(*args)
    except RuntimeError as error:
        if "functorch transforms" not in str(error):
            raise
        raise NotImplementedError(
            f"{NAMESPACE}::{op.name}_{backend}: torch.func.grad and its like do not "
            "know the gradients of PyTorch's custom ops; torch.autograd.grad does"
        ) from error


def _implementation(op: Op, backend: str, overload: str) -> Any:
    def run(*args: Any) -> Outputs:
        outputs = replay.call(op, backend, overload, args)
        return replay.compute(op, backend, args) if outputs is None else outputs

    return run


def register_in_place(op: Op, schema: str) -> None:
    """Registers twin::<op>_<backend>.in_place, which overwrites its first input.

    Args:
        op: An op whose kernels read every element of the first input before they write
            to it.
        schema: The overload's schema: "(Tensor(a!) x, ...) -> ()".
    """
    for backend in backends.NAMES:
        name = f"{op.name}_{backend}.{_IN_PLACE}"
        _library.define(name + schema)
        for device in ("CPU", "CUDA"):
            _library.impl(name, _implementation_in_place(op, backend), device)
        torch.library.register_fake(
            f"{NAMESPACE}::{name}", lambda *args: None, lib=_library
        )
        packet = getattr(getattr(torch.ops, NAMESPACE), f"{op.name}_{backend}")
        _overloads[name] = getattr(packet, _IN_PLACE)


def _implementation_in_place(op: Op, backend: str) -> Any:
    def run(x: Tensor, *args: Any) -> None:
        if x.numel() > 0:
            backends.run(backend, op, x, x, *args)

    return run


def _refuse_forward_mode(name: str, args: tuple[object, ...]) -> None:
    # Without a formula forward-mode differentiation silently assumes a tangent of 0.
    for x in args:
        if isinstance(x, Tensor) and forward_ad.unpack_dual(x).tangent is not None:
            raise NotImplementedError(
                f"{NAMESPACE}::{name} has no forward-mode formula"
            )


def _no_backward(name: str) -> Any:
    # Without a formula autograd would silently return no gradient.
    def backward(ctx: Any, *grads: Tensor) -> None:
        raise NotImplementedError(f"{NAMESPACE}::{name} has no backward")

    return backward
