"""What dropout is tried, timed and judged on."""

from __future__ import annotations

from bindings.ops import dropout
from bindings.trial import (
    ELEMENTWISE_EDGES,
    ELEMENTWISE_SWEEP,
    Trial,
    each_element,
    normal,
)

FORWARD = Trial(
    op=dropout.OP,
    inputs=normal(),
    traffic=each_element(),
    small_shape=(1000003,),
    large_shape=(67108864,),
    benchmark_shapes=((67108864,),),
    sweep_shapes=ELEMENTWISE_SWEEP,
    edge_shapes=ELEMENTWISE_EDGES,
    variants=({"p": 0.5}, {"p": 0.1, "seed": 2**40 + 3}),
    is_rounded_once=True,
)
