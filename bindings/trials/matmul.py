"""What matmul is tried, timed and judged on."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from bindings.ops import matmul
from bindings.trial import CodeContract, Traffic, Trial


def sizes_of(shape: tuple[int, ...]) -> tuple[int, int, int, int]:
    """Batch, M, N and K; those missing at the front are 1."""
    n_batches, n_rows, n_cols, depth = (1,) * (4 - len(shape)) + shape
    return n_batches, n_rows, n_cols, depth


def _inputs(
    shape: tuple[int, ...], generator: torch.Generator
) -> tuple[Tensor, Tensor, Tensor]:
    batch, (n_rows, n_cols, depth) = shape[:-3], sizes_of(shape)[1:]
    return (
        torch.randn(*batch, n_rows, depth, generator=generator),
        torch.randn(*batch, depth, n_cols, generator=generator),
        torch.randn(n_cols, generator=generator),
    )


def _traffic(shape: tuple[int, ...], element_size: int) -> Traffic:
    n_batches, n_rows, n_cols, depth = sizes_of(shape)
    read = n_batches * (n_rows + n_cols) * depth
    return Traffic(read * element_size, n_batches * n_rows * n_cols * element_size)


def _flops(shape: tuple[int, ...], _params: Mapping[str, Any]) -> int:
    return 2 * math.prod(shape)


FORWARD = Trial(
    op=matmul.OP,
    yardstick=matmul.yardstick,
    inputs=_inputs,
    traffic=_traffic,
    flops=_flops,
    shape_names=("M", "N", "K"),
    sweep_over="M",
    other_kernels={
        "matmul_kernel": "The twins differ in who does what: CUDA's warps load, "
        "multiply or store, and blocks of a cluster may load for each other; Triton "
        "gives all warps of a program the same work and decides itself when they wait.",
        "matmul_tensor_cores_kernel": "CUDA copies chunks of 16 bytes past the "
        "registers and is told which operands have room behind their rows; Triton is "
        "compiled for what divides their sizes, and masks the rest.",
        "matmul_align_kernel": "On Hopper, copies operands whose rows are not aligned, "
        "where that takes less time than to read them as they are, or in two planes.",
        "matmul_tf32_kernel": "On Hopper, the twin for float32, one operand of which "
        "comes to the tensor cores through registers.",
        "matmul_transpose_kernel": "On Hopper, transposes operands of tf32 where "
        "tensor cores would take them from shared memory, but not across K.",
        "matmul_sum_kernel": "On Hopper, adds the parts of tiles that several blocks "
        "share.",
    },
    optional_inputs=("bias",),
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
    # Around the ends of tiles and vectors, whole vectors, no elements, and batches;
    # one has more tiles than an H200 has multiprocessors.
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
        (1, 130, 63),
        (65, 1, 127),
        (2, 33, 17, 40),
        (3, 1, 129, 16),
        (133, 8, 8, 72),
        (2, 16, 8, 72),
    ),
    variants=(
        {},
        {"bias": True, "activation": "gelu"},
        {"bias": True, "activation": "relu"},
        {"precision": "tf32"},
        {"precision": "tf32x3"},
    ),
    float32_variants=({"precision": "tf32"}, {"precision": "tf32x3"}),
    # CUDA's largest tile, and Triton's of 128 x 128, with little work for each.
    code_contract=CodeContract(
        shapes=((128, 128, 256, 64),),
        # CUDA copies elements that may lie anywhere.
        narrow_kernels=("matmul_align_kernel<",),
        # For tf32 Triton transposes tiles of b on the way to the tensor cores. On their
        # way out, results of float32 meet in banks in both languages.
        conflicting_kernels=(
            "matmul_tensor_cores_kernel[",
            "matmul_tf32_kernel[",
            "matmul_tf32_kernel<",
        ),
        instructions={
            "matmul_kernel": (r"HGMMA|UTC\w*MMA", "UTMALDG", "UTMASTG"),
            "matmul_tf32_kernel": ("HGMMA", "UTMALDG", "UTMASTG"),
            "matmul_tensor_cores_kernel": ("HG?MMA",),
            "matmul_tiled_kernel": ("FFMA",),
        },
    ),
    # Products of two such inputs leave room for sums.
    largest_input=1e15,
)
