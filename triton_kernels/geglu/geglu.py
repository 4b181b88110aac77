"""A linear unit gated by GELU, exact or by its tanh approximation, and its backward.

  geglu:          out[i] = value[i] * gelu(gate[i])
  geglu_backward: value_grad[i] = grad[i] * gelu(gate[i])
                  gate_grad[i] = grad[i] * value[i] * gelu'(gate[i])

Layout   out: contiguous. value_grad, gate_grad: rows of n_cols elements, out_stride_row
         apart. grad, value, gate: read as (n_elements / n_cols, n_cols) with any two
         strides. The halves of one tensor are two matrices like any others.
Traffic  reads 2 and writes 1 element each, once: the ceiling is memory bandwidth at 2
         reads to 1 write, and of the backward at 3 reads to 2 writes. It computes the
         gate again, which costs less than reading it would.
Limits   computes in float32, so float16 and bfloat16 are rounded once.
Mirror   csrc/geglu/geglu.cu
Source   Shazeer 2020, arXiv:2002.05202
"""

from triton_kernels.common.elementwise import plan_elements
from triton_kernels.glu.backward_first import glu_backward_first_kernel
from triton_kernels.glu.backward_twin import glu_backward_kernel
from triton_kernels.glu.first import glu_first_kernel
from triton_kernels.glu.twin import glu_kernel


def geglu(out, value, gate, n_elements, n_cols, *strides, approximate_tanh, rung):
    """Launches the rung's kernel on the current device and stream."""
    kernels = (glu_first_kernel, glu_kernel)
    arguments = (out, value, gate, n_elements, n_cols, *strides)
    kernel, grid, constants = plan_elements(
        rung, kernels, out, n_elements, n_cols, strides
    )
    gate_name = "gelu_tanh" if approximate_tanh else "gelu"
    kernel[grid](*arguments, **constants, ACTIVATION=gate_name)


def geglu_backward(
    value_grad,
    gate_grad,
    grad,
    value,
    gate,
    n_elements,
    n_cols,
    *strides,
    approximate_tanh,
    rung,
):
    """Launches the rung's kernel on the current device and stream."""
    kernels = (glu_backward_first_kernel, glu_backward_kernel)
    arguments = (value_grad, gate_grad, grad, value, gate, n_elements, n_cols, *strides)
    kernel, grid, constants = plan_elements(
        rung, kernels, value_grad, n_elements, n_cols, strides
    )
    gate_name = "gelu_tanh" if approximate_tanh else "gelu"
    kernel[grid](*arguments, **constants, ACTIVATION=gate_name)
