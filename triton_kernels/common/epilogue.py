"""The epilogue of a matmul, as pure functions of a sum: the mirror of epilogue.cuh.

A kernel takes the activation by its name, a constant at compile time, and does not know
what it computes.
"""

import triton
import triton.language as tl

from triton_kernels.common.math import (
    gelu_erf,
    gelu_erf_bfloat16_of_half,
    gelu_erf_fast,
    gelu_tanh,
    gelu_tanh_bfloat16_of_half,
    leaky_relu,
    relu,
    silu,
    silu_fast,
)

# In the order of epilogue.cuh: launchers take an activation by its place in it.
ACTIVATIONS = ("none", "relu", "leaky_relu", "gelu", "gelu_tanh", "silu")


@triton.jit
def argument_scale(ACTIVATION: tl.constexpr, dtype: tl.constexpr):
    """An activation takes x times this power of two, which loses no digit of x.

    One that needs x / 2 gets it, at no cost, from the instruction that adds sum and
    bias.
    """
    IS_GELU: tl.constexpr = ACTIVATION == "gelu" or ACTIVATION == "gelu_tanh"
    return tl.constexpr(0.5 if IS_GELU and dtype == tl.bfloat16 else 1.0)


@triton.jit
def activate_scaled(x, ACTIVATION: tl.constexpr, dtype: tl.constexpr):
    """The activation of an x that comes scaled.

    Its error is below what dtype, the type of the result, resolves.
    """
    IS_FLOAT32: tl.constexpr = dtype == tl.float32
    IS_BFLOAT16: tl.constexpr = dtype == tl.bfloat16
    if ACTIVATION == "relu":
        x = relu(x)
    elif ACTIVATION == "leaky_relu":
        x = leaky_relu(x)
    elif ACTIVATION == "gelu":
        if IS_FLOAT32:
            x = gelu_erf(x)
        elif IS_BFLOAT16:
            x = gelu_erf_bfloat16_of_half(x)
        else:
            x = gelu_erf_fast(x)
    elif ACTIVATION == "gelu_tanh":
        x = gelu_tanh_bfloat16_of_half(x) if IS_BFLOAT16 else gelu_tanh(x)
    elif ACTIVATION == "silu":
        x = silu(x, dtype) if IS_FLOAT32 else silu_fast(x)
    else:
        tl.static_assert(ACTIVATION == "none")
    return x


@triton.jit
def epilogue(accumulator, scaled_bias, ACTIVATION: tl.constexpr, dtype: tl.constexpr):
    """The activation of sums plus their columns' bias, which comes scaled, or None."""
    x = accumulator * argument_scale(ACTIVATION, dtype)
    if scaled_bias is not None:
        x += scaled_bias
    return activate_scaled(x, ACTIVATION, dtype)
