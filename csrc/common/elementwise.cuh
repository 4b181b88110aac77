// Elementwise kernels: which elements a block owns, how its threads read and write them,
// and what a call is launched as.
//
// Tensors are matrices of n_elements / n_cols rows and n_cols columns with any two strides,
// whose elements are counted row by row.
#pragma once

#include "common/launch.cuh"
#include "common/tile.cuh"

// Small blocks with little in each thread: on an H200, 16 elements of bfloat16 in a thread
// cost a tenth of the bandwidth, and 256 threads in a block up to 2 %.
constexpr int NUM_THREADS = 128;
constexpr int ELEMENTS_PER_THREAD = 8;
constexpr int BLOCK_SIZE = NUM_THREADS * ELEMENTS_PER_THREAD;

// Where vector i of a thread begins. Neighbouring threads own neighbouring vectors, or runs
// of vectors where a run is longer.
template <int VEC_SIZE, int RUN_SIZE>
__device__ __forceinline__ int64_t element_of(int64_t block_start, int i) {
    constexpr int VECS = RUN_SIZE <= VEC_SIZE ? 1 : RUN_SIZE / VEC_SIZE;
    const int run = i / VECS * NUM_THREADS + threadIdx.x;
    return block_start + run * VECS * VEC_SIZE + i % VECS * VEC_SIZE;
}

// A thread's share of a block's elements, in float32, and zeros past the end. Vectors need
// every row to hold whole ones.
template <
    int VEC_SIZE,
    bool STRIDED,
    int COUNT = ELEMENTS_PER_THREAD / VEC_SIZE,
    int RUN_SIZE = VEC_SIZE,
    typename T>
__device__ __forceinline__ Tile<float, VEC_SIZE, COUNT> load_elements(
    const T* ptr,
    int64_t block_start,
    int64_t n_elements,
    int64_t n_cols,
    int64_t stride_row,
    int64_t stride_col
) {
    Tile<T, VEC_SIZE, COUNT> tile;
    #pragma unroll
    for (int i = 0; i < COUNT; ++i) {
        const int64_t element = element_of<VEC_SIZE, RUN_SIZE>(block_start, i);
        tile[i] = load_vec<VEC_SIZE, STRIDED>(
            ptr, element, n_elements, n_cols, stride_row, stride_col
        );
    }
    return to_float(tile);
}

// Writes such a share, rounded once; past the end nothing is written.
template <bool STRIDED = false, int RUN_SIZE = 1, typename T, int VEC_SIZE, int COUNT>
__device__ __forceinline__ void store_elements(
    T* ptr,
    const Tile<float, VEC_SIZE, COUNT>& tile,
    int64_t block_start,
    int64_t n_elements,
    int64_t n_cols = 0,
    int64_t stride_row = 0
) {
    #pragma unroll
    for (int i = 0; i < COUNT; ++i) {
        const int64_t element = element_of<VEC_SIZE, RUN_SIZE>(block_start, i);
        store_vec<STRIDED>(
            ptr, from_float<T>(tile[i]), element, n_elements, n_cols, stride_row
        );
    }
}

// A tensor as such a matrix.
struct Matrix {
    const void* ptr;
    int64_t stride_row = 0;
    int64_t stride_col = 1;
};

// Calls `body.template operator()<T, VEC_SIZE, STRIDED>()` with the T of `dtype` and returns
// its result. Vectors of 16 bytes where every pointer and row allows them, else one element
// at a time; STRIDED where a tensor's elements are not all neighbours.
template <typename Body>
cudaError_t dispatch_elements(
    DType dtype,
    int64_t n_elements,
    int64_t n_cols,
    std::initializer_list<Matrix> tensors,
    Body&& body
) {
    return dispatch_float<cudaError_t>(dtype, [&]<typename T>() {
        constexpr int VEC_SIZE = VEC_BYTES / sizeof(T);
        bool strided = n_cols != n_elements, vectors = true;
        for (const auto& [ptr, stride_row, stride_col] : tensors) {
            strided = strided || stride_col != 1;
            vectors = vectors && has_vectors<T>(ptr, stride_row, stride_col);
        }
        vectors = vectors && (!strided || n_cols % VEC_SIZE == 0);
        return vectors && strided ? body.template operator()<T, VEC_SIZE, true>()
               : vectors          ? body.template operator()<T, VEC_SIZE, false>()
               : strided          ? body.template operator()<T, 1, true>()
                                  : body.template operator()<T, 1, false>();
    });
}

// What runs the rung of an elementwise op.
template <typename... Params>
Plan<Params...> plan_elements(
    int rung,
    void (*first)(Params...),
    void (*twin)(Params...),
    int64_t n_elements,
    int block_size = BLOCK_SIZE
) {
    if (Rung{rung} == Rung::first) {
        return plan_first(first, ceil_div(n_elements, FIRST_NUM_THREADS));
    }
    return {twin, dim3(ceil_div(n_elements, block_size)), dim3(NUM_THREADS)};
}
