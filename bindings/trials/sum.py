"""What sum is tried, timed and judged on."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from bindings.ops import sum
from bindings.trial import UNEVEN_ROWS, CodeContract, Traffic, Trial


def _inputs(shape: tuple[int, ...], generator: torch.Generator) -> tuple[Tensor]:
    # Sums of numbers around 0 would cancel and leave rounding errors.
    return (1 + torch.randn(shape, generator=generator),)


def _traffic(shape: tuple[int, ...], element_size: int) -> Traffic:
    # Beside the bytes read, the result is negligible.
    return Traffic(math.prod(shape) * element_size, 0)


FORWARD = Trial(
    op=sum.OP,
    other_kernels={
        "sum_rows_kernel": "Rows whose reduced dimension is contiguous: threads "
        "that share a row read it along, and add up what they have found.",
    },
    inputs=_inputs,
    traffic=_traffic,
    small_shape=(1823, 781),
    large_shape=(16384, 8192),
    benchmark_shapes=(
        (16384, 8192),
        (1048576, 128),
        (64, 2097152),
        *UNEVEN_ROWS[1::2],
    ),
    sweep_shapes=tuple((4**n, 4096) for n in range(9)),
    edge_shapes=(
        (),
        (0,),
        (1,),
        (0, 5),
        (5, 0),
        (1, 1),
        (4, 1),
        (2, 3, 31),
        # Around the ends of vectors, warps and tiles, along rows and across them.
        *((3, n) for n in (7, 8, 9, 33, 63, 65, 127, 128, 129, 257, 513)),
        *((3, n) for n in (2047, 2049, 4095, 4097)),
        (130, 65),
        *((n, 3) for n in (33, 255, 256, 257, 2047)),
        *((n, 40) for n in (15, 17, 31, 33, 64, 129)),
        (3, 4, 520),
        (8, 1024),
        # Split, and added up by a second launch.
        (3, 16391),
        (300, 512),
        (1000, 130),
        (13000, 2),
    ),
    variants=({"dim": 0}, {"dim": -1}),
    code_contract=CodeContract(
        # Along rows and across them: whole, and split, when a second kernel adds
        # the parts.
        shapes=((16384, 8192), (1048576, 128)),
        is_reduction=True,
        # Triton 3.6 hands sums of columns from warp to warp one by one.
        conflicting_kernels=("sum_kernel[",),
    ),
)
