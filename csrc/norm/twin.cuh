// The twin: a row stays in registers, so that every element is read once.
//
// THREADS_PER_ROW threads hold VECS vectors each. Sums go from thread to thread, not
// the row.
#pragma once

#include "common/math.cuh"
#include "common/rows.cuh"
#include "norm/rows.cuh"

// How many blocks share a multiprocessor, which bounds their registers.
constexpr int blocks_per_sm(int vec_size, int vecs, int num_threads) {
    const int elements = vec_size * vecs;
    const int threads_per_sm = elements <= 8    ? 1536
                               : elements <= 16 ? 1024
                               : vec_size > 1   ? 768
                                                : 512;
    return threads_per_sm < num_threads ? 1 : threads_per_sm / num_threads;
}

template <
    typename T, int VEC_SIZE, int VECS, int THREADS_PER_ROW, bool HAS_MEAN,
    int NUM_THREADS = threads_per_block(THREADS_PER_ROW)>
__global__ void
__launch_bounds__(NUM_THREADS, blocks_per_sm(VEC_SIZE, VECS, NUM_THREADS)) norm_kernel(
    T* __restrict__ out_ptr,           // (n_rows, n_cols)
    float* __restrict__ mean_ptr,      // (n_rows), or null
    float* __restrict__ rstd_ptr,      // (n_rows)
    const T* __restrict__ x_ptr,       // (n_rows, n_cols)
    const T* __restrict__ weight_ptr,  // (n_cols), or null
    const T* __restrict__ bias_ptr,    // (n_cols), or null
    int64_t n_rows, int64_t n_cols, int64_t rows_per_batch, int64_t x_stride_batch,
    int64_t x_stride_row, float eps
) {
    constexpr int STEP = THREADS_PER_ROW * VEC_SIZE;
    constexpr int ROWS_PER_BLOCK = NUM_THREADS / THREADS_PER_ROW;

    // -- tile: a block owns one long row or several short ones; a thread owns the
    // vector at first_col and every STEP columns from there
    const int64_t row =
        int64_t{blockIdx.x} * ROWS_PER_BLOCK + threadIdx.x / THREADS_PER_ROW;
    const int first_col = threadIdx.x % THREADS_PER_ROW * VEC_SIZE;
    const int n_left = row < n_rows ? static_cast<int>(n_cols) - first_col : 0;
    x_ptr += row_offset(row, n_rows, rows_per_batch, x_stride_batch, x_stride_row) +
             first_col;
    out_ptr += row * n_cols + first_col;
    const float n = static_cast<float>(n_cols);

    // -- load: columns past the end become 0, which adds nothing
    auto x = to_float(load_row<VEC_SIZE, VECS, STEP>(x_ptr, n_left));
    // A block alone on its multiprocessor would wait for its weights one by one. It reads
    // those of several vectors at once; with a mean, the compiler finds registers for two.
    constexpr bool READS_AHEAD = NUM_THREADS >= 768;
    constexpr bool IS_ALONE = READS_AHEAD || VEC_SIZE * VECS > 64;
    constexpr int VECS_AT_ONCE = !IS_ALONE ? 1 : HAS_MEAN ? 2 : 16 / VEC_SIZE;
    constexpr int COUNT = HAS_MEAN ? 1 : VECS_AT_ONCE;
    const auto n_valid = [&](int i) { return IS_ALONE ? n_left - i * STEP : 1; };
    const auto load_at = [&](const T* ptr, int i, float absent) {
        const int col = first_col + i * STEP;
        return load_weight<VEC_SIZE, COUNT, STEP>(ptr, col, n_valid(i), absent);
    };
    auto weight = load_at(weight_ptr, 0, 1.0f), bias = load_at(bias_ptr, 0, 0.0f);

    // -- mean: subtracted from x in its registers
    float mean = 0.0f;
    if constexpr (HAS_MEAN) {
        mean = block_reduce<THREADS_PER_ROW>(reduce(x, Sum{}), Sum{}) / n;
        x = map_row<STEP>([&](float x) { return x - mean; }, n_left, x);
    }

    // -- variance: of the differences, whose own mean is the rounding error of the mean
    const auto sums = block_reduce<THREADS_PER_ROW>(add_up<HAS_MEAN>(x * x, x), Sum{});
    float correction = 0.0f, variance = sums[0] / n;
    if constexpr (HAS_MEAN) {
        correction = sums[1] / n;
        variance = relu(variance - correction * correction);
    }
    const float rstd = rsqrtf(variance + eps);
    if (first_col == 0 && row < n_rows) {
        if constexpr (HAS_MEAN) mean_ptr[row] = mean + correction;
        rstd_ptr[row] = rstd;
    }

    // -- store: rounded once; weight and bias, read any earlier, would occupy registers
    #pragma unroll
    for (int i = 0; i < VECS; i += COUNT) {
        if (i % VECS_AT_ONCE == 0 && i * STEP >= n_left) break;
        if (i > 0 || !READS_AHEAD)
            weight = load_at(weight_ptr, i, 1.0f), bias = load_at(bias_ptr, i, 0.0f);
        Tile<float, VEC_SIZE, COUNT> part{};
        #pragma unroll
        for (int j = 0; j < COUNT && i + j < VECS; ++j) part[j] = x[i + j];
        auto out = (part - correction) * rstd * to_float(weight);
        if constexpr (HAS_MEAN) out = out + to_float(bias);
        store_row<STEP>(out_ptr + i * STEP, n_valid(i), out);
    }
}
