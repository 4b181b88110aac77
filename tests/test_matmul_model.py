"""Matmul's model: what it chooses, and that it is the same in both languages."""

from __future__ import annotations

import itertools
import json
import math
import random
import re
import statistics
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from bindings.backends import native, prebuilt, triton
from bindings.ops.matmul import OP
from compare.code import triton_offline
from compare.code.architectures import ARCHITECTURES
from triton_kernels.matmul import align, model, model_tiled, tables
from triton_kernels.matmul.call import Call, Cut, MatmulRung, Precision
from triton_kernels.matmul.launches import twin_tiles
from triton_kernels.matmul.tables import MatmulTile, TensorCoresTile

ROOT = Path(__file__).resolve().parents[1]
N_SMS = 132


def cuda_table(name: str) -> list[list[int]]:
    """The numbers of a table in tables.cuh."""
    text = (ROOT / "csrc/matmul/tables.cuh").read_text()
    (table,) = re.findall(rf" {name}\[\] = \{{(.*?)\}};", text, re.DOTALL)
    lines = re.findall(r"\{([\d,\s]+)\}", table)
    return [[int(number) for number in line.split(",")] for line in lines]


def cuda_number(name: str) -> int:
    """A number in model.cuh."""
    text = (ROOT / "csrc/matmul/model.cuh").read_text()
    (value,) = re.findall(rf"\b{name} =\s+([\d <*]+)[,;]", text)
    return int(eval(value))


def cuda_tiles() -> tuple[MatmulTile, ...]:
    """CUDA's tiles of the twin; what only Triton's have is made up."""
    tiles = (
        MatmulTile(rows, cols, 64, stages, 0, 1, 1, *others)._replace(outer_cycles=0)
        for rows, cols, stages, *others in cuda_table("TILES")
    )
    percent = cuda_number("UNLINED_TWIN_PERCENT")
    return tuple(
        each._replace(unlined_percent=percent)
        if each.cluster_rows == each.cluster_cols == 1
        else each
        for each in tiles
    )


def cuda_rung_tiles() -> tuple[TensorCoresTile, ...]:
    """Likewise of the rung tensor_cores."""
    tiles = (
        TensorCoresTile(rows, cols, depth, stages, warps_m * warps_n, *n_cycles[:4])
        for rows, cols, depth, warps_m, warps_n, stages, *n_cycles in cuda_table(
            "TENSOR_CORES_TILES"
        )
    )
    percent = cuda_number("UNLINED_PERCENT")
    return tuple(each._replace(unlined_percent=percent) for each in tiles)


TILES = {"cuda": cuda_tiles(), "triton": tables.TILES}
PRECISIONS = {1: "tf32", 2: "tf32x3"}  # of float32, by how many planes it has
RUNG_TILES = {"cuda": cuda_rung_tiles(), "triton": tables.TENSOR_CORES_TILES}


def call_of(
    n_batches: int,
    n_rows: int,
    n_cols: int,
    depth: int,
    layout: str,
    dtype: torch.dtype = torch.bfloat16,
    n_planes: int = 1,
) -> Call:
    """A product; the layout says for a and b if they lie along k: "k", or not: "o"."""
    is_tf32, element_bytes = dtype == torch.float32, dtype.itemsize
    along_k = [each == "k" for each in layout]
    b_is_left, right = False, None
    if is_tf32:
        needs_copy = [n_planes == 2 or not each for each in along_k]
        only_one_does = needs_copy[0] != needs_copy[1]
        b_is_left = needs_copy[1] if only_one_does else n_rows < n_cols
        right = 0 if b_is_left else 1
    have_lines, n_copied, have_words = [], 0, []
    for place, outer in enumerate((n_rows, n_cols)):
        size, planes = (depth if along_k[place] else outer), 1
        is_copied = size * element_bytes % 16 > 0
        have_words.append(size * element_bytes % 4 == 0)
        if place == right:
            is_copied, planes = is_copied or needs_copy[place], n_planes
            size = depth
        have_lines.append(has_lines(size, element_bytes, is_copied))
        n_copied += is_copied * (n_batches * outer * depth * (1 + planes) // 2)
    return Call(
        *(dtype, Precision(is_tf32 * n_planes), n_batches, n_rows, n_cols, depth),
        "none",
        has_tensor_maps=True,
        has_vectors=True,
        has_words=all(have_words),
        a_has_lines=have_lines[0],
        b_has_lines=have_lines[1],
        out_is_aligned=n_cols * element_bytes % 16 == 0,
        n_copied=n_copied,
        b_is_left=b_is_left,
    )


def has_lines(size: int, element_bytes: int, is_copied: bool) -> bool:
    """Whether rows of a contiguous operand, or of its copy, begin lines."""
    stride = align.stride_of(size, element_bytes) if is_copied else size
    return stride * element_bytes % model.LINE_BYTES == 0


def choose(
    call: Call, side: str, rung: str = "", may_share: bool = True
) -> tuple[MatmulRung, Cut]:
    """What the model chooses, for a call of any rung or of one."""
    twins = TILES[side] if rung != "tensor_cores" else ()
    others = RUNG_TILES[side] if rung != "twin" else ()
    if call.dtype == torch.float32:
        twins = twin_tiles(call) if twins else ()
        others = () if call.precision == Precision.TF32X3 else others
    return model.choose(call, twins, others, N_SMS, may_share)


def products(n: int) -> list[tuple[int, int, int, int, str]]:
    """Sizes that the twin serves, with layouts in turns."""
    rng = random.Random(11)

    def draw(step: int) -> int:
        return -(-round(math.exp(rng.uniform(0, math.log(16384)))) // step) * step

    layouts = ("ko", "kk", "oo", "ok")
    drawn = [(1, draw(8), draw(8), draw(8), layouts[i % 4]) for i in range(n)]
    return [*drawn, (7, 200, 264, 1000, "ko"), (300, 64, 64, 64, "ko")]


def operands(
    n_batches: int,
    n_rows: int,
    n_cols: int,
    depth: int,
    layout: str,
    dtype: torch.dtype = torch.bfloat16,
) -> tuple[Tensor, Tensor]:
    """Operands of a product, without any contents."""
    a, b = (
        torch.empty(n_batches, *size, device="meta", dtype=dtype)
        for size in ((n_rows, depth), (depth, n_cols))
    )
    if layout[0] == "o":
        a = a.mT.contiguous().mT
    if layout[1] == "k":
        b = b.mT.contiguous().mT
    return a, b


def chosen_by_cuda(rung: str, product: Any) -> tuple[MatmulRung, Cut]:
    """How the launcher cuts a call."""
    a, b = operands(*product)
    op, out = OP.on_rung(rung), OP.allocate(a, b)
    plan, *adding = native.plan(prebuilt.load("_cpu"), op, op.arguments(out, a, b), 90)
    kernel, *sizes = re.findall(r"(\w+)_kernel<\w+, (\d+), (\d+),", plan["signature"])[
        0
    ]
    is_twin = kernel == "matmul"
    tiles: Any = (TILES if is_twin else RUNG_TILES)["cuda"]
    n_blocks = plan["grid"][0] // (plan["cluster"] or (1,))[0]
    n_streamed = adding[0]["grid"][1] if adding else 0
    cluster = plan["arguments"][-2:] if is_twin else []
    kinds = [
        [*each[:2], *([each.cluster_rows, each.cluster_cols] if is_twin else [])]
        for each in tiles
    ]
    tile = kinds.index([*map(int, sizes), *cluster])
    chosen = MatmulRung.TWIN if is_twin else MatmulRung.TENSOR_CORES
    return chosen, Cut(tile, n_blocks, n_streamed)


@pytest.mark.parametrize("rung", ["", "tensor_cores", "twin"])
def test_both_languages_choose_alike(rung: str) -> None:
    for product in products(150):
        expected = choose(call_of(*product), "cuda", rung)
        assert chosen_by_cuda(rung, product) == expected, product


@pytest.mark.parametrize("n_planes", [1, 2])
def test_both_languages_choose_alike_for_tf32(n_planes: int) -> None:
    """Of the same tiles: Triton's choice is the model's, as the next test tells."""
    name = "TF32_TILES" if n_planes == 1 else "TF32X3_TILES"
    tiles = getattr(tables, name)
    assert [
        [
            *each[:2],
            each.num_stages,
            each.step_cycles,
            each.tile_cycles,
            each.ends_cycles,
        ]
        for each in tiles
    ] == [[*each] for each in cuda_table(name)]
    op = OP.on_rung("twin")
    for product in products(60):
        a, b = operands(*product, torch.float32)
        given = op.arguments(OP.allocate(a, b), a, b, None, None, PRECISIONS[n_planes])
        plans = native.plan(prebuilt.load("_cpu"), op, given, 90)
        (place,) = (
            i for i, e in enumerate(plans) if "matmul_tf32_kernel" in e["kernel"]
        )
        sizes = re.findall(r"_kernel<(\d+), (\d+),", plans[place]["signature"])[0]
        behind = plans[place + 1 :]
        n_streamed = behind[0]["grid"][1] if behind else 0
        tile = [each[:2] for each in tiles].index(tuple(map(int, sizes)))
        cut = Cut(tile, plans[place]["grid"][0], n_streamed)
        may_share = product[3] * 4 > 128
        call = call_of(*product, torch.float32, n_planes)
        expected = choose(call, "triton", "twin", may_share)
        assert (MatmulRung.TWIN, cut) == expected, product


def test_the_numbers_are_those_of_cuda() -> None:
    for name in (
        *("LINE_BYTES", "L2_BYTES", "MEMORY_BYTES", "UNEVEN_PERCENT"),
        *("SINGLE_STORE_CYCLES", "SUM_CYCLES", "ALIGN_CYCLES", "PART_BYTES"),
        *("MOST_PARTS", "MOST_STEPS", "MOST_SUMS"),
        *("UNLINED_ROW_TENTHS", "IN_FOURS_PERCENT"),
    ):
        assert getattr(model, name) == cuda_number(name), name
    assert cuda_number("K_PER_SUM") == model_tiled.K_PER_SUM
    for tile in (*tables.TILES, *tables.TF32_TILES, *tables.TF32X3_TILES):
        assert tile.outer_cycles == cuda_number("OUTER_CYCLES")


@pytest.mark.parametrize(
    ("rung", "dtype", "n_planes"),
    [
        *((rung, torch.bfloat16, 1) for rung in ("", "tensor_cores", "twin")),
        *((rung, torch.float32, 1) for rung in ("", "tensor_cores", "twin")),
        *((rung, torch.float32, 2) for rung in ("", "twin")),
    ],
)
def test_tritons_launcher_goes_by_the_model(
    rung: str, dtype: torch.dtype, n_planes: int
) -> None:
    for product in products(40):
        a, b = operands(*product, dtype)
        op, out = OP.on_rung(rung), OP.allocate(a, b)
        launches = triton_offline.plan_launches(
            triton.launcher(op),
            op.arguments(out, a, b, None, None, PRECISIONS[n_planes]),
            ARCHITECTURES[90],
        )
        may_share = product[3] * dtype.itemsize > 128
        call = call_of(*product, dtype, n_planes)
        chosen, cut = choose(call, "triton", rung, may_share)
        is_twin = chosen == MatmulRung.TWIN
        copying = []
        if is_twin and dtype == torch.float32:
            right = product[4][0 if call.b_is_left else 1]
            if right == "o":
                copying = ["matmul_transpose_kernel"]
            elif n_planes == 2:
                copying = ["matmul_align_kernel"]
        launch, *adding = launches[len(copying) :]
        assert [each.kernel for each in launches[: len(copying)]] == copying
        assert len(adding) == (cut.n_streamed > 0)
        tiles: Any = twin_tiles(call) if is_twin else RUNG_TILES["triton"]
        tile = tiles[cut.tile]
        if is_twin and dtype == torch.float32:
            for name in ("BLOCK_M", "BLOCK_N", "NUM_STAGES"):
                assert launch.constants[name] == getattr(tile, name.lower())
            continue
        for name in ("BLOCK_M", "BLOCK_N", "num_stages", "num_warps"):
            assert launch.constants[name] == getattr(tile, name.lower())
        assert launch.constants["BLOCK_K"] * dtype.itemsize == tile.block_k * 2


def test_operands_are_copied_where_that_takes_less_time() -> None:
    """Those of large products; a small one is read as it is."""
    for shape, expected in (((2001, 2001, 2001), 2), ((2000, 2000, 2001), 1)):
        a, b = operands(1, *shape, "ko")
        arguments = OP.arguments(OP.allocate(a[0], b[0]), a[0], b[0])
        module = prebuilt.load("_cpu")
        kernels = [each["kernel"] for each in native.plan(module, OP, arguments, 90)]
        planned = triton_offline.plan_launches(
            triton.launcher(OP), arguments, ARCHITECTURES[90]
        )
        for names in (kernels, [each.kernel for each in planned]):
            copies = [name for name in names if "matmul_align_kernel" in name]
            assert len(copies) == expected, names
    a, b = operands(1, 3, 5, 7, "ko")
    arguments = OP.arguments(OP.allocate(a[0], b[0]), a[0], b[0])
    assert len(native.plan(module, OP, arguments, 90)) == 1


def test_triton_shares_nothing_on_gpus_after_hopper() -> None:
    """Calls there get no memory for parts, and so none is planned for here."""
    a, b = operands(1, 64, 64, 16384, "ko")
    arguments = OP.on_rung("twin").arguments(OP.allocate(a, b), a, b)
    launcher = triton.launcher(OP)
    for architecture, n_launches in ((90, 2), (100, 1)):
        titles = triton_offline.plan_launches(
            launcher, arguments, ARCHITECTURES[architecture]
        )
        assert len(titles) == n_launches


# Nearly the fastest: by how much time is lost in the mean, and at most.
@pytest.mark.parametrize(
    ("side", "mean", "most"), [("cuda", 1.03, 1.30), ("triton", 1.04, 1.45)]
)
def test_what_is_chosen_is_nearly_the_fastest(
    side: str, mean: float, most: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By times on an H200, of those cuts that were tried there."""
    if side == "cuda":
        cuda_model = (ROOT / "csrc/matmul/model.cuh").read_text()
        (percent,) = re.findall(r"SINGLE_PERCENT = (\d+);", cuda_model)
        monkeypatch.setattr(model, "SINGLE_PERCENT", int(percent))
        # Triton's steps are half as deep where elements come one by one.
        monkeypatch.setattr(model, "step_depth", lambda _call, tile: tile.block_k)
    text = (ROOT / "tests/matmul_times.json").read_text()
    ratios = []
    for shape in json.loads(text)[side]:
        n_rows, n_cols, depth = shape["sizes"]
        call = call_of(1, n_rows, n_cols, depth, shape["layout"])
        if side == "cuda":  # which takes no words where rows are not aligned
            call = call._replace(has_words=call.n_copied == 0)
        times = {
            (rung, Cut(*cut)): us
            for rung in ("twin", "tensor_cores")
            for *cut, us in shape[rung]
        }
        tried = min(times, key=lambda each: cycles(side, call, *each))
        ratios.append(times[tried] / min(times.values()))
    assert statistics.geometric_mean(ratios) < mean
    assert max(ratios) < most


def cycles(side: str, call: Call, rung: str, cut: Cut) -> int:
    """What the model says."""
    if rung == "twin":
        return model.twin_cycles(call, TILES[side][cut.tile], cut)
    tile = RUNG_TILES[side][cut.tile]
    return model.tensor_cores_cycles(call, tile, cut, N_SMS)


def test_copies_have_room() -> None:
    """The workspace is made before a launcher copies."""
    for size, layout in itertools.product((9, 255, 257, 1001), ("ko", "kk", "oo")):
        a, b = operands(3, 40, size, size, layout)
        a_cols, b_cols = (40 if layout[0] == "o" else size), size
        expected = sum(
            3 * n_rows * align.stride_of(n_cols, 2)
            for n_rows, n_cols in ((40 * size // a_cols, a_cols), (size, b_cols))
            if n_cols % 8
        )
        assert OP.workspace is not None
        _, copies = OP.workspace("", OP.allocate(a, b), a, b)
        assert isinstance(copies, Tensor)
        assert copies.numel() == expected
        plans = native.plan(
            prebuilt.load("_cpu"),
            OP.on_rung("twin"),
            OP.on_rung("twin").arguments(OP.allocate(a, b), a, b),
            90,
        )
        strides = [each["arguments"][-2] for each in plans if "align" in each["kernel"]]
        n_cols = [n for n in (a_cols, b_cols) if n % 8]
        assert strides == [align.stride_of(n, 2) for n in n_cols]


@pytest.mark.parametrize("n_planes", [1, 2])
def test_copies_for_tf32_have_room(n_planes: int) -> None:
    """The right operand's lies along k, whatever that does."""
    for size, layout in itertools.product((9, 127, 128, 1001), ("ko", "kk", "oo")):
        a, b = operands(3, 40, size, size, layout, torch.float32)
        op = OP.on_rung("twin")
        precision = PRECISIONS[n_planes]
        given = op.arguments(OP.allocate(a, b), a, b, None, None, precision)
        copies = given[-2]
        n_needed = 0
        for each in triton_offline.plan_launches(
            triton.launcher(op), given, ARCHITECTURES[90]
        ):
            if each.kernel in ("matmul_align_kernel", "matmul_transpose_kernel"):
                is_transposed = each.kernel == "matmul_transpose_kernel"
                n_rows = each.arguments["n_cols" if is_transposed else "n_rows"]
                stride = each.arguments["copy_stride_row"]
                assert each.arguments["copy_stride_plane"] == 3 * n_rows * stride
                n_needed += each.constants["NUM_PLANES"] * 3 * n_rows * stride
        assert n_needed == (copies.numel() if isinstance(copies, Tensor) else 0)


def test_copies_are_of_any_number_of_matrices() -> None:
    """More than a grid has along y, and one of an operand that they share."""
    a = torch.empty(70000, 64, 63, device="meta", dtype=torch.bfloat16)
    b = torch.empty(63, 65, device="meta", dtype=torch.bfloat16).expand(70000, 63, 65)
    arguments = OP.on_rung("twin").arguments(OP.allocate(a, b), a, b)
    of_a, of_b, *_ = native.plan(
        prebuilt.load("_cpu"), OP.on_rung("twin"), arguments, 90
    )
    assert of_a["grid"] == (8 * 70000, 1, 1)
    assert of_b["grid"] == (8, 1, 1)
    copies = arguments[-2]
    assert isinstance(copies, Tensor)
    assert copies.numel() == 70000 * 64 * 64 + 63 * 72


def test_only_hopper_gets_copies_and_parts() -> None:
    for shape in ((512, 511, 1025), (16, 64, 4096)):
        a, b = (each[0] for each in operands(1, *shape, "ko"))
        arguments = OP.arguments(OP.allocate(a, b), a, b)
        assert len(native.plan(prebuilt.load("_cpu"), OP, arguments, 80)) == 1


@pytest.mark.parametrize(
    ("product", "expected"),
    [
        # Fewer tiles than multiprocessors, and deep: each has many parts.
        ((1, 64, 64, 16384, "ko"), True),
        ((1, 256, 256, 16384, "ko"), True),
        # A last wave of a few large tiles, and of nearly all multiprocessors.
        ((1, 2432, 1792, 8192, "ko"), True),
        ((1, 16384, 4096, 1024, "ko"), False),
        # Nothing to share: one wave that is full, or one step.
        ((1, 1408, 3072, 4096, "ko"), False),
        ((1, 4096, 4096, 64, "ko"), False),
    ],
)
def test_tiles_are_shared_where_a_wave_is_thin(
    product: tuple[int, int, int, int, str], expected: bool
) -> None:
    _, cut = choose(call_of(*product), "cuda", "twin")
    assert (cut.n_streamed > 0) == expected


@pytest.mark.parametrize("side", TILES)
def test_nothing_is_shared_without_memory(side: str) -> None:
    for product in products(50):
        _, cut = choose(call_of(*product), side, may_share=False)
        assert cut.n_streamed == 0


@pytest.mark.parametrize(
    ("side", "dtype", "n_planes"),
    [
        *((side, torch.bfloat16, 1) for side in TILES),
        *((side, torch.float32, 1) for side in TILES),
        ("triton", torch.float32, 2),
    ],
)
def test_a_block_has_a_place_for_each_part(
    side: str, dtype: torch.dtype, n_planes: int
) -> None:
    """The workspace is made before a launcher chooses."""
    for product in products(200):
        a, b = operands(*product, dtype)
        assert OP.workspace is not None
        precision = PRECISIONS[n_planes]
        parts, _ = OP.workspace("", OP.allocate(a, b), a, b, None, None, precision)
        call = call_of(*product, dtype, n_planes)
        twins = twin_tiles(call) if dtype == torch.float32 else TILES[side]
        tables_and_cuts: list[Any] = [(twins, model.twin_cuts, call.from_left())]
        if n_planes == 1:
            tables_and_cuts.append((RUNG_TILES[side], model.tensor_cores_cuts, call))
        for tiles, cuts, each in tables_and_cuts:
            for number, tile in enumerate(tiles):
                for cut in cuts(each, tile, number, N_SMS, True):
                    if cut.n_streamed == 0 or parts is None:
                        continue  # without memory, nothing is shared
                    n_sums = 2 * cut.n_blocks * tile.block_m * tile.block_n
                    assert n_sums <= parts.numel()
                    n_steps = -(-call.K * dtype.itemsize // (2 * tile.block_k))
                    assert cut.n_blocks <= cut.n_streamed * n_steps
