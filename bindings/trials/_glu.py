"""Shapes and inputs that gated linear units share."""

from __future__ import annotations

from torch import Tensor

from bindings.trial import ELEMENTWISE_EDGES

# Shapes around the ends of vectors and tiles, then rows that are vector-aligned or not.
EDGES: tuple[tuple[int, ...], ...] = (
    *ELEMENTWISE_EDGES,
    (2, 1),
    (37, 8),
    (5, 1024),
)

# Beyond this, products of three factors are not all finite in float32, and whether
# PyTorch's derivatives at infinity are NaN depends on dtype and length.
LARGEST_INPUT_BACKWARD = 1e12


def away_from(x: Tensor, root: float) -> Tensor:
    """Returns x with values within 0.1 of a root of the derivative moved up by 0.2.

    Near a root the terms of the derivative cancel and leave rounding errors, so that a
    comparison says nothing about the gradient.
    """
    return x + 0.2 * ((x - root).abs() < 0.1)
