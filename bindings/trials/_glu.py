"""The trials of gated linear units, and of their backwards."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from torch import Tensor

from bindings.op import Op
from bindings.trial import (
    ELEMENTWISE_EDGES,
    ELEMENTWISE_SWEEP,
    Inputs,
    Trial,
    each_element,
    with_gradient,
)

# Shapes around the ends of vectors and tiles, then rows that are vector-aligned or not.
_EDGES: tuple[tuple[int, ...], ...] = (
    *ELEMENTWISE_EDGES,
    (2, 1),
    (37, 8),
    (5, 1024),
)

# Beyond this, products of three factors are not all finite in float32, and whether
# PyTorch's derivatives at infinity are NaN depends on dtype and length.
_LARGEST_INPUT_BACKWARD = 1e12


def away_from(x: Tensor, root: float) -> Tensor:
    """Returns x with values within 0.1 of a root of the derivative moved up by 0.2.

    Near a root the terms of the derivative cancel and leave rounding errors, so that a
    comparison says nothing about the gradient.
    """
    return x + 0.2 * ((x - root).abs() < 0.1)


def forward(
    op: Op, inputs: Inputs, variants: tuple[dict[str, Any], ...] = ({},)
) -> Trial:
    """Of a gated linear unit."""
    return Trial(
        op=op,
        inputs=inputs,
        traffic=each_element(reads=2),
        small_shape=(1024, 688),
        large_shape=(8192, 11008),
        benchmark_shapes=((8192, 11008),),
        sweep_shapes=ELEMENTWISE_SWEEP,
        edge_shapes=_EDGES,
        variants=variants,
    )


def backward(op: Op, forward: Trial) -> Trial:
    """Of the backward of a gated linear unit."""
    return replace(
        forward,
        op=op,
        inputs=with_gradient(forward.inputs),
        traffic=each_element(reads=3, writes=2),
        largest_input=_LARGEST_INPUT_BACKWARD,
    )
