// What layer_norm.cu and rms_norm.cu share: how rows are cut up, and how gradients of
// weights are summed over them.
#pragma once

#include "common/launch.cuh"
#include "common/ptx.cuh"
#include "common/reduce.cuh"
#include "common/rows.cuh"
#include "common/vec.cuh"

// ---- Rows -----------------------------------------------------------------------------

constexpr int64_t MAX_COLS = 32768;          // of a row that fits into registers
constexpr int64_t MAX_COLS_BACKWARD = 8192;  // of two, and of sums for each column

constexpr int LONG_NUM_THREADS = 1024;
constexpr int LONG_VECS_PER_THREAD = 2;  // loads in flight for every thread

// In the backward a thread holds 8 elements of each row: with the sums, that is what 64
// registers take. Those of the next row are on their way to shared memory meanwhile.
constexpr int BACKWARD_ELEMENTS_PER_THREAD = 8;

// A long row's gradient: a block owns so many columns and walks down the rows.
constexpr int COLUMNS_NUM_THREADS = 128;
constexpr int COLUMNS_BLOCK_N = COLUMNS_NUM_THREADS * BACKWARD_ELEMENTS_PER_THREAD;

// The number of elements that a thread holds, and of threads that share a row, by the
// longest row that fits: short rows take few threads, so that a block holds several.
template <typename Body>
auto dispatch_row_length(int64_t n_cols, Body&& body) {
    if (n_cols <= 64) return body.template operator()<8, 8>();
    if (n_cols <= 256) return body.template operator()<8, 32>();
    if (n_cols <= 512) return body.template operator()<16, 32>();
    if (n_cols <= 1024) return body.template operator()<32, 32>();
    if (n_cols <= 2048) return body.template operator()<16, 128>();
    if (n_cols <= 4096) return body.template operator()<32, 128>();
    if (n_cols <= 8192) return body.template operator()<32, 256>();
    if (n_cols <= 16384) return body.template operator()<32, 512>();
    return body.template operator()<32, 1024>();
}

// The same for the backward.
template <typename Body>
auto dispatch_row_length_backward(int64_t n_cols, Body&& body) {
    if (n_cols <= 64) return body.template operator()<8>();
    if (n_cols <= 256) return body.template operator()<32>();
    if (n_cols <= 1024) return body.template operator()<128>();
    if (n_cols <= 2048) return body.template operator()<256>();
    if (n_cols <= 4096) return body.template operator()<512>();
    return body.template operator()<1024>();
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

// SIZE values of a weight from column col on, or `absent` where it is null.
template <int SIZE, typename T>
__device__ __forceinline__ Vec<float, SIZE> load_weight(
    const T* weight_ptr, int64_t col, bool is_valid, float absent
) {
    if (weight_ptr == nullptr) return splat<SIZE>(absent);
    return to_float(load<SIZE>(weight_ptr + col, is_valid, T{}));
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
