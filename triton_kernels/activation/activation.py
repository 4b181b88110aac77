"""An activation of every element, by name, and its backward.

  activation:          out[i] = f(x[i])
  activation_backward: out[i] = grad[i] * f'(x[i])
  f: relu, leaky_relu (slope 0.01), gelu, gelu_tanh, silu

Layout   out: contiguous. grad, x: read as (n_elements / n_cols, n_cols) with any two
         strides.
Traffic  reads and writes every element once: the ceiling is the bandwidth of a copy,
         and of the backward that of 2 reads to 1 write.
Limits   computes in float32, so float16 and bfloat16 are rounded once.
Mirror   csrc/activation/activation.cu
Source   Maas et al. 2013, leaky ReLU; Hendrycks & Gimpel 2016, arXiv:1606.08415, GELU
         and SiLU
"""

from triton_kernels.common.elementwise import plan_elements
from triton_kernels.common.epilogue import ACTIVATIONS
from triton_kernels.unary.backward_first import unary_backward_first_kernel
from triton_kernels.unary.backward_twin import unary_backward_kernel
from triton_kernels.unary.first import unary_first_kernel
from triton_kernels.unary.twin import unary_kernel


def activation(out, x, n_elements, n_cols, *strides, activation, rung):
    """Launches the rung's kernel on the current device and stream."""
    kernels = (unary_first_kernel, unary_kernel)
    arguments = (out, x, n_elements, n_cols, *strides)
    kernel, grid, constants = plan_elements(
        rung, kernels, out, n_elements, n_cols, strides
    )
    kernel[grid](*arguments, **constants, ACTIVATION=ACTIVATIONS[activation])


def activation_backward(out, grad, x, n_elements, n_cols, *strides, activation, rung):
    """Launches the rung's kernel on the current device and stream."""
    kernels = (unary_backward_first_kernel, unary_backward_kernel)
    arguments = (out, grad, x, n_elements, n_cols, *strides)
    kernel, grid, constants = plan_elements(
        rung, kernels, out, n_elements, n_cols, strides
    )
    kernel[grid](*arguments, **constants, ACTIVATION=ACTIVATIONS[activation])
