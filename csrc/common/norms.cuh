// What layer_norm.cu and rms_norm.cu share: how rows are cut up, and how gradients of
// weights are summed over them.
#pragma once

#include "common/cluster.cuh"
#include "common/launch.cuh"
#include "common/ptx/async_copy.cuh"
#include "common/ptx/memory.cuh"
#include "common/reduce.cuh"
#include "common/rows.cuh"
#include "common/vec.cuh"

// ---- Rows of the forward --------------------------------------------------------------

constexpr int64_t SHORT_MAX_COLS = 512;  // of a row that few threads hold in registers

// The number of elements that a thread holds, and of threads that share a row, by the
// longest row that fits: short rows take few threads, so that a block holds several.
template <typename Body>
auto dispatch_short_row(int64_t n_cols, Body&& body) {
    if (n_cols <= 64) return body.template operator()<8, 8>();
    if (n_cols <= 128) return body.template operator()<8, 16>();
    if (n_cols <= 256) return body.template operator()<8, 32>();
    return body.template operator()<16, 32>();
}

// How many blocks with rows in registers are to be on a multiprocessor, which limits their
// registers.
constexpr int row_blocks_per_sm(
    int vec_size, int elements_per_thread, int num_threads
) {
    const int threads_per_sm = elements_per_thread <= 8    ? 1536
                               : elements_per_thread <= 16 ? 1024
                               : vec_size > 1              ? 768
                                                           : 512;
    return threads_per_sm < num_threads ? 1 : threads_per_sm / num_threads;
}

// The number of bytes of a longer row that a thread works on at a time, and of threads:
// small blocks, of which a multiprocessor has several, as long as the row fits, and few
// threads that have nothing of it. Elements of two bytes take twice the instructions a
// byte, and a thread needs more of them to have loads enough under way. Beyond 128 KB a
// row is read in as many steps as it takes.
template <typename T, typename Body>
auto dispatch_long_row(int64_t n_cols, Body&& body) {
    const int64_t n_bytes = n_cols * int64_t{sizeof(T)};
    if (n_bytes <= 4096) return body.template operator()<32, 128>();
    if (n_bytes <= 8192) return body.template operator()<32, 256>();
    if constexpr (sizeof(T) == 2) {
        if (n_bytes <= 16384) return body.template operator()<64, 256>();
        if (n_bytes <= 24576) return body.template operator()<64, 384>();
        if (n_bytes <= 32768) return body.template operator()<64, 512>();
    } else {
        if (n_bytes <= 16384) return body.template operator()<32, 512>();
        if (n_bytes <= 20480) return body.template operator()<32, 640>();
        if (n_bytes <= 24576) return body.template operator()<32, 768>();
        if (n_bytes <= 32768) return body.template operator()<32, 1024>();
    }
    if (n_bytes <= 65536) return body.template operator()<64, 1024>();
    return body.template operator()<128, 1024>();
}

// As many vectors as those bytes are; narrow ones, each of which takes a register, no
// more than 16.
template <typename T, int VEC_SIZE, int BYTES>
constexpr int LONG_VECS = VEC_SIZE == 1 && BYTES > 16 * sizeof(T)
                              ? 16
                              : BYTES / (VEC_SIZE * sizeof(T));

// How many such blocks are to be on a multiprocessor, where some load while others store.
// Of 128 KB a second row would drive the first one out of the L1 cache.
constexpr int long_blocks_per_sm(int vec_size, int bytes, int num_threads) {
    return (vec_size > 1 && bytes <= 64 ? 2048 : 1024) / num_threads;
}

// The first LIMIT of n columns at most.
template <int LIMIT>
__device__ __forceinline__ int clip(int64_t n) {
    return n < LIMIT ? static_cast<int>(n) : LIMIT;
}

// Reads what a thread owns of a row in steps, or zeros past the end. The first time the
// caches are asked to keep it, for the last, after which they may forget it.
enum class Reading { FIRST, LAST };
template <Reading READING, int STEP, int COUNT, int SIZE, typename T>
__device__ __forceinline__ void load_row(
    Vec<T, SIZE> (&x)[COUNT], const T* ptr, int n_left
) {
    #pragma unroll
    for (int i = 0; i < COUNT; ++i) {
        if constexpr (sizeof(Vec<T, SIZE>) == VEC_BYTES) {
            uint4 words{};
            if (i * STEP < n_left) {
                const auto* const from = reinterpret_cast<const uint4*>(ptr + i * STEP);
                if constexpr (READING == Reading::FIRST) {
                    words = ptx::load_evict_last(from);
                } else {
                    words = __ldcs(from);
                }
            }
            x[i] = __builtin_bit_cast(Vec<T, SIZE>, words);
        } else {
            x[i] = load<SIZE>(ptr + i * STEP, i * STEP < n_left, T{});
        }
    }
}

// SIZE values of a weight from column col on, or `absent` where it is null.
template <int SIZE, typename T>
__device__ __forceinline__ Vec<T, SIZE> load_weight(
    const T* weight_ptr, int64_t col, bool is_valid, float absent
) {
    is_valid = is_valid && weight_ptr != nullptr;
    return load<SIZE>(weight_ptr + col, is_valid, from_float<T>(absent));
}

// ---- Rows of the backward -------------------------------------------------------------

// A block works on so many columns of one row at a time, or of several short ones. One of
// more threads works on a row of up to twice as many, if the next ones fit into the shared
// memory of any GPU; longer rows are shared by a cluster of 2, 4 or 8 such blocks, on GPUs
// that have clusters and as much shared memory as an H200.
constexpr int64_t BACKWARD_BLOCK_N = 4096;
constexpr int64_t BACKWARD_MOST_BLOCK_N = 8192;
template <typename T>
constexpr int64_t BACKWARD_MAX_COLS =
    sizeof(T) == 2 ? BACKWARD_MOST_BLOCK_N : BACKWARD_BLOCK_N;

// A thread holds 8 elements of each of two rows, or 16, besides those of the weight and a
// sum for each, in 128 registers.
template <typename T, int BLOCK_N, bool IN_CLUSTER>
constexpr int BACKWARD_NUM_THREADS = BLOCK_N > BACKWARD_BLOCK_N      ? BLOCK_N / 16
                                     : sizeof(T) == 4 && !IN_CLUSTER ? 512
                                                                     : 256;
template <int BLOCK_N>
constexpr int BACKWARD_PLACES =
    BLOCK_N > BACKWARD_BLOCK_N ? BLOCK_N : static_cast<int>(BACKWARD_BLOCK_N);
template <typename T, int BLOCK_N, bool IN_CLUSTER>
constexpr int BACKWARD_ELEMENTS_PER_THREAD =
    BACKWARD_PLACES<BLOCK_N> / BACKWARD_NUM_THREADS<T, BLOCK_N, IN_CLUSTER>;

// The rows that a block works on next are on their way to shared memory. A block of a
// cluster keeps its row there as well, and the next one, until the others have sent what
// they have of it.
template <typename T, bool IN_CLUSTER>
constexpr int BACKWARD_STAGES = !IN_CLUSTER      ? 2
                                : sizeof(T) == 2 ? 4
                                                 : 3;

// A longer row's gradient: a block owns so many columns and walks down the rows.
constexpr int LONG_NUM_THREADS = 1024;
constexpr int COLUMNS_NUM_THREADS = 128;
constexpr int COLUMNS_ELEMENTS_PER_THREAD = 8;
constexpr int COLUMNS_BLOCK_N = COLUMNS_NUM_THREADS * COLUMNS_ELEMENTS_PER_THREAD;

// How many blocks share a row: 1, or those of a cluster; 0 where it takes a larger one
// than there is.
template <typename T>
int backward_cluster_size(int64_t n_cols, int most_blocks) {
    if (n_cols <= BACKWARD_MAX_COLS<T>) return 1;
    int n_blocks = 2;
    while (n_blocks * BACKWARD_MOST_BLOCK_N < n_cols) n_blocks *= 2;
    return n_blocks <= most_blocks ? n_blocks : 0;
}

// How many of those groups share the rows, of n_partials at most: as many as an H200, whose
// multiprocessors do not divide into whole clusters, holds at once. Of the smallest blocks
// of a cluster a multiprocessor holds two.
inline int64_t count_groups(int64_t n_partials, int64_t n_cols, int n_blocks) {
    const bool are_small = n_cols <= n_blocks * BACKWARD_BLOCK_N;
    const int64_t at_once = n_blocks <= 1 || are_small ? n_partials
                            : n_blocks == 2            ? 66
                            : n_blocks == 4            ? 30
                                                       : 15;
    return n_partials < at_once ? n_partials : at_once;
}

// The columns that the threads of a row have places for.
template <typename T, typename Body>
auto dispatch_row_length_backward(int64_t n_cols, Body&& body) {
    if (n_cols <= 64) return body.template operator()<64>();
    if (n_cols <= 128) return body.template operator()<128>();
    if (n_cols <= 256) return body.template operator()<256>();
    if (n_cols <= 512) return body.template operator()<512>();
    if (n_cols <= 1024) return body.template operator()<1024>();
    if (n_cols <= 2048) return body.template operator()<2048>();
    if constexpr (BACKWARD_MAX_COLS<T> == 8192) {
        if (n_cols > 6144) return body.template operator()<8192>();
        if (n_cols > 5120) return body.template operator()<6144>();
        if (n_cols > 4096) return body.template operator()<5120>();
    }
    return body.template operator()<4096>();
}

// The same for a row that the blocks of a cluster share.
template <typename T, typename Body>
auto dispatch_row_length_in_cluster(int64_t n_cols, int n_blocks, Body&& body) {
    if constexpr (BACKWARD_MAX_COLS<T> == BACKWARD_BLOCK_N) {
        if (n_cols <= n_blocks * 4096) return body.template operator()<4096, true>();
    }
    if (n_cols <= n_blocks * 6144) return body.template operator()<6144, true>();
    return body.template operator()<8192, true>();
}

// The shared memory of a block: of the rows that are on their way what each thread will
// read; what the threads of a row tell each other, and, where a block has several rows,
// what is told once they are through.
template <typename T, int NUM_SUMS, int BLOCK_N, bool IN_CLUSTER>
struct BackwardShared {
    static constexpr int NUM_THREADS = BACKWARD_NUM_THREADS<T, BLOCK_N, IN_CLUSTER>;
    static constexpr int ELEMENTS =
        BACKWARD_ELEMENTS_PER_THREAD<T, BLOCK_N, IN_CLUSTER>;
    static constexpr int THREADS_PER_ROW = BLOCK_N / ELEMENTS;
    static constexpr int STAGES = BACKWARD_STAGES<T, IN_CLUSTER>;

    alignas(VEC_BYTES) T grad[STAGES][BACKWARD_PLACES<BLOCK_N>];
    alignas(VEC_BYTES) T x[STAGES][BACKWARD_PLACES<BLOCK_N>];
    RowSums<NUM_SUMS, NUM_THREADS, THREADS_PER_ROW, IN_CLUSTER> row_sums;
    float handed_in[THREADS_PER_ROW < NUM_THREADS ? NUM_SUMS * ELEMENTS : 1]
                   [NUM_THREADS];
};

// How many of a row's columns, neighbours, each of n_blocks owns: as many for each, but
// whole vectors of a warp.
template <int VEC_SIZE>
__device__ __forceinline__ int slice_size(int64_t n_cols, int n_blocks) {
    const int unit = n_blocks * WARP_SIZE * VEC_SIZE;
    return (static_cast<int>(n_cols) + unit - 1) / unit * (WARP_SIZE * VEC_SIZE);
}

// Starts to copy what a thread owns of a row to its places in shared memory, which are
// NUM_THREADS vectors apart, or zeros past the end. Of two bytes there is no asynchronous
// copy.
template <int NUM_THREADS, int STEP, int COUNT, int SIZE, typename T>
__device__ __forceinline__ void start_loading(
    Vec<T, SIZE>* shared, const T* ptr, int n_left
) {
    constexpr int BYTES = SIZE * sizeof(T);
    // What is waited for takes registers.
    [[maybe_unused]] constexpr int AT_ONCE = BYTES >= 4 ? COUNT : 2;
    #pragma unroll AT_ONCE
    for (int i = 0; i < COUNT; ++i) {
        const bool is_valid = i * STEP < n_left;
        if constexpr (BYTES >= 4) {
            ptx::cp_async<BYTES>(
                &shared[i * NUM_THREADS], ptr + i * STEP, is_valid ? BYTES : 0
            );
        } else {
            shared[i * NUM_THREADS] = load<SIZE>(ptr + i * STEP, is_valid, T{});
        }
    }
}

// Where the vector of this number begins. nvcc makes four stores of 4 bytes of one of 16
// where it counts elements and knows that they are a multiple of the vector's.
template <int SIZE, typename T>
__device__ __forceinline__ T* skip_vecs(T* ptr, int64_t number) {
    return (reinterpret_cast<Vec<T, SIZE>*>(ptr) + number)->values;
}

// ---- Gradients of weights -------------------------------------------------------------

// Writes a thread's sums for VEC_SIZE columns, where n_left columns are left in the row
// from its first one on; past the end that is none, or less. Of 8, which are two accesses
// of 16 bytes, neighbouring threads exchange halves, so that each access fills sectors of
// 32 bytes: all threads of a warp have to call it.
template <int VEC_SIZE>
__device__ __forceinline__ void store_sums(
    float* ptr, int64_t n_left, const Vec<float, VEC_SIZE>& sums
) {
    if constexpr (VEC_SIZE == 8) {
        const bool is_odd = threadIdx.x % 2 == 1;
        Vec<float, 4> first, second;
        #pragma unroll
        for (int j = 0; j < 4; ++j) {
            const float given = is_odd ? sums[j] : sums[j + 4];
            const float taken = __shfl_xor_sync(0xffffffff, given, 1);
            first[j] = is_odd ? taken : sums[j];
            second[j] = is_odd ? sums[j + 4] : taken;
        }
        if (is_odd) ptr -= 4, n_left += 4;
        if (n_left > 0) store(ptr, first);
        if (n_left > 8) store(ptr + 8, second);
    } else {
        if (n_left > 0) store(ptr, sums);
    }
}

constexpr int SUM_MOST_THREADS = 1024;

// The last launch of a backward: adds what the blocks have left, in a fixed order.
template <typename T>
__global__ void __launch_bounds__(SUM_MOST_THREADS) sum_partials_kernel(
    T* __restrict__ grad_weight_ptr,         // (n_cols)
    T* __restrict__ grad_bias_ptr,           // (n_cols), or null
    const float* __restrict__ partials_ptr,  // (1 or 2, n_partials, n_cols)
    int64_t n_partials,
    int64_t n_cols
) {
    // -- tile: a block owns blockDim.x columns of one of the gradients, a thread every
    // blockDim.y-th partial sum of one of them
    const int64_t col = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
    T* const out_ptr = blockIdx.y == 0 ? grad_weight_ptr : grad_bias_ptr;
    partials_ptr += blockIdx.y * n_partials * n_cols + col;

    // -- accumulate
    float sum = 0.0f;
    if (col < n_cols) {
        for (int64_t i = threadIdx.y; i < n_partials; i += blockDim.y) {
            sum += partials_ptr[i * n_cols];
        }
    }

    // -- reduce: the sums of a column
    sum = column_reduce<SUM_MOST_THREADS>(Vec<float, 1>{sum}, Sum{})[0];

    // -- store: rounded once
    if (threadIdx.y == 0 && col < n_cols) out_ptr[col] = from_float<T>(sum);
}

// As many threads for a column as there are partial sums, but few enough that those of
// 32 columns, which a warp reads as one line of 128 bytes, make a block.
template <typename T>
cudaError_t launch_sum_partials(
    const Launcher& launch,
    void* grad_weight,
    void* grad_bias,  // or null
    const void* partials,
    int64_t n_partials,
    int64_t n_cols
) {
    int block_m = 1;
    while (block_m < n_partials && block_m < 32) block_m *= 2;
    const int block_n = block_m < 8 ? 256 / block_m : 32;
    return launch(
        Plan{
            sum_partials_kernel<T>,
            dim3(ceil_div(n_cols, block_n), grad_bias ? 2 : 1),
            dim3(block_n, block_m)
        },
        static_cast<T*>(grad_weight),
        static_cast<T*>(grad_bias),
        static_cast<const float*>(partials),
        n_partials,
        n_cols
    );
}
