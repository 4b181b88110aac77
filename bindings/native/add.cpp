#include "native.h"

cudaError_t add(
    const Launcher& launch, DType dtype, void* out, const void* x, const void* y,
    int64_t n_elements, int64_t n_cols, int64_t x_stride_row, int64_t x_stride_col,
    int64_t y_stride_row, int64_t y_stride_col, int rung
);

static const native::Binding add_binding("add", &add);
