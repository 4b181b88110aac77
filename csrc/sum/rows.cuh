// Rows: the reduced dimension is contiguous, or at least steps less than the others.
//
// THREADS_PER_ROW neighbouring threads share a row, or ROWS_PER_THREAD short ones, and walk
// along them.
#pragma once

#include "common/reduce.cuh"
#include "common/rows.cuh"
#include "common/tile.cuh"
#include "sum/twin.cuh"

// In pairs, and pairs of those: the elements of every vector, and then these sums.
template <int SIZE, int COUNT>
__device__ __forceinline__ float sum_in_pairs(const Tile<float, SIZE, COUNT>& tile) {
    using Elements = Tile<float, 1, SIZE>;
    Tile<float, 1, COUNT> sums;
    #pragma unroll
    for (int i = 0; i < COUNT; ++i) {
        sums[i] = reduce_vectors(__builtin_bit_cast(Elements, tile[i]), Sum{});
    }
    return reduce_vectors(sums, Sum{})[0];
}

template <
    typename In, typename Out, int VEC_SIZE, int THREADS_PER_ROW, int ROWS_PER_THREAD,
    int LOADS_PER_ROW>
__global__ void __launch_bounds__(NUM_THREADS, BLOCKS_PER_SM) sum_rows_kernel(
    Out* __restrict__ out_ptr,     // (n_splits, n_outer, n_inner)
    const In* __restrict__ x_ptr,  // (n_outer, n_reduced, n_inner)
    int64_t n_outer, int64_t n_reduced, int64_t n_inner, int64_t x_stride_outer,
    int64_t x_stride_reduced, int64_t x_stride_inner, int64_t split_size
) {
    static_assert(THREADS_PER_ROW >= VEC_SIZE);
    constexpr int STEP = THREADS_PER_ROW * VEC_SIZE;
    constexpr int BLOCK_N = LOADS_PER_ROW * STEP;
    constexpr int ROWS_PER_LOAD = NUM_THREADS / THREADS_PER_ROW;
    const int64_t stride_col = VEC_SIZE == 1 ? x_stride_reduced : 1;

    // -- tile: a block owns one split of one long row or of several short ones
    const int64_t n_rows = n_outer * n_inner;
    const int64_t first_row = int64_t{blockIdx.x} * ROWS_PER_THREAD * ROWS_PER_LOAD +
                              threadIdx.x / THREADS_PER_ROW;
    const int thread = threadIdx.x % THREADS_PER_ROW;
    const int64_t split_start = blockIdx.y * split_size;
    const int64_t n_cols = min(n_reduced - split_start, split_size);
    x_ptr += split_start * x_stride_reduced;
    out_ptr += blockIdx.y * n_rows;

    // -- accumulate: first the few elements before and behind the vectors of a row, which
    // begin at multiples of 16 bytes
    const auto place = [](const In* ptr) {
        return reinterpret_cast<uintptr_t>(ptr) / sizeof(In);
    };
    const bool in_vectors =
        (place(x_ptr) | x_stride_outer | x_stride_inner | n_cols) % VEC_SIZE == 0;
    const In* vec_ptrs[ROWS_PER_THREAD];
    int n_heads[ROWS_PER_THREAD]{};
    Vec<float, ROWS_PER_THREAD> sum{};
    #pragma unroll
    for (int i = 0; i < ROWS_PER_THREAD; ++i) {
        // There is no row behind the last one, but that one may be read again.
        const int64_t row = min(first_row + i * ROWS_PER_LOAD, n_rows - 1);
        const In* row_ptr =
            x_ptr + row_offset(row, n_rows, n_inner, x_stride_outer, x_stride_inner);
        if (!in_vectors) {
            const int64_t n_before = -place(row_ptr) % VEC_SIZE;
            n_heads[i] = static_cast<int>(min(n_before, n_cols));
            const int n_tail = static_cast<int>((n_cols - n_heads[i]) % VEC_SIZE);
            if (thread < n_heads[i]) sum[i] = to_float(row_ptr[thread]);
            if (thread < n_tail) sum[i] += to_float(row_ptr[n_cols - n_tail + thread]);
        }
        vec_ptrs[i] = row_ptr + (n_heads[i] + thread * VEC_SIZE) * stride_col;
    }

    // What is read of a row at a time is added in pairs, and then to its sum.
    #pragma unroll 1
    for (int64_t start = 0; start < n_cols; start += BLOCK_N) {
        const int n_left = static_cast<int>(min(n_cols - start, int64_t{2 * BLOCK_N}));
        Tile<In, VEC_SIZE, LOADS_PER_ROW> x[ROWS_PER_THREAD];
        #pragma unroll
        for (int i = 0; i < ROWS_PER_THREAD; ++i) {
            const int last_col = n_left - n_heads[i] - (thread + 1) * VEC_SIZE;
            x[i] = load_row<VEC_SIZE, LOADS_PER_ROW, STEP>(
                vec_ptrs[i], last_col + 1, 0.0f, stride_col
            );
            vec_ptrs[i] += BLOCK_N * stride_col;
        }
        #pragma unroll
        for (int i = 0; i < ROWS_PER_THREAD; ++i)
            sum[i] += sum_in_pairs(to_float(x[i]));
    }

    // -- reduce: the sums of the threads that share a row
    sum = block_reduce<THREADS_PER_ROW>(sum, Sum{});

    // -- store: rounded once, each sum by a thread of its own
    #pragma unroll
    for (int i = 0; i < ROWS_PER_THREAD; ++i) {
        const int64_t row = first_row + i * ROWS_PER_LOAD;
        if (thread == i && row < n_rows) out_ptr[row] = from_float<Out>(sum[i]);
    }
}
