#include "native.h"

cudaError_t rotary(
    const Launcher& launch, DType dtype, void* out, const void* x, const void* cos,
    const void* sin, const void* offset, int64_t n_rows, int64_t seq_len,
    int64_t n_heads, int64_t head_dim, int64_t n_pairs, int64_t n_positions,
    int64_t out_stride_batch, int64_t out_stride_seq, int64_t out_stride_head,
    int64_t x_stride_batch, int64_t x_stride_seq, int64_t x_stride_head,
    int64_t cos_stride_position, bool is_table_float32, bool interleaved,
    bool conjugate, int rung
);

static const native::Binding rotary_binding("rotary", &rotary);
