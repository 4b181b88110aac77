"""The timing lab: its logic everywhere, and its resistance to cheats on a GPU."""

from __future__ import annotations

import ctypes
import dataclasses
import itertools
import json
import math
import multiprocessing
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from benches import make_bench
from common import needs_gpu, needs_gpu_to_itself
from together import in_one_test
from torch import Tensor

from bindings import torch_internals
from bindings.backends import prebuilt
from bindings.op import Op, as_tuple
from bindings.registry import OPS
from bindings.sources import ROOT
from bindings.trial import Traffic
from bindings.trials import TRIALS
from compare import peers
from compare.cli import main
from compare.errors import UnavailableError
from compare.judge.cases import LAYOUTS, Case
from compare.judge.parity import Prepared, Skipped, prepare
from compare.report.plots import STYLES
from compare.timing import (
    benchmark,
    ceiling,
    compiling,
    gpu_state,
    implementations,
    names,
    turns,
)
from compare.timing import measure as lab
from compare.timing.implementations import Implementation
from compare.timing.names import NAMES
from compare.timing.statistics import SAME_WITHIN, compare, summarize, verdict
from compare.timing.times import (
    Bench,
    CaseTimes,
    Ceiling,
    MatmulRate,
    StartTime,
    Timing,
    from_json,
    to_json,
)
from compare.timing.turns import Turn

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


class _Event:
    """Stands in for an event of a GPU that executes everything at once."""

    def record(self) -> None:
        self.ms = 1e3 * time.perf_counter()

    def synchronize(self) -> None:
        pass

    def query(self) -> bool:
        return False  # the host is always ahead

    def elapsed_time(self, end: _Event) -> float:
        return end.ms - self.ms


def _refuse(*arguments: Any) -> None:
    raise RuntimeError("there is no graph here")


@pytest.fixture
def _laboratory(monkeypatch: pytest.MonkeyPatch) -> None:
    """A laboratory for short runs, on the CPU if there is no GPU."""
    defaults = (1.0, turns.MIN_REPLAYS)
    monkeypatch.setattr(turns.take_turns, "__defaults__", defaults)
    monkeypatch.setattr(turns, "_MEASURE_MS", 1.0)
    if DEVICE == "cuda":
        return
    module = prebuilt.load("_cpu")
    monkeypatch.setattr(prebuilt, "load", lambda name: module)
    monkeypatch.setattr(turns, "COLD_BYTES", 64 * 1024)
    monkeypatch.setattr(turns, "event", _Event)
    monkeypatch.setattr(turns, "FLUSH_DEVICE", "cpu")
    monkeypatch.setattr(Turn, "_capture", _refuse)
    monkeypatch.setattr(ceiling, "contestants", _slow_contestants)
    monkeypatch.setattr(ceiling, "peak", lambda *mix: Ceiling("1:1", 1.0, 1e6, ""))
    monkeypatch.setattr(torch_internals, "current_device", lambda: None)
    monkeypatch.setattr(torch_internals, "current_stream", lambda device: 0)
    for name, stand_in in (
        ("synchronize", lambda: None),
        ("device", lambda device: torch.inference_mode(False)),
    ):
        monkeypatch.setattr(torch.cuda, name, stand_in)


def _slow_contestants(traffic: Traffic, n_sets: int) -> dict[str, turns.Launch]:
    return {"a nap": lambda index: time.sleep(1e-5)}


def _prepared(
    shape: tuple[int, ...] = (64, 781),
    layout: str = "contiguous",
    dtype: torch.dtype = torch.float32,
) -> Prepared:
    return prepare(OPS["softmax"], Case(shape, dtype, layout), DEVICE)


def _measure(prepared: Prepared, call: Callable[[Tensor, int], Tensor]) -> CaseTimes:
    return lab.measure(prepared, {"quack": Implementation("quack", call)})


@pytest.mark.usefixtures("_laboratory")
def test_figures_of_a_case() -> None:
    prepared = _prepared()
    op = prepared.op
    times = lab.measure(prepared, implementations.find(op, ["cuda"], ["torch"]))
    assert list(times.timings) == ["cuda", "torch"]
    for name, each in times.timings.items():
        assert isinstance(each, Timing), each
        assert 0 < each.p20_us <= each.median_us <= each.p80_us
        assert 0 < each.low_us <= each.median_us <= each.high_us
        assert each.method == ("graph" if DEVICE == "cuda" else "events")
        assert each.calls >= turns.MIN_REPLAYS
        assert each.host_us > 0
        assert (each.launcher_us is None) == (name == "torch")
        n_bytes = 2 * 64 * 781 * 4
        assert each.gb_per_s == pytest.approx(n_bytes / each.median_us / 1e3)
        share = times.ceiling.median_us / each.median_us
        assert each.fraction == pytest.approx(share)
    assert [(each.first, each.second) for each in times.comparisons] == [
        ("cuda", "torch")
    ]
    seen, reverse = (
        times.comparison(*pair) for pair in (("cuda", "torch"), ("torch", "cuda"))
    )
    assert seen is not None
    assert reverse is not None
    assert reverse.ratio == pytest.approx(1 / seen.ratio)
    assert reverse.low <= reverse.ratio <= reverse.high
    assert {seen.outcome, reverse.outcome} in (
        {"faster", "slower"},
        {"same"},
        {"unclear"},
    )


def _without_last_row(x: Tensor, dim: int) -> Tensor:
    out = torch.empty_like(x)
    out[:-1] = torch.softmax(x[:-1], dim)
    return out


def _in_place(x: Tensor, dim: int) -> Tensor:
    return x.copy_(torch.softmax(x, dim))


def _in_half(x: Tensor, dim: int) -> Tensor:
    return torch.softmax(x.half(), dim).to(x.dtype)


def _cached() -> Callable[[Tensor, int], Tensor]:
    kept: dict[int, Tensor] = {}

    def softmax(x: Tensor, dim: int) -> Tensor:
        if x.data_ptr() not in kept:
            kept[x.data_ptr()] = torch.softmax(x, dim)
        return kept[x.data_ptr()]

    return softmax


def _copied_from_a_cache() -> Callable[[Tensor, int], Tensor]:
    cached = _cached()
    return lambda x, dim: cached(x, dim).clone()


def _in_another_thread(x: Tensor, dim: int) -> Tensor:
    out = torch.empty_like(x)
    work = threading.Timer(0.05, lambda: out.copy_(torch.softmax(x, dim)))
    work.start()
    return out


class _Lazy(Tensor):
    """Defers its work."""


def _lazy(x: Tensor, dim: int) -> Tensor:
    return torch.softmax(x, dim).as_subclass(_Lazy)


def _raises(x: Tensor, dim: int) -> Tensor:
    x.zero_()
    raise ValueError("no rows of this length")


def _of_the_first_input() -> Callable[[Tensor, int], Tensor]:
    kept: list[Tensor] = []

    def softmax(x: Tensor, dim: int) -> Tensor:
        kept.append(x)
        return torch.softmax(kept[0], dim)

    return softmax


def _in_any_order(x: Tensor, dim: int) -> Tensor:
    order = torch.randperm(x.shape[dim], device=x.device)
    return torch.softmax(x[:, order], dim)[:, order.argsort()].contiguous()


def _of_the_first_input_in_any_order() -> Callable[[Tensor, int], Tensor]:
    kept: list[Tensor] = []

    def softmax(x: Tensor, dim: int) -> Tensor:
        kept.append(x)
        return _in_any_order(kept[0], dim)

    return softmax


def _into_one_place() -> Callable[[Tensor, int], Tensor]:
    out = torch.empty(64, 781, device=DEVICE)
    return lambda x, dim: torch.softmax(x, dim, out=out)


def _raises_later() -> Callable[[Tensor, int], Tensor]:
    calls = iter(range(100))

    def softmax(x: Tensor, dim: int) -> Tensor:
        next(calls)
        return torch.softmax(x, dim)

    return softmax


# On a GPU an empty graph shows at once that nothing was launched.
NOTHING = "launches nothing on the stream" if DEVICE == "cuda" else "nonsense"
CHEATS: dict[str, tuple[Callable[[], Callable[..., Any]], str]] = {
    "a row is left out": (lambda: _without_last_row, "781 of 49984 elements"),
    "the input is written to": (lambda: _in_place, "it writes to its inputs"),
    "lower precision": (lambda: _in_half, "error is"),
    "the result is kept": (_cached, NOTHING),
    "what was kept is copied": (_copied_from_a_cache, "error is"),
    "nothing is done": (lambda: lambda x, dim: torch.empty_like(x), "nonsense"),
    "the result is a constant": (
        lambda: lambda x, dim: torch.full_like(x, 1 / 781),
        "error is",
    ),
    "the work is put off": (lambda: _lazy, "of class _Lazy, not Tensor"),
    "it raises": (lambda: _raises, "it writes to its inputs"),
    "it raises later": (_raises_later, "raises StopIteration"),
    "an input is kept": (_of_the_first_input, "not those of the inputs"),
    "an input is kept, and summed in any order": (
        _of_the_first_input_in_any_order,
        "not those of the inputs",
    ),
    "all outputs in one place": (_into_one_place, "lie in one place"),
    "no tensor": (
        lambda: lambda x, dim: [x.exp()].clear(),
        "of class NoneType, not Tensor",
    ),
    "two tensors": (lambda: lambda x, dim: (x.exp(), x), "it returns 2 outputs, not 1"),
    "float64": (lambda: lambda x, dim: torch.softmax(x.double(), dim), "torch.float64"),
    "integers": (lambda: lambda x, dim: x.to(torch.int8), "torch.int8"),
}


@pytest.mark.usefixtures("_laboratory")
@pytest.mark.parametrize("name", CHEATS)
def test_cheat_gets_no_figure(name: str) -> None:
    make, reason = CHEATS[name]
    result = _measure(_prepared(), make()).timings["quack"]
    assert isinstance(result, Skipped), result
    assert reason in result.reason


@pytest.mark.usefixtures("_laboratory")
def test_sums_in_any_order_are_honest() -> None:
    x = torch.randn(64, 781, device=DEVICE)
    assert not torch.equal(_in_any_order(x, -1), _in_any_order(x, -1))
    result = _measure(_prepared(), _in_any_order).timings["quack"]
    assert isinstance(result, Timing), result


@pytest.mark.usefixtures("_laboratory")
@pytest.mark.parametrize("name", ["matmul", "scaled_matmul"])
@pytest.mark.parametrize("n_kept", [0, 1, 2, None])
def test_a_product_of_earlier_inputs_is_found(name: str, n_kept: int | None) -> None:
    """With both operands negated it would be what it was."""
    op = OPS[name]
    kept: dict[int, Tensor] = {}

    def remember(*arguments: Any) -> Any:
        """Takes some inputs, or all, as they were when their memory was seen first."""
        old = [
            kept.setdefault(x.data_ptr(), x.clone()) if isinstance(x, Tensor) else x
            for x in arguments[:n_kept]
        ]
        return op.reference(*old, *arguments[len(old) :])

    prepared = prepare(op, Case((8, 24, 32)), DEVICE)
    entered = {"quack": Implementation("quack", remember)}
    result = lab.measure(prepared, entered).timings["quack"]
    assert isinstance(result, Skipped) == (n_kept != 0), result


@pytest.mark.usefixtures("_laboratory")
def test_honest_work_beside_a_cheat_gets_its_figure() -> None:
    prepared = _prepared()
    times = lab.measure(
        prepared,
        {
            "torch": Implementation("torch", prepared.op.reference),
            "liger": Implementation("liger", _in_place),
            "quack": Implementation("quack", _without_last_row),
            "unfused": Skipped("not installed"),
        },
    )
    assert isinstance(times.timings["torch"], Timing)
    assert all(isinstance(times.timings[name], Skipped) for name in ("liger", "quack"))
    assert times.timings["unfused"] == Skipped("not installed")
    assert times.comparisons == ()


@pytest.mark.usefixtures("_laboratory")
def test_long_calls_take_turns_with_two_sets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns, "_REPLAY_MS", 0.0)
    ran: list[int] = []
    x = torch.ones(8, device=DEVICE)

    def launch(index: int) -> None:
        ran.append(index)
        x.neg_()

    turn = Turn(launch, 5)
    assert turn.n_sets == 2
    assert set(ran[:5]) == set(range(5))  # each has been compiled for
    ran.clear()
    turn.replay()
    assert set(ran) <= {0, 1}
    times = _measure(_prepared(), torch.softmax).timings["quack"]
    assert isinstance(times, Timing), times


@pytest.mark.usefixtures("_laboratory")
def test_every_implementation_runs_after_every_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    x = torch.ones(8, device=DEVICE)
    ran: list[Turn] = []
    replay = Turn.replay

    def launch(index: int) -> None:
        x.neg_()

    def note_and_replay(turn: Turn) -> None:
        ran.append(turn)
        replay(turn)

    monkeypatch.setattr(Turn, "replay", note_and_replay)
    entered = {name: Turn(launch, 2) for name in "abc"}
    times = turns.take_turns(entered)
    assert list(times) == ["a", "b", "c"]
    # The last rounds: before the first, one may rehearse more often than another.
    n_rounds = turns.MIN_REPLAYS
    last = ran[-3 * n_rounds :]
    rounds = [last[i : i + 3] for i in range(0, len(last), 3)]
    assert all(set(each) == set(entered.values()) for each in rounds)
    assert all(any(each[0] is turn for each in rounds) for turn in entered.values())
    assert len({tuple(map(id, each)) for each in rounds}) > 3


@pytest.mark.usefixtures("_laboratory")
@pytest.mark.parametrize("bad", [_in_place, _raises])
def test_inputs_are_restored_for_the_next_implementation(
    bad: Callable[[Tensor, int], Tensor],
) -> None:
    prepared = _prepared()
    own = Implementation("torch", prepared.op.reference)
    entered = {"torch": own, "quack": Implementation("quack", bad), "unfused": own}
    times = lab.measure(prepared, entered).timings
    assert isinstance(times["quack"], Skipped)
    assert isinstance(times["torch"], Timing)
    assert isinstance(times["unfused"], Timing)


def _random(x: Tensor, dim: int) -> Tensor:
    return torch.rand_like(x)


@pytest.mark.usefixtures("_laboratory")
@pytest.mark.parametrize(
    ("call", "reason"),
    [
        (_random, ""),
        (lambda x, dim: torch.empty_like(x), "left NaN"),
        (lambda x, dim: torch.rand_like(x.double()), "torch.float64"),
    ],
)
def test_random_numbers_are_not_judged_by_value(
    call: Callable[[Tensor, int], Tensor], reason: str
) -> None:
    entered = {"quack": Implementation("quack", call, is_random=True)}
    result = lab.measure(_prepared(), entered).timings["quack"]
    assert isinstance(result, Skipped) == bool(reason), result
    assert not isinstance(result, Skipped) or reason in result.reason


@pytest.mark.usefixtures("_laboratory")
@pytest.mark.parametrize("n_outputs", [None, 1])
def test_peer_may_leave_out_outputs_if_it_says_so(n_outputs: int | None) -> None:
    op = OPS["layer_norm"]
    prepared = prepare(op, Case((64, 781)), DEVICE)

    def out_alone(*arguments: Any) -> Tensor:
        return as_tuple(op.reference(*arguments))[0]

    peer = Implementation("quack", out_alone, n_outputs=n_outputs)
    result = lab.measure(prepared, {"quack": peer}).timings["quack"]
    if n_outputs is None:
        assert isinstance(result, Skipped)
        assert result.reason == "it returns 1 outputs, not 3"
    else:
        assert isinstance(result, Timing), result


@pytest.mark.usefixtures("_laboratory")
def test_outputs_of_no_elements_lie_nowhere() -> None:
    op = OPS["cross_entropy"]
    case = Case((64, 781), params={"reduction": "none"})
    entered = {"torch": Implementation("torch", op.reference)}
    result = lab.measure(prepare(op, case, DEVICE), entered).timings["torch"]
    assert isinstance(result, Timing), result


def test_peers_that_are_not_judged_say_so() -> None:
    for op in OPS:
        for peer in peers.of(op):
            assert not peer.is_random or "judge" in peer.note


@pytest.mark.usefixtures("_laboratory")
@pytest.mark.parametrize("shape", [(64, 1), (1, 1)])
def test_result_that_does_not_depend_on_the_inputs_is_no_cheat(
    shape: tuple[int, ...],
) -> None:
    prepared = _prepared(shape)
    found = implementations.find(prepared.op, ["cuda"], ["torch"])
    for each in lab.measure(prepared, found).timings.values():
        assert isinstance(each, Timing), each


@pytest.mark.usefixtures("_laboratory")
def test_host_that_is_late_once_blames_no_implementation(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    real, pauses = torch.cuda.synchronize, [0.02, 0.02]

    def synchronize() -> None:
        real()
        if pauses:
            time.sleep(pauses.pop())

    monkeypatch.setattr(torch.cuda, "synchronize", synchronize)
    prepared = _prepared()
    found = implementations.find(prepared.op, ["cuda"], ["torch"])
    for each in lab.measure(prepared, found).timings.values():
        assert isinstance(each, Timing), each


@pytest.mark.usefixtures("_laboratory")
def test_ceiling_that_cannot_be_measured_is_reported(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(index: int) -> None:
        raise RuntimeError("no such kernel")

    def contestants(traffic: Traffic, n_sets: int) -> dict[str, turns.Launch]:
        calls = itertools.count()
        n_before = n_sets + 3  # it is ready after so many
        return {"": lambda i: fail(i) if next(calls) >= n_before else None}

    monkeypatch.setattr(ceiling, "contestants", contestants)
    prepared = _prepared()
    found = implementations.find(prepared.op, [], ["torch"])
    with pytest.raises(turns.TimingError, match="ceiling cannot be measured: "):
        lab.measure(prepared, found)


@pytest.mark.usefixtures("_laboratory")
def test_times_faster_than_the_memory_get_no_figure(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Times as short as those of a clock that does not wait for the GPU."""
    real = turns.take_turns

    def too_early(*arguments: Any) -> dict[str, turns.Times | turns.TimingError]:
        times = real(*arguments)
        own = times["torch"]
        assert isinstance(own, turns.Times)
        call_us = tuple(1e-9 * each for each in own.call_us)
        return times | {"torch": dataclasses.replace(own, call_us=call_us)}

    prepared = _prepared()
    monkeypatch.setattr(turns, "take_turns", too_early)
    if DEVICE == "cuda":
        ceiling.peak.cache_clear()
        monkeypatch.setattr(ceiling, "peak", lambda *mix: Ceiling("1:1", 1.0, 4e3, ""))
    found = implementations.find(prepared.op, [], ["torch"])
    result = lab.measure(prepared, found).timings["torch"]
    assert isinstance(result, Skipped), result
    assert "is above the ceiling of" in result.reason


def test_peers_are_known_everywhere() -> None:
    for op in OPS:
        for peer in peers.of(op):
            assert peer.name in names.PEERS
            assert peer.name in NAMES
            assert peer.name in STYLES


@needs_gpu_to_itself
@pytest.mark.usefixtures("_laboratory")
def test_work_on_another_stream_gets_no_figure() -> None:
    stream = torch.cuda.Stream()

    def softmax(x: Tensor, dim: int) -> Tensor:
        with torch.cuda.stream(stream):
            return torch.softmax(x, dim)

    result = _measure(_prepared((4096, 4096)), softmax).timings["quack"]
    assert isinstance(result, Skipped), result


@needs_gpu_to_itself
@pytest.mark.usefixtures("_laboratory")
def test_uncaptured_work_on_another_stream_gets_no_figure() -> None:
    stream = torch.cuda.Stream()

    def softmax(x: Tensor, dim: int) -> Tensor:
        if torch.cuda.is_current_stream_capturing():
            raise RuntimeError("not in a graph")
        with torch.cuda.stream(stream):
            for _ in range(20):
                out = torch.softmax(x, dim)
        return out

    result = _measure(_prepared((16384, 4096)), softmax).timings["quack"]
    assert isinstance(result, Skipped), result
    assert "it works on another stream" in result.reason


@needs_gpu_to_itself
@pytest.mark.usefixtures("_laboratory")
def test_work_of_another_thread_gets_no_figure() -> None:
    result = _measure(_prepared(), _in_another_thread).timings["quack"]
    assert isinstance(result, Skipped), result


@needs_gpu_to_itself
@pytest.mark.usefixtures("_laboratory")
def test_call_that_waits_for_the_gpu_gets_no_figure() -> None:
    def softmax(x: Tensor, dim: int) -> Tensor:
        torch.cuda.synchronize()
        return torch.softmax(x, dim)

    result = _measure(_prepared(), softmax).timings["quack"]
    assert isinstance(result, Skipped), result
    assert "waits for the GPU" in result.reason


@needs_gpu_to_itself
@pytest.mark.usefixtures("_laboratory")
def test_calls_that_cannot_be_captured_are_timed_between_events() -> None:
    def softmax(x: Tensor, dim: int) -> Tensor:
        if torch.cuda.is_current_stream_capturing():
            raise RuntimeError("not in a graph")
        return torch.softmax(x, dim)

    prepared = _prepared((8192, 4096))
    times = lab.measure(
        prepared,
        {
            "torch": Implementation("torch", prepared.op.reference),
            "quack": Implementation("quack", softmax),
        },
    )
    captured, called = times.timings["torch"], times.timings["quack"]
    assert isinstance(captured, Timing)
    assert isinstance(called, Timing)
    assert (captured.method, called.method) == ("graph", "events")
    assert called.median_us == pytest.approx(captured.median_us, rel=0.1)


@needs_gpu_to_itself
def test_time_without_synchronisation_is_above_the_ceiling(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    prepared = _prepared((16384, 4096))
    # The ceiling is measured correctly; the clock of later runs stops too early.
    limit = ceiling.peak(1, 1)
    monkeypatch.setattr(turns, "event", _Event)
    monkeypatch.setattr(turns, "_MEASURE_MS", 20.0)
    monkeypatch.setattr(turns, "_TIMES_LATE", math.inf)  # which would notice it first
    monkeypatch.setattr(turns, "_LATE_MS", math.inf)
    monkeypatch.setattr(ceiling, "contestants", lambda traffic, n_sets: {})
    monkeypatch.setattr(ceiling, "best_of", lambda traffic, times: limit)
    times = lab.measure(prepared, implementations.find(prepared.op, ["cuda"], []))
    result = times.timings["cuda"]
    assert isinstance(result, Skipped), result
    assert "is above the ceiling of" in result.reason


@needs_gpu_to_itself
def test_bench_from_one_end_to_the_other(capsys: pytest.CaptureFixture[str]) -> None:
    line = "bench gelu --shape 16777216 --dtype bfloat16 --peers torch --json -"
    assert main(line.split()) == 0
    bench = from_json(json.loads(capsys.readouterr().out), Bench)
    assert len(bench.cases) == len(TRIALS["gelu"].variants)
    for times in bench.cases:
        assert list(times.timings) == ["cuda", "triton", "torch"]
        assert all(isinstance(each, Timing) for each in times.timings.values())
    assert all(isinstance(each, StartTime) for each in bench.start.values())
    rate = bench.matmul["bfloat16"]
    assert isinstance(rate, MatmulRate)
    assert 100 < rate.tflops < 3000


def test_above_the_ceiling(monkeypatch: pytest.MonkeyPatch) -> None:
    prepared = _prepared()
    n_bytes = prepared.traffic.total_bytes
    ceilings = {
        "small": Ceiling("1:1", n_bytes / 1000e3, 1000.0, ""),
        "peak": Ceiling("1:1", 1e6, 4000.0, ""),
    }
    monkeypatch.setattr(ceiling, "peak", lambda *mix: ceilings["peak"])

    def problem(gb_per_s: float) -> str:
        kernel = summarize([n_bytes / gb_per_s / 1e3] * 30, 30, "graph")
        return lab.above_ceiling(prepared, kernel, ceilings["small"])

    assert problem(990.0) == problem(1010.0) == problem(3000.0) == ""
    assert problem(4000.0 * (1 + 0.9 * SAME_WITHIN)) == ""
    assert "4,100 GB/s is above the ceiling of 4,000" in problem(4100.0)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_sets_are_alike_and_lie_apart(layout: str) -> None:
    prepared = _prepared((64, 1024), layout)
    sets = lab.make_sets(prepared)[:8]
    assert len({x.untyped_storage().data_ptr() for x, _ in sets}) == len(sets)
    for x, _ in sets:
        assert torch.equal(x, prepared.tensors[0])
        assert x.stride() == prepared.tensors[0].stride()
        assert x.storage_offset() == prepared.tensors[0].storage_offset()


def test_sets_outgrow_the_caches() -> None:
    for n_bytes in (1, 4096, 3 * 2**20, 2**27, 2**29 - 1, 2**40):
        n_sets = turns.n_sets_of(n_bytes)
        assert n_sets == turns.MAX_SETS or n_sets * n_bytes >= 512 * 2**20
        assert n_sets >= 2


def test_verdicts() -> None:
    assert verdict(0.90, 0.98) == "faster"
    assert verdict(1.02, 1.40) == "slower"
    assert verdict(0.99, 1.01) == "same"
    assert verdict(0.90, 1.00) == verdict(0.90, 1.30) == verdict(1.0, 1.1) == "unclear"


def test_statistics_find_the_truth() -> None:
    """95 % of the intervals contain the true median of normal noise."""
    generator = np.random.default_rng(1)
    hits = 0
    for _ in range(200):
        times = generator.normal(100.0, 3.0, size=60)
        kernel = summarize(times.tolist(), 60, "graph")
        assert kernel.low_us <= kernel.median_us <= kernel.high_us
        hits += kernel.low_us <= 100.0 <= kernel.high_us
    assert 180 <= hits <= 199
    drift = generator.normal(1.0, 0.2, size=100)  # of the clocks, common to all
    noise = generator.normal(1.0, 0.002, size=(3, 100))
    own, same, slow = drift * noise * np.array([[100.0], [100.5], [110.0]])
    outcomes = {
        (each.first, each.second): each
        for each in compare({"slow": slow, "own": own, "same": same})
    }
    assert outcomes["own", "same"].outcome == "same"
    assert outcomes["slow", "own"].outcome == "slower"
    assert outcomes["slow", "own"].reversed().outcome == "faster"
    slower = outcomes["slow", "own"]
    assert slower.low <= slower.ratio <= slower.high
    assert slower.ratio == pytest.approx(1.1, rel=0.02)
    few = compare({"own": [1.0, 1.3, 0.8], "other": [1.2, 0.9, 1.1]})
    assert {each.outcome for each in few} == {"unclear"}
    assert compare({}) == ()


@pytest.mark.parametrize(
    ("read", "written", "mix"),
    [
        (8, 4, (2, 1)),
        (4096, 4096, (1, 1)),
        (3 << 20, 2 << 20, (3, 2)),
        (1 << 30, 8, (1, 0)),
        (0, 512, (0, 1)),
        (1000, 999, (1, 1)),
        (253, 4, (1, 0)),
        (33, 10, (3, 1)),
        (1, 3, (1, 3)),
    ],
)
def test_mix(read: int, written: int, mix: tuple[int, int]) -> None:
    assert ceiling.mix_of(Traffic(read, written)) == mix


@in_one_test("op")
def test_traffic_is_the_bytes_of_the_tensors(op: Op) -> None:
    for dtype in (torch.float32, torch.bfloat16):
        prepared = prepare(op, Case((40, 64), dtype))
        read = sum(x.nbytes for x in prepared.tensors)
        # The output of a reduction depends on its dim, and is negligible.
        contract = TRIALS[op.name].code_contract
        is_reduction = contract is not None and contract.is_reduction
        outputs = [] if is_reduction else [each.torch for each in prepared.expected]
        assert prepared.traffic == Traffic(read, sum(each.nbytes for each in outputs))


def test_json_and_back() -> None:
    bench = make_bench()
    assert from_json(to_json(bench), Bench) == bench
    with pytest.raises(ValueError, match="expected schema_version 1, got 7"):
        from_json({**to_json(bench), "schema_version": 7}, Bench)


def test_readings_of_a_gpu() -> None:
    state = gpu_state.parse(
        "1980, 3201, 500.5, 41, 0x0000000000000000\n"
        "1755, 3201, 690.0, 52, 0x0000000000000004\n"
        "[N/A], 3201, 690.0, 52, 0x0000000000000000\n"
        "1830, 3201, 650.0, 50, 0x0000000000000001\n"
        "18"
    )
    assert state is not None
    assert (state.sm_mhz, state.memory_mhz, state.power_w) == (1830, 3201, 650.0)
    assert (state.temperature_c, state.samples) == (50, 3)
    assert state.throttled_by == ("power cap",)
    assert gpu_state.parse("") is None
    assert gpu_state.parse("No devices were found\n") is None


def test_obstacles(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert "times need a GPU, and torch" in str(gpu_state.obstacle())
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    monkeypatch.setattr(gpu_state, "_query", lambda what: ["nvidia-smi"])
    loads = [0]
    monkeypatch.setattr(gpu_state, "_utilization", lambda command: loads[-1])
    monkeypatch.setattr(gpu_state, "_PATIENCE_S", 0.0)
    assert gpu_state.obstacle() is None
    loads.append(97)
    assert "busy with other work (97 %" in str(gpu_state.obstacle())
    monkeypatch.setattr(gpu_state, "_sanitizer", lambda: "libsanitizer-collection.so")
    assert "runs under libsanitizer-collection.so" in str(gpu_state.obstacle())
    monkeypatch.setenv("CUDA_LAUNCH_BLOCKING", "1")
    assert "CUDA_LAUNCH_BLOCKING is set" in str(gpu_state.obstacle())


def test_a_hidden_gpu_is_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """As by an empty CUDA_VISIBLE_DEVICES, which nvidia-smi does not heed."""
    monkeypatch.setattr("shutil.which", lambda name: f"/usr/bin/{name}")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with gpu_state.sampled() as sampler:
        pass
    assert sampler.state is None


@pytest.mark.parametrize("name", ["libasan.so.8", "libsanitizer-collection.so"])
def test_sanitizers_are_seen_in_the_loaded_libraries(name: str, tmp_path: Path) -> None:
    library = tmp_path / name
    subprocess.run(
        ["c++", "-shared", "-fPIC", "-x", "c++", "-", "-o", str(library)],
        input="int nothing;",
        text=True,
        check=True,
    )
    assert gpu_state._sanitizer() is None
    loaded = ctypes.CDLL(str(library))
    assert gpu_state._sanitizer() == name
    ctypes.CDLL(None).dlclose(ctypes.c_void_p(loaded._handle))
    assert gpu_state._sanitizer() is None


def test_peers_that_are_missing_say_how_to_get_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def load() -> Callable[..., Tensor]:
        raise ModuleNotFoundError("No module named 'liger_kernel'", name="liger_kernel")

    def broken() -> Callable[..., Tensor]:
        raise OSError("libcuda.so.1: cannot open")

    monkeypatch.setattr(
        peers,
        "of",
        lambda op: (
            peers.Peer("liger", load),
            peers.Peer("quack", broken),
        ),
    )
    op = OPS["softmax"]
    found = implementations.find(op, [], ["torch", "liger", "quack", "unfused"])
    assert list(found) == ["torch", "liger", "quack"]
    assert found["liger"] == Skipped("needs liger_kernel: pip install liger-kernel")
    assert found["quack"] == Skipped(
        "quack-kernels cannot be imported: OSError('libcuda.so.1: cannot open')"
    )


def test_a_peer_is_given_the_parts_of_a_package_that_it_uses() -> None:
    load = peers.using(
        lambda root, power, x: power(root(x), 3), "math:sqrt", "math:pow"
    )
    assert load()(4) == 8
    missing = peers.using(lambda function, x: function(x), "liger_kernel.none:softmax")
    with pytest.raises(ModuleNotFoundError, match="liger_kernel"):
        missing()


@in_one_test("op", "dtype")
def test_unfused_peers_compute_the_op(op: Op, dtype: torch.dtype) -> None:
    unfused = [each for each in peers.of(op.name) if each.name == "unfused"]
    for peer in unfused:
        for params in TRIALS[op.name].variants:
            prepared = prepare(op, Case((17, 129), dtype, params=params))
            results = as_tuple(peer.load()(*prepared.arguments))
            eps = torch.finfo(dtype).eps
            for result, expected in zip(results, prepared.expected, strict=True):
                torch.testing.assert_close(
                    result, expected.torch, rtol=16 * eps, atol=16 * eps
                )


@needs_gpu_to_itself
def test_times_agree_with_a_stopwatch() -> None:
    # Large enough for the time to be that of memory alone, however it is measured.
    op = OPS["add"]
    prepared = prepare(op, Case((1 << 27,)), "cuda")
    found = implementations.find(op, ["cuda", "triton"], ["torch"])
    times = lab.measure(prepared, found).timings
    x, y = prepared.tensors
    torch.cuda.synchronize()
    began = time.perf_counter()
    for _ in range(100):
        torch.add(x, y)
    torch.cuda.synchronize()
    stopwatch_us = 1e6 * (time.perf_counter() - began) / 100
    own = times["torch"]
    assert isinstance(own, Timing)
    assert own.median_us == pytest.approx(stopwatch_us, rel=0.05)
    assert 0.9 < own.fraction < 1.0 + SAME_WITHIN
    for each in times.values():
        assert isinstance(each, Timing)
        assert each.median_us == pytest.approx(own.median_us, rel=0.5)
        assert each.p80_us < 1.1 * each.p20_us


@needs_gpu_to_itself
def test_an_implementation_is_the_same_as_itself() -> None:
    outcomes = []
    for trial in range(20):
        op = OPS["softmax" if trial % 2 else "gelu"]
        prepared = prepare(op, Case((8192, 4096)), "cuda")
        name = ("cuda", "triton")[trial // 2 % 2]
        found = implementations.find(op, [name], [])
        times = lab.measure(prepared, {"first": found[name], "second": found[name]})
        comparison = times.comparison("first", "second")
        assert comparison is not None
        outcomes.append(comparison.outcome)
    assert outcomes.count("same") >= 19, outcomes


_MEDIANS = """
import json, torch
from bindings.registry import OPS
from compare.judge.cases import Case
from compare.judge.parity import prepare
from compare.timing import implementations
from compare.timing.measure import measure
medians = {}
for name, shape, dtype in (
    ("add", (67108864,), torch.bfloat16),
    ("gelu", (67108864,), torch.float32),
    ("softmax", (16384, 4096), torch.bfloat16),
    ("softmax", (8192, 32768), torch.float32),
):
    op = OPS[name]
    found = implementations.find(op, ["cuda", "triton"], ["torch"])
    times = measure(prepare(op, Case(shape, dtype), "cuda"), found)
    for each, timing in times.timings.items():
        medians[f"{name} {shape} {dtype} {each}"] = timing.median_us
print(json.dumps(medians))
"""


@needs_gpu_to_itself
def test_two_runs_agree() -> None:
    runs = [
        subprocess.run(
            [sys.executable, "-c", _MEDIANS],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=True,
        )
        for _ in range(2)
    ]
    first, second = (json.loads(run.stdout) for run in runs)
    assert len(first) == 12
    for name, median_us in first.items():
        assert median_us > 50
        assert second[name] == pytest.approx(median_us, rel=0.015), name


@needs_gpu
def test_nothing_can_be_measured_where_launches_block() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "compare", "bench", "add"],
        cwd=ROOT,
        env={**os.environ, "CUDA_LAUNCH_BLOCKING": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 3
    assert done.stderr.startswith("compare: CUDA_LAUNCH_BLOCKING is set")


def _add_by(*names: str) -> list[tuple[str, Case, str]]:
    return [("add", Case((33,)), name) for name in names]


@needs_gpu
def test_kernels_compiled_ahead_are_found_on_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    said: list[str] = []
    compiling.compile_ahead(_add_by("cuda", "triton", "triton"), said.append)
    assert said == [f"compiling, {number} of 2 calls" for number in (1, 2)]
    assert list(tmp_path.glob("*/add_kernel.cubin"))


def test_kernels_compiled_before_need_no_process(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(compiling, "ProcessPoolExecutor", None)
    calls = _add_by("cuda", "torch", "unfused", "triton")  # one alone gains nothing
    compiling.compile_ahead(calls, lambda _: None)


@pytest.fixture
def forks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Has processes that compile be forks, of which none imports torch."""
    context = multiprocessing.get_context("fork")
    monkeypatch.setattr(multiprocessing, "get_context", lambda method: context)


@pytest.mark.skipif(DEVICE == "cuda", reason="there is a GPU to compile for")
def test_kernels_that_cannot_be_compiled_ahead_are_named(forks: None) -> None:
    said: list[str] = []
    compiling.compile_ahead(_add_by("triton", "torch.compile"), said.append)
    for name in ("triton", "torch.compile"):
        (line,) = (each for each in said if each.startswith(f"{name} cannot compute"))
        assert "add of Case(shape=(33,)" in line


def _die(op: str, case: Case, name: str) -> str:
    os._exit(1)


def test_a_process_that_is_killed_ends_the_benchmark(
    forks: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compiling, "_call_once", _die)
    says = "^one of 2 processes that compile was killed"
    with pytest.raises(UnavailableError, match=says):
        compiling.compile_ahead(_add_by("triton", "torch.compile"), lambda _: None)


def test_variants_of_float32_are_timed_of_float32_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A precision is asked for by name, and changes nothing for 16 bits."""
    monkeypatch.setattr(gpu_state, "obstacle", lambda: None)
    monkeypatch.setattr(benchmark, "memory_shortage", lambda *_: None)
    monkeypatch.setattr(benchmark, "check_memory", lambda *_: None)
    both = benchmark.Request(
        *("matmul", None, ("float32", "bfloat16"), None, (), ()), sweep=False
    )
    timed = [
        (each.dtype, each.params.get("precision"))
        for each in benchmark.plan(both).cases
    ]
    assert (torch.float32, "tf32x3") in timed
    assert (torch.bfloat16, None) in timed
    assert not [each for each in timed if each[0] == torch.bfloat16 and each[1]]
    asked = dataclasses.replace(
        both, params={"precision": "tf32"}, dtypes=("bfloat16",)
    )
    assert benchmark.plan(asked).cases
