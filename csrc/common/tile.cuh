// A thread's part of its block's tile, and what can be done to all of it at once, so that
// kernels read as Triton's do.
#pragma once

#include "common/vec.cuh"

// COUNT vectors of SIZE neighbouring elements each.
template <typename T, int SIZE, int COUNT>
struct Tile {
    Vec<T, SIZE> vecs[COUNT];

    __device__ Vec<T, SIZE>& operator[](int i) { return vecs[i]; }
    __device__ const Vec<T, SIZE>& operator[](int i) const { return vecs[i]; }

    // Arithmetic on float, element by element, as Triton writes it.
    friend __device__ __forceinline__ Tile operator+(const Tile& x, const Tile& y) {
        return map([](float x, float y) { return x + y; }, x, y);
    }
    friend __device__ __forceinline__ Tile operator-(const Tile& x, const Tile& y) {
        return map([](float x, float y) { return x - y; }, x, y);
    }
    friend __device__ __forceinline__ Tile operator*(const Tile& x, const Tile& y) {
        return map([](float x, float y) { return x * y; }, x, y);
    }
    friend __device__ __forceinline__ Tile operator-(const Tile& x, float y) {
        return map([&](float x) { return x - y; }, x);
    }
    friend __device__ __forceinline__ Tile operator*(const Tile& x, float y) {
        return map([&](float x) { return x * y; }, x);
    }
};

// Loads the vectors at ptr and every STEP columns from there, where n_left columns are left
// in the row; those past its end become `fill`. Single elements may be `stride` apart.
template <int SIZE, int COUNT, int STEP, typename T, typename Index>
__device__ __forceinline__ Tile<T, SIZE, COUNT> load_row(
    const T* ptr, Index n_left, float fill = 0.0f, int64_t stride = 1
) {
    Tile<T, SIZE, COUNT> tile;
    #pragma unroll
    for (int i = 0; i < COUNT; ++i) {
        const bool is_valid = i * STEP < n_left;
        tile[i] = load<SIZE>(ptr + i * STEP * stride, is_valid, from_float<T>(fill));
    }
    return tile;
}

// Writes such a part, rounded once; past the row's end nothing is written.
template <int STEP, typename T, typename Index, int SIZE, int COUNT>
__device__ __forceinline__ void store_row(
    T* ptr, Index n_left, const Tile<float, SIZE, COUNT>& tile
) {
    #pragma unroll
    for (int i = 0; i < COUNT; ++i) {
        if (i * STEP < n_left) store(ptr + i * STEP, from_float<T>(tile[i]));
    }
}

template <typename T, int SIZE, int COUNT>
__device__ __forceinline__ Tile<float, SIZE, COUNT> to_float(
    const Tile<T, SIZE, COUNT>& tile
) {
    Tile<float, SIZE, COUNT> result;
    #pragma unroll
    for (int i = 0; i < COUNT; ++i) result[i] = to_float(tile[i]);
    return result;
}

// Applies f to every element, or to the elements at the same place of several tiles.
template <typename F, int SIZE, int COUNT, typename... Tiles>
__device__ __forceinline__ Tile<float, SIZE, COUNT> map(
    F f, const Tile<float, SIZE, COUNT>& tile, const Tiles&... tiles
) {
    Tile<float, SIZE, COUNT> result;
    #pragma unroll
    for (int i = 0; i < COUNT; ++i) {
        #pragma unroll
        for (int j = 0; j < SIZE; ++j) result[i][j] = f(tile[i][j], tiles[i][j]...);
    }
    return result;
}

// Applies f to the elements of the row; those past its end stay as they are.
template <int STEP, typename F, typename Index, int SIZE, int COUNT>
__device__ __forceinline__ Tile<float, SIZE, COUNT> map_row(
    F f, Index n_left, Tile<float, SIZE, COUNT> tile
) {
    #pragma unroll
    for (int i = 0; i < COUNT; ++i) {
        #pragma unroll
        for (int j = 0; j < SIZE; ++j) {
            if (i * STEP < n_left) tile[i][j] = f(tile[i][j]);
        }
    }
    return tile;
}

// Applies f to every element and its column, counted from the thread's first one.
template <int STEP, typename F, int SIZE, int COUNT>
__device__ __forceinline__ Tile<float, SIZE, COUNT> map_columns(
    F f, const Tile<float, SIZE, COUNT>& tile
) {
    Tile<float, SIZE, COUNT> result;
    #pragma unroll
    for (int i = 0; i < COUNT; ++i) {
        #pragma unroll
        for (int j = 0; j < SIZE; ++j) result[i][j] = f(tile[i][j], i * STEP + j);
    }
    return result;
}

// Reduces all elements, in their order, beginning with `result`.
template <typename Op, int SIZE, int COUNT>
__device__ __forceinline__ float reduce(
    const Tile<float, SIZE, COUNT>& tile, Op op, float result = Op::IDENTITY
) {
    #pragma unroll
    for (int i = 0; i < COUNT; ++i) {
        #pragma unroll
        for (int j = 0; j < SIZE; ++j) result = op(result, tile[i][j]);
    }
    return result;
}

// Reduces the vectors to one, element by element: in pairs, and pairs of those, which is the
// shortest chain of operations. COUNT is a power of two.
template <typename Op, int SIZE, int COUNT>
__device__ __forceinline__ Vec<float, SIZE> reduce_vectors(
    const Tile<float, SIZE, COUNT>& tile, Op op
) {
    if constexpr (COUNT == 1) {
        return tile[0];
    } else {
        Tile<float, SIZE, COUNT / 2> pairs;
        #pragma unroll
        for (int i = 0; i < COUNT / 2; ++i) {
            #pragma unroll
            for (int j = 0; j < SIZE; ++j) {
                pairs[i][j] = op(tile[i][j], tile[i + COUNT / 2][j]);
            }
        }
        return reduce_vectors(pairs, op);
    }
}
