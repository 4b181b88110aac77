// Layer normalisation of every row of a matrix, and its backward.
//
//   layer_norm:          out[row, :] = x_hat[row, :] * weight + bias,
//                        x_hat[row, :] = (x[row, :] - mean[row]) * rstd[row],
//                        rstd[row] = 1 / sqrt(variance(x[row, :]) + eps)
//   layer_norm_backward: grad_x[row, :] = rstd[row] * (g - m - x_hat[row, :] * p),
//                        g = grad[row, :] * weight, m = mean(g),
//                        p = mean(g * x_hat[row, :]); over all rows
//                        grad_weight = sum of grad[row, :] * x_hat[row, :],
//                        grad_bias = sum of grad[row, :]
//
// Layout   out, grad_x: (n_rows, n_cols), contiguous. x, grad: columns contiguous; row r
//          of x begins at
//          (r / rows_per_batch) * x_stride_batch + (r % rows_per_batch) * x_stride_row.
//          mean, rstd: float32, one for each row. weight, bias: contiguous, or null for
//          ones and zeros.
// Traffic  reads and writes every element once. Rows of up to 16384 columns, 32768 of
//          float32, stay in registers; longer ones are read a second time, out of the L1
//          cache, which an H200 has 256 KB of. In the backward rows stay in the registers
//          of a block (4096 columns, 8192 of two bytes) or in the shared memory of a
//          cluster of up to eight (65536), on GPUs with clusters and as much of it as an
//          H200; longer ones, and those of single elements, come from memory twice.
// Limits   accumulates in float32. The variance is that of differences from a mean, of
//          which the rounding is taken back; a mean far from zero costs it no digits.
//          Gradients of weights are added in an order that depends on the shape and the
//          dtype alone.
// Mirror   triton_kernels/layer_norm/layer_norm.py, where it is faster to read rows of float32 of 2049
//          to 4096 and of 16385 to 32768 columns again, which stay in registers here
// Source   Ba, Kiros & Hinton 2016, arXiv:1607.06450; Chan, Golub & LeVeque 1983,
//          "Algorithms for computing the sample variance" (the corrected two-pass one)

#include "common/cluster.cuh"
#include "common/launch.cuh"
#include "common/norms.cuh"
#include "common/reduce.cuh"
#include "common/rows.cuh"
#include "common/vec.cuh"

// The variance from the mean of differences and that of their squares. It may not come
// out below 0, but NaN stays NaN, and infinities become it.
__device__ __forceinline__ float variance(float mean, float mean_square) {
    const float result = mean_square - mean * mean;
    return result < 0.0f ? 0.0f : result;
}

// A row in registers: THREADS_PER_ROW threads hold ELEMENTS_PER_THREAD each. Where a row
// takes all registers of a multiprocessor, no second block loads while one computes: such
// a block PREFETCHES, which is to say that it takes every gridDim.x-th row, and has the
// next one on its way to shared memory.
template <
    typename T,
    int VEC_SIZE,
    int ELEMENTS_PER_THREAD,
    int THREADS_PER_ROW,
    bool PREFETCHES = false,
    int NUM_THREADS = threads_per_block(THREADS_PER_ROW),
    int BLOCKS_PER_SM = row_blocks_per_sm(VEC_SIZE, ELEMENTS_PER_THREAD, NUM_THREADS)>
__global__ void __launch_bounds__(NUM_THREADS, BLOCKS_PER_SM) layer_norm_kernel(
    T* __restrict__ out_ptr,           // (n_rows, n_cols)
    float* __restrict__ mean_ptr,      // (n_rows)
    float* __restrict__ rstd_ptr,      // (n_rows)
    const T* __restrict__ x_ptr,       // (n_rows, n_cols)
    const T* __restrict__ weight_ptr,  // (n_cols), or null
    const T* __restrict__ bias_ptr,    // (n_cols), or null
    int64_t n_rows,
    int64_t n_cols,
    int64_t rows_per_batch,
    int64_t x_stride_batch,
    int64_t x_stride_row,
    float eps
) {
    constexpr int VECS_PER_THREAD = ELEMENTS_PER_THREAD / VEC_SIZE;
    constexpr int STEP = THREADS_PER_ROW * VEC_SIZE;
    const float n = static_cast<float>(n_cols);

    // -- tile: a block owns one row or several short ones; a thread owns the vector at
    // first_col and every STEP columns from there
    constexpr int ROWS_PER_BLOCK = NUM_THREADS / THREADS_PER_ROW;
    static_assert(ROWS_PER_BLOCK == 1 || !PREFETCHES);
    int64_t row = int64_t{blockIdx.x} * ROWS_PER_BLOCK + threadIdx.x / THREADS_PER_ROW;
    const int first_col = threadIdx.x % THREADS_PER_ROW * VEC_SIZE;
    const int n_left = row < n_rows ? static_cast<int>(n_cols) - first_col : 0;
    x_ptr += first_col;
    out_ptr += first_col;
    const auto row_ptr = [&](int64_t row) {
        return x_ptr +
               row_offset(row, n_rows, rows_per_batch, x_stride_batch, x_stride_row);
    };

    // A thread reads what it has copied itself: no barrier is needed.
    DYNAMIC_SHARED(shared_bytes, 16);
    auto* const copies =
        reinterpret_cast<Vec<T, VEC_SIZE>*>(shared_bytes) + threadIdx.x;
    const auto start_row = [&](int64_t row) {
        start_loading<NUM_THREADS, STEP, VECS_PER_THREAD>(
            copies, row_ptr(row), row < n_rows ? n_left : 0
        );
        ptx::cp_async_commit_group();
    };
    if constexpr (PREFETCHES) start_row(row);

    #pragma unroll 1
    while (true) {
        // -- load: columns past the end become 0, which adds nothing
        Vec<float, VEC_SIZE> x[VECS_PER_THREAD];
        if constexpr (PREFETCHES) {
            ptx::cp_async_wait_group<0>();
            #pragma unroll
            for (int i = 0; i < VECS_PER_THREAD; ++i) {
                x[i] = to_float(copies[i * NUM_THREADS]);
            }
            start_row(row + gridDim.x);
        } else {
            const T* const ptr = row_ptr(row);
            #pragma unroll
            for (int i = 0; i < VECS_PER_THREAD; ++i) {
                x[i] = to_float(load<VEC_SIZE>(ptr + i * STEP, i * STEP < n_left, T{}));
            }
        }

        // -- mean
        float row_sum = 0.0f;
        #pragma unroll
        for (int i = 0; i < VECS_PER_THREAD; ++i) {
            #pragma unroll
            for (int j = 0; j < VEC_SIZE; ++j) row_sum += x[i][j];
        }
        const float mean = block_reduce<THREADS_PER_ROW>(row_sum, Sum{}) / n;

        // -- variance: of the differences, which replace x in its registers; their own
        // mean is what the rounding of the mean has left
        Vec<float, 2> sums{};
        #pragma unroll
        for (int i = 0; i < VECS_PER_THREAD; ++i) {
            if (i * STEP >= n_left) break;
            #pragma unroll
            for (int j = 0; j < VEC_SIZE; ++j) {
                x[i][j] -= mean;
                sums[0] += x[i][j];
                sums[1] += x[i][j] * x[i][j];
            }
        }
        sums = block_reduce<THREADS_PER_ROW>(sums, Sum{});
        const float correction = sums[0] / n;
        const float rstd = rsqrtf(variance(correction, sums[1] / n) + eps);
        if (first_col == 0 && row < n_rows) {
            mean_ptr[row] = mean + correction;
            rstd_ptr[row] = rstd;
        }

        // -- store: weight and bias are read only now, when they need no registers for
        // long; all rows share them, so that they come out of a cache
        T* const ptr = out_ptr + row * n_cols;
        #pragma unroll
        for (int i = 0; i < VECS_PER_THREAD; ++i) {
            if (i * STEP >= n_left) break;
            const int col = first_col + i * STEP;
            const auto weight =
                to_float(load_weight<VEC_SIZE>(weight_ptr, col, true, 1.0f));
            const auto bias =
                to_float(load_weight<VEC_SIZE>(bias_ptr, col, true, 0.0f));
            #pragma unroll
            for (int j = 0; j < VEC_SIZE; ++j)
                x[i][j] = (x[i][j] - correction) * rstd * weight[j] + bias[j];
            store(ptr + i * STEP, from_float<T>(x[i]));
        }

        row += gridDim.x;
        if (!PREFETCHES || row >= n_rows) break;
    }
}

// A longer row, of which a thread reads BYTES at a time: a first pass over it finds the
// statistics, a second, which finds it in the L1 cache, writes the result.
template <
    typename T,
    int VEC_SIZE,
    int BYTES,
    int NUM_THREADS,
    int BLOCKS_PER_SM = long_blocks_per_sm(VEC_SIZE, BYTES, NUM_THREADS)>
__global__ void __launch_bounds__(NUM_THREADS, BLOCKS_PER_SM) layer_norm_long_kernel(
    T* __restrict__ out_ptr,           // (n_rows, n_cols)
    float* __restrict__ mean_ptr,      // (n_rows)
    float* __restrict__ rstd_ptr,      // (n_rows)
    const T* __restrict__ x_ptr,       // (n_rows, n_cols)
    const T* __restrict__ weight_ptr,  // (n_cols), or null
    const T* __restrict__ bias_ptr,    // (n_cols), or null
    int64_t n_rows,
    int64_t n_cols,
    int64_t rows_per_batch,
    int64_t x_stride_batch,
    int64_t x_stride_row,
    float eps
) {
    constexpr int VECS_PER_THREAD = LONG_VECS<T, VEC_SIZE, BYTES>;
    constexpr int STEP = NUM_THREADS * VEC_SIZE;
    constexpr int BLOCK_N = STEP * VECS_PER_THREAD;

    // -- tile: a block owns one row and walks over it in tiles of BLOCK_N columns; a
    // thread owns the vector at first_col and every STEP columns from there
    const int64_t row = blockIdx.x;
    const int first_col = threadIdx.x * VEC_SIZE;
    const int64_t n_left = n_cols - first_col;
    x_ptr += row_offset(row, n_rows, rows_per_batch, x_stride_batch, x_stride_row) +
             first_col;
    out_ptr += row * n_cols + first_col;

    // -- mean: of the first tile, which is good enough for the variance: if it holds one
    // in k of the columns, the variance is at least 1 / k of the squared distance to it,
    // so that no more than a factor of 1 + k is lost below
    Vec<T, VEC_SIZE> xs[VECS_PER_THREAD];
    load_row<Reading::FIRST, STEP>(xs, x_ptr, clip<BLOCK_N>(n_left));
    float first_sum = 0.0f;
    #pragma unroll
    for (int i = 0; i < VECS_PER_THREAD; ++i) {
        const auto x = to_float(xs[i]);
        #pragma unroll
        for (int j = 0; j < VEC_SIZE; ++j) first_sum += x[j];
    }
    const float mean = block_reduce<NUM_THREADS>(first_sum, Sum{}) /
                       static_cast<float>(clip<BLOCK_N>(n_cols));

    // -- variance: of the differences; their own mean is what is missing of the row's, or
    // what the rounding of the mean has left
    const float n = static_cast<float>(n_cols);
    Vec<float, 2> sums{};
    #pragma unroll 1
    for (int64_t start = 0; start < n_cols; start += BLOCK_N) {
        const int n_valid = clip<BLOCK_N>(n_left - start);
        load_row<Reading::FIRST, STEP>(xs, x_ptr + start, n_valid);
        #pragma unroll
        for (int i = 0; i < VECS_PER_THREAD; ++i) {
            const auto x = to_float(xs[i]);
            #pragma unroll
            for (int j = 0; j < VEC_SIZE; ++j) {
                const float difference = i * STEP < n_valid ? x[j] - mean : 0.0f;
                sums[0] += difference;
                sums[1] += difference * difference;
            }
        }
    }
    sums = block_reduce<NUM_THREADS>(sums, Sum{});
    const float correction = sums[0] / n;
    const float rstd = rsqrtf(variance(correction, sums[1] / n) + eps);
    if (threadIdx.x == 0) {
        mean_ptr[row] = mean + correction;
        rstd_ptr[row] = rstd;
    }

    // -- store: the second pass, as many vectors at a time as fit into registers beside
    // those of weight and bias
    constexpr int VECS_PER_STORE = VEC_SIZE == 1 ? 8 : BYTES > 64 ? 2 : 1;
    constexpr int STORE_N = STEP * VECS_PER_STORE;
    #pragma unroll 1
    for (int tile = 0; tile * int64_t{STORE_N} < n_cols; ++tile) {
        const int64_t start = tile * int64_t{STORE_N};
        const int n_valid = clip<STORE_N>(n_left - start);
        Vec<T, VEC_SIZE> xs[VECS_PER_STORE];
        Vec<T, VEC_SIZE> weights[VECS_PER_STORE], biases[VECS_PER_STORE];
        load_row<Reading::LAST, STEP>(xs, x_ptr + start, n_valid);
        #pragma unroll
        for (int i = 0; i < VECS_PER_STORE; ++i) {
            const int64_t col = start + first_col + i * STEP;
            const bool is_valid = i * STEP < n_valid;
            weights[i] = load_weight<VEC_SIZE>(weight_ptr, col, is_valid, 1.0f);
            biases[i] = load_weight<VEC_SIZE>(bias_ptr, col, is_valid, 0.0f);
        }
        #pragma unroll
        for (int i = 0; i < VECS_PER_STORE; ++i) {
            if (i * STEP >= n_valid) break;
            auto x = to_float(xs[i]);
            const auto weight = to_float(weights[i]), bias = to_float(biases[i]);
            #pragma unroll
            for (int j = 0; j < VEC_SIZE; ++j) {
                x[j] = (x[j] - mean - correction) * rstd * weight[j] + bias[j];
            }
            store(out_ptr + start + i * STEP, from_float<T>(x));
        }
    }
}

// A block walks over many rows, which it has in registers, or a cluster of blocks over long
// ones in shared memory, and adds up for its columns what they contribute to the gradients
// of weight and bias.
template <
    typename T,
    int VEC_SIZE,
    int BLOCK_N,
    bool IN_CLUSTER,
    int NUM_THREADS = BACKWARD_NUM_THREADS<T, BLOCK_N, IN_CLUSTER>>
__global__ void
__launch_bounds__(NUM_THREADS, 512 / NUM_THREADS) layer_norm_backward_kernel(
    T* __restrict__ grad_x_ptr,          // (n_rows, n_cols)
    float* __restrict__ partials_ptr,    // (2, n_partials, n_cols)
    const T* __restrict__ grad_ptr,      // (n_rows, n_cols)
    const T* __restrict__ x_ptr,         // (n_rows, n_cols)
    const float* __restrict__ mean_ptr,  // (n_rows)
    const float* __restrict__ rstd_ptr,  // (n_rows)
    const T* __restrict__ weight_ptr,    // (n_cols), or null
    int64_t n_rows,
    int64_t n_cols,
    int64_t rows_per_batch,
    int64_t grad_stride_batch,
    int64_t grad_stride_row,
    int64_t x_stride_batch,
    int64_t x_stride_row
) {
    constexpr int VECS_PER_THREAD =
        BACKWARD_ELEMENTS_PER_THREAD<T, BLOCK_N, IN_CLUSTER> / VEC_SIZE;
    constexpr int THREADS_PER_ROW = BLOCK_N / (VECS_PER_THREAD * VEC_SIZE);
    constexpr int STEP = THREADS_PER_ROW * VEC_SIZE;

    using Shared = BackwardShared<T, 2, BLOCK_N, IN_CLUSTER>;
    DYNAMIC_SHARED(shared_bytes, 16);
    Shared& shared = *reinterpret_cast<Shared*>(shared_bytes);
    shared.row_sums.begin();

    // -- tile: a block owns every gridDim.x-th row, or group of short rows, or a slice of
    // every gridDim.x-th long one; a thread owns the same columns in each
    constexpr int ROWS_PER_BLOCK = NUM_THREADS / THREADS_PER_ROW;
    const int thread_row = threadIdx.x / THREADS_PER_ROW;
    const int64_t first_row = int64_t{blockIdx.x} * ROWS_PER_BLOCK + thread_row;
    const int64_t row_step = int64_t{gridDim.x} * ROWS_PER_BLOCK;
    const int n_owned = IN_CLUSTER ? slice_size<VEC_SIZE>(n_cols, gridDim.y) : BLOCK_N;
    const int slice = blockIdx.y * n_owned;
    const int first_col = slice + threadIdx.x % THREADS_PER_ROW * VEC_SIZE;
    const int n_left = min(slice + n_owned, static_cast<int>(n_cols)) - first_col;
    grad_ptr += first_col;
    x_ptr += first_col;
    grad_x_ptr += first_col;

    // -- load: starts with the first rows; rows and columns past the end become 0, which
    // adds nothing. A thread reads what it has copied itself: no barrier is needed.
    const auto vecs_at = [&](T* copies) {
        return reinterpret_cast<Vec<T, VEC_SIZE>*>(copies) + threadIdx.x;
    };
    const auto start_row = [&](int64_t row, int stage) {
        const int n_valid = row < n_rows ? n_left : 0;
        start_loading<NUM_THREADS, STEP, VECS_PER_THREAD>(
            vecs_at(shared.grad[stage]),
            grad_ptr +
                row_offset(
                    row, n_rows, rows_per_batch, grad_stride_batch, grad_stride_row
                ),
            n_valid
        );
        start_loading<NUM_THREADS, STEP, VECS_PER_THREAD>(
            vecs_at(shared.x[stage]),
            x_ptr +
                row_offset(row, n_rows, rows_per_batch, x_stride_batch, x_stride_row),
            n_valid
        );
        ptx::cp_async_commit_group();
    };
    constexpr int STAGES = Shared::STAGES;
    for (int i = 0; i < STAGES; ++i) start_row(first_row + i * row_step, i);
    Vec<T, VEC_SIZE> weights[VECS_PER_THREAD];
    #pragma unroll
    for (int i = 0; i < VECS_PER_THREAD; ++i) {
        weights[i] = load_weight<VEC_SIZE>(
            weight_ptr, first_col + i * STEP, i * STEP < n_left, 1.0f
        );
    }
    const auto statistics_of = [&](int64_t row) {
        const bool is_valid = row < n_rows;
        return Vec<float, 2>{
            is_valid ? mean_ptr[row] : 0.0f, is_valid ? rstd_ptr[row] : 0.0f
        };
    };
    shared.row_sums.wait_for_cluster();

    Vec<T, VEC_SIZE> grads[VECS_PER_THREAD], xs[VECS_PER_THREAD];
    const auto read_row = [&](int stage) {
        #pragma unroll
        for (int i = 0; i < VECS_PER_THREAD; ++i) {
            grads[i] = vecs_at(shared.grad[stage])[i * NUM_THREADS];
            xs[i] = vecs_at(shared.x[stage])[i * NUM_THREADS];
        }
    };

    // -- reduce
    Vec<float, VEC_SIZE> sums[2 * VECS_PER_THREAD]{};  // of the weight, of the bias
    const auto reduce_row = [&](Vec<float, 2> statistics) {
        const float mean = statistics[0], rstd = statistics[1];
        Vec<float, 2> row_sums{};  // of g and of g * x_hat
        #pragma unroll
        for (int i = 0; i < VECS_PER_THREAD; ++i) {
            const auto grad = to_float(grads[i]), x = to_float(xs[i]);
            const auto weight = to_float(weights[i]);
            #pragma unroll
            for (int j = 0; j < VEC_SIZE; ++j) {
                const float x_hat = (x[j] - mean) * rstd;
                row_sums[0] += grad[j] * weight[j];
                row_sums[1] += grad[j] * weight[j] * x_hat;
                sums[i][j] += grad[j] * x_hat;
                sums[VECS_PER_THREAD + i][j] += grad[j];
            }
        }
        return row_sums;
    };

    // -- store
    const float inverse_n_cols = 1.0f / static_cast<float>(n_cols);
    const auto store_row = [&](int64_t row,
                               Vec<float, 2> statistics,
                               Vec<float, 2> row_sums) {
        const float mean = statistics[0], rstd = statistics[1];
        const float mean_g = row_sums[0] * inverse_n_cols;
        const float mean_product = row_sums[1] * inverse_n_cols;
        #pragma unroll
        for (int i = 0; i < VECS_PER_THREAD; ++i) {
            if (row >= n_rows || i * STEP >= n_left) break;
            auto grad = to_float(grads[i]);
            const auto x = to_float(xs[i]), weight = to_float(weights[i]);
            #pragma unroll
            for (int j = 0; j < VEC_SIZE; ++j) {
                const float x_hat = (x[j] - mean) * rstd;
                grad[j] = rstd * (grad[j] * weight[j] - mean_g - x_hat * mean_product);
            }
            store(grad_x_ptr + row * n_cols + i * STEP, from_float<T>(grad));
        }
    };

    // -- next: a row takes the place of another as soon as that is in registers
    Vec<float, 2> statistics = statistics_of(first_row);
    int stage = 0;
    if constexpr (!IN_CLUSTER) {
        // The threads of a warp stay together, as long as one of them has a row.
        const int row_in_warp = threadIdx.x % WARP_SIZE / THREADS_PER_ROW;
        for (int64_t row = first_row; row - row_in_warp < n_rows; row += row_step) {
            ptx::cp_async_wait_group<STAGES - 1>();
            read_row(stage);
            start_row(row + STAGES * row_step, stage);
            const Vec<float, 2> next_statistics = statistics_of(row + row_step);
            const auto row_sums = shared.row_sums(reduce_row(statistics), stage);
            store_row(row, statistics, row_sums);
            statistics = next_statistics;
            stage = 1 - stage;
        }
    } else {
        // What the blocks send each other of a row comes while they work on others: a row
        // is reduced before the one before it is stored, and read again for that.
        Vec<float, 2> next_statistics = statistics_of(first_row + row_step);
        ptx::cp_async_wait_group<STAGES - 1>();
        read_row(0);
        if (first_row < n_rows) shared.row_sums.send(reduce_row(statistics), 0);
        int number = 0;
        for (int64_t row = first_row; row < n_rows; row += row_step) {
            const Vec<float, 2> coming = statistics_of(row + 2 * row_step);
            const int next_stage = stage + 1 < STAGES ? stage + 1 : 0;
            ptx::cp_async_wait_group<STAGES - 2>();
            read_row(next_stage);
            const Vec<float, 2> next_sums = reduce_row(next_statistics);
            const Vec<float, 2> row_sums = shared.row_sums.receive(number++);
            if (row + row_step < n_rows) shared.row_sums.send(next_sums, number);
            read_row(stage);
            start_row(row + STAGES * row_step, stage);
            store_row(row, statistics, row_sums);
            statistics = next_statistics, next_statistics = coming;
            stage = next_stage;
        }
    }

    // -- partials: for the last launch to add
    group_reduce<NUM_THREADS, THREADS_PER_ROW>(sums, shared.handed_in, Sum{});
    partials_ptr += blockIdx.x * n_cols + first_col;
    const int n_written = thread_row == 0 ? n_left : -VEC_SIZE;
    #pragma unroll
    for (int i = 0; i < VECS_PER_THREAD; ++i) {
        float* const ptr = partials_ptr + i * STEP;
        const int n = n_written - i * STEP;
        store_sums(ptr, n, sums[i]);
        store_sums(ptr + gridDim.x * n_cols, n, sums[VECS_PER_THREAD + i]);
    }
}

// Rows too long for that, in two launches, which read them once each. The first finds
// the means of g and g * x_hat in every row.
template <typename T, int VEC_SIZE>
__global__ void __launch_bounds__(LONG_NUM_THREADS) layer_norm_backward_rows_kernel(
    float* __restrict__ row_means_ptr,   // (2, n_rows)
    const T* __restrict__ grad_ptr,      // (n_rows, n_cols)
    const T* __restrict__ x_ptr,         // (n_rows, n_cols)
    const float* __restrict__ mean_ptr,  // (n_rows)
    const float* __restrict__ rstd_ptr,  // (n_rows)
    const T* __restrict__ weight_ptr,    // (n_cols), or null
    int64_t n_rows,
    int64_t n_cols,
    int64_t rows_per_batch,
    int64_t grad_stride_batch,
    int64_t grad_stride_row,
    int64_t x_stride_batch,
    int64_t x_stride_row
) {
    constexpr int VECS_PER_THREAD = COLUMNS_ELEMENTS_PER_THREAD / VEC_SIZE;
    constexpr int STEP = LONG_NUM_THREADS * VEC_SIZE;
    constexpr int BLOCK_N = STEP * VECS_PER_THREAD;

    // -- tile: a block owns one row and walks over it in tiles of BLOCK_N columns
    const int64_t row = blockIdx.x;
    grad_ptr +=
        row_offset(row, n_rows, rows_per_batch, grad_stride_batch, grad_stride_row);
    x_ptr += row_offset(row, n_rows, rows_per_batch, x_stride_batch, x_stride_row);

    // -- reduce
    const float mean = mean_ptr[row], rstd = rstd_ptr[row];
    Vec<float, 2> sums{};
    for (int64_t start = threadIdx.x * VEC_SIZE; start < n_cols; start += BLOCK_N) {
        #pragma unroll
        for (int i = 0; i < VECS_PER_THREAD; ++i) {
            const int64_t col = start + i * STEP;
            const bool is_valid = col < n_cols;
            const auto grad = to_float(load<VEC_SIZE>(grad_ptr + col, is_valid, T{}));
            const auto x = to_float(load<VEC_SIZE>(x_ptr + col, is_valid, T{}));
            const auto weight =
                to_float(load_weight<VEC_SIZE>(weight_ptr, col, is_valid, 1.0f));
            #pragma unroll
            for (int j = 0; j < VEC_SIZE; ++j) {
                sums[0] += grad[j] * weight[j];
                sums[1] += grad[j] * weight[j] * ((x[j] - mean) * rstd);
            }
        }
    }
    sums = block_reduce<LONG_NUM_THREADS>(sums, Sum{});

    // -- store
    if (threadIdx.x == 0) {
        row_means_ptr[row] = sums[0] / static_cast<float>(n_cols);
        row_means_ptr[n_rows + row] = sums[1] / static_cast<float>(n_cols);
    }
}

// The second writes the gradient of x, and adds up those of weight and bias.
template <typename T, int VEC_SIZE>
__global__ void
__launch_bounds__(COLUMNS_NUM_THREADS) layer_norm_backward_columns_kernel(
    T* __restrict__ grad_x_ptr,               // (n_rows, n_cols)
    float* __restrict__ partials_ptr,         // (2, n_partials, n_cols)
    const float* __restrict__ row_means_ptr,  // (2, n_rows)
    const T* __restrict__ grad_ptr,           // (n_rows, n_cols)
    const T* __restrict__ x_ptr,              // (n_rows, n_cols)
    const float* __restrict__ mean_ptr,       // (n_rows)
    const float* __restrict__ rstd_ptr,       // (n_rows)
    const T* __restrict__ weight_ptr,         // (n_cols), or null
    int64_t n_rows,
    int64_t n_cols,
    int64_t rows_per_batch,
    int64_t grad_stride_batch,
    int64_t grad_stride_row,
    int64_t x_stride_batch,
    int64_t x_stride_row
) {
    constexpr int VECS_PER_THREAD = COLUMNS_ELEMENTS_PER_THREAD / VEC_SIZE;
    constexpr int STEP = COLUMNS_NUM_THREADS * VEC_SIZE;

    // -- tile: a block owns COLUMNS_BLOCK_N columns of every gridDim.y-th row; a thread
    // owns the vector at first_col and every STEP columns from there
    const int64_t first_vec =
        int64_t{blockIdx.x} * COLUMNS_NUM_THREADS * VECS_PER_THREAD + threadIdx.x;
    const int64_t first_col = first_vec * VEC_SIZE;
    const int64_t n_left = n_cols - first_col;
    grad_ptr += first_col;
    x_ptr += first_col;
    grad_x_ptr = skip_vecs<VEC_SIZE>(grad_x_ptr, first_vec);
    partials_ptr = skip_vecs<VEC_SIZE>(partials_ptr + blockIdx.y * n_cols, first_vec);

    // -- load: the weight
    Vec<float, VEC_SIZE> weight[VECS_PER_THREAD];
    #pragma unroll
    for (int i = 0; i < VECS_PER_THREAD; ++i) {
        weight[i] = to_float(
            load_weight<VEC_SIZE>(
                weight_ptr, first_col + i * STEP, i * STEP < n_left, 1.0f
            )
        );
    }

    // -- store: and accumulate, from the last row on, which the first launch has left in the
    // L2 cache
    Vec<float, VEC_SIZE> weight_sums[VECS_PER_THREAD]{}, bias_sums[VECS_PER_THREAD]{};
    for (int64_t row = n_rows - 1 - blockIdx.y; row >= 0; row -= gridDim.y) {
        const T* const grad_row_ptr =
            grad_ptr +
            row_offset(row, n_rows, rows_per_batch, grad_stride_batch, grad_stride_row);
        const T* const x_row_ptr =
            x_ptr +
            row_offset(row, n_rows, rows_per_batch, x_stride_batch, x_stride_row);
        Vec<T, VEC_SIZE> grads[VECS_PER_THREAD], xs[VECS_PER_THREAD];
        #pragma unroll
        for (int i = 0; i < VECS_PER_THREAD; ++i) {
            const bool is_valid = i * STEP < n_left;
            grads[i] = load<VEC_SIZE>(grad_row_ptr + i * STEP, is_valid, T{});
            xs[i] = load<VEC_SIZE>(x_row_ptr + i * STEP, is_valid, T{});
        }
        const float mean = mean_ptr[row], rstd = rstd_ptr[row];
        const float mean_g = row_means_ptr[row];
        const float mean_product = row_means_ptr[n_rows + row];
        #pragma unroll
        for (int i = 0; i < VECS_PER_THREAD; ++i) {
            if (i * STEP >= n_left) break;
            auto grad = to_float(grads[i]);
            const auto x = to_float(xs[i]);
            #pragma unroll
            for (int j = 0; j < VEC_SIZE; ++j) {
                const float x_hat = (x[j] - mean) * rstd;
                weight_sums[i][j] += grad[j] * x_hat;
                bias_sums[i][j] += grad[j];
                grad[j] =
                    rstd * (grad[j] * weight[i][j] - mean_g - x_hat * mean_product);
            }
            store(grad_x_ptr + row * n_cols + i * STEP, from_float<T>(grad));
        }
    }

    // -- partials: for the last launch to add
    #pragma unroll
    for (int i = 0; i < VECS_PER_THREAD; ++i) {
        float* const ptr = partials_ptr + i * STEP;
        store_sums(ptr, n_left - i * STEP, weight_sums[i]);
        store_sums(ptr + gridDim.y * n_cols, n_left - i * STEP, bias_sums[i]);
    }
}

namespace {

// The number of elements that a thread holds, and of threads that share a row, by the
// longest row that fits: of long rows few threads have nothing.
template <typename T, int VEC_SIZE>
auto plan_layer_norm(const Device& device, int64_t n_rows, int64_t n_cols) {
    const auto in_registers = [&]<int ELEMENTS_PER_THREAD, int THREADS_PER_ROW>() {
        constexpr int NUM_THREADS = threads_per_block(THREADS_PER_ROW);
        return Plan{
            layer_norm_kernel<T, VEC_SIZE, ELEMENTS_PER_THREAD, THREADS_PER_ROW>,
            dim3(ceil_div(n_rows, NUM_THREADS / THREADS_PER_ROW)),
            dim3(NUM_THREADS)
        };
    };
    // Rows of 64 to 128 KB, of which the next one has to fit into shared memory.
    const auto prefetching = [&]<int ELEMENTS_PER_THREAD, int NUM_THREADS>() {
        return Plan{
            layer_norm_kernel<T, VEC_SIZE, ELEMENTS_PER_THREAD, NUM_THREADS, true>,
            dim3(n_rows < device.n_sms ? n_rows : device.n_sms),
            dim3(NUM_THREADS),
            NUM_THREADS * ELEMENTS_PER_THREAD * int64_t{sizeof(T)}
        };
    };
    if constexpr (sizeof(T) == 2 && VEC_SIZE > 1) {
        // Elements of two bytes leave little time for what a row takes beside them: the
        // fewer threads have one, the fewer times they add up, and the more it is read in
        // one go.
        if (n_cols <= 64) return in_registers.template operator()<16, 4>();
        if (n_cols <= 96) return in_registers.template operator()<24, 4>();
        if (n_cols <= 128) return in_registers.template operator()<32, 4>();
        if (n_cols <= 192) return in_registers.template operator()<24, 8>();
        if (n_cols <= 256) return in_registers.template operator()<32, 8>();
        if (n_cols <= 384) return in_registers.template operator()<24, 16>();
        if (n_cols <= 512) return in_registers.template operator()<32, 16>();
        if (n_cols <= 768) return in_registers.template operator()<24, 32>();
        if (n_cols <= 1024) return in_registers.template operator()<32, 32>();
        if (n_cols <= 1536) return in_registers.template operator()<48, 32>();
    } else {
        if (n_cols <= SHORT_MAX_COLS) return dispatch_short_row(n_cols, in_registers);
    }
    if constexpr (sizeof(T) == 2) {
        if (n_cols <= 1024) return in_registers.template operator()<32, 32>();
    } else {
        if (n_cols <= 1024) return in_registers.template operator()<8, 128>();
    }
    if (n_cols <= 2048) return in_registers.template operator()<16, 128>();
    if constexpr (sizeof(T) == 2) {
        if (n_cols <= 4096) return in_registers.template operator()<32, 128>();
    } else {
        if (n_cols <= 4096) return in_registers.template operator()<8, 512>();
    }
    if (n_cols <= 5120) return in_registers.template operator()<32, 160>();
    if (n_cols <= 6144) return in_registers.template operator()<32, 192>();
    if (n_cols <= 8192) return in_registers.template operator()<32, 256>();
    if constexpr (sizeof(T) == 2) {
        if (n_cols <= 12288) return in_registers.template operator()<48, 256>();
        if (n_cols <= 16384) return in_registers.template operator()<32, 512>();
    } else {
        if (n_cols <= 12288) return in_registers.template operator()<32, 384>();
        if (n_cols <= 16384) return in_registers.template operator()<32, 512>();
        constexpr int64_t MAX_BYTES = 32768 * sizeof(T);
        if (n_cols <= 32768 && VEC_SIZE > 1 && MAX_BYTES <= device.max_shared_bytes)
            return prefetching.template operator()<32, 1024>();
        if (n_cols <= 32768) return in_registers.template operator()<32, 1024>();
    }
    return dispatch_long_row<T>(n_cols, [&]<int BYTES, int NUM_THREADS>() {
        return Plan{
            layer_norm_long_kernel<T, VEC_SIZE, BYTES, NUM_THREADS>,
            dim3(n_rows),
            dim3(NUM_THREADS)
        };
    });
}

// Two launches, or three for long rows. The inputs are what all but the last take.
template <typename T, int VEC_SIZE, typename... Inputs>
cudaError_t launch_layer_norm_backward(
    const Launcher& launch,
    T* grad_x,
    T* grad_weight,
    T* grad_bias,
    float* partials,
    float* row_means,
    int64_t n_rows,
    int64_t n_cols,
    int64_t n_partials,
    Inputs... inputs
) {
    // Of single elements, which are copied slowly, a cluster would wait for the slowest.
    constexpr bool IN_CLUSTERS = VEC_SIZE > 1;
    using LargestShared = BackwardShared<T, 2, BACKWARD_MOST_BLOCK_N, IN_CLUSTERS>;
    const bool has_clusters =
        IN_CLUSTERS && launch.device().arch >= 90 &&
        int64_t{sizeof(LargestShared)} <= launch.device().max_shared_bytes;
    const int most_blocks = has_clusters ? MAX_CLUSTER_SIZE : 1;
    const int n_blocks = backward_cluster_size<T>(n_cols, most_blocks);
    n_partials = count_groups(n_partials, n_cols, n_blocks);
    cudaError_t error = cudaSuccess;
    if (n_blocks > 0) {
        const auto in_registers = [&]<int BLOCK_N, bool IN_CLUSTER = false>() {
            return Plan{
                layer_norm_backward_kernel<T, VEC_SIZE, BLOCK_N, IN_CLUSTER>,
                dim3(n_partials, n_blocks),
                dim3(BACKWARD_NUM_THREADS<T, BLOCK_N, IN_CLUSTER>),
                sizeof(BackwardShared<T, 2, BLOCK_N, IN_CLUSTER>),
                dim3(1, n_blocks)
            };
        };
        auto plan = dispatch_row_length_backward<T>(n_cols, in_registers);
        if constexpr (IN_CLUSTERS) {
            if (n_blocks > 1) {
                plan =
                    dispatch_row_length_in_cluster<T>(n_cols, n_blocks, in_registers);
            }
        }
        error = launch(plan, grad_x, partials, inputs...);
    } else {
        const Plan rows{
            layer_norm_backward_rows_kernel<T, VEC_SIZE>,
            dim3(n_rows),
            dim3(LONG_NUM_THREADS)
        };
        const Plan columns{
            layer_norm_backward_columns_kernel<T, VEC_SIZE>,
            dim3(ceil_div(n_cols, COLUMNS_BLOCK_N), n_partials),
            dim3(COLUMNS_NUM_THREADS)
        };
        if (n_rows > 0) error = launch(rows, row_means, inputs...);
        if (error == cudaSuccess) {
            error = launch(columns, grad_x, partials, row_means, inputs...);
        }
    }
    if (error != cudaSuccess) return error;
    return launch_sum_partials<T>(
        launch, grad_weight, grad_bias, partials, n_partials, n_cols
    );
}

}  // namespace

// Vectors of 16 bytes where every row begins and ends at a multiple of them, else one
// element at a time.
cudaError_t layer_norm(
    const Launcher& launch,
    DType dtype,
    void* out,
    void* mean,
    void* rstd,
    const void* x,
    const void* weight,
    const void* bias,
    int64_t n_rows,
    int64_t n_cols,
    int64_t rows_per_batch,
    int64_t x_stride_batch,
    int64_t x_stride_row,
    float eps,
    [[maybe_unused]] int rung
) {
    return dispatch_float<cudaError_t>(dtype, [&]<typename T>() {
        constexpr int VEC_SIZE = VEC_BYTES / sizeof(T);
        const bool vectors =
            has_vectors<T>(out, n_cols, 1) && has_vectors<T>(weight, n_cols, 1) &&
            has_vectors<T>(bias, n_cols, 1) && has_vectors<T>(x, x_stride_row, 1) &&
            has_vectors<T>(x, x_stride_batch, 1);
        return launch(
            vectors ? plan_layer_norm<T, VEC_SIZE>(launch.device(), n_rows, n_cols)
                    : plan_layer_norm<T, 1>(launch.device(), n_rows, n_cols),
            static_cast<T*>(out),
            static_cast<float*>(mean),
            static_cast<float*>(rstd),
            static_cast<const T*>(x),
            static_cast<const T*>(weight),
            static_cast<const T*>(bias),
            n_rows,
            n_cols,
            rows_per_batch,
            x_stride_batch,
            x_stride_row,
            eps
        );
    });
}

cudaError_t layer_norm_backward(
    const Launcher& launch,
    DType dtype,
    void* grad_x,
    void* grad_weight,
    void* grad_bias,
    void* partials,
    void* row_means,
    const void* grad,
    const void* x,
    const void* mean,
    const void* rstd,
    const void* weight,
    int64_t n_rows,
    int64_t n_cols,
    int64_t n_partials,
    int64_t rows_per_batch,
    int64_t grad_stride_batch,
    int64_t grad_stride_row,
    int64_t x_stride_batch,
    int64_t x_stride_row,
    [[maybe_unused]] int rung
) {
    return dispatch_float<cudaError_t>(dtype, [&]<typename T>() {
        constexpr int VEC_SIZE = VEC_BYTES / sizeof(T);
        const bool vectors =
            has_vectors<T>(grad_x, n_cols, 1) && has_vectors<T>(weight, n_cols, 1) &&
            has_vectors<T>(grad, grad_stride_row, 1) &&
            has_vectors<T>(grad, grad_stride_batch, 1) &&
            has_vectors<T>(x, x_stride_row, 1) && has_vectors<T>(x, x_stride_batch, 1);
        const auto launch_kernels = [&]<int SIZE>() {
            return launch_layer_norm_backward<T, SIZE>(
                launch,
                static_cast<T*>(grad_x),
                static_cast<T*>(grad_weight),
                static_cast<T*>(grad_bias),
                static_cast<float*>(partials),
                static_cast<float*>(row_means),
                n_rows,
                n_cols,
                n_partials,
                static_cast<const T*>(grad),
                static_cast<const T*>(x),
                static_cast<const float*>(mean),
                static_cast<const float*>(rstd),
                static_cast<const T*>(weight),
                n_rows,
                n_cols,
                rows_per_batch,
                grad_stride_batch,
                grad_stride_row,
                x_stride_batch,
                x_stride_row
            );
        };
        return vectors ? launch_kernels.template operator()<VEC_SIZE>()
                       : launch_kernels.template operator()<1>();
    });
}
