#include "native.h"

cudaError_t gelu(
    const Launcher& launch, DType dtype, void* out, const void* x, int64_t n_elements,
    int64_t n_cols, int64_t x_stride_row, int64_t x_stride_col, bool approximate_tanh,
    int rung
);

static const native::Binding gelu_binding("gelu", &gelu);

cudaError_t gelu_backward(
    const Launcher& launch, DType dtype, void* out, const void* grad, const void* x,
    int64_t n_elements, int64_t n_cols, int64_t grad_stride_row,
    int64_t grad_stride_col, int64_t x_stride_row, int64_t x_stride_col,
    bool approximate_tanh, int rung
);

static const native::Binding gelu_backward_binding("gelu_backward", &gelu_backward);
