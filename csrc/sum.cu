// Sums over one dimension of a tensor.
//
//   out[o, i] = sum over r of x[o, r, i]
//
// Layout   out: (n_outer, n_inner), contiguous. x: (n_outer, n_reduced, n_inner) with any
//          three strides. workspace: float32, n_splits for each element of out.
// Traffic  reads every element once and writes next to nothing: the ceiling is the
//          bandwidth of a read.
// Limits   accumulates in float32 and rounds once. The order of the additions depends on
//          shape, strides and alignment alone, so every run gives the same bits.
// Mirror   triton_kernels/sum.py
// Source   Harris 2007, "Optimizing parallel reduction in CUDA"

#include "common/launch.cuh"
#include "common/reduce.cuh"
#include "common/vec.cuh"

namespace {
constexpr int NUM_THREADS = 256;
// Read by a thread before it adds them up: 64 bytes of float32. Four such blocks on a
// multiprocessor, for which the bounds below ask, wait for 64 KB, twice what an H200
// needs to be busy.
constexpr int ELEMENTS_PER_THREAD = 16;
constexpr int BLOCK_SIZE = NUM_THREADS * ELEMENTS_PER_THREAD;
constexpr int BLOCKS_PER_SM = 4;
constexpr int NUM_SMS = 132;  // of an H200
}  // namespace

// What a thread reads of a row at a time: one vector, or 4 elements one by one.
template <int VEC_SIZE>
constexpr int COLS_PER_THREAD = VEC_SIZE == 1 ? 4 : VEC_SIZE;

// The reduced dimension is contiguous, or at least steps less than the others:
// THREADS_PER_ROW neighbouring threads share a row and walk along it.
template <typename In, typename Out, int VEC_SIZE, int THREADS_PER_ROW>
__global__ void __launch_bounds__(NUM_THREADS, BLOCKS_PER_SM) sum_rows_kernel(
    Out* __restrict__ out_ptr,     // (n_outer * n_inner, n_splits)
    const In* __restrict__ x_ptr,  // (n_outer, n_reduced, n_inner)
    int64_t n_outer,
    int64_t n_reduced,
    int64_t n_inner,
    int64_t x_stride_outer,
    int64_t x_stride_reduced,
    int64_t x_stride_inner,
    int64_t split_size
) {
    constexpr int VECS_PER_THREAD = ELEMENTS_PER_THREAD / VEC_SIZE;
    constexpr int STEP = THREADS_PER_ROW * VEC_SIZE;
    const int64_t stride_col = VEC_SIZE == 1 ? x_stride_reduced : 1;

    // -- tile: a block owns one split of one long row or of several short ones
    const int64_t row = int64_t{blockIdx.x} * (NUM_THREADS / THREADS_PER_ROW) +
                        threadIdx.x / THREADS_PER_ROW;
    const int64_t split_start = blockIdx.y * split_size;
    const int64_t n_left = n_reduced - split_start;
    const int64_t n_cols = row >= n_outer * n_inner ? 0
                           : n_left < split_size    ? n_left
                                                    : split_size;
    // Most tensors have one outer index, and are spared the division.
    x_ptr += n_outer == 1
                 ? row * x_stride_inner
                 : row / n_inner * x_stride_outer + row % n_inner * x_stride_inner;
    x_ptr += split_start * x_stride_reduced;

    // -- accumulate: each element of a tile has a sum of its own
    Vec<float, VEC_SIZE> sums[VECS_PER_THREAD]{};
    const int thread = threadIdx.x % THREADS_PER_ROW;
    const int64_t n_whole = n_cols / VEC_SIZE * VEC_SIZE;
    for (int64_t start = thread * VEC_SIZE; start < n_whole;
         start += VECS_PER_THREAD * STEP) {
        Vec<In, VEC_SIZE> x[VECS_PER_THREAD];
        #pragma unroll
        for (int i = 0; i < VECS_PER_THREAD; ++i) {
            const int64_t col = start + i * STEP;
            x[i] = load<VEC_SIZE>(x_ptr + col * stride_col, col < n_whole, In{});
        }
        #pragma unroll
        for (int i = 0; i < VECS_PER_THREAD; ++i) {
            #pragma unroll
            for (int j = 0; j < VEC_SIZE; ++j) sums[i][j] += to_float(x[i][j]);
        }
    }
    if (thread < n_cols - n_whole) sums[0][0] += to_float(x_ptr[n_whole + thread]);

    // -- reduce: the sums of a thread, then those of the threads that share the row
    float sum = 0.0f;
    #pragma unroll
    for (int i = 0; i < VECS_PER_THREAD; ++i) {
        #pragma unroll
        for (int j = 0; j < VEC_SIZE; ++j) sum += sums[i][j];
    }
    sum = block_reduce<THREADS_PER_ROW>(sum, Sum{});

    // -- store: rounded once
    if (thread == 0 && row < n_outer * n_inner) {
        out_ptr[row * gridDim.y + blockIdx.y] = from_float<Out>(sum);
    }
}

// The inner dimension is contiguous, or at least steps less than the reduced one: a block
// of threads_per_row by rows_per_load threads reads neighbouring columns of several rows.
template <typename In, typename Out, int VEC_SIZE>
__global__ void __launch_bounds__(NUM_THREADS, BLOCKS_PER_SM) sum_columns_kernel(
    Out* __restrict__ out_ptr,     // (n_splits, n_outer, n_inner)
    const In* __restrict__ x_ptr,  // (n_outer, n_reduced, n_inner)
    int64_t n_outer,
    int64_t n_reduced,
    int64_t n_inner,
    int64_t x_stride_outer,
    int64_t x_stride_reduced,
    int64_t x_stride_inner,
    int64_t split_size
) {
    constexpr int VECS_PER_THREAD = COLS_PER_THREAD<VEC_SIZE> / VEC_SIZE;
    constexpr int ROWS_PER_THREAD = ELEMENTS_PER_THREAD / COLS_PER_THREAD<VEC_SIZE>;
    const int threads_per_row = blockDim.x, rows_per_load = blockDim.y;
    const int cols_per_block = threads_per_row * COLS_PER_THREAD<VEC_SIZE>;
    const int step = threads_per_row * VEC_SIZE;
    const int thread_row = threadIdx.y;

    // -- tile: a block owns neighbouring columns of one outer index, and one split
    const unsigned n_tiles = gridDim.x / static_cast<unsigned>(n_outer);
    const int64_t outer = blockIdx.x / n_tiles;
    const int64_t first_col =
        int64_t{blockIdx.x % n_tiles} * cols_per_block + threadIdx.x * VEC_SIZE;
    const int64_t split_start = blockIdx.y * split_size;
    const int64_t n_left = n_reduced - split_start;
    const int64_t n_rows = n_left < split_size ? n_left : split_size;
    x_ptr += outer * x_stride_outer + split_start * x_stride_reduced +
             first_col * x_stride_inner;
    out_ptr += (blockIdx.y * n_outer + outer) * n_inner + first_col;

    // -- accumulate: each element of a tile has a sum of its own
    Vec<float, COLS_PER_THREAD<VEC_SIZE>> sums[ROWS_PER_THREAD]{};
    for (int64_t start = thread_row; start < n_rows;
         start += ROWS_PER_THREAD * rows_per_load) {
        Vec<In, VEC_SIZE> x[ROWS_PER_THREAD][VECS_PER_THREAD];
        #pragma unroll
        for (int i = 0; i < ROWS_PER_THREAD; ++i) {
            const int64_t row = start + i * rows_per_load;
            #pragma unroll
            for (int k = 0; k < VECS_PER_THREAD; ++k) {
                x[i][k] = load<VEC_SIZE>(
                    x_ptr + row * x_stride_reduced + k * step * x_stride_inner,
                    row < n_rows && first_col + k * step < n_inner,
                    In{}
                );
            }
        }
        #pragma unroll
        for (int i = 0; i < ROWS_PER_THREAD; ++i) {
            #pragma unroll
            for (int k = 0; k < VECS_PER_THREAD; ++k) {
                #pragma unroll
                for (int j = 0; j < VEC_SIZE; ++j) {
                    sums[i][k * VEC_SIZE + j] += to_float(x[i][k][j]);
                }
            }
        }
    }

    // -- reduce: the sums of a thread, then those of the threads that share its columns
    Vec<float, COLS_PER_THREAD<VEC_SIZE>> sum = sums[0];
    #pragma unroll
    for (int i = 1; i < ROWS_PER_THREAD; ++i) {
        #pragma unroll
        for (int j = 0; j < COLS_PER_THREAD<VEC_SIZE>; ++j) sum[j] += sums[i][j];
    }
    sum = column_reduce<NUM_THREADS>(sum, Sum{});

    // -- store: rounded once
    if (thread_row > 0) return;
    #pragma unroll
    for (int k = 0; k < VECS_PER_THREAD; ++k) {
        if (first_col + k * step >= n_inner) break;
        Vec<float, VEC_SIZE> out;
        #pragma unroll
        for (int j = 0; j < VEC_SIZE; ++j) out[j] = sum[k * VEC_SIZE + j];
        store(out_ptr + k * step, from_float<Out>(out));
    }
}

namespace {

// Short rows take few threads, so that a block holds several.
template <typename In, typename Out, int VEC_SIZE>
auto plan_rows(int64_t n_rows, int64_t n_cols, int64_t n_splits) {
    const auto plan = [&]<int THREADS_PER_ROW>() {
        return Plan{
            sum_rows_kernel<In, Out, VEC_SIZE, THREADS_PER_ROW>,
            dim3(ceil_div(n_rows, NUM_THREADS / THREADS_PER_ROW), n_splits),
            dim3(NUM_THREADS)
        };
    };
    if (n_cols <= 8 * ELEMENTS_PER_THREAD) return plan.template operator()<8>();
    if (n_cols <= 128 * ELEMENTS_PER_THREAD) return plan.template operator()<32>();
    return plan.template operator()<NUM_THREADS>();
}

// Up to 32 threads side by side, or 512 bytes of a row, as long as that leaves a block
// for every multiprocessor of an H200; more where there are too few rows for the others.
template <typename In, typename Out, int VEC_SIZE>
auto plan_columns(int64_t n_outer, int64_t n_rows, int64_t n_cols, int64_t n_splits) {
    const auto n_blocks = [&](int threads_per_row) {
        return n_outer * ceil_div(n_cols, threads_per_row * COLS_PER_THREAD<VEC_SIZE>);
    };
    int threads_per_row = 4;
    while (threads_per_row * COLS_PER_THREAD<VEC_SIZE> < n_cols &&
           threads_per_row < NUM_THREADS) {
        const bool too_few_rows =
            threads_per_row * COLS_PER_THREAD<VEC_SIZE> * n_rows < BLOCK_SIZE;
        const bool many_blocks = n_blocks(2 * threads_per_row) * n_splits >= NUM_SMS;
        if (!many_blocks || (threads_per_row >= 32 && !too_few_rows)) break;
        threads_per_row *= 2;
    }
    return Plan{
        sum_columns_kernel<In, Out, VEC_SIZE>,
        dim3(n_blocks(threads_per_row), n_splits),
        dim3(threads_per_row, NUM_THREADS / threads_per_row)
    };
}

// Vectors of 16 bytes where every row begins at a multiple of them, else one element at
// a time.
template <typename In, typename Out>
cudaError_t launch_sums(
    const Launcher& launch,
    void* out,
    const void* x,
    int64_t n_outer,
    int64_t n_reduced,
    int64_t n_inner,
    int64_t x_stride_outer,
    int64_t x_stride_reduced,
    int64_t x_stride_inner,
    bool by_rows,
    int64_t n_splits,
    int64_t split_size
) {
    constexpr int VEC_SIZE = VEC_BYTES / sizeof(In);
    const int64_t stride_row = by_rows ? x_stride_inner : x_stride_reduced;
    const int64_t stride_col = by_rows ? x_stride_reduced : x_stride_inner;
    const bool vectors = stride_col == 1 && has_vectors<In>(x, stride_row, 1) &&
                         has_vectors<In>(x, x_stride_outer, 1) &&
                         (by_rows || n_inner % VEC_SIZE == 0);
    const int64_t n_added = n_reduced < split_size ? n_reduced : split_size;
    const int64_t n_rows = n_outer * n_inner;
    const auto plan =
        by_rows   ? (vectors ? plan_rows<In, Out, VEC_SIZE>(n_rows, n_added, n_splits)
                             : plan_rows<In, Out, 1>(n_rows, n_added, n_splits))
        : vectors ? plan_columns<In, Out, VEC_SIZE>(n_outer, n_added, n_inner, n_splits)
                  : plan_columns<In, Out, 1>(n_outer, n_added, n_inner, n_splits);
    return launch(
        plan,
        static_cast<Out*>(out),
        static_cast<const In*>(x),
        n_outer,
        n_reduced,
        n_inner,
        x_stride_outer,
        x_stride_reduced,
        x_stride_inner,
        split_size
    );
}

}  // namespace

// Where there are too few outputs to fill a GPU, n_splits blocks share each of them: they
// leave their sums in the workspace, and a second launch adds those.
cudaError_t sum(
    const Launcher& launch,
    DType dtype,
    void* out,
    const void* x,
    void* workspace,
    int64_t n_outer,
    int64_t n_reduced,
    int64_t n_inner,
    int64_t x_stride_outer,
    int64_t x_stride_reduced,
    int64_t x_stride_inner,
    bool by_rows,
    int64_t n_splits,
    int64_t split_size
) {
    return dispatch_float<cudaError_t>(dtype, [&]<typename T>() {
        const auto first = n_splits == 1 ? launch_sums<T, T> : launch_sums<T, float>;
        const cudaError_t error = first(
            launch,
            n_splits == 1 ? out : workspace,
            x,
            n_outer,
            n_reduced,
            n_inner,
            x_stride_outer,
            x_stride_reduced,
            x_stride_inner,
            by_rows,
            n_splits,
            split_size
        );
        if (error != cudaSuccess || n_splits == 1) return error;
        // (n_outer * n_inner, n_splits) by rows, else (n_splits, n_outer * n_inner)
        const int64_t n_outputs = n_outer * n_inner;
        return launch_sums<float, T>(
            launch,
            out,
            workspace,
            1,
            n_splits,
            n_outputs,
            0,
            by_rows ? 1 : n_outputs,
            by_rows ? n_splits : 1,
            by_rows,
            1,
            n_splits
        );
    });
}
