// The twin: a block walks over many rows, each of which it holds in registers, and adds
// up what they contribute to the gradients of weight and bias. The next rows are on
// their way to shared memory meanwhile.
#pragma once

#include "common/ptx/async_copy.cuh"
#include "common/rows.cuh"
#include "norm/partials.cuh"
#include "norm/row_sums.cuh"
#include "norm/rows.cuh"

// A block works on 4096 elements of each tensor at a time; with those on their way they
// keep the memory busy. A longer row takes a block of more threads.
constexpr int BACKWARD_BLOCK_N = 4096;
constexpr int BACKWARD_STAGES = 2;
constexpr int backward_num_threads(int elements_per_thread, int threads_per_row) {
    const int num_threads = BACKWARD_BLOCK_N / elements_per_thread;
    return threads_per_row > num_threads ? threads_per_row : num_threads;
}

template <typename T, int VEC_SIZE, int VECS, int THREADS_PER_ROW, bool HAS_MEAN>
struct BackwardShared {
    static constexpr int NUM_THREADS =
        backward_num_threads(VEC_SIZE * VECS, THREADS_PER_ROW);
    static constexpr int STEP = THREADS_PER_ROW * VEC_SIZE;
    static constexpr int HANDED_IN =
        NUM_THREADS > THREADS_PER_ROW ? VEC_SIZE * VECS : 1;

    Copies<T, VEC_SIZE, VECS, STEP, NUM_THREADS> grad[BACKWARD_STAGES];
    Copies<T, VEC_SIZE, VECS, STEP, NUM_THREADS> x[BACKWARD_STAGES];
    RowSums<NUM_SUMS<HAS_MEAN>, NUM_THREADS, THREADS_PER_ROW> row_sums;
    float handed_in[NUM_SUMS<HAS_MEAN>][HANDED_IN][NUM_THREADS];
};

// The bounds ask for 512 threads on a multiprocessor, so for 128 registers at most,
// which hold 8 or 16 elements of grad, x, weight and each sum.
template <
    typename T, int VEC_SIZE, int VECS, int THREADS_PER_ROW, bool HAS_MEAN,
    int NUM_THREADS = backward_num_threads(VEC_SIZE * VECS, THREADS_PER_ROW)>
__global__ void __launch_bounds__(NUM_THREADS, 512 / NUM_THREADS) norm_backward_kernel(
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
    using Shared = BackwardShared<T, VEC_SIZE, VECS, THREADS_PER_ROW, HAS_MEAN>;
    constexpr int ROWS_PER_BLOCK = NUM_THREADS / THREADS_PER_ROW, STEP = Shared::STEP;
    DYNAMIC_SHARED(shared_bytes, 16);
    Shared& shared = *reinterpret_cast<Shared*>(shared_bytes);

    // -- tile: a block owns every gridDim.x-th row, or group of short rows; a thread
    // owns the vector at first_col and every STEP columns from there
    const int thread_row = threadIdx.x / THREADS_PER_ROW;
    const int64_t first_row = int64_t{blockIdx.x} * ROWS_PER_BLOCK + thread_row;
    const int64_t row_step = int64_t{gridDim.x} * ROWS_PER_BLOCK;
    const int first_col = threadIdx.x % THREADS_PER_ROW * VEC_SIZE;
    const int n_left = static_cast<int>(n_cols) - first_col;
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
    for (int i = 0; i < BACKWARD_STAGES; ++i) start_row(first_row + i * row_step, i);
    const auto weight =
        load_weight<VEC_SIZE, VECS, STEP>(weight_ptr, first_col, n_left, 1.0f);
    float next_mean = HAS_MEAN ? statistic(mean_ptr, first_row) : 0.0f;
    float next_rstd = statistic(rstd_ptr, first_row);
    Tile<float, VEC_SIZE, VECS> weight_sums{}, bias_sums{};

    // The threads of a warp stay together as long as one of them has a row.
    const int row_in_warp = threadIdx.x % WARP_SIZE / THREADS_PER_ROW;
    int stage = 0;
    for (int64_t row = first_row; row - row_in_warp < n_rows; row += row_step) {
        // -- next: a later row takes the place of this one, once that is in registers
        ptx::cp_async_wait_group<BACKWARD_STAGES - 1>();
        const auto grad = to_float(shared.grad[stage].load_all());
        const auto x = to_float(shared.x[stage].load_all());
        const float mean = next_mean, rstd = next_rstd;
        start_row(row + BACKWARD_STAGES * row_step, stage);
        if constexpr (HAS_MEAN) next_mean = statistic(mean_ptr, row + row_step);
        next_rstd = statistic(rstd_ptr, row + row_step);

        // -- reduce: over the row, and over the rows so far
        const auto x_hat = (x - mean) * rstd;
        const auto g = grad * to_float(weight);
        weight_sums = weight_sums + grad * x_hat;
        auto sums = add_up<HAS_MEAN>(g * x_hat, g);
        if constexpr (HAS_MEAN) bias_sums = bias_sums + grad;
        sums = shared.row_sums(sums, stage);
        const float mean_product = sums[0] * inverse_n;
        float mean_g = 0.0f;
        if constexpr (HAS_MEAN) mean_g = sums[1] * inverse_n;
        stage = 1 - stage;

        // -- store: rounded once
        const auto grad_x = (g - mean_g - x_hat * mean_product) * rstd;
        store_row<STEP>(grad_x_ptr + row * n_cols, row < n_rows ? n_left : 0, grad_x);
    }

    // -- partials: for the last launch to add
    add_groups<NUM_THREADS, THREADS_PER_ROW>(weight_sums, shared.handed_in[0]);
    const int n_written = thread_row == 0 ? n_left : -VEC_SIZE;
    store_sums<STEP>(partials_ptr, n_written, weight_sums);
    if constexpr (HAS_MEAN) {
        add_groups<NUM_THREADS, THREADS_PER_ROW>(bias_sums, shared.handed_in[1]);
        store_sums<STEP>(partials_ptr + gridDim.x * n_cols, n_written, bias_sums);
    }
}
