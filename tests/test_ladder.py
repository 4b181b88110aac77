"""The view of an op's ladder: code, recorded times, and its text without a record."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import launches
import pytest
import torch
from benches import GPU, make_case
from test_code_contracts import needs_nvcc
from together import in_one_test

from bindings import backends
from bindings.op import Op
from bindings.ops._attention_reference import _scores
from bindings.registry import OPS
from bindings.sources import ROOT
from bindings.trials import TRIALS
from compare.cli import main
from compare.code import rungs
from compare.errors import UsageError
from compare.judge import acceptance
from compare.judge.cases import Case, make_arguments
from compare.judge.parity import Skipped
from compare.records import rung_times, store
from compare.records.rung_times import Times
from compare.report import ladder, online_softmax
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


def test_the_time_of_a_call_is_that_of_its_own_kernels(times: Times) -> None:
    """At another shape, another tile or rung may be chosen."""
    call = Rung("call", "", {"cuda": STEP})
    recorded = {**times.timings, "call": times.timings["tiled"]}
    here = replace(made(replace(times, timings=recorded)), rungs=(call,))
    small, exact = (
        replace(CASE, shape=(128, 128, 128)),
        replace(CASE, dtype=torch.float32),
    )
    others = [replace(here, case=case) for case in (small, exact)]
    took = [ladder.grid(each).rows[0][-2] for each in (here, *others)]
    assert took[0] != "-"
    assert took[1:] == ["-", "-"]


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
    other, case = OPS["attention"].on_rung("tensor_cores"), Case((1, 1, 1, 1, 1, 1))
    assert rung_times.case_on(other, case) == case  # it has no precision to choose
    with pytest.raises(
        ValueError, match=r"rung must be one of first, tiled, .* 'last'"
    ):
        OP.on_rung("last")


def climbed(op: Op, case: Case, monkeypatch: pytest.MonkeyPatch) -> ladder.Ladder:
    """The ladder of an op whose rungs are compiled together."""
    monkeypatch.setattr(gpu_state, "obstacle", lambda: "there is no GPU")
    launches.compile_with_nvcc(op.source, launches.HOPPER)
    dtype = str(case.dtype).removeprefix("torch.")
    return ladder.climb(op.name, case.shape, dtype, launches.HOPPER, lambda what: None)


def on_rungs(op: Op, case: Case) -> Iterator[launches.Launch]:
    for on_rung in rung_times.rungs_of(op).values():
        yield on_rung, rung_times.case_on(on_rung, case), launches.HOPPER


TILE = Case((128, 128, 64), torch.bfloat16)
launches.announce(on_rungs(OP, TILE))


@needs_nvcc
def test_each_rung_gains_something(
    monkeypatch: pytest.MonkeyPatch, few_blocks: None
) -> None:
    found = climbed(OP, TILE, monkeypatch)
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
        assert first.instructions
        assert tiled.instructions
        assert tensor_cores.instructions
        assert first.instructions >= tiled.instructions >= tensor_cores.instructions
    document = ladder.to_json(found)
    assert json.loads(json.dumps(document))["op"] == "matmul"


# By op, the case that is looked at, of which all blocks are soon counted: those whose
# first rung, mostly a thread for a row, reads its rows several times.
READ_AGAIN = {
    name: Case((33, 781), direction=OPS[name].direction)
    for name in (
        "softmax",
        "softmax_backward",
        "layer_norm",
        "rms_norm",
        "cross_entropy",
    )
}
for name, case_of_two in READ_AGAIN.items():
    launches.announce(on_rungs(OPS[name], case_of_two))


@needs_nvcc
@pytest.mark.parametrize("name", READ_AGAIN)
def test_the_twin_moves_fewer_bytes_than_the_first_rung(
    name: str, monkeypatch: pytest.MonkeyPatch, few_blocks: None
) -> None:
    found = climbed(OPS[name], READ_AGAIN[name], monkeypatch)
    steps = {rung.name: rung.steps for rung in found.rungs}
    assert list(steps) == ["first", "twin", rung_times.CALL]
    for side in rungs.SIDES:
        first, twin, call = (steps[rung][side] for rung in steps)
        assert isinstance(first, Step), first
        assert isinstance(twin, Step), twin
        assert first.global_bytes is not None
        assert twin.global_bytes is not None
        assert twin.global_bytes < first.global_bytes
        assert twin.instructions
        assert first.instructions
        assert twin.instructions < first.instructions
        assert call == twin
        assert all(e.endswith("_kernel") for e in (*first.kernels, *twin.kernels))


@in_one_test("name")
@pytest.mark.parametrize("name", [name for name, op in OPS.items() if op.rungs])
def test_every_ladder_ends_with_a_call(name: str) -> None:
    names = [*rung_times.rungs_of(OPS[name])]
    assert names[0] == "first"
    assert names[-2:] == [rungs.TWIN, rung_times.CALL]


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


# ---- One row of attention, tile by tile ----------------------------------------------

ATTENTION = OPS["attention"]
ROWS = pytest.mark.parametrize(
    "case",
    [
        Case(TRIALS["attention"].small_shape),
        Case((1, 90, 200, 2, 1, 64), torch.float16, params={"causal": True}),
        Case((2, 130, 150, 1, 1, 40), params={"window": (90, 9), "softcap": 5.0}),
        Case((1, 40, 90, 2, 2, 256), params={"scale": -0.5}),
    ],
    ids=("plain", "causal", "window", "long"),
)


def told(case: Case) -> online_softmax.Story:
    story = online_softmax.tell(case)
    assert story
    return story


@ROWS
def test_a_row_ends_with_what_the_kernels_return(
    case: Case, backend: str, device: str
) -> None:
    story = told(case)
    assert story.n_raised > 1  # or nothing was scaled down
    op = ATTENTION.on_rung("tiled")
    arguments = [
        each.to(device) if isinstance(each, torch.Tensor) else each
        for each in make_arguments(op, case)
    ]
    out, lse = op.allocate(*arguments)
    backends.run(backend, op, (out, lse), *arguments)
    n_terms = case.shape[2]
    ends = torch.tensor(story.out, dtype=case.dtype), torch.tensor([story.lse])
    rows = out[0, story.query, 0].cpu(), lse[0, 0, story.query : story.query + 1].cpu()
    expected = [acceptance.expect_like(each, n_terms) for each in ends]
    assert not acceptance.judge_all(rows, expected).problem
    assert 0.0 < story.out_error <= story.out_allowed
    assert 0.0 < story.lse_error <= story.lse_allowed


@ROWS
def test_each_tile_of_a_row_ends_softmax_over_the_keys_so_far(case: Case) -> None:
    story = told(case)
    q, k, v, *params, _, _, _ = make_arguments(ATTENTION, case)
    scores = _scores(q.double(), k.double(), *params)[0, 0, story.query]
    values, old_max, end, n_raised = v[0, :, 0].double(), -math.inf, 0, 0
    for tile in story.tiles:
        assert tile.first == end or not end  # no key is left out
        end = tile.end
        own, so_far = scores[tile.first : end], scores[:end]
        assert tile.n_seen == own.isfinite().sum()
        row_max = so_far.max().item()
        is_raised = row_max > old_max
        assert tile.is_raised == is_raised
        if row_max == -math.inf:  # no key is seen so far
            assert tile.row_max is tile.tile_max is None
            assert tile.row_sum == 0.0
            continue
        tile_max = tile.tile_max if tile.n_seen else -math.inf
        shown = (tile_max, tile.row_max, tile.rescale, tile.row_sum, *tile.out)
        exact = (
            *(own.max().item(), row_max, math.exp(old_max - row_max)),
            (so_far - row_max).exp().sum().item(),
            *(so_far.softmax(0) @ values[:end, :3]).tolist(),
        )
        assert shown == pytest.approx(exact, rel=1e-5, abs=1e-6)
        old_max, n_raised = row_max, n_raised + is_raised
    assert sum(tile.n_seen for tile in story.tiles) == scores.isfinite().sum()
    assert n_raised == story.n_raised
    assert f"rose in {n_raised} of {len(story.tiles)} tiles" in " ".join(
        online_softmax.notes(story)
    )


def test_tiles_of_a_row_are_those_of_the_kernels() -> None:
    pytest.importorskip("triton")
    from triton_kernels.attention.tables import TILED_TILES

    text = (ROOT / "csrc/attention/float_tiles.cuh").read_text()
    (found,) = re.findall(r"BLOCK_M = HEAD_DIM <= (\d+) \? (\d+) : (\d+);", text)
    longest, keys, keys_of_longer = map(int, found)
    assert "BLOCK_N = BLOCK_M<HEAD_DIM>;" in text
    for head_dim in (1, longest, longest + 1, 256):
        wanted = keys if head_dim <= longest else keys_of_longer
        assert online_softmax.block_size(head_dim) == wanted
        on_hopper = (e for e in TILED_TILES if e.arch in (0, 90))
        tile = next(e for e in on_hopper if head_dim <= e.max_head_dim)
        assert tile.block_n == wanted


def test_a_query_that_sees_no_key_has_no_lse(
    capsys: pytest.CaptureFixture[str],
) -> None:
    sees_nothing = Case((1, 100, 10, 2, 2, 64), params={"causal": True})
    for case in (sees_nothing, Case((2, 5, 0, 2, 2, 8))):
        story = told(case)
        assert story.lse is None
        assert not any(story.out)
        lines = lines_of(replace(made(None), story=story), capsys)
        assert " ".join(lines[-1]).endswith("its result is 0, and its lse -inf.")
    assert online_softmax.tell(Case((2, 0, 5, 2, 2, 8))) is None


def test_a_row_of_the_variant_that_was_asked_for(
    monkeypatch: pytest.MonkeyPatch, no_times: None, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(ladder, "_step", lambda *_: Skipped("it is not looked at"))
    monkeypatch.setenv("COLUMNS", "200")
    options = ["--ladder", "--shape", "1x200x200x1x1x8", "--param", "causal=true"]
    assert main(["attention", *options, "--json", "-"]) == 0
    story = json.loads(capsys.readouterr().out)["story"]
    assert story["query"] >= 100
    assert sum(tile["n_seen"] for tile in story["tiles"]) == story["query"] + 1
    assert main(["attention", *options]) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    (tile,) = (line for line in lines if line[:3] == ["64", "to", "127"])
    shown = story["tiles"][1]
    assert tile[3:5] == [str(shown["n_seen"]), f"{shown['tile_max']:.4f}"]
    assert main(["attention", "--backward", *options, "--json", "-"]) == 0
    assert json.loads(capsys.readouterr().out)["story"] is None
