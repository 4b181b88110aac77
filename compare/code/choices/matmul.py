"""What a product of matrices was cut into: a rung, tiles, parts of K, and why.

The launchers choose by a model; this tells what they chose by their launches alone.
What it knows of kernels and their constants is in `_Cut.of`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from bindings.backends import native
from compare.code.choices import Choice
from compare.code.planned import PlannedLaunch
from compare.code.words import amount, counted, listed

_TWIN, _TF32_TWIN = "matmul_kernel", "matmul_tf32_kernel"
# What is launched beside the product: before it, where operands are copied to aligned
# rows, transposed or split, and behind it, where tiles have several parts.
_ALIGNS, _TRANSPOSES = "matmul_align_kernel", "matmul_transpose_kernel"
_ADDS = "matmul_sum_kernel"
# Rows and columns of the tiles of CUDA's first rung, whose kernel has no others.
_FIRST_TILE = (8, 32)
_ALIGNED = 16  # bytes: where tensor maps need rows to begin


@dataclass(frozen=True)
class _Cut:
    """How a call was cut up."""

    kernel: str
    block_m: int
    block_n: int
    n_stages: int  # 0 where that is not known
    cluster: tuple[int, int]  # tiles of a column and of a row that share what they load
    n_blocks: int
    n_batches: int
    n_tile_rows: int  # of a matrix
    n_tile_cols: int
    n_shared: int  # tiles that several blocks have parts of
    n_aligned: int  # operands that are copied to aligned rows
    n_transposed: int
    n_split: int  # of either, into two parts of each element

    @classmethod
    def of(cls, choice: Choice) -> _Cut:
        """Reads it from the launches."""
        kernels = [each.kernel for each in choice.launches]
        others = (_ALIGNS, _TRANSPOSES, _ADDS)
        (main,) = (e for e in choice.launches if e.kernel not in others)
        constants, arguments = main.constants, main.arguments
        n_stages = constants.get("num_stages", 0)
        cluster, of_streamed = (1, 1), len(arguments) - 1
        if "BLOCK_M" in constants:
            block_m, block_n = constants["BLOCK_M"], constants["BLOCK_N"]
            n_stages = constants.get("NUM_STAGES", n_stages)
            if main.kernel == _TF32_TWIN and constants["B_IS_LEFT"]:
                block_m, block_n = block_n, block_m
        elif main.kernel == _TF32_TWIN:  # whose rows are those of b where it is left
            block_m, block_n, n_stages = (constants[i] for i in range(3))
            if arguments[len(arguments) - 3]:
                block_m, block_n = block_n, block_m
        elif isinstance(constants.get(1), int):  # of CUDA, after the elements' type
            block_m, block_n = constants[1], constants[2]
            if main.kernel == _TWIN:
                n_stages, of_streamed = constants[3], len(arguments) - 3
                cluster = arguments[len(arguments) - 2], arguments[len(arguments) - 1]
        elif main.kernel == "matmul_tiled_kernel":
            block_m, block_n = constants[2], constants[3]
        else:
            block_m, block_n = _FIRST_TILE
        out = choice.arguments[0]
        assert isinstance(out, Tensor)
        *batch, n_rows, n_cols = out.shape
        # Those of a cluster count even where they lie outside.
        tile_rows = -(-n_rows // (block_m * cluster[0])) * cluster[0]
        tile_cols = -(-n_cols // (block_n * cluster[1])) * cluster[1]
        n_tiles = math.prod(batch) * tile_rows * tile_cols
        n_shared = 0
        if _ADDS in kernels:
            # Where each block has a tile or less, all have parts.
            n_shared = n_tiles
            if n_tiles > main.n_blocks:
                n_streamed = arguments.get("n_streamed", arguments.get(of_streamed))
                n_shared = n_streamed * math.prod(cluster)
        return cls(
            *(main.kernel, block_m, block_n, n_stages, cluster, main.n_blocks),
            *(math.prod(batch), tile_rows, tile_cols, n_shared),
            sum(e.kernel == _ALIGNS and not _splits(e) for e in choice.launches),
            kernels.count(_TRANSPOSES),
            sum(map(_splits, choice.launches)),
        )

    @property
    def rung(self) -> str:
        """The rung whose kernel it is."""
        if self.kernel == _TF32_TWIN:
            return "twin"
        name = self.kernel.removeprefix("matmul_").removesuffix("kernel")
        return name.removesuffix("_") or "twin"

    @property
    def n_tiles(self) -> int:
        """All tiles."""
        return self.n_batches * self.n_tile_rows * self.n_tile_cols

    @property
    def tiles(self) -> str:
        """Such as "2 x 32 x 16 = 1,024 tiles"."""
        sizes = (self.n_batches, self.n_tile_rows, self.n_tile_cols)
        factors = [f"{each:,}" for each in sizes if each > 1]
        product = f"{' x '.join(factors)} = " if len(factors) > 1 else ""
        return product + counted(self.n_tiles, "tile")


def _splits(launch: PlannedLaunch) -> bool:
    """Whether it copies an operand to two planes, one of each part."""
    if launch.kernel not in (_ALIGNS, _TRANSPOSES):
        return False
    of_cuda = launch.constants.get(1)  # after the elements' type
    return bool(launch.constants.get("NUM_PLANES", of_cuda) == 2)


def sentence(choice: Choice) -> str:
    """The tile, the rung, whether K is cut in parts, and why."""
    cut = _Cut.of(choice)
    n_sms = choice.architecture.multiprocessors
    stages = f", {counted(cut.n_stages, 'stage')}" if cut.n_stages else ""
    reason = _why_this_rung(cut, choice)
    rung = f"{cut.rung}, {reason}" if reason else cut.rung
    tile = f"{cut.block_m} x {cut.block_n} tiles{stages} ({rung})"
    if (n_together := math.prod(cut.cluster)) > 1:
        operand, line = ("b", "column") if cut.cluster[0] > 1 else ("a", "row")
        tile += f", {n_together} in a {line} load their {operand} together"
    if cut.n_shared:
        parts = f"{tile}, {_parts(cut)}: {_why_parts(cut, n_sms)}"
        told = f"{parts}; a second launch adds the parts"
    else:
        told = f"{tile}: {_filling(cut, n_sms)}"
    for n_operands, what in (
        (cut.n_split, "split into large and small parts first"),
        (cut.n_aligned, f"copied first, to rows of a multiple of {_ALIGNED} bytes"),
        (cut.n_transposed, "transposed first, as tensor cores take tf32 along K"),
    ):
        if n_operands:
            operands = "an operand is" if n_operands == 1 else "both operands are"
            told += f"; {operands} {what}"
    return told


def _why_this_rung(cut: _Cut, choice: Choice) -> str:
    """Why the twin does not compute the call, if another rung does."""
    if choice.is_asked or cut.rung == "twin":
        return ""
    if choice.twin_serves:
        return "which takes less time than the twin by the model"
    out, a, b = choice.arguments[:3]
    assert isinstance(out, Tensor)
    assert isinstance(a, Tensor)
    if a.shape[-1] == 0:
        return "as there is nothing to multiply"
    if out.dtype == torch.float32:
        if cut.rung in ("first", "tiled"):
            return "as float32 by IEEE 754 takes plain arithmetic"
        return f"as the twin is not for {choice.architecture.name}"
    uneven = [
        name
        for position, (name, each) in enumerate({"a": a, "b": b}.items(), 1)
        if isinstance(each, Tensor) and _is_uneven(position, each)
    ]
    if uneven:
        rows = f"rows of {listed(uneven)}"
        return f"without tensor maps, as {rows} are not aligned to {_ALIGNED} bytes"
    return f"as the twin is not for {choice.architecture.name}"


def _is_uneven(position: int, x: Tensor) -> bool:
    """Whether rows, or columns, or matrices begin where no tensor map can."""
    steps = zip(x.shape, x.stride(), strict=True)
    places = [step for size, step in steps if size > 1 and step > 1]
    starts = (native.address(position, x), *(e * x.element_size() for e in places))
    return any(each % _ALIGNED for each in starts)


def _filling(cut: _Cut, n_sms: int) -> str:
    """How whole tiles fill a GPU."""
    n_tiles, n_blocks = cut.n_tiles, cut.n_blocks
    if n_tiles < n_sms:
        verb = "leaves" if n_tiles == 1 else "leave"
        return f"{cut.tiles} {verb} {_idle(n_tiles, n_sms)}"
    if n_tiles == n_sms:
        return f"{cut.tiles}, one for each multiprocessor"
    if n_blocks == n_tiles:
        share = amount(n_tiles / n_sms)
        return f"{cut.tiles}, {share} for each of {n_sms} multiprocessors"
    filling = f"{cut.tiles} on {n_sms} multiprocessors, {_waves(cut, n_sms)}"
    if n_left := n_tiles % n_blocks:
        verb = "is" if n_left == 1 else "are"
        return f"{filling}; the last wave's {counted(n_left, 'tile')} {verb} whole"
    return filling


def _waves(cut: _Cut, n_sms: int) -> str:
    """How often all blocks take a tile."""
    waves = counted(cut.n_tiles / cut.n_blocks, "wave")
    return waves if cut.n_blocks == n_sms else f"{waves} of {cut.n_blocks:,}"


def _idle(n_busy: int, n_all: int) -> str:
    return f"{n_all - n_busy:,} of {n_all:,} multiprocessors idle"


def _parts(cut: _Cut) -> str:
    """How K is cut up."""
    blocks = counted(cut.n_blocks, "block")
    if cut.n_shared < cut.n_tiles:
        tiles = f"{cut.n_shared:,} of {counted(cut.n_tiles, 'tile')}"
        return f"K of {tiles} shared out among {blocks}"
    n_parts, n_left = divmod(cut.n_blocks, cut.n_tiles)
    if n_left:
        return f"K of all tiles shared out among {blocks}"
    return f"K in {counted(n_parts, 'part')}"


def _why_parts(cut: _Cut, n_sms: int) -> str:
    """What whole tiles would have left idle."""
    if cut.n_tiles < n_sms:
        return f"{cut.tiles} would leave {_idle(cut.n_tiles, n_sms)}"
    if cut.n_tiles <= cut.n_blocks:
        return f"{cut.tiles} cannot be shared out evenly among {n_sms} multiprocessors"
    waves, n_left = _waves(cut, n_sms), cut.n_tiles % cut.n_blocks
    thin = f"{counted(n_left, 'tile')} for {counted(cut.n_blocks, 'block')}"
    return f"{cut.tiles} are {waves}, the last one with {thin}"
