// The twin: the threads of a row walk along it, each with a maximum and a sum of its own.
//
// So every logit is read once, however long the row. A thread's sum is relative to the
// largest logit that it has seen, and is rescaled as that grows, once in a tile.
#pragma once

#include "common/math.cuh"
#include "common/reduce.cuh"
#include "common/rows.cuh"
#include "common/tile.cuh"

// Adds n_left columns of x to the n_seen that a thread has seen: to their maximum, the sum
// of exp(x - max) and, if SMOOTHED, that of max - x. Such gaps are positive and do not
// cancel, however large the logits are.
template <int STEP, bool SMOOTHED, int SIZE, int COUNT>
__device__ __forceinline__ void add_tile(
    const Tile<float, SIZE, COUNT>& x, int n_left, int64_t n_seen, float& max,
    float& sum, float& gap
) {
    const float new_max = reduce(x, Max{}, max);
    const float origin = finite_origin(new_max);
    const auto numerator = map([&](float x) { return fast_exp(x - origin); }, x);
    sum = reduce(numerator, Sum{}, sum * fast_exp(max - origin));
    if constexpr (SMOOTHED) {
        const auto gaps = map_columns<STEP>(
            [&](float x, int col) { return col < n_left ? origin - x : 0.0f; }, x
        );
        gap = reduce(gaps, Sum{}, gap + n_seen * (origin - finite_origin(max)));
    }
    max = new_max;
}

// The bounds ask for 1024 threads on a multiprocessor, which limits their registers: with
// 64 bytes in flight for each these are twice what keeps an H200's memory busy.
template <
    typename T, int VEC_SIZE, int VECS_PER_THREAD, int THREADS_PER_ROW, bool SMOOTHED,
    int NUM_THREADS = threads_per_block(THREADS_PER_ROW)>
__global__ void __launch_bounds__(NUM_THREADS, 1024 / NUM_THREADS) cross_entropy_kernel(
    float* __restrict__ logsumexp_ptr,  // (n_rows)
    T* __restrict__ loss_ptr,           // (n_rows), or null
    float* __restrict__ partial_ptr,    // (n_blocks, 2) if the loss is reduced, or null
    const T* __restrict__ logits_ptr,   // (n_rows, n_cols)
    const int64_t* __restrict__ target_ptr,  // (n_rows)
    int64_t n_rows, int64_t n_cols, int64_t rows_per_batch, int64_t logits_stride_batch,
    int64_t logits_stride_row, int64_t ignore_index, float label_smoothing,
    float inverse_n_cols
) {
    constexpr int BLOCK_M = NUM_THREADS / THREADS_PER_ROW;
    constexpr int STEP = THREADS_PER_ROW * VEC_SIZE;
    constexpr int BLOCK_N = VECS_PER_THREAD * STEP;

    // -- tile: a block owns one long row or several short ones; the first tile is what
    // the others, which are full, leave of a row, and does not wait for the target
    const int64_t row = int64_t{blockIdx.x} * BLOCK_M + threadIdx.x / THREADS_PER_ROW;
    const int thread = threadIdx.x % THREADS_PER_ROW;
    const int first_col = thread * VEC_SIZE;
    const int64_t n_full = (n_cols > 0 ? n_cols - 1 : 0) / BLOCK_N * BLOCK_N;
    const int n_first = static_cast<int>(n_cols - n_full);
    const int n_left = row < n_rows ? n_first - first_col : 0;
    logits_ptr +=
        row_offset(row, n_rows, rows_per_batch, logits_stride_batch, logits_stride_row);
    const auto x = load_row<VEC_SIZE, VECS_PER_THREAD, STEP>(
        logits_ptr + first_col, n_left, -INFINITY
    );

    // -- target: on its way while the row is read; no class has a logit of NaN
    const int64_t target = row < n_rows ? target_ptr[row] : ignore_index;
    const bool is_counted = target != ignore_index;
    const bool is_class = is_counted && target >= 0 && target < n_cols;
    float target_logit = NAN;
    if (thread == 0 && is_class) target_logit = to_float(logits_ptr[target]);

    // -- max_sum: of the columns that this thread sees; of a row that does not count no
    // more than the first tile is read
    float thread_max = -INFINITY, thread_sum = 0.0f, thread_gap = 0.0f;
    add_tile<STEP, SMOOTHED>(
        to_float(x), n_left, 0, thread_max, thread_sum, thread_gap
    );
    int64_t n_seen = (n_left + STEP - 1) / STEP * VEC_SIZE;
    const int64_t n_read = is_counted ? n_cols : 0;
    for (int64_t col = n_first + first_col; col < n_read; col += BLOCK_N) {
        const auto x =
            load_row<VEC_SIZE, VECS_PER_THREAD, STEP>(logits_ptr + col, BLOCK_N);
        add_tile<STEP, SMOOTHED>(
            to_float(x), BLOCK_N, n_seen, thread_max, thread_sum, thread_gap
        );
        n_seen += VECS_PER_THREAD * VEC_SIZE;
    }

    // -- combine: what the threads of a row have seen
    const float row_max = block_reduce<THREADS_PER_ROW>(thread_max, Max{});
    const float origin = finite_origin(row_max);
    thread_sum *= fast_exp(thread_max - origin);
    const float row_sum = block_reduce<THREADS_PER_ROW>(thread_sum, Sum{});
    const float log_sum = logf(row_sum);

    // -- loss: of what is missing to the maximum
    float loss = log_sum + (1.0f - label_smoothing) * (origin - target_logit);
    if constexpr (SMOOTHED) {
        thread_gap += n_seen * (origin - finite_origin(thread_max));
        const float row_gap = block_reduce<THREADS_PER_ROW>(thread_gap, Sum{});
        loss += label_smoothing * inverse_n_cols * row_gap;
    }
    if (!is_counted) loss = 0.0f;

    // -- store: each loss, or the sum of a block's and how many rows of it count
    if (thread == 0 && row < n_rows) {
        logsumexp_ptr[row] = is_counted ? origin + log_sum : -INFINITY;
        if (loss_ptr) loss_ptr[row] = from_float<T>(loss);
    }
    if (partial_ptr) {
        Vec<float, 2> partial{loss, is_counted ? 1.0f : 0.0f};
        if constexpr (BLOCK_M > 1) {
            if (thread != 0) partial = {};
            partial = block_reduce<NUM_THREADS>(partial, Sum{});
        }
        if (threadIdx.x == 0) store(partial_ptr + 2 * int64_t{blockIdx.x}, partial);
    }
}
