// Root mean square normalisation of every row of a matrix, and its backward.
//
//   rms_norm:          out[row, :] = x_hat[row, :] * weight,
//                      x_hat[row, :] = x[row, :] * rstd[row],
//                      rstd[row] = 1 / sqrt(mean(x[row, :]^2) + eps)
//   rms_norm_backward: grad_x[row, :] = rstd[row] * (g - x_hat[row, :] * m),
//                      g = grad[row, :] * weight, m = mean(g * x_hat[row, :]);
//                      grad_weight = sum of grad[row, :] * x_hat[row, :] over all rows
//
// Layout   out, grad_x: (n_rows, n_cols), contiguous. x, grad: columns contiguous; row r
//          of x begins at
//          (r / rows_per_batch) * x_stride_batch + (r % rows_per_batch) * x_stride_row.
//          rstd: float32, one for each row. weight: contiguous, or null for ones.
// Traffic  reads and writes every element once. Rows of up to 1024 columns stay in
//          registers; longer ones are read a second time, out of the L1 cache, which an
//          H200 has 256 KB of. In the backward rows stay in the registers of a block
//          (4096 columns, 8192 of two bytes) or in the shared memory of a cluster of up
//          to eight (65536), on GPUs with clusters and as much of it as an H200; longer
//          ones, and those of single elements, come from memory twice.
// Limits   accumulates in float32. Gradients of weights are added in an order that
//          depends on the shape and the dtype alone.
// Mirror   triton_kernels/rms_norm/rms_norm.py
// Source   Zhang & Sennrich 2019, arXiv:1910.07467

#include "common/cluster.cuh"
#include "common/launch.cuh"
#include "common/norms.cuh"
#include "common/reduce.cuh"
#include "common/rows.cuh"
#include "common/vec.cuh"

// A row in registers: THREADS_PER_ROW threads hold ELEMENTS_PER_THREAD each.
template <
    typename T,
    int VEC_SIZE,
    int ELEMENTS_PER_THREAD,
    int THREADS_PER_ROW,
    int NUM_THREADS = threads_per_block(THREADS_PER_ROW),
    int BLOCKS_PER_SM = row_blocks_per_sm(VEC_SIZE, ELEMENTS_PER_THREAD, NUM_THREADS)>
__global__ void __launch_bounds__(NUM_THREADS, BLOCKS_PER_SM) rms_norm_kernel(
    T* __restrict__ out_ptr,           // (n_rows, n_cols)
    float* __restrict__ rstd_ptr,      // (n_rows)
    const T* __restrict__ x_ptr,       // (n_rows, n_cols)
    const T* __restrict__ weight_ptr,  // (n_cols), or null
    int64_t n_rows,
    int64_t n_cols,
    int64_t rows_per_batch,
    int64_t x_stride_batch,
    int64_t x_stride_row,
    float eps
) {
    constexpr int VECS_PER_THREAD = ELEMENTS_PER_THREAD / VEC_SIZE;
    constexpr int STEP = THREADS_PER_ROW * VEC_SIZE;

    // -- tile: a block owns one row or several short ones; a thread owns the vector at
    // first_col and every STEP columns from there
    constexpr int ROWS_PER_BLOCK = NUM_THREADS / THREADS_PER_ROW;
    const int64_t row =
        int64_t{blockIdx.x} * ROWS_PER_BLOCK + threadIdx.x / THREADS_PER_ROW;
    const int first_col = threadIdx.x % THREADS_PER_ROW * VEC_SIZE;
    const int n_left = row < n_rows ? static_cast<int>(n_cols) - first_col : 0;
    x_ptr += row_offset(row, n_rows, rows_per_batch, x_stride_batch, x_stride_row) +
             first_col;
    out_ptr += row * n_cols + first_col;

    // -- load: columns past the end become 0, which adds nothing. The weight, which comes
    // out of a cache, is there before it is needed.
    Vec<T, VEC_SIZE> xs[VECS_PER_THREAD], weights[VECS_PER_THREAD];
    #pragma unroll
    for (int i = 0; i < VECS_PER_THREAD; ++i) {
        xs[i] = load<VEC_SIZE>(x_ptr + i * STEP, i * STEP < n_left, T{});
    }
    #pragma unroll
    for (int i = 0; i < VECS_PER_THREAD; ++i) {
        weights[i] = load_weight<VEC_SIZE>(
            weight_ptr, first_col + i * STEP, i * STEP < n_left, 1.0f
        );
    }

    // -- rstd: kept for the backward
    float square_sum = 0.0f;
    #pragma unroll
    for (int i = 0; i < VECS_PER_THREAD; ++i) {
        const auto x = to_float(xs[i]);
        #pragma unroll
        for (int j = 0; j < VEC_SIZE; ++j) square_sum += x[j] * x[j];
    }
    square_sum = block_reduce<THREADS_PER_ROW>(square_sum, Sum{});
    const float rstd = rsqrtf(square_sum / static_cast<float>(n_cols) + eps);
    if (first_col == 0 && row < n_rows) rstd_ptr[row] = rstd;

    // -- store: rounded once
    #pragma unroll
    for (int i = 0; i < VECS_PER_THREAD; ++i) {
        if (i * STEP >= n_left) break;
        auto x = to_float(xs[i]);
        const auto weight = to_float(weights[i]);
        #pragma unroll
        for (int j = 0; j < VEC_SIZE; ++j) x[j] *= rstd * weight[j];
        store(out_ptr + i * STEP, from_float<T>(x));
    }
}

// A longer row, of which a thread reads BYTES at a time: a first pass over it finds the
// statistics, a second, which finds it in the L1 cache, writes the result. Were it kept in
// registers instead, there were fewer threads, and fewer loads in flight.
template <
    typename T,
    int VEC_SIZE,
    int BYTES,
    int NUM_THREADS,
    int BLOCKS_PER_SM = long_blocks_per_sm(VEC_SIZE, BYTES, NUM_THREADS)>
__global__ void __launch_bounds__(NUM_THREADS, BLOCKS_PER_SM) rms_norm_long_kernel(
    T* __restrict__ out_ptr,           // (n_rows, n_cols)
    float* __restrict__ rstd_ptr,      // (n_rows)
    const T* __restrict__ x_ptr,       // (n_rows, n_cols)
    const T* __restrict__ weight_ptr,  // (n_cols), or null
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

    // -- rstd: kept for the backward
    float square_sum = 0.0f;
    #pragma unroll 1
    for (int64_t start = 0; start < n_cols; start += BLOCK_N) {
        Vec<T, VEC_SIZE> xs[VECS_PER_THREAD];
        load_row<Reading::FIRST, STEP>(
            xs, x_ptr + start, clip<BLOCK_N>(n_left - start)
        );
        #pragma unroll
        for (int i = 0; i < VECS_PER_THREAD; ++i) {
            const auto x = to_float(xs[i]);
            #pragma unroll
            for (int j = 0; j < VEC_SIZE; ++j) square_sum += x[j] * x[j];
        }
    }
    square_sum = block_reduce<NUM_THREADS>(square_sum, Sum{});
    const float rstd = rsqrtf(square_sum / static_cast<float>(n_cols) + eps);
    if (threadIdx.x == 0) rstd_ptr[row] = rstd;

    // -- store: the second pass, as many vectors at a time as fit into registers beside
    // those of the weight
    constexpr int VECS_PER_STORE = (BYTES > 64 ? 16 : 8) / VEC_SIZE;
    constexpr int STORE_N = STEP * VECS_PER_STORE;
    #pragma unroll 1
    for (int tile = 0; tile * int64_t{STORE_N} < n_cols; ++tile) {
        const int64_t start = tile * int64_t{STORE_N};
        const int n_valid = clip<STORE_N>(n_left - start);
        Vec<T, VEC_SIZE> xs[VECS_PER_STORE], weights[VECS_PER_STORE];
        load_row<Reading::LAST, STEP>(xs, x_ptr + start, n_valid);
        #pragma unroll
        for (int i = 0; i < VECS_PER_STORE; ++i) {
            weights[i] = load_weight<VEC_SIZE>(
                weight_ptr, start + first_col + i * STEP, i * STEP < n_valid, 1.0f
            );
        }
        #pragma unroll
        for (int i = 0; i < VECS_PER_STORE; ++i) {
            if (i * STEP >= n_valid) break;
            auto x = to_float(xs[i]);
            const auto weight = to_float(weights[i]);
            #pragma unroll
            for (int j = 0; j < VEC_SIZE; ++j) x[j] *= rstd * weight[j];
            store(out_ptr + start + i * STEP, from_float<T>(x));
        }
    }
}

// A block walks over many rows, which it has in registers, or a cluster of blocks over long
// ones in shared memory, and adds up for its columns what they contribute to the gradient of
// the weight.
template <
    typename T,
    int VEC_SIZE,
    int BLOCK_N,
    bool IN_CLUSTER,
    int NUM_THREADS = BACKWARD_NUM_THREADS<T, BLOCK_N, IN_CLUSTER>>
__global__ void
__launch_bounds__(NUM_THREADS, 512 / NUM_THREADS) rms_norm_backward_kernel(
    T* __restrict__ grad_x_ptr,          // (n_rows, n_cols)
    float* __restrict__ partials_ptr,    // (n_partials, n_cols)
    const T* __restrict__ grad_ptr,      // (n_rows, n_cols)
    const T* __restrict__ x_ptr,         // (n_rows, n_cols)
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

    using Shared = BackwardShared<T, 1, BLOCK_N, IN_CLUSTER>;
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
    const auto rstd_of = [&](int64_t row) {
        return row < n_rows ? rstd_ptr[row] : 0.0f;
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
    Vec<float, VEC_SIZE> weight_sums[VECS_PER_THREAD]{};
    const auto reduce_row = [&](float rstd) {
        Vec<float, 1> product_sum{};
        #pragma unroll
        for (int i = 0; i < VECS_PER_THREAD; ++i) {
            const auto grad = to_float(grads[i]), x = to_float(xs[i]);
            const auto weight = to_float(weights[i]);
            #pragma unroll
            for (int j = 0; j < VEC_SIZE; ++j) {
                const float product = grad[j] * (x[j] * rstd);
                product_sum[0] += product * weight[j];
                weight_sums[i][j] += product;
            }
        }
        return product_sum;
    };

    // -- store
    const float inverse_n_cols = 1.0f / static_cast<float>(n_cols);
    const auto store_row = [&](int64_t row, float rstd, Vec<float, 1> product_sum) {
        const float mean_product = product_sum[0] * inverse_n_cols;
        #pragma unroll
        for (int i = 0; i < VECS_PER_THREAD; ++i) {
            if (row >= n_rows || i * STEP >= n_left) break;
            auto grad = to_float(grads[i]);
            const auto x = to_float(xs[i]), weight = to_float(weights[i]);
            #pragma unroll
            for (int j = 0; j < VEC_SIZE; ++j) {
                const float x_hat = x[j] * rstd;
                grad[j] = rstd * (grad[j] * weight[j] - x_hat * mean_product);
            }
            store(grad_x_ptr + row * n_cols + i * STEP, from_float<T>(grad));
        }
    };

    // -- next: a row takes the place of another as soon as that is in registers
    float rstd = rstd_of(first_row);
    int stage = 0;
    if constexpr (!IN_CLUSTER) {
        // The threads of a warp stay together, as long as one of them has a row.
        const int row_in_warp = threadIdx.x % WARP_SIZE / THREADS_PER_ROW;
        for (int64_t row = first_row; row - row_in_warp < n_rows; row += row_step) {
            ptx::cp_async_wait_group<STAGES - 1>();
            read_row(stage);
            start_row(row + STAGES * row_step, stage);
            const float next_rstd = rstd_of(row + row_step);
            store_row(row, rstd, shared.row_sums(reduce_row(rstd), stage));
            rstd = next_rstd;
            stage = 1 - stage;
        }
    } else {
        // What the blocks send each other of a row comes while they work on others: a row
        // is reduced before the one before it is stored, and read again for that.
        float next_rstd = rstd_of(first_row + row_step);
        ptx::cp_async_wait_group<STAGES - 1>();
        read_row(0);
        if (first_row < n_rows) shared.row_sums.send(reduce_row(rstd), 0);
        int number = 0;
        for (int64_t row = first_row; row < n_rows; row += row_step) {
            const float coming_rstd = rstd_of(row + 2 * row_step);
            const int next_stage = stage + 1 < STAGES ? stage + 1 : 0;
            ptx::cp_async_wait_group<STAGES - 2>();
            read_row(next_stage);
            const Vec<float, 1> next_sum = reduce_row(next_rstd);
            const Vec<float, 1> product_sum = shared.row_sums.receive(number++);
            if (row + row_step < n_rows) shared.row_sums.send(next_sum, number);
            read_row(stage);
            start_row(row + STAGES * row_step, stage);
            store_row(row, rstd, product_sum);
            rstd = next_rstd, next_rstd = coming_rstd;
            stage = next_stage;
        }
    }

    // -- partials: for the last launch to add
    group_reduce<NUM_THREADS, THREADS_PER_ROW>(weight_sums, shared.handed_in, Sum{});
    partials_ptr += blockIdx.x * n_cols + first_col;
    const int n_written = thread_row == 0 ? n_left : -VEC_SIZE;
    #pragma unroll
    for (int i = 0; i < VECS_PER_THREAD; ++i) {
        store_sums(partials_ptr + i * STEP, n_written - i * STEP, weight_sums[i]);
    }
}

// Rows too long for that, in two launches, which read them once each. The first finds
// the mean of g * x_hat in every row.
template <typename T, int VEC_SIZE>
__global__ void __launch_bounds__(LONG_NUM_THREADS) rms_norm_backward_rows_kernel(
    float* __restrict__ mean_product_ptr,  // (n_rows)
    const T* __restrict__ grad_ptr,        // (n_rows, n_cols)
    const T* __restrict__ x_ptr,           // (n_rows, n_cols)
    const float* __restrict__ rstd_ptr,    // (n_rows)
    const T* __restrict__ weight_ptr,      // (n_cols), or null
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
    float product_sum = 0.0f;
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
            for (int j = 0; j < VEC_SIZE; ++j)
                product_sum += grad[j] * x[j] * weight[j];
        }
    }
    product_sum = block_reduce<LONG_NUM_THREADS>(product_sum, Sum{});

    // -- store
    if (threadIdx.x == 0) {
        mean_product_ptr[row] =
            product_sum * rstd_ptr[row] / static_cast<float>(n_cols);
    }
}

// The second writes the gradient of x, and adds up that of the weight.
template <typename T, int VEC_SIZE>
__global__ void __launch_bounds__(COLUMNS_NUM_THREADS) rms_norm_backward_columns_kernel(
    T* __restrict__ grad_x_ptr,                  // (n_rows, n_cols)
    float* __restrict__ partials_ptr,            // (n_partials, n_cols)
    const float* __restrict__ mean_product_ptr,  // (n_rows)
    const T* __restrict__ grad_ptr,              // (n_rows, n_cols)
    const T* __restrict__ x_ptr,                 // (n_rows, n_cols)
    const float* __restrict__ rstd_ptr,          // (n_rows)
    const T* __restrict__ weight_ptr,            // (n_cols), or null
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
    Vec<float, VEC_SIZE> weight_sums[VECS_PER_THREAD]{};
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
        const float rstd = rstd_ptr[row], mean_product = mean_product_ptr[row];
        #pragma unroll
        for (int i = 0; i < VECS_PER_THREAD; ++i) {
            if (i * STEP >= n_left) break;
            auto grad = to_float(grads[i]);
            const auto x = to_float(xs[i]);
            #pragma unroll
            for (int j = 0; j < VEC_SIZE; ++j) {
                const float x_hat = x[j] * rstd;
                weight_sums[i][j] += grad[j] * x_hat;
                grad[j] = rstd * (grad[j] * weight[i][j] - x_hat * mean_product);
            }
            store(grad_x_ptr + row * n_cols + i * STEP, from_float<T>(grad));
        }
    }

    // -- partials: for the last launch to add
    #pragma unroll
    for (int i = 0; i < VECS_PER_THREAD; ++i) {
        store_sums(partials_ptr + i * STEP, n_left - i * STEP, weight_sums[i]);
    }
}

namespace {

template <typename T, int VEC_SIZE>
auto plan_rms_norm(int64_t n_rows, int64_t n_cols) {
    const auto in_registers = [&]<int ELEMENTS_PER_THREAD, int THREADS_PER_ROW>() {
        constexpr int NUM_THREADS = threads_per_block(THREADS_PER_ROW);
        return Plan{
            rms_norm_kernel<T, VEC_SIZE, ELEMENTS_PER_THREAD, THREADS_PER_ROW>,
            dim3(ceil_div(n_rows, NUM_THREADS / THREADS_PER_ROW)),
            dim3(NUM_THREADS)
        };
    };
    if (n_cols <= SHORT_MAX_COLS) return dispatch_short_row(n_cols, in_registers);
    if (n_cols <= 1024) return in_registers.template operator()<8, 128>();
    return dispatch_long_row<T>(n_cols, [&]<int BYTES, int NUM_THREADS>() {
        return Plan{
            rms_norm_long_kernel<T, VEC_SIZE, BYTES, NUM_THREADS>,
            dim3(n_rows),
            dim3(NUM_THREADS)
        };
    });
}

// Two launches, or three for long rows. The inputs are what all but the last take.
template <typename T, int VEC_SIZE, typename... Inputs>
cudaError_t launch_rms_norm_backward(
    const Launcher& launch,
    T* grad_x,
    T* grad_weight,
    float* partials,
    float* mean_product,
    int64_t n_rows,
    int64_t n_cols,
    int64_t n_partials,
    Inputs... inputs
) {
    // Of single elements, which are copied slowly, a cluster would wait for the slowest.
    constexpr bool IN_CLUSTERS = VEC_SIZE > 1;
    using LargestShared = BackwardShared<T, 1, BACKWARD_MOST_BLOCK_N, IN_CLUSTERS>;
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
                rms_norm_backward_kernel<T, VEC_SIZE, BLOCK_N, IN_CLUSTER>,
                dim3(n_partials, n_blocks),
                dim3(BACKWARD_NUM_THREADS<T, BLOCK_N, IN_CLUSTER>),
                sizeof(BackwardShared<T, 1, BLOCK_N, IN_CLUSTER>),
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
            rms_norm_backward_rows_kernel<T, VEC_SIZE>,
            dim3(n_rows),
            dim3(LONG_NUM_THREADS)
        };
        const Plan columns{
            rms_norm_backward_columns_kernel<T, VEC_SIZE>,
            dim3(ceil_div(n_cols, COLUMNS_BLOCK_N), n_partials),
            dim3(COLUMNS_NUM_THREADS)
        };
        if (n_rows > 0) error = launch(rows, mean_product, inputs...);
        if (error == cudaSuccess) {
            error = launch(columns, grad_x, partials, mean_product, inputs...);
        }
    }
    if (error != cudaSuccess) return error;
    return launch_sum_partials<T>(
        launch, grad_weight, nullptr, partials, n_partials, n_cols
    );
}

}  // namespace

// Vectors of 16 bytes where every row begins and ends at a multiple of them, else one
// element at a time.
cudaError_t rms_norm(
    const Launcher& launch,
    DType dtype,
    void* out,
    void* rstd,
    const void* x,
    const void* weight,
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
            has_vectors<T>(x, x_stride_row, 1) && has_vectors<T>(x, x_stride_batch, 1);
        return launch(
            vectors ? plan_rms_norm<T, VEC_SIZE>(n_rows, n_cols)
                    : plan_rms_norm<T, 1>(n_rows, n_cols),
            static_cast<T*>(out),
            static_cast<float*>(rstd),
            static_cast<const T*>(x),
            static_cast<const T*>(weight),
            n_rows,
            n_cols,
            rows_per_batch,
            x_stride_batch,
            x_stride_row,
            eps
        );
    });
}

cudaError_t rms_norm_backward(
    const Launcher& launch,
    DType dtype,
    void* grad_x,
    void* grad_weight,
    void* partials,
    void* mean_product,
    const void* grad,
    const void* x,
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
            return launch_rms_norm_backward<T, SIZE>(
                launch,
                static_cast<T*>(grad_x),
                static_cast<T*>(grad_weight),
                static_cast<float*>(partials),
                static_cast<float*>(mean_product),
                n_rows,
                n_cols,
                n_partials,
                static_cast<const T*>(grad),
                static_cast<const T*>(x),
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
