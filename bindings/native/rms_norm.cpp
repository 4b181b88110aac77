#include "native.h"

cudaError_t rms_norm(
    const Launcher& launch, DType dtype, void* out, void* rstd, const void* x,
    const void* weight, int64_t n_rows, int64_t n_cols, int64_t rows_per_batch,
    int64_t x_stride_batch, int64_t x_stride_row, float eps, int rung
);

static const native::Binding rms_norm_binding("rms_norm", &rms_norm);

cudaError_t rms_norm_backward(
    const Launcher& launch, DType dtype, void* grad_x, void* grad_weight,
    void* partials, void* row_means, const void* grad, const void* x, const void* rstd,
    const void* weight, int64_t n_rows, int64_t n_cols, int64_t n_partials,
    int64_t rows_per_batch, int64_t grad_stride_batch, int64_t grad_stride_row,
    int64_t x_stride_batch, int64_t x_stride_row, int rung
);

static const native::Binding rms_norm_backward_binding(
    "rms_norm_backward", &rms_norm_backward
);
