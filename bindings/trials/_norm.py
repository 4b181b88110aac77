"""The trials of layer_norm and rms_norm, and of their backwards."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from bindings.op import Op
from bindings.trial import UNEVEN_ROWS, CodeContract, Inputs, Traffic, Trial

_BENCHMARK_SHAPES = (
    (32768, 1024),
    (16384, 4096),
    (4096, 32768),
    *UNEVEN_ROWS,
)
_SWEEP_SHAPES = tuple((4**n, 4096) for n in range(9))

# Shapes around the ends of both languages' tiles, and row counts that fill no tile.
_EDGE_SHAPES: tuple[tuple[int, ...], ...] = (
    (1,),
    (0, 5),
    (5, 0),
    (1, 1),
    (4, 1),
    (2, 3, 31),
    *((3, n) for n in (33, 63, 64, 65, 255, 256, 257, 511, 512, 513)),
    *((3, n) for n in (96, 128, 192, 384, 768, 1536)),
    *((3, n) for n in (1023, 1024, 1025, 2047, 2048, 2049)),
    *((2, n) for n in (4095, 4096, 4097, 8191, 8192, 8193, 16383, 16384, 16385)),
    *((1, n) for n in (3072, 5000, 5120, 5121, 6144, 6152, 12288, 12296)),
    *((1, n) for n in (16388, 32767, 32768, 32769, 65535, 65536)),
    *((2, n) for n in (40000, 65544)),
    (37, 8),
    (1031, 12),
)
EDGE_SHAPES_BACKWARD: tuple[tuple[int, ...], ...] = (
    (1,),
    (0, 5),
    (5, 0),
    (0, 8192),
    (0, 12288),
    (1, 1),
    (4, 1),
    (2, 3, 31),
    *((3, n) for n in (33, 63, 64, 65, 127, 128, 129, 255, 256, 257)),
    *((3, n) for n in (511, 512, 513, 1023, 1024, 1025, 2047, 2048, 2049)),
    *((3, n) for n in (4095, 4096, 4097, 4104, 5120, 5128, 6144, 6152)),
    *((3, n) for n in (8191, 8192, 8193, 8200)),
    *((1, n) for n in (12288, 12296, 16383, 16384, 16392, 32760, 32768, 32769)),
    *((1, n) for n in (24576, 24584, 49152, 49160, 65536, 65544)),
    *((2, n) for n in (16385, 40000)),
    (37, 8),
    (133, 72),
)

# Sums of squares of the first, and of products of three of the second, fit in float32.
_LARGEST_INPUT = 1e16
_LARGEST_INPUT_BACKWARD = 1e8

# Rows in registers, the last of which fill a multiprocessor; and one that is read
# twice, in several tiles.
_CODE_CONTRACT = CodeContract(
    shapes=((4096, 1008), (16384, 4096), (512, 32768), (64, 131072))
)
# Several rows in a block, one row in a block, a row in a cluster, and a row read twice.
_CODE_CONTRACT_BACKWARD = CodeContract(
    shapes=((16384, 64), (2048, 4096), (512, 12288), (64, 131072)),
    narrow_kernels=("_rows_kernel", "sum_partials_kernel"),
    # Triton 3.6 passes sums of columns from warp to warp one at a time.
    conflicting_kernels=("norm_backward_kernel[", "sum_partials_kernel["),
)

# Why kernels are no twins.
_LONG_KERNEL = (
    "A row too long for registers: it is read a second time, out of the L1 cache."
)
_OTHER_KERNELS_BACKWARD = {
    "norm_backward_cached_kernel": "Rows too long for registers beside their sums, "
    "which in Triton are read a second time, out of the L1 cache.",
    "norm_backward_cluster_kernel": "Rows too long for a block, which in CUDA the "
    "blocks of a cluster share: each is reduced before the one before it is stored, so "
    "that no block waits for another.",
    "norm_backward_rows_kernel": "Rows too long for a block or a cluster, in two "
    "launches, each of which reads them once: this one finds the means of each row.",
    "norm_backward_columns_kernel": "The second of the two launches: it walks down the "
    "columns, writes the gradient of x and adds up those of weight and bias.",
}


def forward(op: Op, inputs: Inputs, n_vectors: int) -> Trial:
    """Of a norm with as many vectors (weight, bias) as statistics (mean, rstd)."""

    def traffic(shape: tuple[int, ...], element_size: int) -> Traffic:
        *rows, n_cols = shape
        n_elements, statistics = math.prod(shape), 4 * n_vectors * math.prod(rows)
        return Traffic(
            (n_elements + n_vectors * n_cols) * element_size,
            n_elements * element_size + statistics,
        )

    return Trial(
        op=op,
        other_kernels={"norm_long_kernel": _LONG_KERNEL},
        inputs=inputs,
        traffic=traffic,
        small_shape=(1823, 781),
        large_shape=(16384, 4096),
        benchmark_shapes=_BENCHMARK_SHAPES,
        sweep_shapes=_SWEEP_SHAPES,
        edge_shapes=_EDGE_SHAPES,
        largest_input=_LARGEST_INPUT,
        code_contract=_CODE_CONTRACT,
    )


def backward(
    op: Op,
    forward: Trial,
    inputs: Inputs,
    complete: Callable[..., Any],
    n_vectors: int,
    edge_shapes: tuple[tuple[int, ...], ...] = EDGE_SHAPES_BACKWARD,
) -> Trial:
    """Of the backward of a norm."""

    def traffic(shape: tuple[int, ...], element_size: int) -> Traffic:
        *rows, n_cols = shape
        n_elements, statistics = math.prod(shape), 4 * n_vectors * math.prod(rows)
        return Traffic(
            (2 * n_elements + n_cols) * element_size + statistics,
            (n_elements + n_vectors * n_cols) * element_size,
        )

    return replace(
        forward,
        op=op,
        other_kernels=_OTHER_KERNELS_BACKWARD,
        inputs=inputs,
        traffic=traffic,
        small_shape=(123, 781),
        edge_shapes=edge_shapes,
        largest_input=_LARGEST_INPUT_BACKWARD,
        complete=complete,
        code_contract=_CODE_CONTRACT_BACKWARD,
    )
