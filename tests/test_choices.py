"""What a call was cut into and why: the sentences, and the launches that they tell."""

from __future__ import annotations

import json
from typing import Any

import pytest
import torch

from bindings.registry import OPS
from compare.cli import main
from compare.code import choices, rungs
from compare.code.architectures import ARCHITECTURES
from compare.code.choices import Choice
from compare.code.kernel_code import Side, planned_launches
from compare.code.planned import PlannedLaunch
from compare.judge.cases import Case, launcher_arguments

OP = OPS["matmul"]
N_SMS = ARCHITECTURES[90].multiprocessors

ALIGN = PlannedLaunch("matmul_align_kernel", "", 8, {}, {})
TRANSPOSE = PlannedLaunch("matmul_transpose_kernel", "", 8, {}, {})
SUM = PlannedLaunch("matmul_sum_kernel", "", 64, {}, {})


def cuda(
    n_blocks: int,
    block_m: int,
    block_n: int,
    n_streamed: int = 0,
    cluster: tuple[int, int] = (1, 1),
) -> PlannedLaunch:
    signature = (
        f"void matmul_kernel<__nv_bfloat16, {block_m}, {block_n}, 4, (ptx::Major)0, "
        "(ptx::Major)1>(TensorMap, int)"
    )
    plan = {
        "signature": signature,
        "grid": (n_blocks, 1, 1),
        "arguments": [(0, 2), n_streamed, *cluster],
    }
    return PlannedLaunch.of_cuda(plan)


def triton(
    n_blocks: int,
    block_m: int,
    block_n: int,
    n_streamed: int = 0,
    kernel: str = "matmul_kernel",
) -> PlannedLaunch:
    constants = {"BLOCK_M": block_m, "BLOCK_N": block_n, "num_stages": 3}
    return PlannedLaunch(kernel, "", n_blocks, constants, {"n_streamed": n_streamed})


def say(
    shape: tuple[int, ...],
    *launches: PlannedLaunch,
    dtype: torch.dtype = torch.bfloat16,
    layout: str = "contiguous",
    architecture: int = 90,
    **facts: bool,
) -> str:
    arguments = launcher_arguments(OP, Case(shape, dtype, layout))
    facts = {"is_asked": False, "twin_serves": True, **facts}
    of = ARCHITECTURES[architecture]
    return choices.sentence(OP, Choice(launches, arguments, of, **facts))


@pytest.mark.parametrize(
    ("launches", "shape", "says"),
    [
        (
            (cuda(132, 128, 256),),
            (4096, 4096, 64),
            "128 x 256 tiles, 4 stages (twin): 32 x 16 = 512 tiles on 132 "
            "multiprocessors, 3.88 waves; the last wave's 116 tiles are whole",
        ),
        (
            (cuda(60, 64, 128, 1, (4, 1)), SUM),
            (200, 264, 4096),
            "64 x 128 tiles, 4 stages (twin), 4 in a column load their b together, K "
            "in 5 parts: 4 x 3 = 12 tiles would leave 120 of 132 multiprocessors idle; "
            "a second launch adds the parts",
        ),
        (
            (triton(264, 128, 128),),
            (4096, 4096, 64),
            "128 x 128 tiles, 3 stages (twin): 32 x 32 = 1,024 tiles on 132 "
            "multiprocessors, 3.88 waves of 264; the last wave's 232 tiles are whole",
        ),
        (
            (cuda(132, 64, 64),),
            (133, 8, 8, 72),
            "64 x 64 tiles, 4 stages (twin): 133 tiles on 132 multiprocessors, "
            "1.01 waves; the last wave's 1 tile is whole",
        ),
        (
            (cuda(132, 128, 128),),
            (3, 1408, 512, 64),
            "128 x 128 tiles, 4 stages (twin): 3 x 11 x 4 = 132 tiles, one for each "
            "multiprocessor",
        ),
        (
            (cuda(132, 128, 128),),
            (2, 1408, 1536, 64),
            "128 x 128 tiles, 4 stages (twin): 2 x 11 x 12 = 264 tiles on 132 "
            "multiprocessors, 2 waves",
        ),
        (
            (triton(256, 128, 128),),
            (128, 128, 256, 64),
            "128 x 128 tiles, 3 stages (twin): 128 x 2 = 256 tiles, 1.94 for each of "
            "132 multiprocessors",
        ),
        (
            (cuda(2, 128, 64),),
            (256, 64, 64),
            "128 x 64 tiles, 4 stages (twin): 2 tiles leave 130 of 132 multiprocessors "
            "idle",
        ),
        (
            (cuda(4, 64, 64, 1), SUM),
            (64, 64, 4096),
            "64 x 64 tiles, 4 stages (twin), K in 4 parts: 1 tile would leave 131 of "
            "132 multiprocessors idle; a second launch adds the parts",
        ),
        (
            (triton(32, 64, 64, kernel="matmul_tensor_cores_kernel"), SUM),
            (128, 128, 4096),
            "64 x 64 tiles, 3 stages (tensor_cores, which takes less time than the "
            "twin by the model), K in 8 parts: 2 x 2 = 4 tiles would leave 128 of 132 "
            "multiprocessors idle; a second launch adds the parts",
        ),
        (
            (triton(132, 128, 128, 50), SUM),
            (640, 1280, 4096),
            "128 x 128 tiles, 3 stages (twin), K of all tiles shared out among 132 "
            "blocks: 5 x 10 = 50 tiles would leave 82 of 132 multiprocessors idle; "
            "a second launch adds the parts",
        ),
        (
            (triton(264, 64, 64, 150), SUM),
            (640, 960, 4096),
            "64 x 64 tiles, 3 stages (twin), K of all tiles shared out among 264 "
            "blocks: 10 x 15 = 150 tiles cannot be shared out evenly among 132 "
            "multiprocessors; a second launch adds the parts",
        ),
        (
            (cuda(132, 128, 256, 152), SUM),
            (4096, 3328, 4096),
            "128 x 256 tiles, 4 stages (twin), K of 152 of 416 tiles shared out among "
            "132 blocks: 32 x 13 = 416 tiles are 3.15 waves, the last one with 20 "
            "tiles for 132 blocks; a second launch adds the parts",
        ),
    ],
)
def test_how_a_gpu_is_filled(
    launches: tuple[PlannedLaunch, ...], shape: tuple[int, ...], says: str
) -> None:
    assert say(shape, *launches) == says


def test_operands_that_are_copied_first() -> None:
    told = say((64, 63, 65), ALIGN, ALIGN, cuda(1, 64, 64))
    assert told.endswith(
        "; both operands are copied first, to rows of a multiple of 16 bytes"
    )
    assert "; an operand is copied" in say((64, 64, 65), ALIGN, cuda(2, 64, 64, 1), SUM)
    told = say((64, 64, 63), ALIGN, TRANSPOSE, cuda(1, 64, 64), dtype=torch.float32)
    assert "; an operand is copied first" in told
    assert told.endswith(
        "; an operand is transposed first, as tensor cores take tf32 along K"
    )


@pytest.mark.parametrize("side", rungs.SIDES)
@pytest.mark.parametrize("depth", [64, 63])
def test_operands_that_are_split_first(side: Side, depth: int) -> None:
    """One of them; the other one is split in registers."""
    a, b = (torch.empty(64, depth, device="meta") for _ in "ab")
    given = OP.arguments(OP.allocate(a, b.mT), a, b.mT, None, None, "tf32x3")
    launches = tuple(planned_launches(side, OP, given, ARCHITECTURES[90]))
    told = choices.sentence(OP, Choice(launches, given, ARCHITECTURES[90], False, True))
    assert "; an operand is split into large and small parts first" in told
    assert " (twin): " in told
    assert ("copied first" in told) == (depth == 63)


@pytest.mark.parametrize("is_wide", [False, True])
def test_tiles_of_float32_in_cuda(is_wide: bool) -> None:
    """The operand on the left, whose tiles have more rows, may be b."""
    n_rows, n_cols = (128, 2048) if is_wide else (2048, 128)
    a, b = (torch.empty(n, 64, device="meta") for n in (n_rows, n_cols))
    op = OP.on_rung("twin")
    given = op.arguments(OP.allocate(a, b.mT), a, b.mT, None, None, "tf32")
    launches = tuple(planned_launches("cuda", op, given, ARCHITECTURES[90]))
    told = choices.sentence(op, Choice(launches, given, ARCHITECTURES[90], True, True))
    tile = "64 x 128" if is_wide else "128 x 64"
    assert told.startswith(f"{tile} tiles, 8 stages (twin): ")


@pytest.mark.parametrize(
    ("rung", "case", "facts", "says"),
    [
        ("tiled", {"dtype": torch.float32}, {}, "as float32 by IEEE 754 takes plain"),
        (
            "tensor_cores",
            {"dtype": torch.float32, "architecture": 80},
            {},
            "as the twin is not for sm_80",
        ),
        ("tensor_cores", {"shape": (8, 12, 8)}, {}, "as rows of b are not"),
        ("tensor_cores", {"shape": (1, 12, 8)}, {}, "as rows of b are not"),
        ("tensor_cores", {"layout": "offset 0"}, {}, "as rows of a are not aligned"),
        (
            "tensor_cores",
            {"layout": "transposed", "shape": (8, 8, 12)},
            {},
            "rows of b",
        ),
        ("tensor_cores", {"shape": (8, 8, 0)}, {}, "as there is nothing to multiply"),
        ("tensor_cores", {"architecture": 80}, {}, "as the twin is not for sm_80"),
        ("tensor_cores", {}, {"twin_serves": True}, "less time than the twin by the"),
    ],
)
def test_why_it_is_not_the_twin(
    rung: str, case: dict[str, Any], facts: dict[str, Any], says: str
) -> None:
    facts = {"twin_serves": False, **facts}
    launch = triton(1, 128, 128, kernel=f"matmul_{rung}_kernel")
    case = {"shape": (64, 64, 64), **case}
    shape = case.pop("shape")
    told = say(shape, launch, **case, **facts)
    assert told.startswith(f"128 x 128 tiles, 3 stages ({rung}, ")
    assert says in told.partition(":")[0]
    assert f"({rung}):" in say(shape, launch, **case, **facts, is_asked=True)


# One of which any other size of a tile would make another number of tiles.
SHAPE = (1000, 1016, 72)


@pytest.mark.parametrize("side", rungs.SIDES)
@pytest.mark.parametrize("rung", OP.rungs)
def test_each_rung_has_as_many_blocks_as_tiles(side: Side, rung: str) -> None:
    """Where nothing is in parts, and no block has two tiles."""
    op = OP.on_rung(rung)
    arguments = launcher_arguments(op, Case(SHAPE, torch.bfloat16))
    launches = planned_launches(side, op, arguments, ARCHITECTURES[90])
    (launch,) = launches
    told = choices.sentence(
        op, Choice(launches, arguments, ARCHITECTURES[90], True, True)
    )
    assert f"({rung})" in told
    assert f" {launch.n_blocks:,} tiles" in told


def _is_choice(name: str, line: str) -> bool:
    return f"{name}: " in line and " tiles" in line


def test_both_languages_tell_what_they_launch(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "300")
    options = ["matmul", "--shape", "64x64x64", "--dtype", "bfloat16"]
    assert main(["study", *options]) == 0
    shown = capsys.readouterr().out
    for name in ("CUDA", "Triton"):
        (line,) = (each for each in shown.splitlines() if _is_choice(name, each))
        assert line.rstrip().endswith("of 132 multiprocessors idle")
    assert main([*options, "--json", "-", "--backend", "cuda"]) == 0
    of_rungs = json.loads(capsys.readouterr().out)["cases"][0]["rungs"]
    for side in rungs.SIDES:
        assert of_rungs[side]["choice"].endswith("of 132 multiprocessors idle")


def test_an_op_that_does_not_say() -> None:
    op = OPS["add"]
    case = Case((1000,))
    shown = rungs.choose(
        op, None, lambda rung: launcher_arguments(rung, case), ARCHITECTURES[90]
    )
    assert {each.choice for each in shown.values()} == {""}
