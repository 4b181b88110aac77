"""Triton on the GPU; for CPU tensors in its interpreter, or compiled and simulated."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from bindings.backends import Launch, interpreter, launchers, simulated
from bindings.backends.native import unsupported_rung
from bindings.backends.template import Template, template_of
from bindings.errors import UnsupportedError
from bindings.op import Argument, Op, Outputs, as_tuple


def run(op: Op, outputs: Outputs, *args: Any) -> None:
    """Runs the op on args and writes its outputs.

    Raises:
        RuntimeError: The kernel did what it must not, on the CPU.
        UnsupportedError: The op's rung has no kernel for this call, or what runs it on
            the CPU is not there.
    """
    out, *others = as_tuple(outputs)
    if architecture := simulated.architecture_for("triton", (out, *others, *args)):
        simulated.run("triton", architecture, op, outputs, *args)
        return
    arguments = op.arguments(out, *others, *args)
    try:
        if not out.is_cuda:
            interpreter.run(op.launcher, arguments, source=f"{op.source}.{op.source}")
            return
        # Triton launches on the current device, whatever device its tensors are on.
        with torch.cuda.device(out.device):
            launcher(op)(*arguments)
    except (RuntimeError, ValueError) as error:
        # An error from the interpreter's process has its type only in the message.
        if op.rung and "CannotServeError" in f"{type(error).__name__}: {error}":
            raise UnsupportedError(unsupported_rung(op)) from error
        raise


def launcher(op: Op) -> Any:
    """The bare launcher: on the current device and stream, unchecked."""
    return launchers.find(_module_of(op), op.launcher)


def parameters(op: Op, n_arguments: int) -> list[str]:
    """Names of the bare launcher's parameters, when called with so many arguments."""
    return launchers.parameters(_module_of(op), op.launcher, n_arguments)


def _module_of(op: Op) -> str:
    return f"triton_kernels.{op.source}.{op.source}"


def record(
    op: Op, arguments: tuple[Argument, ...], tensors: Sequence[Tensor], stream: int
) -> Launch | None:
    """Launches, and returns a function that repeats it, as in bindings.backends."""
    return record_launches(op, arguments, tensors) if tensors[0].is_cuda else None


def record_launches(
    op: Op, arguments: tuple[Argument, ...], tensors: Sequence[Tensor]
) -> Launch | None:
    """Launches and records likewise, on any device.

    A repeated launch runs the kernels that Triton compiled for the recorded one,
    without asking Triton to choose again: the choice depends on numbers, which stay the
    same, and on the alignment of the addresses.
    """
    with _launches() as made:
        launcher(op)(*arguments)
    steps: list[tuple[Callable[..., None], Template]] = []
    for each in made:
        template = template_of(each.arguments, tensors)
        if template is None:
            return None
        steps.append((each.compiled[each.grid], template))

    def launch(addresses: Sequence[int], stream: int) -> None:
        for kernel, template in steps:
            kernel(*template.fill(addresses), stream=stream)

    return launch


class _Made(NamedTuple):
    """A launch that Triton made."""

    compiled: Any
    grid: tuple[int, int, int]
    arguments: tuple[Any, ...]  # one for each parameter of the function


_one_at_a_time = threading.Lock()


@contextlib.contextmanager
def _launches() -> Iterator[list[_Made]]:
    """Collects the launches that this thread makes meanwhile.

    Triton does not report them, so its JITFunction.run is replaced meanwhile. Triton
    does not promise to keep that function; tests/test_replay.py pins it.
    """
    # Imported here, so that only callers need Triton.
    from triton.runtime import JITFunction

    function: Any = JITFunction
    made: list[_Made] = []
    thread = threading.get_ident()

    def run_and_tell(
        kernel: Any, *args: Any, grid: Any, warmup: bool, **keywords: Any
    ) -> Any:
        compiled = original(kernel, *args, grid=grid, warmup=warmup, **keywords)
        if threading.get_ident() == thread:
            names = kernel.arg_names[len(args) :]
            arguments = (*args, *(keywords[name] for name in names))
            made.append(_Made(compiled, (*grid, 1, 1)[:3], arguments))
        return compiled

    with _one_at_a_time:
        original = function.run
        function.run = run_and_tell
        try:
            yield made
        finally:
            function.run = original
