// A row too long for registers: the first pass finds its statistics, the second reads it
// again, out of the L1 cache, and writes.
#pragma once

#include "common/math.cuh"
#include "common/ptx/memory.cuh"
#include "common/rows.cuh"
#include "norm/rows.cuh"

// The first LIMIT of n columns at most.
template <int LIMIT>
__device__ __forceinline__ int clip(int64_t n) {
    return n < LIMIT ? static_cast<int>(n) : LIMIT;
}

// load_row with a hint to the caches: keep the row for a second pass, or give it up.
enum class Reading { first, last };
template <Reading READING, int SIZE, int COUNT, int STEP, typename T>
__device__ __forceinline__ Tile<T, SIZE, COUNT> load_row(const T* ptr, int n_left) {
    if constexpr (sizeof(Vec<T, SIZE>) < VEC_BYTES) {
        return load_row<SIZE, COUNT, STEP>(ptr, n_left);
    } else {
        Tile<T, SIZE, COUNT> tile;
        #pragma unroll
        for (int i = 0; i < COUNT; ++i) {
            const auto* const words = reinterpret_cast<const uint4*>(ptr + i * STEP);
            uint4 read{};
            if (i * STEP < n_left) {
                read = READING == Reading::first ? ptx::load_evict_last(words)
                                                 : __ldcs(words);
            }
            tile[i] = __builtin_bit_cast(Vec<T, SIZE>, read);
        }
        return tile;
    }
}

// Two blocks share a multiprocessor, so that one loads while the other stores; at more
// than 64 bytes a thread their rows would drive each other out of the L1 cache.
template <
    typename T, int VEC_SIZE, int ELEMENTS, int NUM_THREADS, bool HAS_MEAN,
    int BLOCKS_PER_SM = (VEC_SIZE > 1 && ELEMENTS * sizeof(T) <= 64) ? 2 : 1>
__global__ void __launch_bounds__(NUM_THREADS, BLOCKS_PER_SM) norm_long_kernel(
    T* __restrict__ out_ptr,           // (n_rows, n_cols)
    float* __restrict__ mean_ptr,      // (n_rows), or null
    float* __restrict__ rstd_ptr,      // (n_rows)
    const T* __restrict__ x_ptr,       // (n_rows, n_cols)
    const T* __restrict__ weight_ptr,  // (n_cols), or null
    const T* __restrict__ bias_ptr,    // (n_cols), or null
    int64_t n_rows, int64_t n_cols, int64_t rows_per_batch, int64_t x_stride_batch,
    int64_t x_stride_row, float eps
) {
    // Vectors at a time: a single element takes a register, and when it is stored its
    // weight and bias take some too.
    constexpr bool IS_WIDE = ELEMENTS * sizeof(T) > 64;
    constexpr int VECS = VEC_SIZE == 1 ? 16 : ELEMENTS / VEC_SIZE;
    constexpr int MEAN_VECS = VEC_SIZE == 1 ? 8 : IS_WIDE ? 2 : 1;
    constexpr int VECS_PER_STORE = HAS_MEAN ? MEAN_VECS : (IS_WIDE ? 16 : 8) / VEC_SIZE;
    constexpr int STEP = NUM_THREADS * VEC_SIZE;
    constexpr int BLOCK_N = STEP * VECS, STORE_N = STEP * VECS_PER_STORE;

    // -- tile: a block owns one row and walks over it in tiles of BLOCK_N columns; a
    // thread owns the vector at first_col and every STEP columns from there
    const int64_t row = blockIdx.x;
    const int first_col = threadIdx.x * VEC_SIZE;
    const int64_t n_left = n_cols - first_col;
    x_ptr += row_offset(row, n_rows, rows_per_batch, x_stride_batch, x_stride_row) +
             first_col;
    out_ptr += row * n_cols + first_col;
    const float n = static_cast<float>(n_cols);

    // -- mean: of the first tile, which is good enough for the variance: if it holds
    // one in k of the columns, the variance is at least 1 / k of the squared distance
    // to it, so that no more than a factor of 1 + k is lost below
    float mean = 0.0f;
    if constexpr (HAS_MEAN) {
        const auto x = load_row<Reading::first, VEC_SIZE, VECS, STEP>(
            x_ptr, clip<BLOCK_N>(n_left)
        );
        mean = block_reduce<NUM_THREADS>(reduce(to_float(x), Sum{}), Sum{}) /
               static_cast<float>(clip<BLOCK_N>(n_cols));
    }

    // -- variance: of the differences, whose own mean is what is missing of the row's
    Vec<float, NUM_SUMS<HAS_MEAN>> sums{};
    #pragma unroll 1
    for (int64_t start = 0; start < n_cols; start += BLOCK_N) {
        const int n_valid = clip<BLOCK_N>(n_left - start);
        auto x = to_float(
            load_row<Reading::first, VEC_SIZE, VECS, STEP>(x_ptr + start, n_valid)
        );
        x = map_row<STEP>([&](float x) { return x - mean; }, n_valid, x);
        sums = add_up<HAS_MEAN>(x * x, x, sums);
    }
    sums = block_reduce<NUM_THREADS>(sums, Sum{});
    float correction = 0.0f, variance = sums[0] / n;
    if constexpr (HAS_MEAN) {
        correction = sums[1] / n;
        variance = relu(variance - correction * correction);
    }
    const float rstd = rsqrtf(variance + eps);
    if (threadIdx.x == 0) {
        if constexpr (HAS_MEAN) mean_ptr[row] = mean + correction;
        rstd_ptr[row] = rstd;
    }

    // -- store: the second pass
    #pragma unroll 1
    for (int64_t start = 0; start < n_cols; start += STORE_N) {
        const int n_valid = clip<STORE_N>(n_left - start);
        const auto x = load_row<Reading::last, VEC_SIZE, VECS_PER_STORE, STEP>(
            x_ptr + start, n_valid
        );
        const auto weight = load_weight<VEC_SIZE, VECS_PER_STORE, STEP>(
            weight_ptr, start + first_col, n_valid, 1.0f
        );
        const auto bias = load_weight<VEC_SIZE, VECS_PER_STORE, STEP>(
            bias_ptr, start + first_col, n_valid, 0.0f
        );
        auto out = (to_float(x) - mean - correction) * rstd * to_float(weight);
        if constexpr (HAS_MEAN) out = out + to_float(bias);
        store_row<STEP>(out_ptr + start, n_valid, out);
    }
}
