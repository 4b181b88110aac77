#include "native.h"

cudaError_t activation(
    const Launcher& launch, DType dtype, void* out, const void* x, int64_t n_elements,
    int64_t n_cols, int64_t x_stride_row, int64_t x_stride_col, int activation, int rung
);

static const native::Binding activation_binding("activation", &activation);

cudaError_t activation_backward(
    const Launcher& launch, DType dtype, void* out, const void* grad, const void* x,
    int64_t n_elements, int64_t n_cols, int64_t grad_stride_row,
    int64_t grad_stride_col, int64_t x_stride_row, int64_t x_stride_col, int activation,
    int rung
);

static const native::Binding activation_backward_binding(
    "activation_backward", &activation_backward
);
