"""Products of drawn shapes, in turns with PyTorch's: measured on a GPU and kept.

Seven shapes that everybody times say little about all others. These are drawn: sizes
are log-uniform, so that there are as many from 1 to 128 as from 128 to 16384, and each
operand lies along k or across it.
"""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch

from bindings.op import Op
from bindings.trials import TRIALS
from compare.errors import UnavailableError
from compare.judge.cases import Case
from compare.judge.parity import Skipped, prepare
from compare.timing import (
    benchmark,
    compiling,
    environment,
    gpu_state,
    implementations,
    turns,
)
from compare.timing.measure import Entry, make_sets
from compare.timing.times import Document
from compare.timing.turns import Times, Turn
from compare.timing.unfinished import Unfinished

SIDES = ("cuda", "triton")
PEER = "torch"
N_PRODUCTS = 300
SEED = 20261128
# Of both operands: as they are, either one or both of them transposed.
LAYOUTS = ("contiguous", "transposed 0", "transposed 1", "transposed")
LARGEST_SIZE = 16384
MOST_FLOPS = 2 * 10**12
# One of so many has a size that is no multiple of 8, so that its rows are not aligned.
_UNALIGNED = 3
_ALIGNMENT = 8
# A tenth of what settles the clocks: the products before have warmed up the GPU.
_WARM_UP_MS = 20.0


@dataclass(frozen=True)
class Product:
    """One shape, and the medians of its times."""

    case: Case
    median_us: Mapping[str, float]  # by implementation


@dataclass(frozen=True)
class Drawn(Document):
    """All that were drawn."""

    SCHEMA_VERSION = 1
    KIND = "drawn"

    seed: int
    products: tuple[Product, ...]


@dataclass(frozen=True)
class Summary:
    """How a language does beside PyTorch, whose time by its own is a speed."""

    mean: float  # geometric
    low: float  # 95 % of the products are faster
    least: float


def draw(n: int = N_PRODUCTS, seed: int = SEED) -> list[Case]:
    """Shapes M, N, K of so many products, and the layouts of their operands."""
    rng = random.Random(seed)
    sizes = _sizes(rng)
    return [
        Case(
            next(each for each in sizes if _is_aligned(each) == (i % _UNALIGNED > 0)),
            torch.bfloat16,
            rng.choice(LAYOUTS),
        )
        for i in range(n)
    ]


def _sizes(rng: random.Random) -> Iterator[tuple[int, int, int]]:
    while True:
        n_rows, n_cols, depth = (
            round(math.exp(rng.uniform(0, math.log(LARGEST_SIZE)))) for _ in range(3)
        )
        if rng.random() < 0.5:  # or hardly any would be multiples
            n_rows, n_cols, depth = (
                -(-size // _ALIGNMENT) * _ALIGNMENT for size in (n_rows, n_cols, depth)
            )
        if 2 * n_rows * n_cols * depth <= MOST_FLOPS:
            yield n_rows, n_cols, depth


def _is_aligned(sizes: Sequence[int]) -> bool:
    return all(size % _ALIGNMENT == 0 for size in sizes)


def measure(
    op: Op,
    progress: Callable[[str], None],
    n: int = N_PRODUCTS,
    seed: int = SEED,
    unfinished: Unfinished[Product] | None = None,
) -> Drawn:
    """Times both languages and PyTorch in turns, and judges what they compute.

    Args:
        op: The product.
        progress: Is told what is going on.
        n: How many products.
        seed: What they are drawn from.
        unfinished: Has products that need not be measured again, and is given the rest.

    Raises:
        CompareError: It cannot be measured, or a result was wrong.
    """
    cases = draw(n, seed)
    compiling.compile_ahead([(op.name, case, "triton") for case in cases], progress)
    surroundings = environment.collect()

    def product_of(case: Case) -> Product:
        found = unfinished.find(case) if unfinished else None
        product = found or Product(case, _medians(op, case))
        if unfinished:
            unfinished.keep(product)
        return product

    products = []
    with gpu_state.measuring():
        for number, case in enumerate(cases, 1):
            name = f"{case.shape_name} {case.layout}"
            progress(f"timing {name}, {number} of {len(cases)}")
            products.append(product_of(case))
            benchmark.free_memory()
    return Drawn(op.name, surroundings, seed, tuple(products))


def _medians(op: Op, case: Case) -> dict[str, float]:
    prepared = prepare(op, case, "cuda")
    sets = make_sets(prepared)
    entries: dict[str, Entry] = {}
    for name, each in implementations.find(op, SIDES, (PEER,)).items():
        if isinstance(each, Skipped):
            raise UnavailableError(f"{name}: {each.reason}")
        entries[name] = Entry(each, prepared, sets)
        entries[name].forget_outputs()
    racing: dict[str, Turn] = {name: each.turn for name, each in entries.items()}
    medians = {}
    for name, times in turns.take_turns(racing, _WARM_UP_MS).items():
        problem = (
            entries[name].wrong_output(prepared)
            if isinstance(times, Times)
            else str(times)
        )
        if problem or not isinstance(times, Times):
            raise UnavailableError(f"{name} at {case.shape_name}: {problem}")
        medians[name] = statistics.median(times.call_us)
    return medians


def speeds_of(drawn: Drawn, side: str) -> list[float]:
    """PyTorch's time by that of a language, by product."""
    return [each.median_us[PEER] / each.median_us[side] for each in drawn.products]


def summarize(drawn: Drawn, side: str) -> Summary:
    """How a language does beside PyTorch."""
    speeds = sorted(speeds_of(drawn, side))
    return Summary(
        mean=statistics.geometric_mean(speeds),
        low=speeds[len(speeds) // 20],
        least=speeds[0],
    )


def flops_of(op: str, case: Case) -> int:
    """The multiplications and additions of a product."""
    flops = TRIALS[op].flops
    assert flops
    return flops(case.shape, case.params)
