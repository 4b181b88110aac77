// Dropout: each element becomes 0 with probability p, the others are scaled up.
//
//   out[i] = word[i] >= threshold ? x[i] * scale : 0
//   threshold = round(p * 2^32), scale = 1 / (1 - p)
//   word[i]: word i % 4 of the Philox4x32-10 block with counter i / 4 and key seed
//
// Layout   out: contiguous; i counts its elements. x: read as (n_elements / n_cols,
//          n_cols) with any two strides.
// Traffic  reads and writes every element once: the ceiling is the bandwidth of a copy.
//          No mask is stored: the backward is the same kernel, with the same seed, over
//          the gradient, and makes the same words again.
// Limits   multiplies in float32, so float16 and bfloat16 are rounded once. p counts in
//          steps of 2^-32.
// Mirror   triton_kernels/dropout/dropout.py
// Source   Salmon et al. 2011, "Parallel random numbers: as easy as 1, 2, 3"

#include "common/launch.cuh"
#include "common/philox.cuh"
#include "common/vec.cuh"

namespace {
// Two 16-byte accesses of each thread to a tensor. Of the 20 instructions of an element
// of bfloat16, 10 are Philox's rounds: an H200 has time for 28 while it reads and writes
// 4 bytes.
constexpr int NUM_THREADS = 128;
constexpr int BLOCK_BYTES = 4096;
}  // namespace

template <typename T, int VEC_SIZE, bool STRIDED>
__global__ void __launch_bounds__(NUM_THREADS) dropout_kernel(
    T* __restrict__ out_ptr,      // (n_elements)
    const T* __restrict__ x_ptr,  // (n_elements / n_cols, n_cols)
    int64_t n_elements,
    int64_t n_cols,
    int64_t x_stride_row,
    int64_t x_stride_col,
    const int64_t* __restrict__ seed_ptr,  // (1), or null
    int64_t seed,
    int64_t threshold,
    float scale
) {
    // Four neighbours share a block of random words, so a thread owns runs of four or
    // more, even where it has to read them one by one.
    constexpr int RUN_SIZE = VEC_SIZE < 4 ? 4 : VEC_SIZE;
    constexpr int VECS_PER_RUN = RUN_SIZE / VEC_SIZE;
    constexpr int BLOCK_SIZE = BLOCK_BYTES / sizeof(T);
    constexpr int RUNS_PER_THREAD = BLOCK_SIZE / (NUM_THREADS * RUN_SIZE);

    // -- tile: a block owns BLOCK_SIZE neighbouring elements
    const int64_t block_start = int64_t{blockIdx.x} * BLOCK_SIZE;

    // -- load: neighbouring threads read neighbouring runs; and the seed, if it is not a
    // number but in memory, where each replay of a CUDA graph finds it anew
    if (seed_ptr) seed = *seed_ptr;
    Vec<T, VEC_SIZE> x[RUNS_PER_THREAD][VECS_PER_RUN];
    #pragma unroll
    for (int i = 0; i < RUNS_PER_THREAD; ++i) {
        const int64_t run = block_start + (i * NUM_THREADS + threadIdx.x) * RUN_SIZE;
        #pragma unroll
        for (int j = 0; j < VECS_PER_RUN; ++j) {
            x[i][j] = load_vec<VEC_SIZE, STRIDED>(
                x_ptr,
                run + j * VEC_SIZE,
                n_elements,
                n_cols,
                x_stride_row,
                x_stride_col
            );
        }
    }

    // -- mask: in float32, rounded once; no word reaches the threshold of p = 1, 2^32
    const bool keeps_some = threshold <= UINT32_MAX;
    #pragma unroll
    for (int i = 0; i < RUNS_PER_THREAD; ++i) {
        const int64_t run = block_start + (i * NUM_THREADS + threadIdx.x) * RUN_SIZE;
        const Vec<uint32_t, RUN_SIZE> words = random_words<RUN_SIZE>(run, seed);
        #pragma unroll
        for (int j = 0; j < VECS_PER_RUN; ++j) {
            Vec<float, VEC_SIZE> y = to_float(x[i][j]);
            #pragma unroll
            for (int k = 0; k < VEC_SIZE; ++k) {
                const uint32_t word = words[j * VEC_SIZE + k];
                const bool keep =
                    keeps_some && word >= static_cast<uint32_t>(threshold);
                y[k] = keep ? y[k] * scale : 0.0f;
            }
            x[i][j] = from_float<T>(y);
        }
    }

    // -- store: past the end nothing is written
    #pragma unroll
    for (int i = 0; i < RUNS_PER_THREAD; ++i) {
        const int64_t run = block_start + (i * NUM_THREADS + threadIdx.x) * RUN_SIZE;
        #pragma unroll
        for (int j = 0; j < VECS_PER_RUN; ++j) {
            const int64_t element = run + j * VEC_SIZE;
            store(out_ptr + element, x[i][j], n_elements - element);
        }
    }
}

// Vectors of 16 bytes where both pointers and every row allow them, else one element at
// a time.
cudaError_t dropout(
    const Launcher& launch,
    DType dtype,
    void* out,
    const void* x,
    int64_t n_elements,
    int64_t n_cols,
    int64_t x_stride_row,
    int64_t x_stride_col,
    const void* seed_ptr,
    int64_t seed,
    int64_t threshold,
    float scale,
    [[maybe_unused]] int rung
) {
    return dispatch_float<cudaError_t>(dtype, [&]<typename T>() {
        constexpr int VEC_SIZE = VEC_BYTES / sizeof(T);
        const bool strided = n_cols != n_elements || x_stride_col != 1;
        const bool vectors = has_vectors<T>(out, 0, 1) &&
                             has_vectors<T>(x, x_stride_row, x_stride_col) &&
                             (!strided || n_cols % VEC_SIZE == 0);
        const auto kernel = vectors && strided ? dropout_kernel<T, VEC_SIZE, true>
                            : vectors          ? dropout_kernel<T, VEC_SIZE, false>
                            : strided          ? dropout_kernel<T, 1, true>
                                               : dropout_kernel<T, 1, false>;
        const int64_t n_blocks = ceil_div(n_elements, BLOCK_BYTES / sizeof(T));
        return launch(
            Plan{kernel, dim3(n_blocks), dim3(NUM_THREADS)},
            static_cast<T*>(out),
            static_cast<const T*>(x),
            n_elements,
            n_cols,
            x_stride_row,
            x_stride_col,
            static_cast<const int64_t*>(seed_ptr),
            seed,
            threshold,
            scale
        );
    });
}
