// A row too long for registers stays in shared memory: of a block or, slice by slice, of
// the blocks of a cluster. What does not fit there is read twice.
//
// Each thread reads back only its own copies, so no barrier is needed for them. Maximum and
// sum are found in one pass: the sum is rescaled whenever the maximum grows.
#pragma once

#include "common/math.cuh"
#include "common/rows.cuh"
#include "softmax/slices.cuh"

// Adds a thread's columns to their maximum and sum, which is rescaled as that grows. Those
// that are kept come in MAX_COPY_GROUPS groups of LONG_VECS, the last ones perhaps empty:
// each is awaited as the oldest, and followed by an empty one, which makes the next oldest.
template <int VEC_SIZE, bool ARE_KEPT, typename T, typename Index>
__device__ __forceinline__ void add_columns(
    float& max, float& sum, const T* x_ptr, Index n_left
) {
    constexpr int STEP = LONG_STEP<VEC_SIZE>, VECS = LONG_VECS<VEC_SIZE>;
    #pragma unroll 1
    for (Index start = 0; start < n_left; start += VECS * STEP) {
        if constexpr (ARE_KEPT) ptx::cp_async_wait_group<MAX_COPY_GROUPS - 1>();
        const auto x = load_columns<VEC_SIZE, VECS, ARE_KEPT>(
            x_ptr + start, n_left - start, -INFINITY
        );
        const float new_max = reduce(x, Max{}, max);
        const float origin = finite_origin(new_max);
        const auto numerator = map([&](float x) { return fast_exp(x - origin); }, x);
        sum = reduce(numerator, Sum{}, sum * fast_exp(max - origin));
        max = new_max;
        if constexpr (ARE_KEPT) ptx::cp_async_commit_group();
    }
}

// Writes the results of a thread's columns.
template <int VEC_SIZE, bool ARE_FULL, typename T, typename Index>
__device__ __forceinline__ void store_columns(
    T* out_ptr, const T* x_ptr, Index n_left, float row_max, float inverse_sum
) {
    constexpr int STEP = LONG_STEP<VEC_SIZE>, VECS = LONG_VECS<VEC_SIZE>;
    #pragma unroll 1
    for (Index start = 0; start < n_left; start += VECS * STEP) {
        const auto x =
            load_columns<VEC_SIZE, VECS, ARE_FULL>(x_ptr + start, n_left - start);
        const auto out =
            map([&](float x) { return fast_exp(x - row_max) * inverse_sum; }, x);
        store_row<STEP>(out_ptr + start, n_left - start, out);
    }
}

template <typename T, int VEC_SIZE, bool IN_CLUSTER>
__global__ void
__launch_bounds__(LONG_NUM_THREADS, LONG_BLOCKS_PER_SM) softmax_long_kernel(
    T* __restrict__ out_ptr,      // (n_rows, n_cols)
    const T* __restrict__ x_ptr,  // (n_rows, n_cols)
    int64_t n_rows, int64_t n_cols, int64_t rows_per_batch, int64_t x_stride_batch,
    int64_t x_stride_row,
    int64_t slice_size,  // columns that a block owns
    int n_kept           // columns that it keeps, 16 times as many as threads, or more
) {
    using Results = WarpResults<2, LONG_NUM_WARPS, IN_CLUSTER>;
    DYNAMIC_SHARED(shared_bytes, 16);
    Results& results = *reinterpret_cast<Results*>(shared_bytes);
    results.begin();

    // -- tile: a block owns a slice of a row; a thread owns the vector at first_col and
    // every STEP columns from there
    const int64_t row = blockIdx.x;
    const int64_t first_col = blockIdx.y * slice_size + threadIdx.x * VEC_SIZE;
    const int64_t n_left = min((blockIdx.y + 1) * slice_size, n_cols) - first_col;
    const int n_kept_left = static_cast<int>(min(n_left, int64_t{n_kept}));
    x_ptr += row_offset(row, n_rows, rows_per_batch, x_stride_batch, x_stride_row) +
             first_col;
    out_ptr += row * n_cols + first_col;
    T* const kept =  // (n_kept)
        reinterpret_cast<T*>(shared_bytes + sizeof(Results)) + threadIdx.x * VEC_SIZE;

    // -- load: all that fits is on its way at once, and takes no registers meanwhile
    start_copy<VEC_SIZE>(kept, n_kept, x_ptr, n_kept_left, -INFINITY);
    const int n_groups = n_kept / (LONG_VECS<VEC_SIZE> * LONG_STEP<VEC_SIZE>);
    for (int i = n_groups; i < MAX_COPY_GROUPS; ++i) ptx::cp_async_commit_group();

    // -- max_sum: of the columns that this thread owns
    float thread_max = -INFINITY, thread_sum = 0.0f;
    add_columns<VEC_SIZE, false>(
        thread_max, thread_sum, x_ptr + n_kept, n_left - n_kept
    );
    add_columns<VEC_SIZE, true>(thread_max, thread_sum, kept, n_kept);

    // -- combine: the threads' maxima and sums in every warp, and those of all warps
    const float warp_max = warp_reduce<WARP_SIZE>(thread_max, Max{});
    const float warp_sum = warp_reduce<WARP_SIZE>(
        thread_sum * fast_exp(thread_max - finite_origin(warp_max)), Sum{}
    );
    results.share({warp_max, warp_sum});
    float lane_max = -INFINITY, lane_sum = 0.0f;
    for (int i = threadIdx.x % WARP_SIZE; i < results.size(); i += WARP_SIZE) {
        const auto [max, sum] = results[i].values;
        const float new_max = fmaxf(lane_max, max);
        const float origin = finite_origin(new_max);
        lane_sum =
            lane_sum * fast_exp(lane_max - origin) + sum * fast_exp(max - origin);
        lane_max = new_max;
    }
    const float row_max = warp_reduce<WARP_SIZE>(lane_max, Max{});
    const float row_sum =
        warp_reduce<WARP_SIZE>(lane_sum * fast_exp(lane_max - row_max), Sum{});

    // -- store: first what has to be read again, as long as a cache may have it
    const float inverse_sum = 1.0f / row_sum;
    store_columns<VEC_SIZE, false>(
        out_ptr + n_kept, x_ptr + n_kept, n_left - n_kept, row_max, inverse_sum
    );
    store_columns<VEC_SIZE, true>(out_ptr, kept, n_kept_left, row_max, inverse_sum);
}
