"""The trials of ops that apply a function to every element, and of their backwards."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from bindings.op import Op
from bindings.trial import (
    ELEMENTWISE_EDGES,
    ELEMENTWISE_SWEEP,
    Trial,
    each_element,
    normal,
    with_gradient,
)


def forward(op: Op, variants: tuple[dict[str, Any], ...]) -> Trial:
    """Of an op whose function bends around 0 and has two tails."""
    return Trial(
        op=op,
        inputs=normal(scale=3.0),  # covers both tails and the bend between them
        traffic=each_element(),
        small_shape=(1000003,),
        large_shape=(67108864,),
        benchmark_shapes=((67108864,),),
        sweep_shapes=ELEMENTWISE_SWEEP,
        edge_shapes=ELEMENTWISE_EDGES,
        variants=variants,
    )


def backward(op: Op, forward: Trial) -> Trial:
    """Of the backward of such an op."""
    inputs = with_gradient(forward.inputs)
    return replace(forward, op=op, inputs=inputs, traffic=each_element(reads=2))
