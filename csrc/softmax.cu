// Softmax of every row of a matrix, and its backward.
//
//   softmax:          out[row, :] = exp(x[row, :] - m) / sum(exp(x[row, :] - m)),
//                     m = max(x[row, :])
//   softmax_backward: out[row, :] = y[row, :] * (grad[row, :] - s),
//                     s = sum(grad[row, :] * y[row, :]), y what softmax returned
//
// Layout   out: (n_rows, n_cols), contiguous. x, grad, y: columns contiguous; row r of x
//          begins at
//          (r / rows_per_batch) * x_stride_batch + (r % rows_per_batch) * x_stride_row.
// Traffic  reads and writes every element once as long as a row fits into the registers
//          (32768 columns; 16384 in the backward, which holds two rows) or, of softmax,
//          the shared memory (57856 columns of float32 on an H200) of a block; beyond
//          that a row is read twice.
// Limits   accumulates in float32. A row with NaN or +inf, or of -inf alone, is NaN.
// Mirror   triton_kernels/softmax.py differs in softmax_long_kernel, because Triton has
//          no shared memory to keep a row in: it always reads a long row twice.
// Source   Milakov & Gimelshein 2018, arXiv:1805.02867 (algorithm 2; 3 for long rows)

#include "common/launch.cuh"
#include "common/math.cuh"
#include "common/reduce.cuh"
#include "common/rows.cuh"
#include "common/vec.cuh"

// A row in registers: THREADS_PER_ROW threads hold VECS_PER_THREAD vectors each. The
// bounds ask for 1024 threads on a multiprocessor, so for 64 registers at most: left
// alone, ptxas takes up to 80 for the rows that are read element by element.
template <typename T, int VEC_SIZE, int VECS_PER_THREAD, int THREADS_PER_ROW>
__global__ void __launch_bounds__(
    threads_per_block(THREADS_PER_ROW),
    1024 / threads_per_block(THREADS_PER_ROW)
) softmax_kernel(
    T* __restrict__ out_ptr,      // (n_rows, n_cols)
    const T* __restrict__ x_ptr,  // (n_rows, n_cols)
    int64_t n_rows,
    int64_t n_cols,
    int64_t rows_per_batch,
    int64_t x_stride_batch,
    int64_t x_stride_row
) {
    constexpr int STEP = THREADS_PER_ROW * VEC_SIZE;

    // -- tile: a block owns one long row or several short ones; a thread owns the
    // vector at first_col and every STEP columns from there
    const int rows_per_block = blockDim.x / THREADS_PER_ROW;
    const int64_t row =
        int64_t{blockIdx.x} * rows_per_block + threadIdx.x / THREADS_PER_ROW;
    const int first_col = threadIdx.x % THREADS_PER_ROW * VEC_SIZE;
    const int n_left = row < n_rows ? static_cast<int>(n_cols) - first_col : 0;
    x_ptr += row_offset(row, n_rows, rows_per_batch, x_stride_batch, x_stride_row) +
             first_col;
    out_ptr += row * n_cols + first_col;

    // -- load: columns past the end become -inf, which exp maps to 0
    Vec<float, VEC_SIZE> x[VECS_PER_THREAD];
    #pragma unroll
    for (int i = 0; i < VECS_PER_THREAD; ++i) {
        x[i] = to_float(
            load<VEC_SIZE>(
                x_ptr + i * STEP, i * STEP < n_left, from_float<T>(-INFINITY)
            )
        );
    }

    // -- max: subtracted below, so that no exponential overflows
    float row_max = -INFINITY;
    #pragma unroll
    for (int i = 0; i < VECS_PER_THREAD; ++i) {
        #pragma unroll
        for (int j = 0; j < VEC_SIZE; ++j) row_max = fmaxf(row_max, x[i][j]);
    }
    row_max = block_reduce<THREADS_PER_ROW>(row_max, Max{});

    // -- sum: of the numerators, which replace x in its registers
    float row_sum = 0.0f;
    #pragma unroll
    for (int i = 0; i < VECS_PER_THREAD; ++i) {
        #pragma unroll
        for (int j = 0; j < VEC_SIZE; ++j) {
            x[i][j] = fast_exp(x[i][j] - row_max);
            row_sum += x[i][j];
        }
    }
    row_sum = block_reduce<THREADS_PER_ROW>(row_sum, Sum{});

    // -- store: one division for the row, one multiplication for every element
    const float inverse_sum = 1.0f / row_sum;
    #pragma unroll
    for (int i = 0; i < VECS_PER_THREAD; ++i) {
        #pragma unroll
        for (int j = 0; j < VEC_SIZE; ++j) x[i][j] *= inverse_sum;
        if (i * STEP < n_left) store(out_ptr + i * STEP, from_float<T>(x[i]));
    }
}

namespace {
constexpr int LONG_NUM_THREADS = 1024;
constexpr int LONG_VECS_PER_THREAD = 2;  // loads in flight for every thread
}  // namespace

// A row too long for the registers: a first pass over its tiles finds maximum and sum,
// a second writes the result. IN_SHARED: the first pass leaves the row in shared memory
// for the second, where a thread finds what it wrote itself, so that no barrier is
// needed for it.
template <typename T, int VEC_SIZE, bool IN_SHARED>
__global__ void __launch_bounds__(LONG_NUM_THREADS) softmax_long_kernel(
    T* __restrict__ out_ptr,      // (n_rows, n_cols)
    const T* __restrict__ x_ptr,  // (n_rows, n_cols)
    int64_t n_rows,
    int64_t n_cols,
    int64_t rows_per_batch,
    int64_t x_stride_batch,
    int64_t x_stride_row
) {
    constexpr int VECS_PER_THREAD = LONG_VECS_PER_THREAD;
    constexpr int BLOCK_N = LONG_NUM_THREADS * VECS_PER_THREAD * VEC_SIZE;
    DYNAMIC_SHARED(shared_bytes);
    T* const row_in_shared =
        reinterpret_cast<T*>(shared_bytes);  // (n_cols) when IN_SHARED

    // -- tile: a block owns one row and walks over it in tiles of BLOCK_N columns
    const int64_t row = blockIdx.x;
    x_ptr += row_offset(row, n_rows, rows_per_batch, x_stride_batch, x_stride_row);
    out_ptr += row * n_cols;

    // -- max_sum: of the columns that this thread sees; the sum is rescaled as the
    // maximum grows
    float thread_max = -INFINITY, thread_sum = 0.0f;
    for (int64_t start = threadIdx.x * VEC_SIZE; start < n_cols; start += BLOCK_N) {
        Vec<float, VEC_SIZE> x[VECS_PER_THREAD];
        float new_max = thread_max;
        #pragma unroll
        for (int i = 0; i < VECS_PER_THREAD; ++i) {
            const int64_t col = start + i * LONG_NUM_THREADS * VEC_SIZE;
            const auto loaded =
                load<VEC_SIZE>(x_ptr + col, col < n_cols, from_float<T>(-INFINITY));
            if (IN_SHARED && col < n_cols) store(row_in_shared + col, loaded);
            x[i] = to_float(loaded);
        }
        #pragma unroll
        for (int i = 0; i < VECS_PER_THREAD; ++i) {
            #pragma unroll
            for (int j = 0; j < VEC_SIZE; ++j) new_max = fmaxf(new_max, x[i][j]);
        }
        // As long as nothing but -inf was seen, the sum is taken relative to 0: it
        // stays 0, where -inf - -inf would make it NaN.
        const float origin = new_max == -INFINITY ? 0.0f : new_max;
        thread_sum *= fast_exp(thread_max - origin);
        #pragma unroll
        for (int i = 0; i < VECS_PER_THREAD; ++i) {
            #pragma unroll
            for (int j = 0; j < VEC_SIZE; ++j) thread_sum += fast_exp(x[i][j] - origin);
        }
        thread_max = new_max;
    }

    // -- combine: the threads' maxima and sums
    const float row_max = block_reduce<LONG_NUM_THREADS>(thread_max, Max{});
    const float row_sum = block_reduce<LONG_NUM_THREADS>(
        thread_sum * fast_exp(thread_max - row_max), Sum{}
    );

    // -- store: the second pass
    const float inverse_sum = 1.0f / row_sum;
    for (int64_t start = threadIdx.x * VEC_SIZE; start < n_cols; start += BLOCK_N) {
        Vec<float, VEC_SIZE> x[VECS_PER_THREAD];
        #pragma unroll
        for (int i = 0; i < VECS_PER_THREAD; ++i) {
            const int64_t col = start + i * LONG_NUM_THREADS * VEC_SIZE;
            const T* const source = IN_SHARED ? row_in_shared : x_ptr;
            x[i] = to_float(load<VEC_SIZE>(source + col, col < n_cols, T{}));
        }
        #pragma unroll
        for (int i = 0; i < VECS_PER_THREAD; ++i) {
            const int64_t col = start + i * LONG_NUM_THREADS * VEC_SIZE;
            #pragma unroll
            for (int j = 0; j < VEC_SIZE; ++j) {
                x[i][j] = fast_exp(x[i][j] - row_max) * inverse_sum;
            }
            if (col < n_cols) store(out_ptr + col, from_float<T>(x[i]));
        }
    }
}

// Rows of grad and y in registers, held as softmax_kernel holds x.
template <typename T, int VEC_SIZE, int VECS_PER_THREAD, int THREADS_PER_ROW>
__global__ void __launch_bounds__(
    threads_per_block(THREADS_PER_ROW),
    1024 / threads_per_block(THREADS_PER_ROW)
) softmax_backward_kernel(
    T* __restrict__ out_ptr,         // (n_rows, n_cols)
    const T* __restrict__ grad_ptr,  // (n_rows, n_cols)
    const T* __restrict__ y_ptr,     // (n_rows, n_cols)
    int64_t n_rows,
    int64_t n_cols,
    int64_t rows_per_batch,
    int64_t grad_stride_batch,
    int64_t grad_stride_row,
    int64_t y_stride_batch,
    int64_t y_stride_row
) {
    constexpr int STEP = THREADS_PER_ROW * VEC_SIZE;

    // -- tile: a block owns one long row or several short ones; a thread owns the
    // vector at first_col and every STEP columns from there
    const int rows_per_block = blockDim.x / THREADS_PER_ROW;
    const int64_t row =
        int64_t{blockIdx.x} * rows_per_block + threadIdx.x / THREADS_PER_ROW;
    const int first_col = threadIdx.x % THREADS_PER_ROW * VEC_SIZE;
    const int n_left = row < n_rows ? static_cast<int>(n_cols) - first_col : 0;
    grad_ptr +=
        row_offset(row, n_rows, rows_per_batch, grad_stride_batch, grad_stride_row) +
        first_col;
    y_ptr += row_offset(row, n_rows, rows_per_batch, y_stride_batch, y_stride_row) +
             first_col;
    out_ptr += row * n_cols + first_col;

    // -- load: columns past the end become 0, which adds nothing to the sum
    Vec<float, VEC_SIZE> grad[VECS_PER_THREAD], y[VECS_PER_THREAD];
    #pragma unroll
    for (int i = 0; i < VECS_PER_THREAD; ++i) {
        const bool is_valid = i * STEP < n_left;
        grad[i] = to_float(load<VEC_SIZE>(grad_ptr + i * STEP, is_valid, T{}));
        y[i] = to_float(load<VEC_SIZE>(y_ptr + i * STEP, is_valid, T{}));
    }

    // -- sum: of the products
    float row_sum = 0.0f;
    #pragma unroll
    for (int i = 0; i < VECS_PER_THREAD; ++i) {
        #pragma unroll
        for (int j = 0; j < VEC_SIZE; ++j) row_sum += grad[i][j] * y[i][j];
    }
    row_sum = block_reduce<THREADS_PER_ROW>(row_sum, Sum{});

    // -- store: first the difference, which is exact where the two are nearly the same
    #pragma unroll
    for (int i = 0; i < VECS_PER_THREAD; ++i) {
        #pragma unroll
        for (int j = 0; j < VEC_SIZE; ++j) y[i][j] *= grad[i][j] - row_sum;
        if (i * STEP < n_left) store(out_ptr + i * STEP, from_float<T>(y[i]));
    }
}

// Rows too long for the registers: a first pass over their tiles finds the sum, a second
// reads them again and writes the result.
template <typename T, int VEC_SIZE>
__global__ void __launch_bounds__(LONG_NUM_THREADS) softmax_backward_long_kernel(
    T* __restrict__ out_ptr,         // (n_rows, n_cols)
    const T* __restrict__ grad_ptr,  // (n_rows, n_cols)
    const T* __restrict__ y_ptr,     // (n_rows, n_cols)
    int64_t n_rows,
    int64_t n_cols,
    int64_t rows_per_batch,
    int64_t grad_stride_batch,
    int64_t grad_stride_row,
    int64_t y_stride_batch,
    int64_t y_stride_row
) {
    constexpr int VECS_PER_THREAD = LONG_VECS_PER_THREAD;
    constexpr int BLOCK_N = LONG_NUM_THREADS * VECS_PER_THREAD * VEC_SIZE;

    // -- tile: a block owns one row and walks over it in tiles of BLOCK_N columns
    const int64_t row = blockIdx.x;
    grad_ptr +=
        row_offset(row, n_rows, rows_per_batch, grad_stride_batch, grad_stride_row);
    y_ptr += row_offset(row, n_rows, rows_per_batch, y_stride_batch, y_stride_row);
    out_ptr += row * n_cols;

    // -- sum: of the products in the columns that this thread sees
    float thread_sum = 0.0f;
    for (int64_t start = threadIdx.x * VEC_SIZE; start < n_cols; start += BLOCK_N) {
        Vec<float, VEC_SIZE> grad[VECS_PER_THREAD], y[VECS_PER_THREAD];
        #pragma unroll
        for (int i = 0; i < VECS_PER_THREAD; ++i) {
            const int64_t col = start + i * LONG_NUM_THREADS * VEC_SIZE;
            grad[i] = to_float(load<VEC_SIZE>(grad_ptr + col, col < n_cols, T{}));
            y[i] = to_float(load<VEC_SIZE>(y_ptr + col, col < n_cols, T{}));
        }
        #pragma unroll
        for (int i = 0; i < VECS_PER_THREAD; ++i) {
            #pragma unroll
            for (int j = 0; j < VEC_SIZE; ++j) thread_sum += grad[i][j] * y[i][j];
        }
    }

    // -- combine: the threads' sums
    const float row_sum = block_reduce<LONG_NUM_THREADS>(thread_sum, Sum{});

    // -- store: the second pass
    for (int64_t start = threadIdx.x * VEC_SIZE; start < n_cols; start += BLOCK_N) {
        Vec<float, VEC_SIZE> grad[VECS_PER_THREAD], y[VECS_PER_THREAD];
        #pragma unroll
        for (int i = 0; i < VECS_PER_THREAD; ++i) {
            const int64_t col = start + i * LONG_NUM_THREADS * VEC_SIZE;
            grad[i] = to_float(load<VEC_SIZE>(grad_ptr + col, col < n_cols, T{}));
            y[i] = to_float(load<VEC_SIZE>(y_ptr + col, col < n_cols, T{}));
        }
        #pragma unroll
        for (int i = 0; i < VECS_PER_THREAD; ++i) {
            const int64_t col = start + i * LONG_NUM_THREADS * VEC_SIZE;
            #pragma unroll
            for (int j = 0; j < VEC_SIZE; ++j) y[i][j] *= grad[i][j] - row_sum;
            if (col < n_cols) store(out_ptr + col, from_float<T>(y[i]));
        }
    }
}

namespace {

// The number of elements that a thread holds, and of threads that share a row, by the
// longest row that fits: short rows take few threads, so that a block holds several.
template <typename T, int VEC_SIZE>
auto plan_softmax(int64_t n_rows, int64_t n_cols, int64_t max_shared_bytes) {
    const auto in_registers = [&]<int ELEMENTS_PER_THREAD, int THREADS_PER_ROW>() {
        constexpr int NUM_THREADS = threads_per_block(THREADS_PER_ROW);
        constexpr int VECS_PER_THREAD = ELEMENTS_PER_THREAD / VEC_SIZE;
        return Plan{
            softmax_kernel<T, VEC_SIZE, VECS_PER_THREAD, THREADS_PER_ROW>,
            dim3(ceil_div(n_rows, NUM_THREADS / THREADS_PER_ROW)),
            dim3(NUM_THREADS)
        };
    };
    if (n_cols <= 64) return in_registers.template operator()<8, 8>();
    if (n_cols <= 256) return in_registers.template operator()<8, 32>();
    if (n_cols <= 512) return in_registers.template operator()<16, 32>();
    if (n_cols <= 1024) return in_registers.template operator()<32, 32>();
    if (n_cols <= 2048) return in_registers.template operator()<16, 128>();
    if (n_cols <= 4096) return in_registers.template operator()<32, 128>();
    if (n_cols <= 8192) return in_registers.template operator()<32, 256>();
    if (n_cols <= 16384) return in_registers.template operator()<32, 512>();
    if (n_cols <= 32768) return in_registers.template operator()<32, 1024>();

    const int64_t row_bytes = n_cols * sizeof(T);
    const int64_t static_shared_bytes = 1024;  // generous: the reductions' results
    const bool in_shared = row_bytes + static_shared_bytes <= max_shared_bytes;
    return Plan{
        in_shared ? softmax_long_kernel<T, VEC_SIZE, true>
                  : softmax_long_kernel<T, VEC_SIZE, false>,
        dim3(n_rows),
        dim3(LONG_NUM_THREADS),
        in_shared ? row_bytes : 0
    };
}

// The same for two rows at once: a thread holds half as much of each.
template <typename T, int VEC_SIZE>
auto plan_softmax_backward(int64_t n_rows, int64_t n_cols) {
    const auto in_registers = [&]<int ELEMENTS_PER_THREAD, int THREADS_PER_ROW>() {
        constexpr int NUM_THREADS = threads_per_block(THREADS_PER_ROW);
        constexpr int VECS_PER_THREAD = ELEMENTS_PER_THREAD / VEC_SIZE;
        return Plan{
            softmax_backward_kernel<T, VEC_SIZE, VECS_PER_THREAD, THREADS_PER_ROW>,
            dim3(ceil_div(n_rows, NUM_THREADS / THREADS_PER_ROW)),
            dim3(NUM_THREADS)
        };
    };
    if (n_cols <= 64) return in_registers.template operator()<8, 8>();
    if (n_cols <= 256) return in_registers.template operator()<8, 32>();
    if (n_cols <= 512) return in_registers.template operator()<16, 32>();
    if (n_cols <= 1024) return in_registers.template operator()<8, 128>();
    if (n_cols <= 2048) return in_registers.template operator()<16, 128>();
    if (n_cols <= 4096) return in_registers.template operator()<16, 256>();
    if (n_cols <= 8192) return in_registers.template operator()<16, 512>();
    if (n_cols <= 16384) return in_registers.template operator()<16, 1024>();
    return Plan{
        softmax_backward_long_kernel<T, VEC_SIZE>, dim3(n_rows), dim3(LONG_NUM_THREADS)
    };
}

}  // namespace

// Vectors of 16 bytes where every row begins and ends at a multiple of them, else one
// element at a time.
cudaError_t softmax(
    const Launcher& launch,
    DType dtype,
    void* out,
    const void* x,
    int64_t n_rows,
    int64_t n_cols,
    int64_t rows_per_batch,
    int64_t x_stride_batch,
    int64_t x_stride_row
) {
    return dispatch_float<cudaError_t>(dtype, [&]<typename T>() {
        constexpr int VEC_SIZE = VEC_BYTES / sizeof(T);
        const bool vectors = has_vectors<T>(out, n_cols, 1) &&
                             has_vectors<T>(x, x_stride_row, 1) &&
                             has_vectors<T>(x, x_stride_batch, 1);
        const int64_t max_shared_bytes = launch.device().max_shared_bytes;
        return launch(
            vectors ? plan_softmax<T, VEC_SIZE>(n_rows, n_cols, max_shared_bytes)
                    : plan_softmax<T, 1>(n_rows, n_cols, max_shared_bytes),
            static_cast<T*>(out),
            static_cast<const T*>(x),
            n_rows,
            n_cols,
            rows_per_batch,
            x_stride_batch,
            x_stride_row
        );
    });
}

cudaError_t softmax_backward(
    const Launcher& launch,
    DType dtype,
    void* out,
    const void* grad,
    const void* y,
    int64_t n_rows,
    int64_t n_cols,
    int64_t rows_per_batch,
    int64_t grad_stride_batch,
    int64_t grad_stride_row,
    int64_t y_stride_batch,
    int64_t y_stride_row
) {
    return dispatch_float<cudaError_t>(dtype, [&]<typename T>() {
        constexpr int VEC_SIZE = VEC_BYTES / sizeof(T);
        const bool vectors = has_vectors<T>(out, n_cols, 1) &&
                             has_vectors<T>(grad, grad_stride_row, 1) &&
                             has_vectors<T>(grad, grad_stride_batch, 1) &&
                             has_vectors<T>(y, y_stride_row, 1) &&
                             has_vectors<T>(y, y_stride_batch, 1);
        return launch(
            vectors ? plan_softmax_backward<T, VEC_SIZE>(n_rows, n_cols)
                    : plan_softmax_backward<T, 1>(n_rows, n_cols),
            static_cast<T*>(out),
            static_cast<const T*>(grad),
            static_cast<const T*>(y),
            n_rows,
            n_cols,
            rows_per_batch,
            grad_stride_batch,
            grad_stride_row,
            y_stride_batch,
            y_stride_row
        );
    });
}
