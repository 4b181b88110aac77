#include "native.h"

cudaError_t layer_norm(
    const Launcher& launch, DType dtype, void* out, void* mean, void* rstd,
    const void* x, const void* weight, const void* bias, int64_t n_rows, int64_t n_cols,
    int64_t rows_per_batch, int64_t x_stride_batch, int64_t x_stride_row, float eps,
    int rung
);

static const native::Binding layer_norm_binding("layer_norm", &layer_norm);

cudaError_t layer_norm_backward(
    const Launcher& launch, DType dtype, void* grad_x, void* grad_weight,
    void* grad_bias, void* partials, void* row_means, const void* grad, const void* x,
    const void* mean, const void* rstd, const void* weight, int64_t n_rows,
    int64_t n_cols, int64_t n_partials, int64_t rows_per_batch,
    int64_t grad_stride_batch, int64_t grad_stride_row, int64_t x_stride_batch,
    int64_t x_stride_row, int rung
);

static const native::Binding layer_norm_backward_binding(
    "layer_norm_backward", &layer_norm_backward
);
