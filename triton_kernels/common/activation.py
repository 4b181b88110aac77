"""An activation and its backward, as pure functions.

A kernel takes the activation by its name, a constant at compile time, and does not know
what it computes. Memory bounds these kernels and leaves time for forms as exact as
dtype, the type of the result, resolves: the epilogue of a matmul, which has no such
time, takes shorter ones.
"""

import triton
import triton.language as tl

from triton_kernels.common.math import (
    gelu,
    gelu_derivative,
    leaky_relu,
    leaky_relu_backward,
    relu,
    relu_backward,
    silu,
    silu_derivative,
)


@triton.jit
def activate(x, ACTIVATION: tl.constexpr, dtype: tl.constexpr):
    """The activation of x."""
    if ACTIVATION == "relu":
        x = relu(x)
    elif ACTIVATION == "leaky_relu":
        x = leaky_relu(x)
    elif ACTIVATION == "gelu":
        x = gelu(x, dtype, False)
    elif ACTIVATION == "gelu_tanh":
        x = gelu(x, dtype, True)
    elif ACTIVATION == "silu":
        x = silu(x, dtype)
    else:
        tl.static_assert(ACTIVATION == "none")
    return x


@triton.jit
def activate_backward(grad, x, ACTIVATION: tl.constexpr, dtype: tl.constexpr):
    """The gradient of x from that of its activation."""
    if ACTIVATION == "relu":
        grad = relu_backward(grad, x)
    elif ACTIVATION == "leaky_relu":
        grad = leaky_relu_backward(grad, x)
    elif ACTIVATION == "gelu":
        grad *= gelu_derivative(x, dtype, False)
    elif ACTIVATION == "gelu_tanh":
        grad *= gelu_derivative(x, dtype, True)
    elif ACTIVATION == "silu":
        grad *= silu_derivative(x, dtype)
    else:
        tl.static_assert(ACTIVATION == "none")
    return grad
