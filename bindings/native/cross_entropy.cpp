#include "native.h"

cudaError_t cross_entropy(
    const Launcher& launch, DType dtype, void* loss, void* logsumexp, void* n_counted,
    void* partial, const void* logits, const void* target, int64_t n_rows,
    int64_t n_cols, int64_t rows_per_batch, int64_t logits_stride_batch,
    int64_t logits_stride_row, int64_t ignore_index, float label_smoothing, bool mean,
    int rung
);

static const native::Binding cross_entropy_binding("cross_entropy", &cross_entropy);

cudaError_t cross_entropy_backward(
    const Launcher& launch, DType dtype, void* out, const void* grad,
    const void* logits, const void* target, const void* logsumexp,
    const void* n_counted, int64_t n_rows, int64_t n_cols, int64_t grad_stride,
    int64_t rows_per_batch, int64_t logits_stride_batch, int64_t logits_stride_row,
    int64_t ignore_index, float label_smoothing, int rung
);

static const native::Binding cross_entropy_backward_binding(
    "cross_entropy_backward", &cross_entropy_backward
);
