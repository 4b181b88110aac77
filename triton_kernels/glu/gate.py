"""The activation of a gate and its derivative, as pure functions.

A kernel takes the activation by its name, a constant at compile time, which is "gelu",
"gelu_tanh" or "silu", and does not know what it computes.
"""

import triton
import triton.language as tl

from triton_kernels.common.math import gelu, gelu_derivative, silu, silu_derivative


@triton.jit
def activate_gate(gate, GATE: tl.constexpr, dtype: tl.constexpr):
    """The factor of the value, as exact as dtype, the result's type, resolves."""
    if GATE == "silu":
        return silu(gate, dtype)
    return gelu(gate, dtype, GATE == "gelu_tanh")


@triton.jit
def activate_gate_derivative(gate, GATE: tl.constexpr, dtype: tl.constexpr):
    """Its derivative, likewise."""
    if GATE == "silu":
        return silu_derivative(gate, dtype)
    return gelu_derivative(gate, dtype, GATE == "gelu_tanh")
