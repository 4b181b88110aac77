"""What scaled_matmul is tried, timed and judged on."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from bindings.ops import scaled_matmul
from bindings.trial import CodeContract, Traffic, Trial


def sizes_of(shape: tuple[int, ...]) -> tuple[int, int, int]:
    """M, N and K; those missing at the front are 1, and those beyond belong to M."""
    *rows, n_cols, depth = (1,) * (2 - len(shape)) + shape
    return math.prod(rows), n_cols, depth


def _inputs(
    shape: tuple[int, ...], generator: torch.Generator
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    n_rows, n_cols, depth = sizes_of(shape)
    # Scales come as other numbers do, and are float32 in the end.
    return (
        torch.randn(n_rows, depth, generator=generator).to(scaled_matmul.E4M3),
        torch.randn(n_cols, depth, generator=generator).to(scaled_matmul.E4M3),
        torch.randn((), generator=generator),
        torch.randn((), generator=generator),
    )


def _complete(
    a: Tensor, columns: Tensor, scale_a: Tensor, scale_b: Tensor
) -> tuple[Tensor, ...]:
    """The columns of b are what a layout is of: tensor cores take it along k."""
    return a, columns.T, scale_a.float(), scale_b.float()


def _traffic(shape: tuple[int, ...], element_size: int) -> Traffic:
    n_rows, n_cols, depth = sizes_of(shape)
    scale_bytes = 2 * 4
    read = (n_rows + n_cols) * depth + scale_bytes
    return Traffic(read, n_rows * n_cols * element_size)


def _flops(shape: tuple[int, ...], _params: Mapping[str, Any]) -> int:
    return 2 * math.prod(shape)


FORWARD = Trial(
    op=scaled_matmul.OP,
    yardstick=scaled_matmul.yardstick,
    inputs=_inputs,
    complete=_complete,
    dtype_parameter="out_dtype",
    traffic=_traffic,
    flops=_flops,
    shape_names=("M", "N", "K"),
    sweep_over="M",
    other_kernels={
        "scaled_matmul_kernel": "One warp loads, two warpgroups multiply and store; in "
        "Triton, the compiler decides how their threads share what they store.",
    },
    small_shape=(128, 128, 128),
    large_shape=(4096, 4096, 4096),
    benchmark_shapes=(
        (4096, 4096, 4096),
        (8192, 8192, 8192),
        (8192, 28672, 4096),
        (16384, 4096, 1024),
        (2048, 2048, 2048),
        (64, 8192, 8192),
    ),
    sweep_shapes=tuple((2**n,) * 3 for n in range(7, 14)),
    # Around the ends of tiles, steps and aligned rows, and no elements; one has more
    # tiles than an H200 has multiprocessors.
    edge_shapes=(
        (0, 5, 3),
        (5, 0, 3),
        (4, 5, 0),
        (1, 1, 1),
        (17, 15, 65),
        (16, 24, 40),
        (64, 63, 129),
        (127, 129, 16),
        (129, 128, 1),
        (1, 130, 128),
        (65, 1, 127),
        (257, 33, 272),
        (128, 136, 640),
        (16897, 8, 16),
    ),
    code_contract=CodeContract(
        # Each of CUDA's tiles.
        shapes=((256, 256, 256), (16384, 256, 256)),
        wasteful_kernels=("scaled_matmul_first_kernel",),
        # As of matmul, results of float32 meet in banks on their way out.
        conflicting_kernels=("scaled_matmul_kernel<float", "scaled_matmul_kernel["),
        instructions={"scaled_matmul_kernel": ("QGMMA", "UTMALDG", "UTMASTG")},
    ),
    # Scales of this size leave room for sums and for each other.
    largest_input=1e15,
)
