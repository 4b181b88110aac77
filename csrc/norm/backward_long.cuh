// Rows too long for a block or a cluster take two launches, each of which reads them
// once. The first finds the means of g * x_hat and of g in every row; in the second a
// block walks down some columns of many rows, writes the gradient of x and adds up those
// of weight and bias.
#pragma once

#include "common/rows.cuh"
#include "norm/partials.cuh"
#include "norm/rows.cuh"

constexpr int ROWS_NUM_THREADS = 1024;
constexpr int ROWS_ELEMENTS_PER_THREAD = 8;

template <typename T, int VEC_SIZE, bool HAS_MEAN>
__global__ void __launch_bounds__(ROWS_NUM_THREADS) norm_backward_rows_kernel(
    float* __restrict__ row_means_ptr,   // (NUM_SUMS, n_rows)
    const T* __restrict__ grad_ptr,      // (n_rows, n_cols)
    const T* __restrict__ x_ptr,         // (n_rows, n_cols)
    const float* __restrict__ mean_ptr,  // (n_rows), or null
    const float* __restrict__ rstd_ptr,  // (n_rows)
    const T* __restrict__ weight_ptr,    // (n_cols), or null
    int64_t n_rows, int64_t n_cols, int64_t rows_per_batch, int64_t grad_stride_batch,
    int64_t grad_stride_row, int64_t x_stride_batch, int64_t x_stride_row
) {
    constexpr int VECS = ROWS_ELEMENTS_PER_THREAD / VEC_SIZE;
    constexpr int STEP = ROWS_NUM_THREADS * VEC_SIZE;
    constexpr int BLOCK_N = STEP * VECS;

    // -- tile: a block owns one row and walks over it in tiles of BLOCK_N columns
    const int64_t row = blockIdx.x;
    grad_ptr +=
        row_offset(row, n_rows, rows_per_batch, grad_stride_batch, grad_stride_row);
    x_ptr += row_offset(row, n_rows, rows_per_batch, x_stride_batch, x_stride_row);
    const float n = static_cast<float>(n_cols);

    // -- reduce: with x - mean in place of x_hat, whose factor rstd the whole row
    // shares
    const float mean = HAS_MEAN ? mean_ptr[row] : 0.0f;
    Vec<float, NUM_SUMS<HAS_MEAN>> sums{};
    for (int64_t col = threadIdx.x * VEC_SIZE; col < n_cols; col += BLOCK_N) {
        const int64_t n_left = n_cols - col;
        const auto grad =
            to_float(load_row<VEC_SIZE, VECS, STEP>(grad_ptr + col, n_left));
        const auto x = to_float(load_row<VEC_SIZE, VECS, STEP>(x_ptr + col, n_left));
        const auto weight =
            to_float(load_weight<VEC_SIZE, VECS, STEP>(weight_ptr, col, n_left, 1.0f));
        const auto g = grad * weight;
        sums = add_up<HAS_MEAN>(g * (x - mean), g, sums);
    }
    sums = block_reduce<ROWS_NUM_THREADS>(sums, Sum{});

    // -- store: for the launch that follows
    if (threadIdx.x == 0) {
        row_means_ptr[row] = sums[0] * rstd_ptr[row] / n;
        if constexpr (HAS_MEAN) row_means_ptr[n_rows + row] = sums[1] / n;
    }
}

constexpr int COLUMNS_NUM_THREADS = 128;
// Single elements take more loads of a thread to have as many bytes in flight.
template <int VEC_SIZE>
constexpr int COLUMNS_ELEMENTS_PER_THREAD = VEC_SIZE == 1 ? 16 : 8;
template <int VEC_SIZE>
constexpr int COLUMNS_BLOCK_N =
    COLUMNS_NUM_THREADS * COLUMNS_ELEMENTS_PER_THREAD<VEC_SIZE>;

// Where the vector of this number begins. Counted in elements, which it then knows to
// be a multiple of the vector's, nvcc splits a store of 16 bytes into four.
template <int SIZE, typename T>
__device__ __forceinline__ T* skip_vecs(T* ptr, int64_t number) {
    return (reinterpret_cast<Vec<T, SIZE>*>(ptr) + number)->values;
}

template <typename T, int VEC_SIZE, bool HAS_MEAN>
__global__ void __launch_bounds__(COLUMNS_NUM_THREADS) norm_backward_columns_kernel(
    T* __restrict__ grad_x_ptr,               // (n_rows, n_cols)
    float* __restrict__ partials_ptr,         // (NUM_SUMS, n_partials, n_cols)
    const float* __restrict__ row_means_ptr,  // (NUM_SUMS, n_rows)
    const T* __restrict__ grad_ptr,           // (n_rows, n_cols)
    const T* __restrict__ x_ptr,              // (n_rows, n_cols)
    const float* __restrict__ mean_ptr,       // (n_rows), or null
    const float* __restrict__ rstd_ptr,       // (n_rows)
    const T* __restrict__ weight_ptr,         // (n_cols), or null
    int64_t n_rows, int64_t n_cols, int64_t rows_per_batch, int64_t grad_stride_batch,
    int64_t grad_stride_row, int64_t x_stride_batch, int64_t x_stride_row
) {
    constexpr int VECS = COLUMNS_ELEMENTS_PER_THREAD<VEC_SIZE> / VEC_SIZE;
    constexpr int STEP = COLUMNS_NUM_THREADS * VEC_SIZE;

    // -- tile: a block owns COLUMNS_BLOCK_N columns of every gridDim.y-th row; a thread
    // owns the vector at first_col and every STEP columns from there
    const int64_t first_vec =
        int64_t{blockIdx.x} * COLUMNS_NUM_THREADS * VECS + threadIdx.x;
    const int64_t first_col = first_vec * VEC_SIZE;
    const int64_t n_left = n_cols - first_col;
    grad_ptr += first_col;
    x_ptr += first_col;
    grad_x_ptr = skip_vecs<VEC_SIZE>(grad_x_ptr, first_vec);
    partials_ptr = skip_vecs<VEC_SIZE>(partials_ptr + blockIdx.y * n_cols, first_vec);

    // -- load: the weight
    const auto weight = to_float(
        load_weight<VEC_SIZE, VECS, STEP>(weight_ptr, first_col, n_left, 1.0f)
    );

    // -- store: and accumulate, beginning with the last row, which the first launch has
    // left in the L2 cache
    Tile<float, VEC_SIZE, VECS> weight_sums{}, bias_sums{};
    for (int64_t i = blockIdx.y; i < n_rows; i += gridDim.y) {
        const int64_t row = n_rows - 1 - i;
        const int64_t grad_start =
            row_offset(row, n_rows, rows_per_batch, grad_stride_batch, grad_stride_row);
        const int64_t x_start =
            row_offset(row, n_rows, rows_per_batch, x_stride_batch, x_stride_row);
        const auto grad =
            to_float(load_row<VEC_SIZE, VECS, STEP>(grad_ptr + grad_start, n_left));
        const auto x =
            to_float(load_row<VEC_SIZE, VECS, STEP>(x_ptr + x_start, n_left));
        const float mean = HAS_MEAN ? mean_ptr[row] : 0.0f, rstd = rstd_ptr[row];
        const float mean_product = row_means_ptr[row];
        const float mean_g = HAS_MEAN ? row_means_ptr[n_rows + row] : 0.0f;
        const auto g = grad * weight, x_hat = (x - mean) * rstd;
        weight_sums = weight_sums + grad * x_hat;
        if constexpr (HAS_MEAN) bias_sums = bias_sums + grad;
        const auto grad_x = (g - mean_g - x_hat * mean_product) * rstd;
        store_row<STEP>(grad_x_ptr + row * n_cols, n_left, grad_x);
    }

    // -- partials: for the last launch to add
    store_sums<STEP>(partials_ptr, n_left, weight_sums);
    if constexpr (HAS_MEAN) {
        store_sums<STEP>(partials_ptr + gridDim.y * n_cols, n_left, bias_sums);
    }
}
