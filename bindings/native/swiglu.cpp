#include "native.h"

cudaError_t swiglu(
    const Launcher& launch, DType dtype, void* out, const void* gate, const void* up,
    int64_t n_elements, int64_t n_cols, int64_t gate_stride_row,
    int64_t gate_stride_col, int64_t up_stride_row, int64_t up_stride_col, int rung
);

static const native::Binding swiglu_binding("swiglu", &swiglu);

cudaError_t swiglu_backward(
    const Launcher& launch, DType dtype, void* gate_grad, void* up_grad,
    const void* grad, const void* gate, const void* up, int64_t n_elements,
    int64_t n_cols, int64_t out_stride_row, int64_t grad_stride_row,
    int64_t grad_stride_col, int64_t gate_stride_row, int64_t gate_stride_col,
    int64_t up_stride_row, int64_t up_stride_col, int rung
);

static const native::Binding swiglu_backward_binding(
    "swiglu_backward", &swiglu_backward
);
