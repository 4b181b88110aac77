"""The Gaussian error linear unit, exact or by its tanh approximation, and its backward.

  gelu:          out[i] = x[i] * Phi(x[i])
  gelu_backward: out[i] = grad[i] * (Phi(x[i]) + x[i] * phi(x[i]))
  Phi and phi: distribution function and density of the standard normal

Layout   out: contiguous. grad, x: read as (n_elements / n_cols, n_cols) with any two
         strides.
Traffic  reads and writes every element once: the ceiling is the bandwidth of a copy,
         and of the backward that of 2 reads to 1 write.
Limits   computes in float32, so float16 and bfloat16 are rounded once.
Mirror   csrc/gelu/gelu.cu
Source   Hendrycks & Gimpel 2016, arXiv:1606.08415
"""

from triton_kernels.common.elementwise import plan_elements
from triton_kernels.unary.backward_first import unary_backward_first_kernel
from triton_kernels.unary.backward_twin import unary_backward_kernel
from triton_kernels.unary.first import unary_first_kernel
from triton_kernels.unary.twin import unary_kernel


def gelu(out, x, n_elements, n_cols, *strides, approximate_tanh, rung):
    """Launches the rung's kernel on the current device and stream."""
    kernels = (unary_first_kernel, unary_kernel)
    arguments = (out, x, n_elements, n_cols, *strides)
    kernel, grid, constants = plan_elements(
        rung, kernels, out, n_elements, n_cols, strides
    )
    activation = "gelu_tanh" if approximate_tanh else "gelu"
    kernel[grid](*arguments, **constants, ACTIVATION=activation)


def gelu_backward(out, grad, x, n_elements, n_cols, *strides, approximate_tanh, rung):
    """Launches the rung's kernel on the current device and stream."""
    kernels = (unary_backward_first_kernel, unary_backward_kernel)
    arguments = (out, grad, x, n_elements, n_cols, *strides)
    kernel, grid, constants = plan_elements(
        rung, kernels, out, n_elements, n_cols, strides
    )
    activation = "gelu_tanh" if approximate_tanh else "gelu"
    kernel[grid](*arguments, **constants, ACTIVATION=activation)
