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
// Traffic  reads and writes every element once as long as a row fits into the registers of
//          a block (16384 columns, 32768 of float32; 8192 in the backward, which holds two
//          rows) or, slice by slice, into the shared memory of one, on Hopper of eight
//          (450000 columns of float32 on an H200, half as many in the backward). Of a
//          longer row the rest is read twice.
// Limits   accumulates in float32. A row with NaN or +inf, or of -inf alone, is NaN.
// Mirror   triton_kernels/softmax.py differs in softmax_long_kernel and
//          softmax_backward_long_kernel, because Triton has neither shared memory to keep a
//          row in nor clusters to share one: it reads a long row again, out of a cache
//          that may still have it.
// Source   Milakov & Gimelshein 2018, arXiv:1805.02867 (algorithm 2; 3 for long rows)

#include "common/cluster.cuh"
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

constexpr int LONG_NUM_THREADS = 512;
constexpr int LONG_NUM_WARPS = LONG_NUM_THREADS / WARP_SIZE;
template <int VEC_SIZE>
constexpr int LONG_VECS = 16 / VEC_SIZE;  // that a thread works on at a time
// The columns of a thread are vectors so far apart.
template <int VEC_SIZE>
constexpr int LONG_STEP = LONG_NUM_THREADS * VEC_SIZE;
// A block keeps at most so many times what its threads work on at a time: more than the
// 227 KB of an H200.
constexpr int MAX_COPY_GROUPS = 16;
// Three blocks with as much on a multiprocessor keep an H200's memory busy, and a block of
// a cluster has no more of a row, unless there are no more blocks.
constexpr int64_t SLICE_BYTES = 64 * 1024;
// Before Hopper there is less of it.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 900
constexpr int LONG_BLOCKS_PER_SM = 2;
#else
constexpr int LONG_BLOCKS_PER_SM = 3;
#endif

// What the sum of exponentials is relative to. As long as nothing but -inf was seen, that
// is 0: the sum stays 0, where -inf - -inf would make it NaN.
__device__ __forceinline__ float origin_of(float max) {
    return max == -INFINITY ? 0.0f : max;
}

// Starts to copy a thread's columns to shared memory, and fills up n_kept of them: a group
// for what it will work on at a time. Of two bytes there is no asynchronous copy.
template <int VEC_SIZE, typename T>
__device__ __forceinline__ void start_copy(
    T* kept, int n_kept, const T* ptr, int n_left, T fill
) {
    constexpr int STEP = LONG_STEP<VEC_SIZE>, VECS = LONG_VECS<VEC_SIZE>;
    constexpr int BYTES = VEC_SIZE * sizeof(T);
    for (int start = 0; start < n_kept; start += VECS * STEP) {
        if constexpr (BYTES >= 4) {
            #pragma unroll
            for (int col = start; col < start + VECS * STEP; col += STEP) {
                if (col < n_left) {
                    ptx::cp_async<BYTES>(kept + col, ptr + col);
                } else {
                    store(kept + col, splat<VEC_SIZE>(fill));
                }
            }
            ptx::cp_async_commit_group();
        } else {
            Vec<T, VEC_SIZE> x[VECS];
            #pragma unroll
            for (int i = 0; i < VECS; ++i) {
                const int col = start + i * STEP;
                x[i] = load<VEC_SIZE>(ptr + col, col < n_left, fill);
            }
            #pragma unroll
            for (int i = 0; i < VECS; ++i) store(kept + start + i * STEP, x[i]);
        }
    }
}

// Adds a thread's columns to their maximum and sum, which is rescaled as that grows. Those
// that are kept come in MAX_COPY_GROUPS groups of LONG_VECS, the last ones perhaps empty:
// each is awaited as the oldest, and followed by an empty one, which makes the next oldest.
template <int VEC_SIZE, bool ARE_KEPT, typename T, typename Index>
__device__ __forceinline__ void add_columns(
    float& max, float& sum, const T* x_ptr, Index n_left
) {
    constexpr int STEP = LONG_STEP<VEC_SIZE>, VECS = LONG_VECS<VEC_SIZE>;
    #pragma unroll 1
    for (Index start = 0; start < n_left; start += VECS * STEP) {
        if constexpr (ARE_KEPT) ptx::cp_async_wait_group<MAX_COPY_GROUPS - 1>();
        Vec<float, VEC_SIZE> x[VECS];
        float new_max = max;
        #pragma unroll
        for (int i = 0; i < VECS; ++i) {
            const Index col = start + i * STEP;
            const bool is_valid = ARE_KEPT || col < n_left;
            x[i] = to_float(
                load<VEC_SIZE>(x_ptr + col, is_valid, from_float<T>(-INFINITY))
            );
        }
        #pragma unroll
        for (int i = 0; i < VECS; ++i) {
            #pragma unroll
            for (int j = 0; j < VEC_SIZE; ++j) new_max = fmaxf(new_max, x[i][j]);
        }
        const float origin = origin_of(new_max);
        sum *= fast_exp(max - origin);
        #pragma unroll
        for (int i = 0; i < VECS; ++i) {
            #pragma unroll
            for (int j = 0; j < VEC_SIZE; ++j) sum += fast_exp(x[i][j] - origin);
        }
        max = new_max;
        if constexpr (ARE_KEPT) ptx::cp_async_commit_group();
    }
}

// Writes the results of a thread's columns.
template <int VEC_SIZE, bool ARE_FULL, typename T, typename Index>
__device__ __forceinline__ void store_columns(
    T* out_ptr, const T* x_ptr, Index n_left, float row_max, float inverse_sum
) {
    constexpr int STEP = LONG_STEP<VEC_SIZE>, VECS = LONG_VECS<VEC_SIZE>;
    #pragma unroll 1
    for (Index start = 0; start < n_left; start += VECS * STEP) {
        Vec<float, VEC_SIZE> x[VECS];
        #pragma unroll
        for (int i = 0; i < VECS; ++i) {
            const Index col = start + i * STEP;
            const bool is_valid = ARE_FULL || col < n_left;
            x[i] = to_float(load<VEC_SIZE>(x_ptr + col, is_valid, T{}));
        }
        #pragma unroll
        for (int i = 0; i < VECS; ++i) {
            const Index col = start + i * STEP;
            #pragma unroll
            for (int j = 0; j < VEC_SIZE; ++j) {
                x[i][j] = fast_exp(x[i][j] - row_max) * inverse_sum;
            }
            if (col < n_left) store(out_ptr + col, from_float<T>(x[i]));
        }
    }
}

}  // namespace

// A row too long for the registers, in shared memory: of a block, or slice by slice of the
// blocks of a cluster. What does not fit there is read twice. A thread finds in shared
// memory what it has copied there itself, so that no barrier is needed for it.
template <typename T, int VEC_SIZE, bool IN_CLUSTER>
__global__ void
__launch_bounds__(LONG_NUM_THREADS, LONG_BLOCKS_PER_SM) softmax_long_kernel(
    T* __restrict__ out_ptr,      // (n_rows, n_cols)
    const T* __restrict__ x_ptr,  // (n_rows, n_cols)
    int64_t n_rows,
    int64_t n_cols,
    int64_t rows_per_batch,
    int64_t x_stride_batch,
    int64_t x_stride_row,
    int64_t slice_size,  // columns that a block owns
    int n_kept           // columns that it keeps, 16 times as many as threads, or more
) {
    using Results = WarpResults<2, LONG_NUM_WARPS, IN_CLUSTER>;
    DYNAMIC_SHARED(shared_bytes, 16);
    Results& results = *reinterpret_cast<Results*>(shared_bytes);
    results.begin();

    // -- tile: a block owns a slice of a row; a thread owns the vector at first_col and
    // every STEP columns from there
    const int64_t row = blockIdx.x;
    const int64_t first_col = blockIdx.y * slice_size + threadIdx.x * VEC_SIZE;
    const int64_t n_left = min((blockIdx.y + 1) * slice_size, n_cols) - first_col;
    const int n_kept_left = static_cast<int>(min(n_left, int64_t{n_kept}));
    x_ptr += row_offset(row, n_rows, rows_per_batch, x_stride_batch, x_stride_row) +
             first_col;
    out_ptr += row * n_cols + first_col;
    T* const kept =  // (n_kept)
        reinterpret_cast<T*>(shared_bytes + sizeof(Results)) + threadIdx.x * VEC_SIZE;

    // -- load: all that fits is on its way at once, and takes no registers meanwhile
    start_copy<VEC_SIZE>(kept, n_kept, x_ptr, n_kept_left, from_float<T>(-INFINITY));
    const int n_groups = n_kept / (LONG_VECS<VEC_SIZE> * LONG_STEP<VEC_SIZE>);
    for (int i = n_groups; i < MAX_COPY_GROUPS; ++i) ptx::cp_async_commit_group();

    // -- max_sum: of the columns that this thread owns
    float thread_max = -INFINITY, thread_sum = 0.0f;
    add_columns<VEC_SIZE, false>(
        thread_max, thread_sum, x_ptr + n_kept, n_left - n_kept
    );
    add_columns<VEC_SIZE, true>(thread_max, thread_sum, kept, n_kept);

    // -- combine: the threads' maxima and sums in every warp, and those of all warps
    const float warp_max = warp_reduce<WARP_SIZE>(thread_max, Max{});
    const float warp_sum = warp_reduce<WARP_SIZE>(
        thread_sum * fast_exp(thread_max - origin_of(warp_max)), Sum{}
    );
    results.share({warp_max, warp_sum});
    float lane_max = -INFINITY, lane_sum = 0.0f;
    for (int i = threadIdx.x % WARP_SIZE; i < results.size(); i += WARP_SIZE) {
        const auto [max, sum] = results[i].values;
        const float new_max = fmaxf(lane_max, max);
        const float origin = origin_of(new_max);
        lane_sum =
            lane_sum * fast_exp(lane_max - origin) + sum * fast_exp(max - origin);
        lane_max = new_max;
    }
    const float row_max = warp_reduce<WARP_SIZE>(lane_max, Max{});
    const float row_sum =
        warp_reduce<WARP_SIZE>(lane_sum * fast_exp(lane_max - row_max), Sum{});

    // -- store: first what has to be read again, as long as a cache may have it
    const float inverse_sum = 1.0f / row_sum;
    store_columns<VEC_SIZE, false>(
        out_ptr + n_kept, x_ptr + n_kept, n_left - n_kept, row_max, inverse_sum
    );
    store_columns<VEC_SIZE, true>(out_ptr, kept, n_kept_left, row_max, inverse_sum);
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

namespace {

// Adds up the products of a thread's columns.
template <int VEC_SIZE, bool ARE_FULL, typename T, typename Index>
__device__ __forceinline__ void add_products(
    float& sum, const T* grad_ptr, const T* y_ptr, Index n_left
) {
    constexpr int STEP = LONG_STEP<VEC_SIZE>, VECS = LONG_VECS<VEC_SIZE> / 2;
    #pragma unroll 1
    for (Index start = 0; start < n_left; start += VECS * STEP) {
        Vec<float, VEC_SIZE> grad[VECS], y[VECS];
        #pragma unroll
        for (int i = 0; i < VECS; ++i) {
            const Index col = start + i * STEP;
            const bool is_valid = ARE_FULL || col < n_left;
            grad[i] = to_float(load<VEC_SIZE>(grad_ptr + col, is_valid, T{}));
            y[i] = to_float(load<VEC_SIZE>(y_ptr + col, is_valid, T{}));
        }
        #pragma unroll
        for (int i = 0; i < VECS; ++i) {
            #pragma unroll
            for (int j = 0; j < VEC_SIZE; ++j) sum += grad[i][j] * y[i][j];
        }
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
        Vec<float, VEC_SIZE> grad[VECS], y[VECS];
        #pragma unroll
        for (int i = 0; i < VECS; ++i) {
            const Index col = start + i * STEP;
            const bool is_valid = ARE_FULL || col < n_left;
            grad[i] = to_float(load<VEC_SIZE>(grad_ptr + col, is_valid, T{}));
            y[i] = to_float(load<VEC_SIZE>(y_ptr + col, is_valid, T{}));
        }
        #pragma unroll
        for (int i = 0; i < VECS; ++i) {
            const Index col = start + i * STEP;
            #pragma unroll
            for (int j = 0; j < VEC_SIZE; ++j) y[i][j] *= grad[i][j] - row_sum;
            if (col < n_left) store(out_ptr + col, from_float<T>(y[i]));
        }
    }
}

}  // namespace

// Rows of grad and y too long for the registers, kept as softmax_long_kernel keeps x.
template <typename T, int VEC_SIZE, bool IN_CLUSTER>
__global__ void
__launch_bounds__(LONG_NUM_THREADS, LONG_BLOCKS_PER_SM) softmax_backward_long_kernel(
    T* __restrict__ out_ptr,         // (n_rows, n_cols)
    const T* __restrict__ grad_ptr,  // (n_rows, n_cols)
    const T* __restrict__ y_ptr,     // (n_rows, n_cols)
    int64_t n_rows,
    int64_t n_cols,
    int64_t rows_per_batch,
    int64_t grad_stride_batch,
    int64_t grad_stride_row,
    int64_t y_stride_batch,
    int64_t y_stride_row,
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
    start_copy<VEC_SIZE>(kept_grad, n_kept, grad_ptr, n_kept_left, T{});
    start_copy<VEC_SIZE>(kept_y, n_kept, y_ptr, n_kept_left, T{});

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

namespace {

// How the blocks of a cluster share a row that is too long for the registers.
struct Slices {
    int n_blocks;
    int64_t size;          // columns that each owns
    int n_kept;            // columns that it keeps in shared memory
    int64_t shared_bytes;  // that those take
};

// Bytes of a column in all tensors that are kept.
template <int VEC_SIZE>
Slices slices_of(const Device& device, int64_t n_cols, int64_t col_bytes) {
    constexpr int64_t WARP_COLS = WARP_SIZE * VEC_SIZE;  // that a warp reads at a time
    constexpr int64_t STEP = LONG_VECS<VEC_SIZE> * LONG_STEP<VEC_SIZE>;
    constexpr int64_t RESULTS_BYTES = sizeof(WarpResults<2, LONG_NUM_WARPS, true>);
    const int most_blocks = device.arch < 90 ? 1 : MAX_CLUSTER_SIZE;
    int n_blocks = 1;
    while (n_blocks < most_blocks && n_cols * col_bytes > n_blocks * SLICE_BYTES) {
        n_blocks *= 2;
    }
    const int64_t size = ceil_div(n_cols, n_blocks * WARP_COLS) * WARP_COLS;
    const int64_t room = (device.max_shared_bytes - RESULTS_BYTES) / col_bytes;
    const int64_t needed = ceil_div(size, STEP);
    const int64_t fitting =
        room / STEP < MAX_COPY_GROUPS ? room / STEP : MAX_COPY_GROUPS;
    const int64_t n_kept = (needed < fitting ? needed : fitting) * STEP;
    return {
        n_blocks, size, static_cast<int>(n_kept), RESULTS_BYTES + n_kept * col_bytes
    };
}

// The number of elements that a thread holds, and of threads that share a row, by the
// longest row that fits: short rows take few threads, so that a block holds several, and
// of long ones few threads have nothing. An element of two bytes takes as many registers
// as one of four, but half the shared memory, where long rows of those are faster.
template <typename T>
constexpr int64_t MAX_COLS = sizeof(T) == 4 ? 32768 : 16384;

template <typename T, int VEC_SIZE>
auto plan_softmax(int64_t n_rows, int64_t n_cols) {
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
    if (n_cols <= 128) return in_registers.template operator()<8, 16>();
    if (n_cols <= 256) return in_registers.template operator()<8, 32>();
    if (n_cols <= 512) return in_registers.template operator()<16, 32>();
    if (n_cols <= 1024) return in_registers.template operator()<32, 32>();
    if (n_cols <= 2048) return in_registers.template operator()<16, 128>();
    if (n_cols <= 4096) return in_registers.template operator()<32, 128>();
    if (n_cols <= 6144) return in_registers.template operator()<32, 192>();
    if (n_cols <= 8192) return in_registers.template operator()<32, 256>();
    if (n_cols <= 12288) return in_registers.template operator()<32, 384>();
    if (MAX_COLS<T> == 16384 || n_cols <= 16384) {
        return in_registers.template operator()<32, 512>();
    }
    return in_registers.template operator()<32, 1024>();
}

template <typename T, int VEC_SIZE>
auto plan_softmax_long(int64_t n_rows, const Slices& slices) {
    return Plan{
        slices.n_blocks > 1 ? softmax_long_kernel<T, VEC_SIZE, true>
                            : softmax_long_kernel<T, VEC_SIZE, false>,
        dim3(n_rows, slices.n_blocks),
        dim3(LONG_NUM_THREADS),
        slices.shared_bytes,
        dim3(1, slices.n_blocks)
    };
}

// The same for two rows at once: a thread holds half as much of each.
constexpr int64_t MAX_COLS_BACKWARD = 8192;

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
    if (n_cols <= 128) return in_registers.template operator()<8, 16>();
    if (n_cols <= 256) return in_registers.template operator()<8, 32>();
    if (n_cols <= 512) return in_registers.template operator()<16, 32>();
    if (n_cols <= 1024) return in_registers.template operator()<8, 128>();
    if (n_cols <= 2048) return in_registers.template operator()<16, 128>();
    if (n_cols <= 4096) return in_registers.template operator()<16, 256>();
    return in_registers.template operator()<16, 512>();
}

template <typename T, int VEC_SIZE>
auto plan_softmax_backward_long(int64_t n_rows, const Slices& slices) {
    return Plan{
        slices.n_blocks > 1 ? softmax_backward_long_kernel<T, VEC_SIZE, true>
                            : softmax_backward_long_kernel<T, VEC_SIZE, false>,
        dim3(n_rows, slices.n_blocks),
        dim3(LONG_NUM_THREADS),
        slices.shared_bytes,
        dim3(1, slices.n_blocks)
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
        const auto start = [&](const auto& plan, auto... slice) {
            return launch(
                plan,
                static_cast<T*>(out),
                static_cast<const T*>(x),
                n_rows,
                n_cols,
                rows_per_batch,
                x_stride_batch,
                x_stride_row,
                slice...
            );
        };
        const auto start_with = [&]<int SIZE>() {
            if (n_cols <= MAX_COLS<T>)
                return start(plan_softmax<T, SIZE>(n_rows, n_cols));
            const Slices slices = slices_of<SIZE>(launch.device(), n_cols, sizeof(T));
            return start(
                plan_softmax_long<T, SIZE>(n_rows, slices), slices.size, slices.n_kept
            );
        };
        return vectors ? start_with.template operator()<VEC_SIZE>()
                       : start_with.template operator()<1>();
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
        const auto start = [&](const auto& plan, auto... slice) {
            return launch(
                plan,
                static_cast<T*>(out),
                static_cast<const T*>(grad),
                static_cast<const T*>(y),
                n_rows,
                n_cols,
                rows_per_batch,
                grad_stride_batch,
                grad_stride_row,
                y_stride_batch,
                y_stride_row,
                slice...
            );
        };
        const auto start_with = [&]<int SIZE>() {
            if (n_cols <= MAX_COLS_BACKWARD) {
                return start(plan_softmax_backward<T, SIZE>(n_rows, n_cols));
            }
            const Slices slices =
                slices_of<SIZE>(launch.device(), n_cols, 2 * sizeof(T));
            return start(
                plan_softmax_backward_long<T, SIZE>(n_rows, slices),
                slices.size,
                slices.n_kept
            );
        };
        return vectors ? start_with.template operator()<VEC_SIZE>()
                       : start_with.template operator()<1>();
    });
}
