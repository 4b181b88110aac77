// Rows of grad and y too long for registers stay in shared memory, as softmax_long_kernel
// keeps x: the sum goes from block to block, not the rows.
#pragma once

#include "common/rows.cuh"
#include "softmax/slices.cuh"

// Adds up the products of a thread's columns.
template <int VEC_SIZE, bool ARE_FULL, typename T, typename Index>
__device__ __forceinline__ void add_products(
    float& sum, const T* grad_ptr, const T* y_ptr, Index n_left
) {
    constexpr int STEP = LONG_STEP<VEC_SIZE>, VECS = LONG_VECS<VEC_SIZE> / 2;
    #pragma unroll 1
    for (Index start = 0; start < n_left; start += VECS * STEP) {
        const auto grad =
            load_columns<VEC_SIZE, VECS, ARE_FULL>(grad_ptr + start, n_left - start);
        const auto y =
            load_columns<VEC_SIZE, VECS, ARE_FULL>(y_ptr + start, n_left - start);
        sum = reduce(grad * y, Sum{}, sum);
    }
}

// Writes the gradients of a thread's columns.
template <int VEC_SIZE, bool ARE_FULL, typename T, typename Index>
__device__ __forceinline__ void store_gradients(
    T* out_ptr, const T* grad_ptr, const T* y_ptr, Index n_left, float row_sum
) {
    constexpr int STEP = LONG_STEP<VEC_SIZE>, VECS = LONG_VECS<VEC_SIZE> / 2;
    #pragma unroll 1
    for (Index start = 0; start < n_left; start += VECS * STEP) {
        const auto grad =
            load_columns<VEC_SIZE, VECS, ARE_FULL>(grad_ptr + start, n_left - start);
        const auto y =
            load_columns<VEC_SIZE, VECS, ARE_FULL>(y_ptr + start, n_left - start);
        store_row<STEP>(out_ptr + start, n_left - start, y * (grad - row_sum));
    }
}

template <typename T, int VEC_SIZE, bool IN_CLUSTER>
__global__ void
__launch_bounds__(LONG_NUM_THREADS, LONG_BLOCKS_PER_SM) softmax_backward_long_kernel(
    T* __restrict__ out_ptr,         // (n_rows, n_cols)
    const T* __restrict__ grad_ptr,  // (n_rows, n_cols)
    const T* __restrict__ y_ptr,     // (n_rows, n_cols)
    int64_t n_rows, int64_t n_cols, int64_t rows_per_batch, int64_t grad_stride_batch,
    int64_t grad_stride_row, int64_t y_stride_batch, int64_t y_stride_row,
    int64_t slice_size,  // columns that a block owns
    int n_kept           // columns that it keeps, 16 times as many as threads, or more
) {
    using Results = WarpResults<1, LONG_NUM_WARPS, IN_CLUSTER>;
    DYNAMIC_SHARED(shared_bytes, 16);
    Results& results = *reinterpret_cast<Results*>(shared_bytes);
    results.begin();

    // -- tile: a block owns a slice of a row; a thread owns the vector at first_col and
    // every STEP columns from there
    const int64_t row = blockIdx.x;
    const int64_t first_col = blockIdx.y * slice_size + threadIdx.x * VEC_SIZE;
    const int64_t n_left = min((blockIdx.y + 1) * slice_size, n_cols) - first_col;
    const int n_kept_left = static_cast<int>(min(n_left, int64_t{n_kept}));
    grad_ptr +=
        row_offset(row, n_rows, rows_per_batch, grad_stride_batch, grad_stride_row) +
        first_col;
    y_ptr += row_offset(row, n_rows, rows_per_batch, y_stride_batch, y_stride_row) +
             first_col;
    out_ptr += row * n_cols + first_col;
    T* const kept_grad =  // (n_kept), as the kept_y behind it
        reinterpret_cast<T*>(shared_bytes + sizeof(Results)) + threadIdx.x * VEC_SIZE;
    T* const kept_y = kept_grad + n_kept;

    // -- load: all that fits is on its way at once, and takes no registers meanwhile
    start_copy<VEC_SIZE>(kept_grad, n_kept, grad_ptr, n_kept_left, 0.0f);
    start_copy<VEC_SIZE>(kept_y, n_kept, y_ptr, n_kept_left, 0.0f);

    // -- sum: of the products in the columns that this thread owns
    float thread_sum = 0.0f;
    add_products<VEC_SIZE, false>(
        thread_sum, grad_ptr + n_kept, y_ptr + n_kept, n_left - n_kept
    );
    ptx::cp_async_wait_all();
    add_products<VEC_SIZE, true>(thread_sum, kept_grad, kept_y, n_kept);

    // -- combine: the threads' sums in every warp, and those of all warps
    results.share({warp_reduce<WARP_SIZE>(thread_sum, Sum{})});
    float row_sum = 0.0f;
    for (int i = threadIdx.x % WARP_SIZE; i < results.size(); i += WARP_SIZE) {
        row_sum += results[i][0];
    }
    row_sum = warp_reduce<WARP_SIZE>(row_sum, Sum{});

    // -- store: first what has to be read again, as long as a cache may have it
    store_gradients<VEC_SIZE, false>(
        out_ptr + n_kept, grad_ptr + n_kept, y_ptr + n_kept, n_left - n_kept, row_sum
    );
    store_gradients<VEC_SIZE, true>(out_ptr, kept_grad, kept_y, n_kept_left, row_sum);
}
