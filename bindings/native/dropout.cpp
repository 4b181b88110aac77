#include "native.h"

cudaError_t dropout(
    const Launcher& launch, DType dtype, void* out, const void* x, int64_t n_elements,
    int64_t n_cols, int64_t x_stride_row, int64_t x_stride_col, const void* seed_ptr,
    int64_t seed, int64_t threshold, float scale, int rung
);

static const native::Binding dropout_binding("dropout", &dropout);
