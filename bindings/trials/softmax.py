"""What softmax and its backward are tried, timed and judged on."""

from __future__ import annotations

import torch
from torch import Tensor

from bindings.ops import softmax
from bindings.trial import UNEVEN_ROWS, CodeContract, Trial, each_element, normal


def _inputs_backward(
    shape: tuple[int, ...], generator: torch.Generator
) -> tuple[Tensor, Tensor]:
    grad, x = (torch.randn(shape, generator=generator) for _ in range(2))
    return grad, torch.softmax(x, -1)


# Shapes around the ends of both languages' tiles, and a row count that fills no tile.
_EDGES: tuple[tuple[int, ...], ...] = (
    (),
    (0, 5),
    (5, 0),
    (1, 1),
    (4, 1),
    (2, 3, 31),
    *((3, n) for n in (33, 63, 64, 65, 255, 256, 257, 511, 512, 513)),
    *((3, n) for n in (1023, 1024, 1025, 2047, 2048, 2049)),
    *((2, n) for n in (4095, 4096, 4097, 8191, 8193, 16383, 16384, 16385)),
    *((1, n) for n in (6144, 6152, 12288, 12296)),
    *((2, n) for n in (32767, 32768, 32769, 40000)),
    (1, 131072),
    (1, 1048577),
    (37, 8),
    (1031, 12),
)
_SWEEP = tuple((4**n, 4096) for n in range(9))

BACKWARD = Trial(
    op=softmax.BACKWARD,
    other_kernels={
        "softmax_backward_long_kernel": "Rows too long for registers: CUDA keeps "
        "them in the shared memory of a cluster; Triton, for rows that begin anywhere, "
        "keeps a part in registers, and reads the rest again.",
        "softmax_backward_shared_kernel": "Triton alone: rows too long for registers "
        "that begin at multiples of a vector, which the programs of a cooperative grid "
        "share; they exchange their sums through global memory, as CUDA's blocks of a "
        "cluster do through distributed shared memory.",
    },
    inputs=_inputs_backward,
    traffic=each_element(reads=2),
    small_shape=(1823, 781),
    large_shape=(16384, 4096),
    benchmark_shapes=((16384, 4096), (4096, 131072), *UNEVEN_ROWS),
    sweep_shapes=_SWEEP,
    edge_shapes=_EDGES,
    code_contract=CodeContract(
        # Rows in a warp, in a block, in a cluster or read twice, and shared in both.
        shapes=((4096, 1008), (16384, 4096), (512, 32768), (64, 131072))
    ),
)

FORWARD = Trial(
    op=softmax.OP,
    other_kernels={
        "softmax_long_kernel": "A row too long for registers: CUDA keeps it in the "
        "shared memory of a cluster; Triton has neither, keeps a part in "
        "registers, and reads the rest again.",
        "softmax_cached_kernel": "Triton alone: a row of 16385 to 65536 two-byte "
        "elements, which the L1 holds, is read from there three times, in 0.5 to "
        "0.9 of what softmax_long_kernel takes.",
    },
    inputs=normal(),
    traffic=each_element(),
    small_shape=(1823, 781),
    large_shape=(16384, 4096),
    benchmark_shapes=(
        (32768, 1024),
        (16384, 4096),
        (8192, 32768),
        (4096, 131072),
        *UNEVEN_ROWS,
    ),
    sweep_shapes=_SWEEP,
    edge_shapes=_EDGES,
    code_contract=CodeContract(
        # Rows in a warp, in a block, and in a cluster's blocks or read twice.
        shapes=((4096, 1008), (16384, 4096), (512, 40960), (64, 131072))
    ),
)
