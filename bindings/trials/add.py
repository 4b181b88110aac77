"""What add is tried, timed and judged on."""

from __future__ import annotations

from bindings.ops import add
from bindings.trial import (
    ELEMENTWISE_EDGES,
    ELEMENTWISE_SWEEP,
    Trial,
    each_element,
    normal,
)

FORWARD = Trial(
    op=add.OP,
    inputs=normal(2),
    traffic=each_element(reads=2),
    small_shape=(1000003,),
    large_shape=(67108864,),
    benchmark_shapes=((16777216,), (67108864,)),
    sweep_shapes=ELEMENTWISE_SWEEP,
    edge_shapes=ELEMENTWISE_EDGES,
    is_rounded_once=True,
)
