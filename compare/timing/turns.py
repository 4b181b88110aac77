"""Contestants that take turns on a GPU, each replay between two events.

What is timed is a CUDA graph of many calls, so that the host, which takes longer over a
launch than a small kernel over its work, plays no part. What cannot be captured is
called between events that the host has queued before the GPU comes to them. Every call
is to have inputs and outputs of its own that no cache holds, and the contestants take
turns, so that a GPU that warms up slows them all down alike.
"""

from __future__ import annotations

import gc
import math
import random
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass

import torch

from compare.timing.times import Method

# Several times what the largest level-2 caches hold (B200: 126 MB).
COLD_BYTES = 512 * 1024**2
MAX_SETS = 256
FLUSH_DEVICE = "cuda"
WARM_UP_MS = 200.0  # until the clocks have settled

_REPLAY_MS = 2.0  # long enough that the few microseconds a replay begins with are lost
_MEASURE_MS = 100.0  # of each contestant
MIN_REPLAYS = 30
# After the last event of a stream the GPU is idle, but for what an interrupt takes.
_LATE_MS = 0.2
_LATE_FRACTION = 0.05
_REHEARSALS = 10
_TIMES_LATE = 3  # once or twice, the host may have been late to look


class TimingError(Exception):
    """Something cannot be timed, or tries to escape the clock; it says why."""


class NothingCapturedError(TimingError):
    """It launches on another stream than the current one, or nothing at all."""


def failure_of(error: Exception) -> TimingError:
    """The failure of whoever raised this; raises again what is nobody's own fault."""
    if isinstance(error, torch.OutOfMemoryError):
        raise error
    if isinstance(error, TimingError):
        return error
    return TimingError(f"raises {type(error).__name__}: {error}")


# Runs something on the set of this number, without waiting for the GPU.
Launch = Callable[[int], object]


@dataclass(frozen=True)
class Times:
    """The times of one contestant."""

    call_us: tuple[float, ...]  # of a call, one for each round
    calls: int  # in all rounds
    method: Method


class Turn:
    """Something to be timed: compiled, warm and, if that is possible, captured."""

    def __init__(
        self, launch: Launch, n_sets: int, *, may_use_default_stream: bool = False
    ) -> None:
        """Runs it on every set of inputs and outputs.

        Args:
            launch: Calls it on a set, by its number.
            n_sets: How many sets there are. A call that takes longer than a replay
                should is timed on the first two of them.
            may_use_default_stream: Whether it may launch on CUDA's default stream
                whatever the current one is, as kernels do that name no stream. That
                cannot be captured. Where nothing else is current, it can be timed.

        Raises:
            TimingError: It cannot be called in a way that can be timed.
        """
        self.method: Method = "graph"
        self.n_sets = self.n_calls = n_sets
        self.head_start = 1  # flushes of the caches that keep the GPU busy before it
        self._launch = launch
        self._call_all()  # compiles, and loads the code
        if self._span_ms(lambda: launch(0)) > _REPLAY_MS:
            # Every replay finds the caches flushed, and one of two calls is enough.
            self.n_sets = self.n_calls = min(n_sets, 2)
        try:
            self._graph = self._capture()
            if self.n_sets < MAX_SETS:  # else a second round would find sets cached
                self.n_calls = self.n_sets * self._rounds_per_replay()
                self._graph = self._capture()
        except torch.OutOfMemoryError:
            raise
        except (RuntimeError, NothingCapturedError) as error:
            if isinstance(error, NothingCapturedError) and not may_use_default_stream:
                raise
            torch.cuda.synchronize()
            self.method = "events"
            self.n_calls = self.n_sets

    def replay(self) -> None:
        """Calls it n_calls times."""
        if self.method == "graph":
            self._graph.replay()
        else:
            self._call_all()

    def _call_all(self) -> None:
        for call in range(self.n_calls):
            self._launch(call % self.n_sets)

    def _capture(self) -> torch.cuda.CUDAGraph:
        graph = torch.cuda.CUDAGraph()
        gc.collect()
        gc.disable()  # a kernel or tensor freed during the capture would end it
        try:
            with warnings.catch_warnings(record=True) as caught:
                # An exception out of the end of a capture would leave it open.
                warnings.simplefilter("always")
                with torch.cuda.graph(graph):
                    self._call_all()
        finally:
            gc.enable()
        if any("CUDA Graph is empty" in str(each.message) for each in caught):
            raise NothingCapturedError(
                "it launches nothing on the stream that is timed"
            )
        return graph

    def _rounds_per_replay(self) -> int:
        """How many rounds over the sets take about as long as a replay should."""
        return math.ceil(_REPLAY_MS / max(self._span_ms(self._graph.replay), 1e-3))

    @staticmethod
    def _span_ms(act: Callable[[], object]) -> float:
        """How long something takes the GPU, and before it the host, at the least."""
        spans: list[float] = []
        for _ in range(3):
            start, end = event(), event()
            start.record()
            act()
            end.record()
            end.synchronize()
            spans.append(start.elapsed_time(end))
        return min(spans)


def take_turns(
    turns: dict[str, Turn],
    warm_up_ms: float = WARM_UP_MS,
    min_replays: int = MIN_REPLAYS,
) -> dict[str, Times | TimingError]:
    """Replays them in turns, until there are enough times of each.

    Args:
        turns: By name.
        warm_up_ms: How long that goes on before the first counts.
        min_replays: How many times of each there are at least.
    """
    race = _Race(dict(turns))
    race.go_on(race.rehearse)
    rounds = race.rounds(warm_up_ms, min_replays)
    times: dict[str, Times | TimingError] = dict(race.failures)
    for name, turn in race.running.items():
        spans_ms = [spans[name][0].elapsed_time(spans[name][1]) for spans in rounds]
        times[name] = Times(
            call_us=tuple(1e3 * span / turn.n_calls for span in spans_ms),
            calls=turn.n_calls * len(spans_ms),
            method=turn.method,
        )
    return times


_Span = tuple[torch.cuda.Event, torch.cuda.Event]


class _Race:
    """The turns that still run, why the others do not, and the clock.

    The clock is two events around a replay, queued before the GPU comes to them.
    """

    def __init__(self, running: dict[str, Turn]) -> None:
        self.running = running
        self.failures: dict[str, TimingError] = {}
        self._random = random.Random(0)
        # Larger than every cache.
        self._flush = torch.ones(COLD_BYTES // 4, device=FLUSH_DEVICE)

    def go_on(self, act: Callable[[Turn], _Span]) -> dict[str, _Span]:
        """Lets each one act, in any order; whoever raises is out."""
        spans = {}
        order = list(self.running.items())
        self._random.shuffle(order)
        for name, turn in order:
            try:
                spans[name] = act(turn)
                continue
            except Exception as error:  # whatever a library of others raises
                self.failures[name] = failure_of(error)
            del self.running[name]
        return spans

    def rounds(self, warm_up_ms: float, min_replays: int) -> list[dict[str, _Span]]:
        """The spans of enough rounds, by name, after some that do not count."""
        n_warm_up, round_ms = 0, 0.0
        while n_warm_up * round_ms < warm_up_ms and self.running:
            began = time.perf_counter()
            self.go_on(self.time)
            torch.cuda.synchronize()
            round_ms = 1e3 * (time.perf_counter() - began)
            n_warm_up += 1
        n_rounds = min_replays
        if self.running:
            measure_ms = len(self.running) * _MEASURE_MS
            n_rounds = max(n_rounds, math.ceil(measure_ms / round_ms))
        rounds = [self.go_on(self.time) for _ in range(n_rounds)]
        torch.cuda.synchronize()
        return rounds

    def rehearse(self, turn: Turn) -> _Span:
        """Finds out how long the GPU has to be busy for the host to keep ahead of it.

        Raises:
            TimingError: That fails: a call waits for the GPU, or the GPU goes on when
                the stream that is timed has finished.
        """
        n_late = 0
        for _ in range(_REHEARSALS):
            start, end = self.time(turn)
            is_ahead = not start.query()
            end.synchronize()
            began = time.perf_counter()
            torch.cuda.synchronize()
            late_ms = 1e3 * (time.perf_counter() - began)
            is_late = late_ms > max(_LATE_MS, _LATE_FRACTION * start.elapsed_time(end))
            n_late = n_late + 1 if is_late else 0
            if n_late == _TIMES_LATE:
                raise TimingError(
                    f"the GPU went on for {late_ms:.1f} ms when the stream that is "
                    "timed had finished: it works on another stream"
                )
            if is_ahead and not is_late:
                return start, end
            if not is_ahead:
                turn.head_start *= 2
        raise TimingError("a call waits for the GPU, so its kernels cannot be timed")

    def time(self, turn: Turn) -> _Span:
        """Queues a replay."""
        for _ in range(turn.head_start):
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
