#include "native.h"

cudaError_t softmax(
    const Launcher& launch, DType dtype, void* out, const void* x, int64_t n_rows,
    int64_t n_cols, int64_t rows_per_batch, int64_t x_stride_batch,
    int64_t x_stride_row, int rung
);

static const native::Binding softmax_binding("softmax", &softmax);

cudaError_t softmax_backward(
    const Launcher& launch, DType dtype, void* out, const void* grad, const void* y,
    int64_t n_rows, int64_t n_cols, int64_t rows_per_batch, int64_t grad_stride_batch,
    int64_t grad_stride_row, int64_t y_stride_batch, int64_t y_stride_row, int rung
);

static const native::Binding softmax_backward_binding(
    "softmax_backward", &softmax_backward
);
