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

// A thread owns COUNT vectors, in runs of VECS_PER_RUN; neighbours own neighbouring runs.
template <int VEC_SIZE, bool STRIDED, int COUNT, int VECS_PER_RUN>
struct ElementTile {
    int64_t n_elements;
    int64_t n_cols;
    int64_t block_start = int64_t{blockIdx.x} * NUM_THREADS * COUNT * VEC_SIZE;
    int64_t rows[COUNT] = {};  // of the vectors, if STRIDED

    // Where vector i begins.
    __device__ int64_t operator[](int i) const {
        constexpr int RUN_SIZE = VECS_PER_RUN * VEC_SIZE;
        const int run = i / VECS_PER_RUN * NUM_THREADS + threadIdx.x;
        return block_start + run * RUN_SIZE + i % VECS_PER_RUN * VEC_SIZE;
    }
};

template <
    int VEC_SIZE, bool STRIDED, int PER_THREAD = ELEMENTS_PER_THREAD,
    int RUN_SIZE = VEC_SIZE>
__device__ __forceinline__ auto own_tile(int64_t n_elements, int64_t n_cols) {
    constexpr int COUNT = PER_THREAD / VEC_SIZE;
    ElementTile<VEC_SIZE, STRIDED, COUNT, RUN_SIZE / VEC_SIZE> tile{n_elements, n_cols};
    if constexpr (STRIDED) {
        // One division of 64 bits finds the first vector's row; from there on a thread steps
        // from vector to vector, over whole rows and perhaps one end more.
        tile.rows[0] = tile[0] / n_cols;
        int64_t col = tile[0] - tile.rows[0] * n_cols;
        #pragma unroll
        for (int i = 1; i < COUNT; ++i) {
            const int step = tile[i] - tile[i - 1];
            const int n_rows = step < n_cols ? 0 : step / static_cast<int>(n_cols);
            col += step - n_rows * n_cols;
            tile.rows[i] = tile.rows[i - 1] + n_rows + (col >= n_cols);
            if (col >= n_cols) col -= n_cols;
        }
    }
    return tile;
}

// A thread's elements of a tensor, and zeros past the end.
template <typename T, int VEC_SIZE, bool STRIDED, int COUNT, int VECS_PER_RUN>
__device__ __forceinline__ Tile<T, VEC_SIZE, COUNT> load_elements(
    const T* ptr, const ElementTile<VEC_SIZE, STRIDED, COUNT, VECS_PER_RUN>& tile,
    int64_t stride_row, int64_t stride_col
) {
    Tile<T, VEC_SIZE, COUNT> x;
    #pragma unroll
    for (int i = 0; i < COUNT; ++i) {
        x[i] = load_vec<VEC_SIZE, STRIDED>(
            ptr, tile[i], tile.rows[i], tile.n_elements, tile.n_cols, stride_row,
            stride_col
        );
    }
    return x;
}

// Writes a thread's elements, rounded once; past the end nothing is written. With STRIDED
// rows are stride_row apart, and have no gaps between columns.
template <bool STRIDED = false, typename T, typename Own, int VEC_SIZE, int COUNT>
__device__ __forceinline__ void store_elements(
    T* ptr, const Own& tile, const Tile<float, VEC_SIZE, COUNT>& x,
    int64_t stride_row = 0
) {
    #pragma unroll
    for (int i = 0; i < COUNT; ++i) {
        store_vec<STRIDED>(
            ptr, from_float<T>(x[i]), tile[i], tile.rows[i], tile.n_elements,
            tile.n_cols, stride_row
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
    DType dtype, int64_t n_elements, int64_t n_cols,
    std::initializer_list<Matrix> tensors, Body&& body
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

// The plan of an elementwise op's rung.
template <typename... Params>
Plan<Params...> plan_elements(
    int rung, void (*first)(Params...), void (*twin)(Params...), int64_t n_elements,
    int per_thread = ELEMENTS_PER_THREAD
) {
    if (Rung{rung} == Rung::first) {
        return plan_first(first, ceil_div(n_elements, FIRST_NUM_THREADS));
    }
    const int64_t n_blocks = ceil_div(n_elements, NUM_THREADS * per_thread);
    return {twin, dim3(n_blocks), dim3(NUM_THREADS)};
}
