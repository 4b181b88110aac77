#include "native.h"

cudaError_t sum(
    const Launcher& launch, DType dtype, void* out, const void* x, void* workspace,
    int64_t n_outer, int64_t n_reduced, int64_t n_inner, int64_t x_stride_outer,
    int64_t x_stride_reduced, int64_t x_stride_inner, bool by_rows, int64_t n_splits,
    int64_t split_size, int rung
);

static const native::Binding sum_binding("sum", &sum);
