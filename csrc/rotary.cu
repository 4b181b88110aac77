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
// Mirror   triton_kernels/rotary.py
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
    int n_rows,
    int seq_len,
    int n_heads,
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
    // A vector of x holds as many pairs as elements where their other halves are in
    // another vector, and half as many where they are in the same.
    constexpr int PAIRS = INTERLEAVED && VEC_SIZE > 1 ? VEC_SIZE / 2 : VEC_SIZE;

    // -- tile: a block owns blockDim.y rows, which are neighbouring heads; the threads
    // of a row own neighbouring vectors of it
    const int row = blockIdx.x * blockDim.y + threadIdx.y;
    if (row >= n_rows) return;
    const int token = row / n_heads, head = row - token * n_heads;
    const int batch = token / seq_len, step = token - batch * seq_len;
    out_ptr +=
        batch * out_stride_batch + step * out_stride_seq + head * out_stride_head;
    x_ptr += batch * x_stride_batch + step * x_stride_seq + head * x_stride_head;

    // A position that is not in the table has no angle.
    const int64_t position = step + (offset_ptr ? offset_ptr[batch] : 0);
    const bool has_angle = 0 <= position && position < n_positions;
    cos_ptr += position * cos_stride_position;
    sin_ptr += position * cos_stride_position;

    // -- rotate: the pairs, in float32, rounded once
    #pragma unroll 1  // a row of usual length takes one step
    for (int pair = threadIdx.x * PAIRS; pair < n_pairs; pair += blockDim.x * PAIRS) {
        const int first_col = INTERLEAVED ? 2 * pair : pair;
        const int second_col = INTERLEAVED ? 2 * pair + 1 : n_pairs + pair;
        Vec<float, PAIRS> first, second;
        if constexpr (INTERLEAVED && VEC_SIZE > 1) {
            const auto both = to_float(load<VEC_SIZE>(x_ptr + first_col, true, T{}));
            #pragma unroll
            for (int j = 0; j < PAIRS; ++j) {
                first[j] = both[2 * j], second[j] = both[2 * j + 1];
            }
        } else {
            first = to_float(load<VEC_SIZE>(x_ptr + first_col, true, T{}));
            second = to_float(load<VEC_SIZE>(x_ptr + second_col, true, T{}));
        }
        const auto nan = from_float<TableT>(NAN);
        const auto cos = to_float(load<PAIRS>(cos_ptr + pair, has_angle, nan));
        const auto sin = to_float(load<PAIRS>(sin_ptr + pair, has_angle, nan));
        #pragma unroll
        for (int j = 0; j < PAIRS; ++j) {
            const float sine = CONJUGATE ? -sin[j] : sin[j];
            const float turned = first[j] * cos[j] - second[j] * sine;
            second[j] = second[j] * cos[j] + first[j] * sine;
            first[j] = turned;
        }
        if constexpr (INTERLEAVED && VEC_SIZE > 1) {
            Vec<float, VEC_SIZE> both;
            #pragma unroll
            for (int j = 0; j < PAIRS; ++j) {
                both[2 * j] = first[j], both[2 * j + 1] = second[j];
            }
            store(out_ptr + first_col, from_float<T>(both));
        } else {
            store(out_ptr + first_col, from_float<T>(first));
            store(out_ptr + second_col, from_float<T>(second));
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
        const int64_t pair_vecs = ceil_div(n_pairs, vectors ? PAIRS : 1);
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
            static_cast<int>(n_rows),
            static_cast<int>(seq_len),
            static_cast<int>(n_heads),
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
    bool interleaved
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
    bool interleaved
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
