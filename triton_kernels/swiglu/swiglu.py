"""A linear unit gated by SiLU, and its backward.

  swiglu:          out[i] = silu(gate[i]) * up[i], silu(x) = x / (1 + exp(-x))
  swiglu_backward: gate_grad[i] = grad[i] * up[i] * silu'(gate[i])
                   up_grad[i] = grad[i] * silu(gate[i])

Layout   out: contiguous. gate_grad, up_grad: rows of n_cols elements, out_stride_row
         apart. grad, gate, up: read as (n_elements / n_cols, n_cols) with any two
         strides. The halves of one tensor are two matrices like any others.
Traffic  reads 2 and writes 1 element each, once: the ceiling is memory bandwidth at 2
         reads to 1 write, and of the backward at 3 reads to 2 writes. It computes the
         gate again, which costs less than reading it would.
Limits   computes in float32, so float16 and bfloat16 are rounded once.
Mirror   csrc/swiglu/swiglu.cu
Source   Shazeer 2020, arXiv:2002.05202
"""

from triton_kernels.common.elementwise import plan_elements
from triton_kernels.glu.backward_first import glu_backward_first_kernel
from triton_kernels.glu.backward_twin import glu_backward_kernel
from triton_kernels.glu.first import glu_first_kernel
from triton_kernels.glu.twin import glu_kernel


def swiglu(out, gate, up, n_elements, n_cols, *strides, rung):
    """Launches the rung's kernel on the current device and stream."""
    kernels = (glu_first_kernel, glu_kernel)
    # To the kernels `up` is the value, which comes before the gate.
    strides = (*strides[2:], *strides[:2])
    arguments = (out, up, gate, n_elements, n_cols, *strides)
    kernel, grid, constants = plan_elements(
        rung, kernels, out, n_elements, n_cols, strides
    )
    kernel[grid](*arguments, **constants, ACTIVATION="silu")


def swiglu_backward(
    gate_grad, up_grad, grad, gate, up, n_elements, n_cols, *strides, rung
):
    """Launches the rung's kernel on the current device and stream."""
    kernels = (glu_backward_first_kernel, glu_backward_kernel)
    strides = (*strides[:3], *strides[5:], *strides[3:5])  # up before the gate
    arguments = (up_grad, gate_grad, grad, up, gate, n_elements, n_cols, *strides)
    kernel, grid, constants = plan_elements(
        rung, kernels, gate_grad, n_elements, n_cols, strides
    )
    kernel[grid](*arguments, **constants, ACTIVATION="silu")
