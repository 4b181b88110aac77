"""How long the implementations take, on a GPU and nowhere else.

What is timed is the bare launcher, in a CUDA graph of many calls: the host, which takes
longer over a launch than a small kernel over its work, plays no part. Every call has
inputs and outputs of its own that no cache holds. The implementations take turns, so
that a GPU that warms up slows them all down alike.
"""

from __future__ import annotations

import functools
import gc
import math
import os
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

import bindings
from bindings.backends import cuda_inline, native, prebuilt, triton
from compare import acceptance
from compare.parity import Prepared, Skipped

# Several times what the largest level-2 caches hold (B200: 126 MB).
_COLD_BYTES = 512 * 1024**2
_MAX_SETS = 256
_REPLAY_MS = 2.0  # long enough that the few microseconds a replay begins with are lost
_WARM_UP_MS = 200.0  # until the clocks have settled
_MEASURE_MS = 300.0
_MIN_REPLAYS = 20
_HOST_CALLS = 20
_HOST_BATCHES = 15

# Runs the implementation on the arguments of one set.
_Launch = Callable[[int], None]


@dataclass(frozen=True)
class Timing:
    """Times of one implementation.

    Attributes:
        median_us: Of a call on the GPU.
        p20_us: A fifth of the replays took less.
        p80_us: A fifth took longer.
        host_us: Of the public call on the host, which does not wait for the GPU.
        gb_per_s: The fewest bytes that the op has to move, by the median.
        calls: How many calls were timed.
    """

    median_us: float
    p20_us: float
    p80_us: float
    host_us: float
    gb_per_s: float
    calls: int


def obstacle(device: torch.device) -> str | None:
    """Why nothing can be timed here, or None."""
    if device.type != "cuda":
        return "times need a GPU"
    if os.environ.get("CUDA_LAUNCH_BLOCKING", "0") != "0":
        return "CUDA_LAUNCH_BLOCKING is set, which times the host: unset it"
    return None


def measure(prepared: Prepared, backends: Sequence[str]) -> dict[str, Timing | Skipped]:
    """Times implementations that have passed parity in this case, in turns."""
    with torch.cuda.device(prepared.tensors[0].device):
        return _measure(prepared, backends)


def _measure(
    prepared: Prepared, backends: Sequence[str]
) -> dict[str, Timing | Skipped]:
    sets = _make_sets(prepared)
    graphs, outputs, n_calls = {}, {}, {}
    for backend in backends:
        launch, outputs[backend] = _launcher(prepared, backend, sets)
        n_calls[backend] = _calls_per_replay(launch, len(sets))
        graphs[backend] = _capture(launch, len(sets), n_calls[backend])
        for out in outputs[backend]:
            out.fill_(math.nan)
    device = prepared.tensors[0].device
    spans_ms = _replay_in_turns(graphs, torch.ones(_COLD_BYTES // 4, device=device))
    results: dict[str, Timing | Skipped] = {}
    for backend in backends:
        if problem := _wrong_output(prepared, outputs[backend]):
            results[backend] = Skipped(f"what was timed computed nonsense: {problem}")
            continue
        call_us = [1e3 * span / n_calls[backend] for span in spans_ms[backend]]
        results[backend] = _timing(prepared, backend, call_us, n_calls[backend])
    return results


def _make_sets(prepared: Prepared) -> list[tuple[Any, ...]]:
    """The same arguments in as many places as it takes to outgrow the caches."""
    n_bytes = sum(x.untyped_storage().nbytes() for x in prepared.tensors)
    n_bytes += prepared.expected.torch.nbytes
    n_sets = min(max(2, math.ceil(_COLD_BYTES / n_bytes)), _MAX_SETS)
    return [
        tuple(_copy(each) if isinstance(each, Tensor) else each for each in arguments)
        for arguments in [prepared.arguments] * n_sets
    ]


def _copy(x: Tensor) -> Tensor:
    """A copy of x, and of the memory around it, with the same offset and strides."""
    storage = x.untyped_storage().clone()
    copy = torch.tensor([], dtype=x.dtype, device=x.device)
    return copy.set_(storage, x.storage_offset(), x.shape, x.stride())


def _launcher(
    prepared: Prepared, backend: str, sets: list[tuple[Any, ...]]
) -> tuple[_Launch, list[Tensor]]:
    """What launches the backend on a set, and the outputs that it writes."""
    op = prepared.op
    outputs = [op.allocate(*arguments).fill_(math.nan) for arguments in sets]
    if backend == "torch":

        def launch(index: int) -> None:
            # Dropped only when the set's turn comes again: or all of them would land in
            # the same memory, which the cache would hold.
            outputs[index] = op.reference(*sets[index])

        return launch, outputs
    bare = [
        op.arguments(out, *arguments)
        for out, arguments in zip(outputs, sets, strict=True)
    ]
    if backend == "triton":
        run = triton.launcher(op)
        return lambda index: run(*bare[index]), outputs
    module = (
        prebuilt.load("_cuda") if backend == "cuda" else cuda_inline.load(op, "_cuda")
    )

    def launch_native(index: int) -> None:
        stream = torch.cuda.current_stream().cuda_stream
        native.launch(module, op, bare[index], stream)

    return launch_native, outputs


def _calls_per_replay(launch: _Launch, n_sets: int) -> int:
    """Whole rounds over the sets, that take about as long as a replay should."""
    start, end = _event(), _event()
    for recorded in (False, True):  # the first round compiles
        if recorded:
            start.record()
        for index in range(n_sets):
            launch(index)
    end.record()
    end.synchronize()
    if n_sets == _MAX_SETS:
        return n_sets  # of sets so small, a second round would find some in the cache
    round_ms: float = start.elapsed_time(end)
    return n_sets * math.ceil(_REPLAY_MS / round_ms)


def _capture(launch: _Launch, n_sets: int, n_calls: int) -> torch.cuda.CUDAGraph:
    graph = torch.cuda.CUDAGraph()
    gc.collect()
    gc.disable()  # a kernel or tensor freed during the capture would end it
    try:
        with torch.cuda.graph(graph):
            for call in range(n_calls):
                launch(call % n_sets)
    finally:
        gc.enable()
    return graph


def _replay_in_turns(
    graphs: dict[str, torch.cuda.CUDAGraph], flush: Tensor
) -> dict[str, list[float]]:
    """Milliseconds of each replay."""

    def round_of_replays() -> dict[str, tuple[torch.cuda.Event, torch.cuda.Event]]:
        events = {}
        for backend, graph in graphs.items():
            # Reading this empties the caches, and lets the host get ahead of the GPU.
            flush.sum()
            start, end = _event(), _event()
            start.record()
            graph.replay()
            end.record()
            events[backend] = (start, end)
        return events

    n_warm_up, round_ms = 0, 0.0
    while n_warm_up * round_ms < _WARM_UP_MS:
        began = time.perf_counter()
        round_of_replays()
        torch.cuda.synchronize()
        round_ms = 1e3 * (time.perf_counter() - began)
        n_warm_up += 1
    n_rounds = max(_MIN_REPLAYS, math.ceil(len(graphs) * _MEASURE_MS / round_ms))
    rounds = [round_of_replays() for _ in range(n_rounds)]
    torch.cuda.synchronize()
    return {
        backend: [
            events[backend][0].elapsed_time(events[backend][1]) for events in rounds
        ]
        for backend in graphs
    }


def _wrong_output(prepared: Prepared, outputs: list[Tensor]) -> str:
    """What is wrong with the outputs that were timed; empty if nothing is."""
    verdicts = (acceptance.judge(out, prepared.expected) for out in outputs)
    return next((each.problem for each in verdicts if not each.passed), "")


def _timing(
    prepared: Prepared, backend: str, call_us: list[float], n_calls: int
) -> Timing:
    op, case = prepared.op, prepared.case
    median_us = statistics.median(call_us)
    fifths = statistics.quantiles(call_us, n=5)
    return Timing(
        median_us=median_us,
        p20_us=fifths[0],
        p80_us=fifths[3],
        host_us=_host_us(prepared, backend),
        gb_per_s=op.bytes_moved(case.shape, case.dtype.itemsize) / median_us / 1e3,
        calls=n_calls * len(call_us),
    )


def _host_us(prepared: Prepared, backend: str) -> float:
    if backend == "torch":
        call = prepared.op.reference
    else:
        public = getattr(bindings, prepared.op.name)
        call = functools.partial(public, backend=backend)
    batches = []
    for _ in range(_HOST_BATCHES):
        torch.cuda.synchronize()  # or the host would wait for room in the queue
        began = time.perf_counter()
        for _ in range(_HOST_CALLS):
            call(*prepared.arguments)
        batches.append(1e6 * (time.perf_counter() - began) / _HOST_CALLS)
    return statistics.median(batches)


def _event() -> torch.cuda.Event:
    return torch.cuda.Event(enable_timing=True)
