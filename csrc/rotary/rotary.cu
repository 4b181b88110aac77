// Rotary position embedding, and its backward, which turns by the negative angle.
//
//   out[first] = x[first] * cos - x[second] * sin
//   out[second] = x[second] * cos + x[first] * sin
//
// Layout   out, x: (batch, seq_len, n_heads, head_dim), the last dimension contiguous,
//          walked over as rows of head_dim elements. cos, sin: (n_positions, n_pairs).
//          Pair i is elements i and n_pairs + i of a row or, interleaved, 2 i and
//          2 i + 1. What lies behind the pairs is copied.
// Traffic  reads and writes every element of x once: the ceiling is the bandwidth of a
//          copy. A block holds neighbouring heads, so that the cosines and sines of a
//          position come from the L2 once for several of them.
// Limits   computes in float32 and rounds once. A position that is not in the tables
//          turns its pairs into NaN; nothing is read out of bounds. Fewer than 2^30 rows.
// Mirror   triton_kernels/rotary/rotary.py
// Source   Su et al. 2021, arXiv:2104.09864

#include "rotary/first.cuh"
#include "rotary/twin.cuh"

// Vectors of 16 bytes where every row and its parts begin at a multiple of them, else
// one element at a time. The rows of a block are as many as it has vectors for.
cudaError_t rotary(
    const Launcher& launch, DType dtype, void* out, const void* x, const void* cos,
    const void* sin, const void* offset, int64_t n_rows, int64_t seq_len,
    int64_t n_heads, int64_t head_dim, int64_t n_pairs, int64_t n_positions,
    int64_t out_stride_batch, int64_t out_stride_seq, int64_t out_stride_head,
    int64_t x_stride_batch, int64_t x_stride_seq, int64_t x_stride_head,
    int64_t cos_stride_position, bool is_table_float32, bool interleaved,
    bool conjugate, int rung
) {
    return dispatch_float<cudaError_t>(dtype, [&]<typename T> {
        const auto turn = [&]<bool IS_TABLE_FLOAT32, bool INTERLEAVED, bool CONJUGATE> {
            using TableT = std::conditional_t<IS_TABLE_FLOAT32, float, T>;
            constexpr int WIDEST = VEC_BYTES / sizeof(T);
            constexpr int64_t PAIRS = INTERLEAVED ? WIDEST / 2 : WIDEST;
            const auto is_aligned = [](const void* table) {
                constexpr uintptr_t PAIRS_BYTES = PAIRS * sizeof(TableT);
                return reinterpret_cast<uintptr_t>(table) % PAIRS_BYTES == 0;
            };
            const std::initializer_list<Rows> rows = {
                {out, out_stride_head, out_stride_seq},
                {out, out_stride_batch, head_dim},
                {x, x_stride_head, x_stride_seq},
                {x, x_stride_batch},
            };
            const bool vectors = have_vectors(dtype, rows) && is_aligned(cos) &&
                                 is_aligned(sin) && cos_stride_position % PAIRS == 0 &&
                                 n_pairs % PAIRS == 0;
            const int64_t vec_size = vectors ? WIDEST : 1;
            const int64_t n_vecs =
                max(ceil_div(n_pairs, vec_size),
                    ceil_div(head_dim - 2 * n_pairs, vec_size));
            const int64_t threads_per_row = min(n_vecs, int64_t{NUM_THREADS});
            const int64_t rows_per_block = NUM_THREADS / threads_per_row;
            const dim3 grid(ceil_div(n_rows, rows_per_block));
            const dim3 block(threads_per_row, rows_per_block);
            const auto twin =
                vectors ? rotary_kernel<T, TableT, WIDEST, INTERLEAVED, CONJUGATE>
                        : rotary_kernel<T, TableT, 1, INTERLEAVED, CONJUGATE>;
            const auto first = rotary_first_kernel<T, TableT, INTERLEAVED, CONJUGATE>;
            const int64_t n_firsts =
                ceil_div(n_rows * (head_dim - n_pairs), FIRST_NUM_THREADS);
            return launch(
                Rung{rung} == Rung::first ? plan_first(first, n_firsts)
                                          : Plan{twin, grid, block},
                out, x, cos, sin, offset, n_rows, seq_len, n_heads, head_dim, n_pairs,
                n_positions, out_stride_batch, out_stride_seq, out_stride_head,
                x_stride_batch, x_stride_seq, x_stride_head, cos_stride_position
            );
        };
        return dispatch_flags(turn, is_table_float32, interleaved, conjugate);
    });
}
