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

#include "common/launch.cuh"
#include "common/vec.cuh"

namespace {
// Shared by as many rows as they have vectors for: small blocks with little in each
// thread, as for every elementwise kernel here.
constexpr int NUM_THREADS = 128;
}  // namespace

// x and out may be the same memory: every element is read and written by one thread.
// That is why they are not __restrict__.
template <typename T, typename TableT, int VEC_SIZE, bool INTERLEAVED, bool CONJUGATE>
__global__ void __launch_bounds__(NUM_THREADS) rotary_kernel(
    T* out_ptr,                              // (batch, seq_len, n_heads, head_dim)
    const T* x_ptr,                          // (batch, seq_len, n_heads, head_dim)
    const TableT* __restrict__ cos_ptr,      // (n_positions, n_pairs)
    const TableT* __restrict__ sin_ptr,      // (n_positions, n_pairs)
    const int64_t* __restrict__ offset_ptr,  // (batch), or null
    unsigned n_rows,
    unsigned seq_len,
    unsigned n_heads,
    int head_dim,
    int n_pairs,
    int64_t n_positions,
    int64_t out_stride_batch,
    int64_t out_stride_seq,
    int64_t out_stride_head,
    int64_t x_stride_batch,
    int64_t x_stride_seq,
    int64_t x_stride_head,
    int64_t cos_stride_position
) {
    // Interleaved, a vector of x holds half as many pairs as elements; else it holds one
    // half of each, and another vector the other. Either way a thread takes two vectors.
    constexpr bool TOGETHER = INTERLEAVED && VEC_SIZE > 1;
    constexpr int PAIRS = TOGETHER ? VEC_SIZE / 2 : VEC_SIZE;
    constexpr int VECS = TOGETHER ? 1 : 2, TURNS = 2 / VECS;

    // -- tile: a block owns blockDim.y rows, which are neighbouring heads; the threads
    // of a row own neighbouring vectors of it
    const unsigned row = blockIdx.x * blockDim.y + threadIdx.y;
    if (row >= n_rows) return;
    const unsigned token = row / n_heads, head = row - token * n_heads;
    const unsigned batch = token / seq_len, step = token - batch * seq_len;
    out_ptr +=
        batch * out_stride_batch + step * out_stride_seq + head * out_stride_head;
    x_ptr += batch * x_stride_batch + step * x_stride_seq + head * x_stride_head;

    // A position that is not in the table has no angle.
    const int64_t position = step + (offset_ptr ? offset_ptr[batch] : 0);
    const bool has_angle = 0 <= position && position < n_positions;
    cos_ptr += position * cos_stride_position;
    sin_ptr += position * cos_stride_position;

    // -- rotate: the pairs, in float32, rounded once
    const int step_pairs = blockDim.x * PAIRS;
    #pragma unroll 1  // a row of usual length takes one step
    for (int start = threadIdx.x * PAIRS; start < n_pairs;
         start += TURNS * step_pairs) {
        const int64_t first_col = INTERLEAVED ? 2 * start : start;
        const int64_t turn_cols = INTERLEAVED ? 2 * step_pairs : step_pairs;
        const int64_t vec_cols = INTERLEAVED ? 1 : n_pairs;
        Vec<T, VEC_SIZE> x[TURNS][VECS];
        Vec<TableT, PAIRS> cos[TURNS], sin[TURNS];
        #pragma unroll
        for (int i = 0; i < TURNS; ++i) {
            const bool is_pair = start + i * step_pairs < n_pairs;
            const auto nan = from_float<TableT>(NAN);
            #pragma unroll
            for (int k = 0; k < VECS; ++k) {
                x[i][k] = load<VEC_SIZE>(
                    x_ptr + first_col + i * turn_cols + k * vec_cols, is_pair, T{}
                );
            }
            cos[i] = load<PAIRS>(
                cos_ptr + start + i * step_pairs, has_angle && is_pair, nan
            );
            sin[i] = load<PAIRS>(
                sin_ptr + start + i * step_pairs, has_angle && is_pair, nan
            );
        }
        #pragma unroll
        for (int i = 0; i < TURNS; ++i) {
            Vec<float, VEC_SIZE> y[VECS];
            #pragma unroll
            for (int k = 0; k < VECS; ++k) y[k] = to_float(x[i][k]);
            #pragma unroll
            for (int j = 0; j < PAIRS; ++j) {
                float& first = TOGETHER ? y[0][2 * j] : y[0][j];
                float& second = TOGETHER ? y[0][2 * j + 1] : y[VECS - 1][j];
                const float cosine = to_float(cos[i][j]);
                const float sine =
                    CONJUGATE ? -to_float(sin[i][j]) : to_float(sin[i][j]);
                const float turned = first * cosine - second * sine;
                second = second * cosine + first * sine;
                first = turned;
            }
            if (start + i * step_pairs >= n_pairs) continue;
            #pragma unroll
            for (int k = 0; k < VECS; ++k) {
                store(
                    out_ptr + first_col + i * turn_cols + k * vec_cols,
                    from_float<T>(y[k])
                );
            }
        }
    }

    // -- copy: the elements behind the pairs
    #pragma unroll 1
    for (int col = 2 * n_pairs + threadIdx.x * VEC_SIZE; col < head_dim;
         col += blockDim.x * VEC_SIZE) {
        store(out_ptr + col, load<VEC_SIZE>(x_ptr + col, true, T{}));
    }
}

namespace {

// Vectors of 16 bytes where every row and its parts begin at a multiple of them, else
// one element at a time.
template <bool CONJUGATE>
cudaError_t launch_rotary(
    const Launcher& launch,
    DType dtype,
    void* out,
    const void* x,
    const void* cos,
    const void* sin,
    const void* offset,
    int64_t n_rows,
    int64_t seq_len,
    int64_t n_heads,
    int64_t head_dim,
    int64_t n_pairs,
    int64_t n_positions,
    int64_t out_stride_batch,
    int64_t out_stride_seq,
    int64_t out_stride_head,
    int64_t x_stride_batch,
    int64_t x_stride_seq,
    int64_t x_stride_head,
    int64_t cos_stride_position,
    bool is_table_float32,
    bool interleaved
) {
    const auto with = [&]<typename T, typename TableT, bool INTERLEAVED>() {
        constexpr int WIDEST = VEC_BYTES / sizeof(T);
        constexpr int64_t PAIRS = INTERLEAVED ? WIDEST / 2 : WIDEST;
        constexpr int64_t TABLE_BYTES = PAIRS * sizeof(TableT);
        const auto in_table_vectors = [](const void* ptr) {
            return reinterpret_cast<uintptr_t>(ptr) % TABLE_BYTES == 0;
        };
        const bool vectors = has_vectors<T>(out, out_stride_batch, 1) &&
                             has_vectors<T>(out, out_stride_seq, 1) &&
                             has_vectors<T>(out, out_stride_head, 1) &&
                             has_vectors<T>(x, x_stride_batch, 1) &&
                             has_vectors<T>(x, x_stride_seq, 1) &&
                             has_vectors<T>(x, x_stride_head, 1) &&
                             in_table_vectors(cos) && in_table_vectors(sin) &&
                             cos_stride_position % PAIRS == 0 && n_pairs % PAIRS == 0 &&
                             head_dim % WIDEST == 0;
        const auto kernel =
            vectors ? rotary_kernel<T, TableT, WIDEST, INTERLEAVED, CONJUGATE>
                    : rotary_kernel<T, TableT, 1, INTERLEAVED, CONJUGATE>;
        const int64_t pair_vecs = ceil_div(n_pairs, vectors ? WIDEST : 1);
        const int64_t copied_vecs =
            ceil_div(head_dim - 2 * n_pairs, vectors ? WIDEST : 1);
        const int64_t n_vecs = pair_vecs > copied_vecs ? pair_vecs : copied_vecs;
        const int64_t threads_per_row = n_vecs < NUM_THREADS ? n_vecs : NUM_THREADS;
        const int64_t rows_per_block = NUM_THREADS / threads_per_row;
        return launch(
            Plan{
                kernel,
                dim3(ceil_div(n_rows, rows_per_block)),
                dim3(threads_per_row, rows_per_block)
            },
            static_cast<T*>(out),
            static_cast<const T*>(x),
            static_cast<const TableT*>(cos),
            static_cast<const TableT*>(sin),
            static_cast<const int64_t*>(offset),
            static_cast<unsigned>(n_rows),
            static_cast<unsigned>(seq_len),
            static_cast<unsigned>(n_heads),
            static_cast<int>(head_dim),
            static_cast<int>(n_pairs),
            n_positions,
            out_stride_batch,
            out_stride_seq,
            out_stride_head,
            x_stride_batch,
            x_stride_seq,
            x_stride_head,
            cos_stride_position
        );
    };
    return dispatch_float<cudaError_t>(dtype, [&]<typename T>() {
        if (is_table_float32) {
            return interleaved ? with.template operator()<T, float, true>()
                               : with.template operator()<T, float, false>();
        }
        return interleaved ? with.template operator()<T, T, true>()
                           : with.template operator()<T, T, false>();
    });
}

}  // namespace

// Turns by the angle.
cudaError_t rotary(
    const Launcher& launch,
    DType dtype,
    void* out,
    const void* x,
    const void* cos,
    const void* sin,
    const void* offset,
    int64_t n_rows,
    int64_t seq_len,
    int64_t n_heads,
    int64_t head_dim,
    int64_t n_pairs,
    int64_t n_positions,
    int64_t out_stride_batch,
    int64_t out_stride_seq,
    int64_t out_stride_head,
    int64_t x_stride_batch,
    int64_t x_stride_seq,
    int64_t x_stride_head,
    int64_t cos_stride_position,
    bool is_table_float32,
    bool interleaved,
    [[maybe_unused]] int rung
) {
    return launch_rotary<false>(
        launch,
        dtype,
        out,
        x,
        cos,
        sin,
        offset,
        n_rows,
        seq_len,
        n_heads,
        head_dim,
        n_pairs,
        n_positions,
        out_stride_batch,
        out_stride_seq,
        out_stride_head,
        x_stride_batch,
        x_stride_seq,
        x_stride_head,
        cos_stride_position,
        is_table_float32,
        interleaved
    );
}

// Turns by the negative angle, which is what becomes of a gradient.
cudaError_t rotary_backward(
    const Launcher& launch,
    DType dtype,
    void* out,
    const void* x,
    const void* cos,
    const void* sin,
    const void* offset,
    int64_t n_rows,
    int64_t seq_len,
    int64_t n_heads,
    int64_t head_dim,
    int64_t n_pairs,
    int64_t n_positions,
    int64_t out_stride_batch,
    int64_t out_stride_seq,
    int64_t out_stride_head,
    int64_t x_stride_batch,
    int64_t x_stride_seq,
    int64_t x_stride_head,
    int64_t cos_stride_position,
    bool is_table_float32,
    bool interleaved,
    [[maybe_unused]] int rung
) {
    return launch_rotary<true>(
        launch,
        dtype,
        out,
        x,
        cos,
        sin,
        offset,
        n_rows,
        seq_len,
        n_heads,
        head_dim,
        n_pairs,
        n_positions,
        out_stride_batch,
        out_stride_seq,
        out_stride_head,
        x_stride_batch,
        x_stride_seq,
        x_stride_head,
        cos_stride_position,
        is_table_float32,
        interleaved
    );
}
