"""What gelu and its backward are tried, timed and judged on."""

from __future__ import annotations

from bindings.ops import gelu
from bindings.trials import _unary

FORWARD = _unary.forward(
    gelu.OP,
    variants=tuple({"approximate": choice} for choice in gelu.APPROXIMATIONS),
)
BACKWARD = _unary.backward(gelu.BACKWARD, FORWARD)
