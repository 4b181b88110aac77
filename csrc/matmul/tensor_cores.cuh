// The third rung: tensor cores multiply, and copies bypass the registers.
//
// A warp computes 64 x 32 elements of the result by mma.sync of 16 x 8, whose operands
// ldmatrix brings into the layout that the instruction asks for. cp.async copies into a ring
// of STAGES tiles in shared memory, so that two tiles are under way while one is multiplied.
#pragma once

#include "common/epilogue.cuh"
#include "matmul/operand.cuh"

// Operands of float32 are rounded to tf32.
template <typename T, bool A_K_CONTIGUOUS, bool B_K_CONTIGUOUS, Activation ACTIVATION>
__global__ void __launch_bounds__(tensor_cores::NUM_THREADS) matmul_tensor_cores_kernel(
    T* __restrict__ out_ptr,         // (n_batches, M, N)
    const T* __restrict__ a_ptr,     // (n_batches, M, K)
    const T* __restrict__ b_ptr,     // (n_batches, K, N)
    const T* __restrict__ bias_ptr,  // (N), or null
    int64_t M, int64_t N, int64_t K, int64_t a_stride_batch, int64_t a_stride_row,
    int64_t a_stride_col, int64_t b_stride_batch, int64_t b_stride_row,
    int64_t b_stride_col
) {
    using namespace tensor_cores;
    using A = Operand<T, A_K_CONTIGUOUS>;
    using B = Operand<T, B_K_CONTIGUOUS>;
    constexpr int BLOCK_K = A::BLOCK_K;
    DYNAMIC_SHARED(shared, 1024);

    // -- tile: a block owns BLOCK_M x BLOCK_N elements, a warp WARP_M x WARP_N of them
    const int64_t n_tiles_m = (M + BLOCK_M - 1) / BLOCK_M;
    const int64_t n_tiles_n = (N + BLOCK_N - 1) / BLOCK_N;
    const int batch = blockIdx.x / (n_tiles_m * n_tiles_n);
    const int tile = blockIdx.x % (n_tiles_m * n_tiles_n);
    const int64_t tile_row = tile / n_tiles_n * BLOCK_M;
    const int64_t tile_col = tile % n_tiles_n * BLOCK_N;
    const int warp = threadIdx.x / WARP_SIZE, lane = threadIdx.x % WARP_SIZE;
    const int warp_row = warp / (BLOCK_N / WARP_N) * WARP_M;
    const int warp_col = warp % (BLOCK_N / WARP_N) * WARP_N;

    // -- compute: two tiles are under way while one is multiplied; past the last tile groups
    // of copies are empty, so that the waits stay the same
    A a(a_ptr + batch * a_stride_batch + tile_row * a_stride_row,
        A_K_CONTIGUOUS ? a_stride_row : a_stride_col, M - tile_row);
    B b(b_ptr + batch * b_stride_batch + tile_col * b_stride_col,
        B_K_CONTIGUOUS ? b_stride_col : b_stride_row, N - tile_col);
    const auto copy_tiles = [&](int stage, int64_t n_k) {
        if (n_k > 0) {
            a.copy_to(shared + stage * 2 * TILE_BYTES, n_k);
            b.copy_to(shared + stage * 2 * TILE_BYTES + TILE_BYTES, n_k);
        }
        ptx::cp_async_commit_group();
    };
    #pragma unroll
    for (int stage = 0; stage < STAGES - 1; ++stage) {
        copy_tiles(stage, K - stage * BLOCK_K);
    }

    float accumulators[WARP_M / 16][WARP_N / 8][4] = {};
    int stage = 0;
    for (int64_t n_k = K; n_k > 0; n_k -= BLOCK_K) {
        // Past the barrier all copies into this stage are visible to all threads, and no
        // thread still reads the stage before it, which is copied to next.
        ptx::cp_async_wait_group<STAGES - 2>();
        __syncthreads();
        copy_tiles(stage == 0 ? STAGES - 1 : stage - 1, n_k - (STAGES - 1) * BLOCK_K);
        const unsigned char* a_tile = shared + stage * 2 * TILE_BYTES;
        const unsigned char* b_tile = a_tile + TILE_BYTES;
        #pragma unroll
        for (int step = 0; step < BLOCK_K_BYTES / MMA_K_BYTES; ++step) {
            uint32_t b_fragments[WARP_N / 16][4];
            for (int j = 0; j < WARP_N / 16; ++j) {
                B::load_fragment(b_fragments[j], b_tile, warp_col + j * 16, step);
            }
            #pragma unroll
            for (int i = 0; i < WARP_M / 16; ++i) {
                uint32_t a_fragment[4];
                A::load_fragment(a_fragment, a_tile, warp_row + i * 16, step);
                #pragma unroll
                for (int j = 0; j < WARP_N / 8; ++j) {
                    float (&sums)[4] = accumulators[i][j];
                    const uint32_t (&two)[4] = b_fragments[j / 2];
                    const uint32_t b_fragment[2] = {two[j % 2], two[2 + j % 2]};
                    if constexpr (sizeof(T) == 4) {
                        ptx::mma_m16n8k8_tf32(sums, a_fragment, b_fragment, sums);
                    } else {
                        ptx::mma_m16n8k16<T>(sums, a_fragment, b_fragment, sums);
                    }
                }
            }
        }
        stage = stage == STAGES - 1 ? 0 : stage + 1;
    }

    // -- store: after the epilogue, rounded once, by way of shared memory, in vectors
    constexpr int CHUNK = A::CHUNK, ROW_CHUNKS = BLOCK_N / CHUNK;
    __syncthreads();
    #pragma unroll
    for (int j = 0; j < WARP_N / 8; ++j) {
        const int col = warp_col + j * 8 + lane % 4 * 2;
        const int64_t bias_col = tile_col + col;
        float bias[2] = {0.0f, 0.0f};
        for (int c = 0; c < 2; ++c) {
            if (!bias_ptr || bias_col + c >= N) continue;
            bias[c] = argument_scale<T>(ACTIVATION) * to_float(bias_ptr[bias_col + c]);
        }
        #pragma unroll
        for (int i = 0; i < WARP_M / 16 * 2; ++i) {
            const int row = warp_row + i * 8 + lane / 4;
            const float* sums = accumulators[i / 2][j] + i % 2 * 2;
            Vec<float, 2> out;
            for (int c = 0; c < 2; ++c) {
                out[c] = epilogue<ACTIVATION, T>(sums[c], bias[c]);
            }
            unsigned char* chunk =
                shared + chunk_offset<ROW_CHUNKS, sizeof(T) == 4>(row, col / CHUNK);
            store(reinterpret_cast<T*>(chunk) + col % CHUNK, from_float<T>(out));
        }
    }
    __syncthreads();
    const bool is_aligned =
        reinterpret_cast<uintptr_t>(out_ptr) % CHUNK_BYTES == 0 && N % CHUNK == 0;
    #pragma unroll
    for (int i = 0; i < BLOCK_M * ROW_CHUNKS / NUM_THREADS; ++i) {
        const int index = i * NUM_THREADS + threadIdx.x;
        const int row = index / ROW_CHUNKS, chunk = index % ROW_CHUNKS;
        const int64_t col = tile_col + chunk * CHUNK;
        if (tile_row + row >= M) continue;
        const auto* from = reinterpret_cast<const Vec<T, CHUNK>*>(
            shared + chunk_offset<ROW_CHUNKS, sizeof(T) == 4>(row, chunk)
        );
        store(
            out_ptr + (batch * M + tile_row + row) * N + col, *from, N - col, is_aligned
        );
    }
}
