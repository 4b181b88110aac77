"""What activation and its backward are tried, timed and judged on."""

from __future__ import annotations

from bindings.ops import activation
from bindings.trials import _unary

FORWARD = _unary.forward(
    activation.OP,
    variants=tuple({"activation": choice} for choice in activation.ACTIVATIONS),
)
BACKWARD = _unary.backward(activation.BACKWARD, FORWARD)
