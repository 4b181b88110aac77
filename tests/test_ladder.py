"""The view of an op's ladder: code, recorded times, and its text without a record."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from benches import GPU, make_case
from test_code_contracts import needs_nvcc

from bindings.op import Op
from bindings.registry import OPS
from bindings.trials import TRIALS
from compare.code import rungs
from compare.code.architectures import parse_architecture
from compare.errors import UsageError
from compare.judge.cases import Case
from compare.judge.parity import Skipped
from compare.records import rung_times, store
from compare.records.rung_times import Times
from compare.report import ladder
from compare.report.ladder import Rung, Step, show
from compare.report.terminal import make_console
from compare.timing import gpu_state
from compare.timing.times import Timing

OP = OPS["matmul"]
CASE = Case((4096, 4096, 4096), torch.bfloat16)
STEP = Step(
    kernels=("matmul_kernel",),
    lines=200,
    instruction="HMMA.16816.F32.BF16",
    registers=128,
    shared_bytes=98304,
    instructions=0.125,
    global_bytes=2**20,
    shared_memory_bytes=2**21,
)


@pytest.fixture
def times() -> Times:
    """Times of all rungs but the last, which one language lacks."""
    measured = make_case(CASE.shape, CASE.dtype).timings
    sides: dict[str, Timing | Skipped] = {e: measured[e] for e in rungs.SIDES}
    return Times(
        "matmul",
        {"gpus": [GPU], "date": "2026-11-20T08:14:24+00:00"},
        CASE,
        {
            **dict.fromkeys(OP.rungs[:-1], sides),
            OP.rungs[-1]: {**sides, "cuda": Skipped("it cannot be timed")},
        },
    )


def made(times: Times | None) -> ladder.Ladder:
    """A ladder with made-up code."""
    rungs = [
        Rung(name, f"The rung {name}.", {"cuda": STEP, "triton": Skipped("no Triton")})
        for name in OP.rungs
    ]
    return ladder.Ladder("matmul", CASE, "sm_90", tuple(rungs), times, True)


def lines_of(
    ladder_: ladder.Ladder, capsys: pytest.CaptureFixture[str]
) -> list[list[str]]:
    console = make_console()
    console.width = 120  # whatever the tests run in
    show(ladder_, console)
    return [line.split() for line in capsys.readouterr().out.splitlines()]


def test_without_times_it_says_what_they_need(
    capsys: pytest.CaptureFixture[str],
) -> None:
    lines = lines_of(made(None), capsys)
    (row,) = (line for line in lines if line[:2] == ["tiled", "CUDA"])
    words = ["HMMA.16816", "200", "128", "98,304", "0.125", "1.00", "2.00"]
    assert row[2:] == ["matmul_kernel", *words, "needs", "a", "GPU"]
    assert ["no", "code", "of", "first", "in", "Triton:", "no", "Triton"] in lines


def test_recorded_times_are_shown_with_their_origin(
    times: Times, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = lines_of(made(times), capsys)
    timing = times.timings["tiled"]["cuda"]
    assert not isinstance(timing, Skipped)
    median_us = timing.median_us
    (row,) = (line for line in lines if line[:2] == ["tiled", "CUDA"])
    assert row[-2:] == [
        f"{median_us:,.1f}",
        f"{2 * 4096**3 / median_us / 1e6:,.1f}",
    ]
    (row,) = (line for line in lines if line[:2] == ["twin", "CUDA"])
    assert row[-2:] == ["-", "-"]
    origin = " ".join(lines[-1])
    assert origin.startswith("Times of 4096x4096x4096 bfloat16 contiguous, recorded on")
    assert origin.endswith("NVIDIA H200, 2026-11-20, of older code")


def test_times_are_kept_and_found(times: Times, tmp_path: Path) -> None:
    assert store.find("matmul", Times, tmp_path) is None
    file = store.write(times, tmp_path)
    assert file == tmp_path / "nvidia-h200/ladder/matmul.json"
    assert store.find("matmul", Times, tmp_path) == times
    newer = replace(times, environment={"gpus": ["T4"], "date": "2027"})
    store.write(newer, tmp_path)
    assert store.find("matmul", Times, tmp_path) == newer
    file.write_text('{"schema_version": 7}')
    with pytest.raises(UsageError, match=r"holds no ladder .*: expected schema_ver"):
        store.find("matmul", Times, tmp_path)


def test_a_rung_computes_what_the_op_does() -> None:
    arguments = (torch.randn(5, 7), torch.randn(7, 6))
    out = torch.empty(5, 6)
    *operands, number = OP.arguments(out, *arguments)
    assert number == 0
    for number, rung in enumerate(OP.rungs, 1):
        *own, last = OP.on_rung(rung).arguments(out, *arguments)
        assert last == number
        assert len(own) == len(operands)
    tiled, tensor_cores = OP.on_rung("tiled"), OP.on_rung("tensor_cores")
    assert rung_times.case_on(tiled, Case((5, 6, 7))) == Case((5, 6, 7))
    tf32 = rung_times.case_on(tensor_cores, Case((5, 6, 7)))
    assert tf32.params == {"precision": "tf32"}
    assert rung_times.case_on(tensor_cores, CASE) == CASE
    with pytest.raises(
        ValueError, match=r"rung must be one of first, tiled, .* 'last'"
    ):
        OP.on_rung("last")


@needs_nvcc
def test_each_rung_gains_something(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu_state, "obstacle", lambda: "there is no GPU")
    architecture = parse_architecture("sm_90")
    found = ladder.climb(
        "matmul", (128, 128, 128), "float16", architecture, lambda what: None
    )
    assert [rung.name for rung in found.rungs] == [*OP.rungs, rung_times.CALL]
    for side in rungs.SIDES:
        first, tiled, tensor_cores = (rung.steps[side] for rung in found.rungs[:3])
        assert isinstance(first, Step)
        assert isinstance(tiled, Step)
        assert isinstance(tensor_cores, Step)
        assert first.instruction.startswith("FFMA")
        # Triton's compiler knows no older tensor cores than the architecture's.
        assert tensor_cores.instruction.startswith(("HMMA.16816.F32", "HGMMA"))
        assert tiled.global_bytes is not None
        assert first.global_bytes is not None
        assert tiled.global_bytes < first.global_bytes
        per_flop = [each.instructions for each in (first, tiled, tensor_cores)]
        assert per_flop == sorted(per_flop, reverse=True)
    document = ladder.to_json(found)
    assert json.loads(json.dumps(document))["op"] == "matmul"


# Ops whose first rung reads its rows several times.
READ_AGAIN = ("softmax", "softmax_backward", "layer_norm", "rms_norm", "cross_entropy")


@needs_nvcc
@pytest.mark.parametrize(
    "each_op",
    [
        op
        for op in OPS.values()
        # The kernels of these two are those of gelu and swiglu with another function.
        if op.rungs == ("first", "twin") and op.source not in ("activation", "geglu")
    ],
    ids=lambda op: op.name,
)
def test_the_twin_moves_fewer_bytes_than_the_first_rung(
    each_op: Op, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gpu_state, "obstacle", lambda: "there is no GPU")
    architecture = parse_architecture("sm_90")
    shape = TRIALS[each_op.name].small_shape  # of which all blocks are soon counted
    found = ladder.climb(
        each_op.name, shape, "float32", architecture, lambda what: None
    )
    steps = {rung.name: rung.steps for rung in found.rungs}
    assert list(steps) == ["first", "twin", rung_times.CALL]
    for side in rungs.SIDES:
        first, twin = steps["first"][side], steps["twin"][side]
        assert isinstance(first, Step), first
        assert isinstance(twin, Step), twin
        assert first.global_bytes is not None
        assert twin.global_bytes is not None
        if each_op.name in READ_AGAIN:
            assert twin.global_bytes < first.global_bytes
            assert twin.instructions < first.instructions
        assert all(e.endswith("_kernel") for e in (*first.kernels, *twin.kernels))


def test_gains_are_of_the_twin(times: Times) -> None:
    timing = times.timings["tiled"]["cuda"]
    assert isinstance(timing, Timing)
    faster = replace(timing, median_us=1.0)
    slower = replace(timing, median_us=1.5)
    gains = rung_times.gains_of(
        {
            "twin": {"cuda": slower, "triton": Skipped("it cannot be timed")},
            rung_times.CALL: {"cuda": faster, "triton": faster},
        }
    )
    assert gains == {"cuda": 1.5}
