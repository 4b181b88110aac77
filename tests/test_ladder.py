"""The view of an op's ladder: code, times from the record, and what it says without."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from benches import GPU, make_case
from test_code_contracts import needs_nvcc

from bindings.registry import OPS
from compare import ladder
from compare.cases import Case
from compare.cli import main
from compare.codegen.architectures import parse_architecture
from compare.errors import UsageError
from compare.ladder import Rung, Step, Times
from compare.parity import Skipped
from compare.report.ladder import show
from compare.report.terminal import make_console
from compare.timing import gpu_state

OP = OPS["matmul"]
CASE = Case((4096, 4096, 4096), torch.bfloat16)
STEP = Step("matmul_kernel", "HMMA.16816.F32.BF16", 128, 98304, 0.125, 2**20, 2**21)


@pytest.fixture
def times() -> Times:
    """Of all rungs but the last, which is not there in one language."""
    measured = make_case(CASE.shape, CASE.dtype).timings
    sides = {side: measured[side] for side in ladder.SIDES}
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
    """A ladder whose code nobody looked at."""
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
    words = ["HMMA.16816", "128", "98,304", "0.125", "1.00", "2.00"]
    assert row[2:] == [*words, "needs", "a", "GPU"]
    assert ["no", "code", "of", "first", "in", "Triton:", "no", "Triton"] in lines


def test_recorded_times_are_shown_with_their_origin(
    times: Times, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = lines_of(made(times), capsys)
    timing = times.timings["tiled"]["cuda"]
    assert not isinstance(timing, Skipped)
    median_us = timing.kernel.median_us
    (row,) = (line for line in lines if line[:2] == ["tiled", "CUDA"])
    assert row[-2:] == [
        f"{median_us:,.1f}",
        f"{2 * 4096**3 / median_us / 1e6:,.1f}",
    ]
    (row,) = (line for line in lines if line[:2] == ["twin", "CUDA"])
    assert row[-2:] == ["-", "-"]
    origin = " ".join(lines[-1])
    assert origin.startswith("Times of 4096x4096x4096 bfloat16 contiguous, recorded on")
    assert origin.endswith("NVIDIA H200, 2026-11-20")


def test_times_are_kept_and_found(times: Times, tmp_path: Path) -> None:
    assert ladder.find("matmul", tmp_path) is None
    file = ladder.write(times, tmp_path)
    assert file == tmp_path / "nvidia-h200/ladder/matmul.json"
    assert ladder.find("matmul", tmp_path) == times
    newer = replace(times, environment={"gpus": ["T4"], "date": "2027"})
    ladder.write(newer, tmp_path)
    assert ladder.find("matmul", tmp_path) == newer
    file.write_text('{"schema_version": 7}')
    with pytest.raises(UsageError, match="no record of a ladder: expected schema_ver"):
        ladder.find("matmul", tmp_path)


def test_a_rung_computes_what_the_op_does() -> None:
    arguments = (torch.randn(5, 7), torch.randn(7, 6))
    out = torch.empty(5, 6)
    for number, rung in enumerate(OP.rungs, 1):
        *own, last = ladder.on_rung(OP, rung).arguments(out, *arguments)
        assert last == number
        assert len(own) + 1 == len(OP.arguments(out, *arguments))
    assert ladder.case_on("tiled", Case((5, 6, 7))) == Case((5, 6, 7))
    assert ladder.case_on("tensor_cores", Case((5, 6, 7))).params == {
        "precision": "tf32"
    }
    assert ladder.case_on("tensor_cores", CASE) == CASE


@needs_nvcc
def test_each_rung_gains_something(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu_state, "obstacle", lambda: "there is no GPU")
    architecture = parse_architecture("sm_90")
    found = ladder.climb(
        "matmul", (128, 128, 128), "float16", architecture, lambda what: None
    )
    assert [rung.name for rung in found.rungs] == list(OP.rungs)
    for side in ladder.SIDES:
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
        per_flop = [each.instructions_per_flop for each in (first, tiled, tensor_cores)]
        assert per_flop == sorted(per_flop, reverse=True)
    document = ladder.ladder_to_json(found)
    assert json.loads(json.dumps(document)) == document


def test_only_an_op_with_rungs_has_the_option(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["softmax", "--ladder"]) == 2
    assert "unrecognized arguments: --ladder" in capsys.readouterr().err
