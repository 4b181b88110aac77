"""What rotary and its backward are tried, timed and judged on."""

from __future__ import annotations

import math
from dataclasses import replace

import torch
from torch import Tensor

from bindings.ops import rotary
from bindings.trial import Traffic, Trial


def _four(shape: tuple[int, ...]) -> tuple[int, ...]:
    """A shape with all four dimensions: those missing at the front are 1."""
    return (1,) * (4 - len(shape)) + shape


def _inputs(
    shape: tuple[int, ...], generator: torch.Generator
) -> tuple[Tensor, Tensor, Tensor]:
    batch, seq_len, n_heads, head_dim = _four(shape)
    x = torch.randn((batch, seq_len, n_heads, head_dim), generator=generator)
    # Angles of every size, whereas a model's are small for most pairs.
    angles = 2 * math.pi * torch.rand((seq_len, head_dim // 2), generator=generator)
    return x, angles.cos(), angles.sin()


def _traffic(shape: tuple[int, ...], element_size: int) -> Traffic:
    _, seq_len, _, head_dim = _four(shape)
    n_bytes = math.prod(shape) * element_size
    tables = 2 * seq_len * (head_dim // 2) * element_size
    return Traffic(n_bytes + tables, n_bytes)


FORWARD = Trial(
    op=rotary.OP,
    inputs=_inputs,
    traffic=_traffic,
    small_shape=(2, 217, 12, 96),
    large_shape=(4, 4096, 32, 128),
    benchmark_shapes=(
        (4, 4096, 32, 128),
        (5, 5001, 40, 64),
        (3, 5001, 40, 96),
        (2, 3001, 40, 256),
    ),
    sweep_shapes=tuple((1, 4**n, 32, 128) for n in range(9)),
    edge_shapes=(
        (),
        (0, 5),
        (5, 0),
        (0, 3, 2, 8),
        (3, 0, 2, 8),
        *((2, 3, 5, n) for n in (1, 2, 3, 7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 65)),
        *((2, 3, 2, n) for n in (64, 80, 96, 128, 192, 256)),
        # Around the threads of a block and the tile of a program, for one row.
        *((1, 2, 2, n) for n in (253, 257, 258, 259, 511, 513, 1023, 1025, 1026)),
        *((1, 2, 2, n) for n in (2047, 2049, 2064, 2080, 4100)),
        # Around the rows of a block and of a program.
        *((1, 1, n, 128) for n in (7, 8, 9, 15, 16, 17)),
        (3, 7, 1, 64),
        (1, 217, 3, 40),
        (1031, 1, 1, 12),
    ),
    variants=({"interleaved": False}, {"interleaved": True}),
)

BACKWARD = replace(FORWARD, op=rotary.BACKWARD)
