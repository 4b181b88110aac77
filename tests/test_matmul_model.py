"""Matmul's model: what it chooses, and that it is the same in both languages."""

from __future__ import annotations

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
from triton_kernels.matmul import model
from triton_kernels.matmul.model import Call, Cut, MatmulTile

ROOT = Path(__file__).resolve().parents[1]
N_SMS = 132


def cuda_tiles() -> tuple[MatmulTile, ...]:
    """The table in model.cuh; what only Triton's has is made up."""
    text = (ROOT / "csrc/matmul/model.cuh").read_text()
    (table,) = re.findall(r"TILES\[\] = \{(.*?)\};", text, re.DOTALL)
    lines = re.findall(r"\{([\d,\s]+)\}", table)
    numbers = (map(int, line.split(",")) for line in lines)
    return tuple(
        MatmulTile(rows, cols, 64, stages, 0, 1, 1, *n_cycles)
        for rows, cols, stages, *n_cycles in numbers
    )


TILES = {"cuda": cuda_tiles(), "triton": model.TILES}


def call_of(n_batches: int, n_rows: int, n_cols: int, depth: int, layout: str) -> Call:
    """A product; the layout says for a and b if they lie along k: "k", or not: "o"."""
    a_size = depth if layout[0] == "k" else n_rows
    b_size = depth if layout[1] == "k" else n_cols
    has_lines = [size % model.LINE_SIZE == 0 for size in (a_size, b_size)]
    sizes = (n_batches, n_rows, n_cols, depth)
    return Call(torch.bfloat16, False, *sizes, "none", True, True, *has_lines)


def products(n: int) -> list[tuple[int, int, int, int, str]]:
    """Sizes that the twin serves, with layouts in turns."""
    rng = random.Random(11)

    def draw(step: int) -> int:
        return -(-round(math.exp(rng.uniform(0, math.log(16384)))) // step) * step

    layouts = ("ko", "kk", "oo", "ok")
    drawn = [(1, draw(8), draw(8), draw(8), layouts[i % 4]) for i in range(n)]
    return [*drawn, (7, 200, 264, 1000, "ko"), (300, 64, 64, 64, "ko")]


def operands(
    n_batches: int, n_rows: int, n_cols: int, depth: int, layout: str
) -> tuple[Tensor, Tensor]:
    """Operands of a product, without any contents."""
    a, b = (
        torch.empty(n_batches, *size, device="meta", dtype=torch.bfloat16)
        for size in ((n_rows, depth), (depth, n_cols))
    )
    if layout[0] == "o":
        a = a.mT.contiguous().mT
    if layout[1] == "k":
        b = b.mT.contiguous().mT
    return a, b


def chosen_by_cuda(*product: Any) -> Cut:
    """How the launcher cuts a call."""
    a, b = operands(*product)
    out = OP.allocate(a, b)
    op = OP.on_rung("twin")
    module = prebuilt.load("_cpu")
    *counting, plan = native.plan(module, op, op.arguments(out, a, b), 90)
    (sizes,) = re.findall(r"matmul_kernel<\w+, (\d+), (\d+),", plan["signature"])
    tiles = [(tile.block_m, tile.block_n) for tile in TILES["cuda"]]
    n_streamed = plan["arguments"][-1]
    assert len(counting) == (n_streamed > 0)
    tile = tiles.index((int(sizes[0]), int(sizes[1])))
    return Cut(tile, plan["grid"][0], n_streamed)


def test_both_languages_choose_alike() -> None:
    for product in products(300):
        cut = model.choose(call_of(*product), TILES["cuda"], N_SMS, may_share=True)
        assert chosen_by_cuda(*product) == cut, product


def test_the_numbers_are_those_of_cuda() -> None:
    text = (ROOT / "csrc/matmul/model.cuh").read_text()
    for name in (
        *("LINE_SIZE", "L2_BYTES", "MEMORY_BYTES", "OUTER_CYCLES", "PART_BYTES"),
        *("PART_CYCLES", "UNEVEN_PERCENT", "MOST_PARTS", "MOST_STEPS"),
    ):
        (value,) = re.findall(rf"\b{name} = ([\d <]+)[,;]", text)
        assert getattr(model, name) == eval(value), name


def test_tritons_launcher_goes_by_the_model() -> None:
    for product in products(40):
        a, b = operands(*product)
        out = OP.allocate(a, b)
        op = OP.on_rung("twin")
        launcher = triton.launcher(op)
        *counting, launch = triton_offline.plan_launches(
            launcher, op.arguments(out, a, b), ARCHITECTURES[90]
        )
        call = call_of(*product)
        cut = model.choose(call, TILES["triton"], N_SMS, may_share=True)
        assert len(counting) == (cut.n_streamed > 0)
        tile = TILES["triton"][cut.tile]
        for name in ("BLOCK_M", "BLOCK_N", "BLOCK_K", "num_stages", "num_warps"):
            assert launch.constants[name] == getattr(tile, name.lower())


def test_triton_shares_nothing_on_gpus_after_hopper() -> None:
    """Calls there get no memory for parts, and so none is planned for here."""
    a, b = operands(1, 64, 64, 16384, "ko")
    arguments = OP.on_rung("twin").arguments(OP.allocate(a, b), a, b)
    launcher = triton.launcher(OP)
    for architecture, n_launches in ((90, 2), (100, 1)):
        planned = triton_offline.plan_launches(
            launcher, arguments, ARCHITECTURES[architecture]
        )
        assert len(planned) == n_launches


# Nearly the fastest: by how much time is lost in the mean, and at most.
@pytest.mark.parametrize(
    ("group", "mean", "most"),
    [
        ("cuda", 1.01, 1.15),
        ("triton", 1.03, 1.25),
        ("triton_in_turns", 1.02, 1.06),
    ],
)
def test_what_is_chosen_is_nearly_the_fastest(
    group: str, mean: float, most: float
) -> None:
    """By times on an H200, of those cuts that were tried there."""
    tiles = TILES[group.partition("_")[0]]
    numbers = {
        (tile.block_m, tile.block_n, tile.programs_per_sm): number
        for number, tile in enumerate(tiles)
    }
    text = (ROOT / "tests/matmul_times.json").read_text()
    layout = "ko" if group == "triton_in_turns" else "kk"
    ratios = []
    for shape in json.loads(text)[group]:
        n_rows, n_cols, depth = shape["sizes"]
        call = call_of(1, n_rows, n_cols, depth, layout)
        times = {
            Cut(numbers[tuple(tile)], n_blocks, n_streamed): us
            for *tile, n_blocks, n_streamed, us in shape["times"]
        }
        n_cycles = {cut: model.cycles(call, tiles[cut.tile], cut) for cut in times}
        tried = min(times, key=n_cycles.__getitem__)
        ratios.append(times[tried] / min(times.values()))
        # What was not tried promises little more.
        cut = model.choose(call, tiles, N_SMS, may_share=True)
        promised = model.cycles(call, tiles[cut.tile], cut)
        assert n_cycles[tried] <= 1.05 * promised, call
    assert statistics.geometric_mean(ratios) < mean
    assert max(ratios) < most


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
    cut = model.choose(call_of(*product), TILES["cuda"], N_SMS, may_share=True)
    assert (cut.n_streamed > 0) == expected


@pytest.mark.parametrize("side", TILES)
def test_nothing_is_shared_without_memory(side: str) -> None:
    for product in products(50):
        cut = model.choose(call_of(*product), TILES[side], N_SMS, may_share=False)
        assert cut.n_streamed == 0


@pytest.mark.parametrize("side", TILES)
def test_a_block_has_a_place_for_each_part(side: str) -> None:
    """The workspace is made before a launcher chooses."""
    for product in products(300):
        a, b = operands(*product)
        assert OP.workspace is not None
        workspace = OP.workspace("", OP.allocate(a, b), a, b)
        for number, tile in enumerate(TILES[side]):
            call = call_of(*product)
            for cut in model.cuts(call, tile, number, N_SMS, may_share=True):
                if cut.n_streamed == 0:
                    continue
                parts, n_arrived = workspace
                assert parts is not None
                assert n_arrived is not None
                n_sums = 2 * cut.n_blocks * tile.block_m * tile.block_n
                assert n_sums <= parts.numel()
                n_counts = tile.block_m // 64 if side == "cuda" else 1
                assert cut.n_streamed * n_counts <= n_arrived.numel()
                n_steps = -(-call.K // tile.block_k)
                assert cut.n_blocks <= cut.n_streamed * n_steps
