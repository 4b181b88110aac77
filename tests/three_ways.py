"""How long a call takes without a GPU: in emulator, interpreter and simulator.

    python tests/three_ways.py

A benchmark and no test: the figures depend on the machine.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from functools import partial

import torch
from rich.console import Console
from rich.table import Table

import bindings
from bindings.backends import interpreter

SHAPES = ((33, 1000), (1823, 781))
ARCHITECTURE = "sm_90a"
REPEATS = 9


def _milliseconds(call: Callable[[], object]) -> tuple[float, float]:
    """The first call, which may compile, and the median of those that follow."""
    times = []
    for _ in range(REPEATS):
        begin = time.perf_counter()
        call()
        times.append(1e3 * (time.perf_counter() - begin))
    return times[0], sorted(times[1:])[len(times) // 2]


def _ways(dtype: torch.dtype) -> Iterator[tuple[str, str, bool]]:
    """What runs, which backend that is, and whether its code is simulated."""
    yield "emulator", "cuda", False
    if interpreter.unsupported_reason(dtype) is None:
        yield "interpreter", "triton", False
    for backend in ("cuda", "triton"):
        yield f"{backend}, compiled for {ARCHITECTURE}, simulated", backend, True


def _table() -> Table:
    table = Table("softmax", "runs", "first, ms", "later, ms")
    for shape in SHAPES:
        for dtype in (torch.float32, torch.bfloat16):
            x = torch.randn(shape).to(dtype)
            title = f"{'x'.join(map(str, shape))} {str(dtype).removeprefix('torch.')}"
            for name, backend, is_simulated in _ways(dtype):
                by = bindings.simulated(ARCHITECTURE) if is_simulated else nullcontext()
                with by:
                    call = partial(bindings.softmax, x, backend=backend)
                    first, later = _milliseconds(call)
                table.add_row(title, name, f"{first:.1f}", f"{later:.1f}")
    return table


if __name__ == "__main__":
    torch.manual_seed(0)
    Console().print(_table())
