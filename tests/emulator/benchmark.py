"""How fast the emulator is, and what its checker costs.

    python tests/emulator/benchmark.py

A benchmark and no test: the figures depend on the machine.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import torch
from rich.console import Console

from bindings.backends import cuda_inline, native, prebuilt
from bindings.op import as_tuple
from bindings.registry import OPS
from compare.judge.cases import Case, make_arguments
from compare.judge.sanitizer import Checker

SHAPES = {"add": (1 << 22,), "gelu": (1 << 22,), "softmax": (4096, 1024)}
REPEATS = 5


def _seconds(call: Callable[[], object]) -> float:
    """The shortest of several calls: what others do on the machine only adds."""
    times = []
    for _ in range(REPEATS):
        begin = time.perf_counter()
        call()
        times.append(time.perf_counter() - begin)
    return min(times)


def _measure(name: str, shape: tuple[int, ...]) -> str:
    op, case = OPS[name], Case(shape)
    inputs = make_arguments(op, case)
    out, *others = as_tuple(op.allocate(*inputs))
    arguments = op.arguments(out, *others, *inputs)
    module = prebuilt.load("_cpu")
    checker = Checker(cuda_inline.load(op, "_checked"), op)
    plain = _seconds(lambda: native.launch(module, op, arguments, 0))
    making_inputs = _seconds(lambda: make_arguments(op, case))
    checked = _seconds(lambda: checker.run(case, "forward")) - making_inputs
    return (
        f"{name:8} {'x'.join(map(str, shape)):10} plain "
        f"{out.numel() / plain / 1e6:8.1f} million elements/s, checked "
        f"{out.numel() / checked / 1e6:6.2f}: {checked / plain:.0f} times the time"
    )


if __name__ == "__main__":
    torch.manual_seed(0)
    for name, shape in SHAPES.items():
        Console().print(_measure(name, shape))
