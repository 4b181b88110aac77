// The second rung: a block copies tiles of a and b into shared memory, and a thread
// computes 8 x 16 elements of the result from registers; 8 x 8 where there are few tiles.
//
// An element loaded from global memory serves 128 multiplications and more, one loaded from
// shared memory 8 or 16. This is the kernel for float32 as IEEE 754 has it, which no tensor
// core computes. 89 of 100 instructions multiply, and the others must not keep them waiting:
// - Tiles are on their way to registers, and operands from shared memory to registers, while
//   the threads compute what came before. Shared memory has two tiles of each matrix, so that
//   one barrier a step is enough.
// - The loop over the tiles is one piece of code of 19 KB, without what is rarely done: a
//   multiprocessor fetches instructions ahead in order, and waits for others.
#pragma once

#include "common/epilogue.cuh"
#include "common/launch.cuh"
#include "common/vec.cuh"
#include "matmul/model.cuh"
#include "matmul/tiled_copy.cuh"
#include "matmul/tiles.cuh"

namespace tiled {

// A block is 4 x 2 or, of 64 rows, 2 x 2 warps of 4 x 8 threads. A thread has 2 x 2 or 2 x 4
// squares of 4 x 4 elements, with its neighbours' squares between them, so that a warp reads
// consecutive vectors.
constexpr int ROW_STEP = 16;
constexpr int COL_STEP = 32;
constexpr int ROWS_PER_THREAD = 8;

template <int BLOCK_N>
constexpr int COLS_PER_THREAD = BLOCK_N / 16;

template <int BLOCK_M>
constexpr int NUM_THREADS = BLOCK_M * 2;

// Blocks that a multiprocessor has registers for; 0 is the compiler's choice. For Blackwell the
// compiler takes more of them, and would spill.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 1000
template <int BLOCK_M, int BLOCK_N>
constexpr int MIN_BLOCKS = 0;
#else
template <int BLOCK_M, int BLOCK_N>
constexpr int MIN_BLOCKS = 128 * 256 / (BLOCK_M * BLOCK_N);
#endif

template <int BLOCK_M, int BLOCK_N>
struct Shared {
    Tile<BLOCK_M> a_tiles[2];
    Tile<BLOCK_N> b_tiles[2];
    // A thread's rows, of COLS_PER_THREAD sums each.
    Vec<float, VEC_SIZE> sums[BLOCK_M * BLOCK_N / (VEC_SIZE * NUM_THREADS<BLOCK_M>)]
                             [NUM_THREADS<BLOCK_M>];
};
}  // namespace tiled

template <typename T, Activation ACTIVATION, int BLOCK_M, int BLOCK_N>
__global__ void
__launch_bounds__(tiled::NUM_THREADS<BLOCK_M>, tiled::MIN_BLOCKS<BLOCK_M, BLOCK_N>) matmul_tiled_kernel(
    T* __restrict__ out_ptr,         // (n_batches, M, N)
    const T* __restrict__ a_ptr,     // (n_batches, M, K)
    const T* __restrict__ b_ptr,     // (n_batches, K, N)
    const T* __restrict__ bias_ptr,  // (N), or null
    int64_t M, int64_t N, int64_t K, int64_t a_stride_batch, int64_t a_stride_row,
    int64_t a_stride_col, int64_t b_stride_batch, int64_t b_stride_row,
    int64_t b_stride_col,
    float* __restrict__ parts_ptr,  // (2 * gridDim.x, BLOCK_M, BLOCK_N), or null
    int n_parts, int64_t part_k
) {
    using namespace tiled;
    DYNAMIC_SHARED(memory, 16);
    auto& [a_tiles, b_tiles, sums] =
        *reinterpret_cast<Shared<BLOCK_M, BLOCK_N>*>(memory);
    constexpr int COLS = COLS_PER_THREAD<BLOCK_N>;

    // -- tile: a block owns BLOCK_M x BLOCK_N elements or, of n_parts, a part of their sums:
    // part_k entries of K; a thread has 8 x COLS of them
    const int n_tile_rows = static_cast<int>((M + BLOCK_M - 1) / BLOCK_M);
    const int n_tile_cols = static_cast<int>((N + BLOCK_N - 1) / BLOCK_N);
    const auto [batch, tile_i, tile_j] =
        tile_at(blockIdx.x / n_parts, n_tile_rows, n_tile_cols, 1, 1);
    const int64_t tile_row = int64_t{tile_i} * BLOCK_M;
    const int64_t tile_col = int64_t{tile_j} * BLOCK_N;
    const int64_t first_k = blockIdx.x % n_parts * part_k;
    K = min(K - first_k, part_k);
    const int warp = threadIdx.x / WARP_SIZE, lane = threadIdx.x % WARP_SIZE;
    const int row = warp / 2 * 32 + lane / 8 * VEC_SIZE;
    const int col = warp % 2 * (BLOCK_N / 2) + lane % 8 * VEC_SIZE;
    a_ptr += batch * a_stride_batch + tile_row * a_stride_row + first_k * a_stride_col;
    b_ptr += batch * b_stride_batch + tile_col * b_stride_col + first_k * b_stride_row;

    // -- compute: the next tiles are loaded meanwhile
    constexpr int THREADS = NUM_THREADS<BLOCK_M>;
    Copy<T, BLOCK_M, THREADS> a_copy(a_ptr, a_stride_row, a_stride_col, M - tile_row);
    Copy<T, BLOCK_N, THREADS> b_copy(b_ptr, b_stride_col, b_stride_row, N - tile_col);
    a_copy.load_next(K);
    b_copy.load_next(K);
    a_copy.store_to(a_tiles[0]);
    b_copy.store_to(b_tiles[0]);
    __syncthreads();

    for (auto& vecs : sums) vecs[threadIdx.x] = {};
    int stage = 0;
    Vec<float, VEC_SIZE> a[2][2], b[2][COLS / VEC_SIZE];  // of two entries of k
    const auto load_operands = [&](int k) {
        const float* a_row = a_tiles[stage][k] + row;
        const float* b_row = b_tiles[stage][k] + col;
        for (int i = 0; i < 2; ++i) {
            a[k % 2][i] = load<VEC_SIZE>(a_row + i * ROW_STEP, true, 0.0f);
        }
        for (int i = 0; i < COLS / VEC_SIZE; ++i) {
            b[k % 2][i] = load<VEC_SIZE>(b_row + i * COL_STEP, true, 0.0f);
        }
    };
    load_operands(0);
    for (int64_t n_k = K; n_k > 0;) {
        float accumulators[ROWS_PER_THREAD][COLS] = {};
        do {
            a_copy.load_next(n_k - BLOCK_K);
            b_copy.load_next(n_k - BLOCK_K);
            #pragma unroll
            for (int k = 0; k < BLOCK_K; ++k) {
                if (k == BLOCK_K - 1) {
                    stage ^= 1;
                    a_copy.store_to(a_tiles[stage]);
                    b_copy.store_to(b_tiles[stage]);
                    __syncthreads();
                }
                load_operands((k + 1) % BLOCK_K);
                // Down one column and up the next: a product has an operand in common with
                // the one before, since two at most are read from the registers in a cycle.
                #pragma unroll
                for (int i = 0; i < ROWS_PER_THREAD * COLS; ++i) {
                    const int c = i / ROWS_PER_THREAD, step = i % ROWS_PER_THREAD;
                    const int r = c % 2 ? ROWS_PER_THREAD - 1 - step : step;
                    accumulators[r][c] += a[k % 2][r / VEC_SIZE][r % VEC_SIZE] *
                                          b[k % 2][c / VEC_SIZE][c % VEC_SIZE];
                }
            }
            n_k -= BLOCK_K;
        } while (n_k > 0 && static_cast<int>(K - n_k) % model::K_PER_SUM != 0);
        #pragma unroll
        for (int i = 0; i < ROWS_PER_THREAD * COLS; ++i) {
            sums[i / VEC_SIZE][threadIdx.x][i % VEC_SIZE] +=
                accumulators[i / COLS][i % COLS];
        }
    }

    // -- store: of a part its sums, which matmul_sum_kernel adds; else after the epilogue,
    // rounded once
    if (n_parts > 1) {
        parts_ptr += int64_t{2 * BLOCK_M * BLOCK_N} * blockIdx.x + row * BLOCK_N + col;
        #pragma unroll
        for (int i = 0; i < ROWS_PER_THREAD * COLS / VEC_SIZE; ++i) {
            const int r = i / (COLS / VEC_SIZE), j = i % (COLS / VEC_SIZE);
            const int part_row = r / 4 * ROW_STEP + r % 4;
            store(parts_ptr + part_row * BLOCK_N + j * COL_STEP, sums[i][threadIdx.x]);
        }
        return;
    }

    constexpr int OUT_BYTES = sizeof(Vec<T, VEC_SIZE>);
    const bool bias_is_aligned = reinterpret_cast<uintptr_t>(bias_ptr) % OUT_BYTES == 0;
    const bool out_is_aligned =
        N % VEC_SIZE == 0 && reinterpret_cast<uintptr_t>(out_ptr) % OUT_BYTES == 0;
    #pragma unroll
    for (int j = 0; j < COLS / VEC_SIZE; ++j) {
        const int64_t out_col = tile_col + col + j * COL_STEP;
        const auto bias = load<VEC_SIZE>(
            bias_ptr + out_col, bias_ptr ? N - out_col : 0, T{}, bias_is_aligned
        );
        #pragma unroll
        for (int i = 0; i < ROWS_PER_THREAD; ++i) {
            const int64_t out_row = tile_row + row + i / 4 * ROW_STEP + i % 4;
            Vec<float, VEC_SIZE> out = sums[i * (COLS / VEC_SIZE) + j][threadIdx.x];
            for (int c = 0; c < VEC_SIZE; ++c) {
                const float scale = argument_scale<T>(ACTIVATION);
                out[c] = epilogue<ACTIVATION, T>(out[c], scale * to_float(bias[c]));
            }
            store(
                out_ptr + (batch * M + out_row) * N + out_col, from_float<T>(out),
                out_row < M ? N - out_col : 0, out_is_aligned
            );
        }
    }
}
