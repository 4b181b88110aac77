#include "native.h"

cudaError_t softmax(
    const Launcher& launch,
    DType dtype,
    void* out,
    const void* x,
    int64_t n_rows,
    int64_t n_cols,
    int64_t rows_per_batch,
    int64_t x_stride_batch,
    int64_t x_stride_row
);

static const native::Binding softmax_binding("softmax", &softmax);
