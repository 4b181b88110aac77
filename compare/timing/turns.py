"""Contestants that take turns on a GPU, each replay between two events.

What is timed is a CUDA graph of many calls, so that the host, which takes longer over a
launch than a small kernel over its work, plays no part. What cannot be captured is
called between events that the host has queued before the GPU comes to them. Every call
has inputs and outputs of its own that no cache holds, and the contestants take turns,
so that a GPU that warms up slows them all down alike.
"""

from __future__ import annotations

import gc
import math
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from compare.timing.model import Method

# Several times what the largest level-2 caches hold (B200: 126 MB).
COLD_BYTES = 512 * 1024**2
MAX_SETS = 256
FLUSH_DEVICE = "cuda"
WARM_UP_MS = 200.0  # until the clocks have settled

_REPLAY_MS = 2.0  # long enough that the few microseconds a replay begins with are lost
_MEASURE_MS = 100.0  # of each contestant
_MIN_REPLAYS = 30
# After the last event of a stream the GPU is idle, but for what an interrupt takes.
_LATE_MS = 0.2
_LATE_FRACTION = 0.05


class TimingError(Exception):
    """A contestant cannot be timed, or tries to escape the clock; it says why."""


@dataclass(frozen=True)
class Contestant:
    """Something to be timed.

    Attributes:
        name: Its name.
        launch: Runs it on the set of this number, without waiting for the GPU.
        n_sets: How many sets of inputs and outputs there are.
    """

    name: str
    launch: Callable[[int], None]
    n_sets: int


@dataclass(frozen=True)
class Times:
    """What the clock said.

    Attributes:
        call_us: Of a call, one for each round.
        calls: In all rounds.
        method: How they were made.
    """

    call_us: tuple[float, ...]
    calls: int
    method: Method


class Turn:
    """A contestant that is compiled, warm and, if that is possible, captured."""

    def __init__(self, contestant: Contestant) -> None:
        """Runs it.

        Raises:
            TimingError: It cannot be called in a way that can be timed.
        """
        self.method: Method = "graph"
        self._launch = contestant.launch
        self._n_sets = contestant.n_sets
        self._one_round()  # compiles, and loads the code
        self.n_calls = self._calls_per_replay()
        try:
            self._graph = self._capture()
        except RuntimeError:
            torch.cuda.synchronize()
            self.method = "events"
            self.n_calls = self._n_sets

    def replay(self) -> None:
        """Calls it n_calls times."""
        if self.method == "graph":
            self._graph.replay()
        else:
            self._one_round()

    def _one_round(self) -> None:
        for index in range(self._n_sets):
            self._launch(index)

    def _calls_per_replay(self) -> int:
        """Whole rounds over the sets that take about as long as a replay should."""
        if self._n_sets == MAX_SETS:
            return MAX_SETS  # of sets so small, a second round would be in the cache
        start, end = event(), event()
        start.record()
        self._one_round()
        end.record()
        end.synchronize()
        round_ms: float = max(start.elapsed_time(end), 1e-3)
        return self._n_sets * math.ceil(_REPLAY_MS / round_ms)

    def _capture(self) -> torch.cuda.CUDAGraph:
        graph = torch.cuda.CUDAGraph()
        gc.collect()
        gc.disable()  # a kernel or tensor freed during the capture would end it
        try:
            with warnings.catch_warnings(record=True) as caught:
                # An exception out of the end of a capture would leave it open.
                warnings.simplefilter("always")
                with torch.cuda.graph(graph):
                    for call in range(self.n_calls):
                        self._launch(call % self._n_sets)
        finally:
            gc.enable()
        if any("CUDA Graph is empty" in str(each.message) for each in caught):
            raise TimingError("it launches nothing on the stream that is timed")
        return graph


def take_turns(
    turns: dict[str, Turn], warm_up_ms: float = WARM_UP_MS
) -> dict[str, Times | TimingError]:
    """Replays them in turns, until there are enough times of each.

    Args:
        turns: By name.
        warm_up_ms: How long that goes on before the first is counted.
    """
    clock = _Clock(torch.ones(COLD_BYTES // 4, device=FLUSH_DEVICE))
    rehearsals = {name: clock.rehearse(name, turn) for name, turn in turns.items()}
    problems = {name: each for name, each in rehearsals.items() if each}
    able = {name: turn for name, turn in turns.items() if name not in problems}
    spans_ms = _rounds(able, clock, warm_up_ms) if able else {}
    return problems | {
        name: Times(
            call_us=tuple(1e3 * span / able[name].n_calls for span in spans),
            calls=able[name].n_calls * len(spans),
            method=able[name].method,
        )
        for name, spans in spans_ms.items()
    }


def _rounds(
    turns: dict[str, Turn], clock: _Clock, warm_up_ms: float
) -> dict[str, list[float]]:
    """Milliseconds of each replay."""
    n_warm_up, round_ms = 0, 0.0
    while n_warm_up * round_ms < warm_up_ms:
        began = time.perf_counter()
        for name, turn in turns.items():
            clock.time(name, turn)
        torch.cuda.synchronize()
        round_ms = 1e3 * (time.perf_counter() - began)
        n_warm_up += 1
    n_rounds = max(_MIN_REPLAYS, math.ceil(len(turns) * _MEASURE_MS / round_ms))
    rounds = [
        {name: clock.time(name, turn) for name, turn in turns.items()}
        for _ in range(n_rounds)
    ]
    torch.cuda.synchronize()
    return {
        name: [spans[name][0].elapsed_time(spans[name][1]) for spans in rounds]
        for name in turns
    }


_Span = tuple[torch.cuda.Event, torch.cuda.Event]


class _Clock:
    """Events around a replay that the GPU does not come to before the host is done."""

    def __init__(self, flush: Tensor) -> None:
        """Takes a tensor that fills every cache when it is read."""
        self._flush = flush
        self._head_starts: dict[str, int] = {}

    def rehearse(self, name: str, turn: Turn) -> TimingError | None:
        """Finds out how long the GPU has to be busy for the host to keep ahead of it.

        Returns:
            Why that fails: a call waits for the GPU, or the GPU goes on when the stream
            that is timed has finished.
        """
        self._head_starts[name] = 1
        for _ in range(10):
            start, end = self.time(name, turn)
            is_ahead = not start.query()
            end.synchronize()
            began = time.perf_counter()
            torch.cuda.synchronize()
            late_ms = 1e3 * (time.perf_counter() - began)
            if late_ms > max(_LATE_MS, _LATE_FRACTION * start.elapsed_time(end)):
                return TimingError(
                    f"the GPU went on for {late_ms:.1f} ms when the stream that is "
                    "timed had finished: it works on another stream"
                )
            if is_ahead:
                return None
            self._head_starts[name] *= 2
        return TimingError("a call waits for the GPU, so its kernels cannot be timed")

    def time(self, name: str, turn: Turn) -> _Span:
        """Queues a replay."""
        for _ in range(self._head_starts[name]):
            # Reading this empties the caches, and lets the host get ahead of the GPU.
            self._flush.sum()
        start, end = event(), event()
        start.record()
        turn.replay()
        end.record()
        return start, end


def event() -> torch.cuda.Event:
    """One that tells the time."""
    return torch.cuda.Event(enable_timing=True)


def n_sets_of(n_bytes: int) -> int:
    """How many sets of so many bytes it takes to outgrow the caches."""
    return min(max(2, math.ceil(COLD_BYTES / max(n_bytes, 1))), MAX_SETS)
