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
// Mirror   triton_kernels/sum/sum.py
// Source   Harris 2007, "Optimizing parallel reduction in CUDA"

#include "common/launch.cuh"
#include "common/reduce.cuh"
#include "common/vec.cuh"

namespace {
constexpr int NUM_THREADS = 256;
// A thread has so much on its way before it adds it. In the blocks that the bounds below
// ask for on a multiprocessor these are 64 KB, twice what keeps an H200's memory busy.
constexpr int BYTES_PER_THREAD = 64;
constexpr int BLOCKS_PER_SM = 4;
constexpr int NUM_SMS = 132;  // of an H200
}  // namespace

// What a thread reads of a row at a time: one vector, or 4 elements one by one.
template <int VEC_SIZE>
constexpr int COLS_PER_THREAD = VEC_SIZE == 1 ? 4 : VEC_SIZE;

// In pairs, and pairs of those: the shortest chains of additions.
template <int SIZE>
__device__ __forceinline__ float sum_in_pairs(const Vec<float, SIZE>& values) {
    if constexpr (SIZE == 1) {
        return values[0];
    } else {
        Vec<float, SIZE / 2> sums;
        #pragma unroll
        for (int i = 0; i < SIZE / 2; ++i) sums[i] = values[i] + values[i + SIZE / 2];
        return sum_in_pairs(sums);
    }
}

__device__ __forceinline__ int64_t min64(int64_t a, int64_t b) { return a < b ? a : b; }

// How many elements lie before the first vector.
template <int VEC_SIZE, typename T>
__device__ __forceinline__ int elements_before_vector(const T* ptr) {
    return -(reinterpret_cast<uintptr_t>(ptr) / sizeof(T)) % VEC_SIZE;
}

// The reduced dimension is contiguous, or at least steps less than the others:
// THREADS_PER_ROW neighbouring threads share a row, or ROWS_PER_THREAD short ones, and
// walk along them.
template <
    typename In,
    typename Out,
    int VEC_SIZE,
    int THREADS_PER_ROW,
    int ROWS_PER_THREAD,
    int LOADS_PER_ROW>
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
    static_assert(THREADS_PER_ROW >= VEC_SIZE);
    constexpr int STEP = THREADS_PER_ROW * VEC_SIZE;
    constexpr int BLOCK_N = LOADS_PER_ROW * STEP;
    constexpr int ROWS_PER_LOAD = NUM_THREADS / THREADS_PER_ROW;
    constexpr int BLOCK_M = ROWS_PER_THREAD * ROWS_PER_LOAD;
    const int64_t stride_col = VEC_SIZE == 1 ? x_stride_reduced : 1;

    // -- tile: a block owns one split of one long row or of several short ones
    const int64_t block_row = int64_t{blockIdx.x} * BLOCK_M;
    const int n_rows = static_cast<int>(min64(n_outer * n_inner - block_row, BLOCK_M));
    const int thread_row = threadIdx.x / THREADS_PER_ROW;
    const int thread = threadIdx.x % THREADS_PER_ROW;
    const int64_t split_start = blockIdx.y * split_size;
    const int64_t n_cols = min64(n_reduced - split_start, split_size);
    x_ptr += split_start * x_stride_reduced;
    out_ptr += block_row * gridDim.y + blockIdx.y;
    const int64_t first = reinterpret_cast<uintptr_t>(x_ptr) / sizeof(In);
    const int64_t starts_and_ends = first | x_stride_outer | x_stride_inner | n_cols;
    const bool in_vectors = starts_and_ends % VEC_SIZE == 0;

    // -- accumulate: first the few elements before and behind the vectors of a row, which
    // begin at multiples of 16 bytes
    const In* vec_ptrs[ROWS_PER_THREAD];
    int n_heads[ROWS_PER_THREAD]{};
    Vec<float, ROWS_PER_THREAD> sum{};
    #pragma unroll
    for (int i = 0; i < ROWS_PER_THREAD; ++i) {
        // There is no row behind the last one, but that one may be read again.
        const int tile_row = i * ROWS_PER_LOAD + thread_row;
        const int64_t row = block_row + (tile_row < n_rows ? tile_row : n_rows - 1);
        // Most tensors have one outer index, and are spared the division.
        const In* row_ptr = x_ptr + (n_outer == 1 ? row * x_stride_inner
                                                  : row / n_inner * x_stride_outer +
                                                        row % n_inner * x_stride_inner);
        if (!in_vectors) {
            const int n_before = elements_before_vector<VEC_SIZE>(row_ptr);
            n_heads[i] = static_cast<int>(min64(n_before, n_cols));
            const int n_tail = static_cast<int>((n_cols - n_heads[i]) % VEC_SIZE);
            if (thread < n_heads[i]) sum[i] = to_float(row_ptr[thread]);
            if (thread < n_tail) sum[i] += to_float(row_ptr[n_cols - n_tail + thread]);
        }
        vec_ptrs[i] = row_ptr + (n_heads[i] + thread * VEC_SIZE) * stride_col;
    }

    // What is read of a row at a time is added in pairs, and then to its sum.
    #pragma unroll 1
    for (int64_t start = 0; start < n_cols; start += BLOCK_N) {
        const int n_left = static_cast<int>(min64(n_cols - start, 2 * BLOCK_N));
        Vec<In, VEC_SIZE> x[ROWS_PER_THREAD][LOADS_PER_ROW];
        #pragma unroll
        for (int i = 0; i < ROWS_PER_THREAD; ++i) {
            const int last_col = n_left - n_heads[i] - VEC_SIZE;
            #pragma unroll
            for (int k = 0; k < LOADS_PER_ROW; ++k) {
                const bool is_valid = thread * VEC_SIZE + k * STEP <= last_col;
                x[i][k] =
                    load<VEC_SIZE>(vec_ptrs[i] + k * STEP * stride_col, is_valid, In{});
            }
            vec_ptrs[i] += BLOCK_N * stride_col;
        }
        #pragma unroll
        for (int i = 0; i < ROWS_PER_THREAD; ++i) {
            Vec<float, LOADS_PER_ROW> sums;
            #pragma unroll
            for (int k = 0; k < LOADS_PER_ROW; ++k) {
                sums[k] = sum_in_pairs(to_float(x[i][k]));
            }
            sum[i] += sum_in_pairs(sums);
        }
    }

    // -- reduce: the sums of the threads that share a row
    sum = block_reduce<THREADS_PER_ROW>(sum, Sum{});

    // -- store: rounded once, each sum by a thread of its own
    #pragma unroll
    for (int i = 1; i < ROWS_PER_THREAD; ++i) sum[0] = thread == i ? sum[i] : sum[0];
    const int64_t tile_row = thread * ROWS_PER_LOAD + thread_row;
    if (thread < ROWS_PER_THREAD && tile_row < n_rows) {
        out_ptr[tile_row * gridDim.y] = from_float<Out>(sum[0]);
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
    constexpr int VECS_PER_ROW = COLS_PER_THREAD<VEC_SIZE> / VEC_SIZE;
    constexpr int ROWS_PER_THREAD =
        BYTES_PER_THREAD / (COLS_PER_THREAD<VEC_SIZE> * sizeof(In));
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
    x_ptr += outer * x_stride_outer + split_start * x_stride_reduced;
    out_ptr += (blockIdx.y * n_outer + outer) * n_inner + first_col;

    // There is no column behind the last one, but that one may be read again.
    const In* ptrs[VECS_PER_ROW];
    #pragma unroll
    for (int k = 0; k < VECS_PER_ROW; ++k) {
        const int64_t col = min64(first_col + k * step, n_inner - VEC_SIZE);
        ptrs[k] = x_ptr + thread_row * x_stride_reduced + col * x_stride_inner;
    }

    // -- accumulate: what is read of a column at a time in pairs, then to its sum
    Vec<float, COLS_PER_THREAD<VEC_SIZE>> sum{};
    const int64_t stride_load = rows_per_load * x_stride_reduced;
    const auto add_rows = [&]<bool ARE_ALL_VALID>(int64_t n_rows_left) {
        Vec<In, VEC_SIZE> x[ROWS_PER_THREAD][VECS_PER_ROW];
        #pragma unroll
        for (int i = 0; i < ROWS_PER_THREAD; ++i) {
            const bool is_valid = ARE_ALL_VALID || i * rows_per_load < n_rows_left;
            #pragma unroll
            for (int k = 0; k < VECS_PER_ROW; ++k) {
                x[i][k] = load<VEC_SIZE>(ptrs[k], is_valid, In{});
                ptrs[k] += stride_load;
            }
        }
        #pragma unroll
        for (int k = 0; k < VECS_PER_ROW; ++k) {
            #pragma unroll
            for (int j = 0; j < VEC_SIZE; ++j) {
                Vec<float, ROWS_PER_THREAD> column;
                #pragma unroll
                for (int i = 0; i < ROWS_PER_THREAD; ++i) {
                    column[i] = to_float(x[i][k][j]);
                }
                sum[k * VEC_SIZE + j] += sum_in_pairs(column);
            }
        }
    };
    const int rows_per_step = ROWS_PER_THREAD * rows_per_load;
    int64_t n_rows_left = n_rows - thread_row;
    #pragma unroll 1
    for (; n_rows_left > rows_per_step - rows_per_load; n_rows_left -= rows_per_step) {
        add_rows.template operator()<true>(n_rows_left);
    }
    if (n_rows_left > 0) add_rows.template operator()<false>(n_rows_left);

    // -- reduce: the sums of the threads that share columns
    sum = column_reduce<NUM_THREADS>(sum, Sum{});

    // -- store: rounded once
    if (thread_row > 0) return;
    #pragma unroll
    for (int k = 0; k < VECS_PER_ROW; ++k) {
        if (first_col + k * step >= n_inner) break;
        Vec<float, VEC_SIZE> out;
        #pragma unroll
        for (int j = 0; j < VEC_SIZE; ++j) out[j] = sum[k * VEC_SIZE + j];
        store(out_ptr + k * step, from_float<Out>(out));
    }
}

namespace {

// Short rows take few threads, so that a block holds several; the shortest ones leave a
// thread time for four. A row that takes a block few steps takes fewer of twice the loads:
// much of the last step may be idle.
template <typename In, typename Out, int VEC_SIZE>
auto plan_rows(int64_t n_rows, int64_t n_cols, int64_t n_splits) {
    const auto plan =
        [&]<int THREADS_PER_ROW, int ROWS_PER_THREAD, int LOADS_PER_ROW>() {
            const int rows_per_block = NUM_THREADS / THREADS_PER_ROW * ROWS_PER_THREAD;
            return Plan{
                sum_rows_kernel<
                    In,
                    Out,
                    VEC_SIZE,
                    THREADS_PER_ROW,
                    ROWS_PER_THREAD,
                    LOADS_PER_ROW>,
                dim3(ceil_div(n_rows, rows_per_block), n_splits),
                dim3(NUM_THREADS)
            };
        };
    const int64_t n_vecs = ceil_div(n_cols, VEC_SIZE);
    if (n_vecs <= 8) return plan.template operator()<8, 4, 1>();
    if (n_vecs <= 16) return plan.template operator()<8, 4, 2>();
    if (n_vecs <= 32) return plan.template operator()<16, 4, 2>();
    if (n_vecs <= 64) return plan.template operator()<16, 2, 4>();
    if (n_vecs <= 512) return plan.template operator()<32, 1, 4>();
    if (1024 < n_vecs && n_vecs <= 4096)
        return plan.template operator()<NUM_THREADS, 1, 8>();
    return plan.template operator()<NUM_THREADS, 1, 4>();
}

// Up to 1024 bytes of a row, as long as that leaves a block for every multiprocessor of an
// H200; more where there are too few rows for the other threads.
template <typename In, typename Out, int VEC_SIZE>
auto plan_columns(int64_t n_outer, int64_t n_rows, int64_t n_cols, int64_t n_splits) {
    constexpr int WIDE = 1024 / (COLS_PER_THREAD<VEC_SIZE> * sizeof(In));
    constexpr int BLOCK_SIZE = 4 * NUM_THREADS * COLS_PER_THREAD<VEC_SIZE>;
    const auto n_blocks = [&](int threads_per_row) {
        return n_outer * ceil_div(n_cols, threads_per_row * COLS_PER_THREAD<VEC_SIZE>);
    };
    int threads_per_row = 2;  // 32 bytes
    while (threads_per_row * COLS_PER_THREAD<VEC_SIZE> < n_cols &&
           threads_per_row < NUM_THREADS) {
        const bool too_few_rows =
            threads_per_row * COLS_PER_THREAD<VEC_SIZE> * n_rows < BLOCK_SIZE;
        const bool many_blocks = n_blocks(2 * threads_per_row) * n_splits >= NUM_SMS;
        if (!many_blocks || (threads_per_row >= WIDE && !too_few_rows)) break;
        threads_per_row *= 2;
    }
    return Plan{
        sum_columns_kernel<In, Out, VEC_SIZE>,
        dim3(n_blocks(threads_per_row), n_splits),
        dim3(threads_per_row, NUM_THREADS / threads_per_row)
    };
}

// Vectors of 16 bytes along rows without gaps; of columns, where every row begins at a
// multiple of them. Else one element at a time.
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
    const int64_t stride_col = by_rows ? x_stride_reduced : x_stride_inner;
    const bool vectors =
        stride_col == 1 &&
        (by_rows || (has_vectors<In>(x, x_stride_reduced, 1) &&
                     has_vectors<In>(x, x_stride_outer, 1) && n_inner % VEC_SIZE == 0));
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
    int64_t split_size,
    [[maybe_unused]] int rung
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
