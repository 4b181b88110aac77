#include "native.h"

cudaError_t matmul(
    const Launcher& launch, DType dtype, void* out, const void* a, const void* b,
    const void* bias, int64_t n_batches, int64_t M, int64_t N, int64_t K,
    int64_t a_stride_batch, int64_t a_stride_row, int64_t a_stride_col,
    int64_t b_stride_batch, int64_t b_stride_row, int64_t b_stride_col, int activation,
    bool tf32, int rung
);

static const native::Binding matmul_binding("matmul", &matmul);
