// Rows too long for a block: a cluster walks over them, each of its blocks over a slice
// of every row. While the sums of a row travel between the blocks, they reduce the next
// one; the slices wait in shared memory, and are read again when they are stored.
#pragma once

#include "common/ptx/async_copy.cuh"
#include "common/rows.cuh"
#include "norm/partials.cuh"
#include "norm/row_sums.cuh"
#include "norm/rows.cuh"

// Slices of a row that waits for its sums, of the next, and of one or two on their way.
template <typename T, int VEC_SIZE, int VECS, int NUM_THREADS, bool HAS_MEAN>
struct ClusterShared {
    static constexpr int STAGES = sizeof(T) == 2 ? 4 : 3;
    static constexpr int STEP = NUM_THREADS * VEC_SIZE;

    Copies<T, VEC_SIZE, VECS, STEP, NUM_THREADS> grad[STAGES];
    Copies<T, VEC_SIZE, VECS, STEP, NUM_THREADS> x[STAGES];
    ClusterSums<NUM_SUMS<HAS_MEAN>, NUM_THREADS / WARP_SIZE> sums;
};

template <typename T, int VEC_SIZE, int VECS, int NUM_THREADS, bool HAS_MEAN>
__global__ void
__launch_bounds__(NUM_THREADS, 512 / NUM_THREADS) norm_backward_cluster_kernel(
    T* __restrict__ grad_x_ptr,          // (n_rows, n_cols)
    float* __restrict__ partials_ptr,    // (NUM_SUMS, n_partials, n_cols)
    const T* __restrict__ grad_ptr,      // (n_rows, n_cols)
    const T* __restrict__ x_ptr,         // (n_rows, n_cols)
    const float* __restrict__ mean_ptr,  // (n_rows), or null
    const float* __restrict__ rstd_ptr,  // (n_rows)
    const T* __restrict__ weight_ptr,    // (n_cols), or null
    int64_t n_rows, int64_t n_cols, int64_t rows_per_batch, int64_t grad_stride_batch,
    int64_t grad_stride_row, int64_t x_stride_batch, int64_t x_stride_row
) {
    if constexpr (!HAS_CLUSTERS) return;
    using Shared = ClusterShared<T, VEC_SIZE, VECS, NUM_THREADS, HAS_MEAN>;
    constexpr int STEP = Shared::STEP, STAGES = Shared::STAGES;
    DYNAMIC_SHARED(shared_bytes, 16);
    Shared& shared = *reinterpret_cast<Shared*>(shared_bytes);
    shared.sums.begin();

    // -- tile: a block owns a slice of every gridDim.x-th row: an equal share of the
    // columns, in multiples of what a warp reads at a time. A thread owns the vector at
    // first_col and every STEP columns from there
    const int unit = gridDim.y * WARP_SIZE * VEC_SIZE;
    const int n_owned =
        (static_cast<int>(n_cols) + unit - 1) / unit * (unit / gridDim.y);
    const int end = min((blockIdx.y + 1) * n_owned, static_cast<int>(n_cols));
    const int first_col = blockIdx.y * n_owned + threadIdx.x * VEC_SIZE;
    const int n_left = end - first_col;
    const int64_t row_step = gridDim.x;
    const float inverse_n = 1.0f / static_cast<float>(n_cols);
    grad_ptr += first_col;
    x_ptr += first_col;
    grad_x_ptr += first_col;
    partials_ptr += blockIdx.x * n_cols + first_col;

    // -- load: starts with the first rows; rows and columns past the end become 0,
    // which adds nothing
    const auto start_row = [&](int64_t row, int stage) {
        const int64_t grad_start =
            row_offset(row, n_rows, rows_per_batch, grad_stride_batch, grad_stride_row);
        const int64_t x_start =
            row_offset(row, n_rows, rows_per_batch, x_stride_batch, x_stride_row);
        shared.grad[stage].start(grad_ptr + grad_start, row < n_rows ? n_left : 0);
        shared.x[stage].start(x_ptr + x_start, row < n_rows ? n_left : 0);
        ptx::cp_async_commit_group();
    };
    const auto statistic = [&](const float* ptr, int64_t row) {
        return row < n_rows ? ptr[row] : 0.0f;
    };
    for (int i = 0; i < STAGES; ++i) start_row(blockIdx.x + i * row_step, i);
    const auto weight =
        load_weight<VEC_SIZE, VECS, STEP>(weight_ptr, first_col, n_left, 1.0f);
    float mean = 0.0f, next_mean = 0.0f, coming_mean = 0.0f;
    float rstd = 0.0f, next_rstd = statistic(rstd_ptr, blockIdx.x), coming_rstd;
    if constexpr (HAS_MEAN) next_mean = statistic(mean_ptr, blockIdx.x);
    Tile<float, VEC_SIZE, VECS> weight_sums{}, bias_sums{};
    ptx::cluster_wait();

    // Each round reduces the next row and stores `row`; the first one only reduces.
    int number = -1, stage = STAGES - 1;
    for (int64_t row = blockIdx.x - row_step; row < n_rows; row += row_step, ++number) {
        // -- next: the slice of the next row, which stays where it is
        const int next_stage = stage + 1 < STAGES ? stage + 1 : 0;
        if constexpr (HAS_MEAN) coming_mean = statistic(mean_ptr, row + 2 * row_step);
        coming_rstd = statistic(rstd_ptr, row + 2 * row_step);
        ptx::cp_async_wait_group<STAGES - 2>();
        const auto next_grad = to_float(shared.grad[next_stage].load_all());
        const auto next_x = to_float(shared.x[next_stage].load_all());

        // -- reduce: over the slice, and over the rows so far
        const auto next_x_hat = (next_x - next_mean) * next_rstd;
        const auto next_g = next_grad * to_float(weight);
        weight_sums = weight_sums + next_grad * next_x_hat;
        if constexpr (HAS_MEAN) bias_sums = bias_sums + next_grad;
        const auto next_sums = add_up<HAS_MEAN>(next_g * next_x_hat, next_g);
        Vec<float, NUM_SUMS<HAS_MEAN>> sums{};
        if (number >= 0) sums = shared.sums.receive(number);
        if (row + row_step < n_rows) shared.sums.send(next_sums, number + 1);

        // -- store: from the slice, read once more before another row takes its place
        if (number >= 0) {
            const float mean_product = sums[0] * inverse_n;
            float mean_g = 0.0f;
            if constexpr (HAS_MEAN) mean_g = sums[1] * inverse_n;
            const auto grad = to_float(shared.grad[stage].load_all());
            const auto x = to_float(shared.x[stage].load_all());
            start_row(row + STAGES * row_step, stage);
            const auto g = grad * to_float(weight), x_hat = (x - mean) * rstd;
            const auto grad_x = (g - mean_g - x_hat * mean_product) * rstd;
            store_row<STEP>(grad_x_ptr + row * n_cols, n_left, grad_x);
        }
        mean = next_mean, next_mean = coming_mean;
        rstd = next_rstd, next_rstd = coming_rstd;
        stage = next_stage;
    }

    // -- partials: for the last launch to add
    store_sums<STEP>(partials_ptr, n_left, weight_sums);
    if constexpr (HAS_MEAN) {
        store_sums<STEP>(partials_ptr + gridDim.x * n_cols, n_left, bias_sums);
    }
}
