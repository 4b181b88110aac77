// What the matrix products have in common: 128 threads for 64 x 64 elements of the
// result, in steps of 32 along k.
#pragma once

#include <cuda_fp16.h>
#include <cuda_pipeline.h>
#include <mma.h>

constexpr int N = 128, K = 256;  // columns of b, and of a
constexpr int STAGES = 3;

// Rows are padded, so that neighbouring ones begin in different banks.
struct Tiles {
    half a[64][40];
    half b[32][72];
};

// Calls copy(to, from) for the 16-byte pieces of the k-th tiles that this thread moves.
template <typename Copy>
__device__ __forceinline__ void for_each_piece(
    Tiles& tiles, const half* a_ptr, const half* b_ptr, int k, Copy copy
) {
    #pragma unroll
    for (int i = 0; i < 2; ++i) {
        const int piece = i * 128 + threadIdx.x;
        const int a_row = piece / 4, a_col = piece % 4 * 8;
        const int b_row = piece / 8, b_col = piece % 8 * 8;
        copy(
            &tiles.a[a_row][a_col],
            a_ptr + (blockIdx.y * 64 + a_row) * K + k * 32 + a_col
        );
        copy(
            &tiles.b[b_row][b_col],
            b_ptr + (k * 32 + b_row) * N + blockIdx.x * 64 + b_col
        );
    }
}

__device__ __forceinline__ void copy_tiles(
    Tiles& tiles, const half* a_ptr, const half* b_ptr, int k
) {
    if (k < K / 32) {
        for_each_piece(tiles, a_ptr, b_ptr, k, [](half* to, const half* from) {
            __pipeline_memcpy_async(to, from, 16);
        });
    }
    __pipeline_commit();
}

// 32 x 32 elements of the result, by one warp on tensor cores.
struct Accumulator {
    nvcuda::wmma::fragment<nvcuda::wmma::accumulator, 16, 16, 16, float> parts[2][2];
    const int row = threadIdx.x / 64 * 32, col = threadIdx.x / 32 % 2 * 32;

    __device__ Accumulator() {
        #pragma unroll
        for (int i = 0; i < 4; ++i) nvcuda::wmma::fill_fragment(parts[i / 2][i % 2], 0);
    }

    __device__ void add_product(const Tiles& tiles) {
        using namespace nvcuda::wmma;
        #pragma unroll
        for (int k = 0; k < 32; k += 16) {
            fragment<matrix_a, 16, 16, 16, half, row_major> a[2];
            fragment<matrix_b, 16, 16, 16, half, row_major> b[2];
            #pragma unroll
            for (int i = 0; i < 2; ++i) {
                load_matrix_sync(a[i], &tiles.a[row + 16 * i][k], 40);
                load_matrix_sync(b[i], &tiles.b[k][col + 16 * i], 72);
            }
            #pragma unroll
            for (int i = 0; i < 4; ++i) {
                mma_sync(parts[i / 2][i % 2], a[i / 2], b[i % 2], parts[i / 2][i % 2]);
            }
        }
    }

    __device__ void store(float* out_ptr) {
        #pragma unroll
        for (int i = 0; i < 4; ++i) {
            const int out_row = blockIdx.y * 64 + row + i / 2 * 16;
            const int out_col = blockIdx.x * 64 + col + i % 2 * 16;
            nvcuda::wmma::store_matrix_sync(
                out_ptr + out_row * N + out_col, parts[i / 2][i % 2], N,
                nvcuda::wmma::mem_row_major
            );
        }
    }
};
