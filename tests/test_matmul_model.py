"""Matmul's model: what it chooses, and that it is the same in both languages."""

from __future__ import annotations

import json
import math
import random
import re
import statistics
from pathlib import Path

import pytest
import torch

from bindings.backends import native, prebuilt
from bindings.ops.matmul import OP
from triton_kernels.matmul import model
from triton_kernels.matmul.model import Cut, Product, Tile

ROOT = Path(__file__).resolve().parents[1]
N_SMS = 132


def cuda_tiles() -> list[Tile]:
    """The table in model.cuh, without its stages."""
    text = (ROOT / "csrc/matmul/model.cuh").read_text()
    (table,) = re.findall(r"TILES\[\] = \{(.*?)\};", text, re.DOTALL)
    lines = re.findall(r"\{([\d,\s]+)\}", table)
    numbers = (map(int, line.split(",")) for line in lines)
    return [Tile(rows, cols, *others) for rows, cols, _, *others in numbers]


TILES = cuda_tiles()


def chosen_by_cuda(product: Product) -> Cut:
    """How the launcher cuts a call."""
    n_batches, n_rows, n_cols, depth = product
    a, b = (
        torch.empty(n_batches, *size, device="meta", dtype=torch.bfloat16)
        for size in ((n_rows, depth), (depth, n_cols))
    )
    out = OP.allocate(a, b)
    op = OP.on_rung("twin")
    module = prebuilt.load("_cpu")
    *counting, plan = native.plan(module, op, op.arguments(out, a, b), 90)
    (sizes,) = re.findall(r"matmul_kernel<\w+, (\d+), (\d+),", plan["signature"])
    tiles = [(tile.block_m, tile.block_n) for tile in TILES]
    n_streamed = plan["arguments"][-1]
    assert len(counting) == (n_streamed > 0)
    tile = tiles.index((int(sizes[0]), int(sizes[1])))
    return Cut(tile, plan["grid"][0], n_streamed)


def products(n: int) -> list[Product]:
    """Sizes that the twin serves."""
    rng = random.Random(11)

    def draw(step: int) -> int:
        return -(-round(math.exp(rng.uniform(0, math.log(16384)))) // step) * step

    drawn = [Product(1, draw(1), draw(8), draw(8)) for _ in range(n)]
    return [*drawn, Product(7, 200, 264, 1000), Product(300, 64, 64, 64)]


def test_both_languages_choose_alike() -> None:
    for product in products(300):
        cut = model.choose(product, TILES, N_SMS, may_share=True)
        assert chosen_by_cuda(product) == cut, product


def test_the_numbers_are_those_of_cuda() -> None:
    text = (ROOT / "csrc/matmul/model.cuh").read_text()
    for name in (
        *("STEP", "L2_BYTES", "MEMORY_BYTES", "OUTER_CYCLES", "PART_BYTES"),
        *("PART_CYCLES", "UNEVEN_PERCENT", "MOST_PARTS", "MOST_STEPS"),
    ):
        (value,) = re.findall(rf"\b{name} = ([\d <]+)[,;]", text)
        assert getattr(model, name) == eval(value), name


def test_what_is_chosen_is_nearly_the_fastest() -> None:
    """By times on an H200, of those cuts that were tried there."""
    tiles = [(tile.block_m, tile.block_n) for tile in TILES]
    text = (ROOT / "tests/matmul_times.json").read_text()
    ratios = []
    for shape in json.loads(text)["shapes"]:
        product = Product(1, *shape["sizes"])
        times = {
            Cut(tiles.index((block_m, block_n)), n_blocks, n_streamed): us
            for block_m, block_n, n_blocks, n_streamed, us in shape["times"]
        }
        n_cycles = {cut: model.cycles(product, TILES[cut.tile], cut) for cut in times}
        tried = min(times, key=n_cycles.__getitem__)
        ratios.append(times[tried] / min(times.values()))
        # What was not tried promises no more.
        cut = model.choose(product, TILES, N_SMS, may_share=True)
        promised = model.cycles(product, TILES[cut.tile], cut)
        assert n_cycles[tried] <= 1.01 * promised, product
    assert statistics.geometric_mean(ratios) < 1.01
    assert max(ratios) < 1.15


@pytest.mark.parametrize(
    ("product", "expected"),
    [
        # Fewer tiles than multiprocessors, and deep: each has many parts.
        (Product(1, 64, 64, 16384), True),
        (Product(1, 256, 256, 16384), True),
        # A last wave of a few large tiles, and of nearly all multiprocessors.
        (Product(1, 2432, 1792, 8192), True),
        (Product(1, 16384, 4096, 1024), False),
        # Nothing to share: one wave that is full, or one step.
        (Product(1, 1408, 3072, 4096), False),
        (Product(1, 4096, 4096, 64), False),
    ],
)
def test_tiles_are_shared_where_a_wave_is_thin(
    product: Product, expected: bool
) -> None:
    cut = model.choose(product, TILES, N_SMS, may_share=True)
    assert (cut.n_streamed > 0) == expected


def test_nothing_is_shared_without_memory() -> None:
    for product in products(50):
        cut = model.choose(product, TILES, N_SMS, may_share=False)
        assert cut.n_streamed == 0


def test_a_block_has_a_place_for_each_part() -> None:
    """The workspace is made before a launcher chooses."""
    for product in products(300):
        n_batches, n_rows, n_cols, depth = product
        a, b = (
            torch.empty(n_batches, *size, device="meta", dtype=torch.float16)
            for size in ((n_rows, depth), (depth, n_cols))
        )
        assert OP.workspace is not None
        workspace = OP.workspace("", OP.allocate(a, b), a, b)
        for number, tile in enumerate(TILES):
            for cut in model.cuts(product, tile, number, N_SMS, may_share=True):
                if cut.n_streamed == 0:
                    continue
                parts, n_arrived = workspace
                assert parts is not None
                assert n_arrived is not None
                n_sums = 2 * cut.n_blocks * tile.block_m * tile.block_n
                assert n_sums <= parts.numel()
                assert cut.n_streamed * tile.block_m // 64 <= n_arrived.numel()
                n_steps = -(-depth // model.STEP)
                assert cut.n_blocks <= cut.n_streamed * n_steps
