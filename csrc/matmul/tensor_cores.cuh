// The third rung: tensor cores multiply, and copies go past the registers.
//
// A warp computes 64 x 32 elements of the result by mma.sync of 16 x 8, whose operands
// ldmatrix brings into the layout that the instruction asks for. cp.async copies to a
// ring of STAGES tiles in shared memory, so that two tiles are under way while one is
// multiplied. The tiles' rows of 16-byte chunks are swizzled: both a copy, which writes
// along rows, and ldmatrix, which reads across them, find their 8 chunks in all banks.
#pragma once

#include "common/dtype.cuh"
#include "common/epilogue.cuh"
#include "common/launch.cuh"
#include "common/ptx.cuh"
#include "common/vec.cuh"

namespace tensor_cores {
constexpr int BLOCK_M = 128;
constexpr int BLOCK_N = 128;
constexpr int BLOCK_K_BYTES = 128;  // 64 elements of 16 bits, 32 of float32
constexpr int NUM_THREADS = 256;
constexpr int STAGES = 3;
constexpr int WARP_M = 64;
constexpr int WARP_N = 32;
constexpr int CHUNK_BYTES = 16;
constexpr int MMA_K_BYTES = 32;  // of k in one mma.sync, of every type
constexpr int TILE_BYTES = BLOCK_M * BLOCK_K_BYTES;
constexpr int SHARED_BYTES = STAGES * 2 * TILE_BYTES;
static_assert(BLOCK_M == BLOCK_N);  // a and b are copied by the same functions

// Where a chunk lies in a tile whose rows have ROW_CHUNKS. Among 8 rows the same chunk
// lies in 8 places; pairs of chunks do so among 4 rows, which is what single elements of
// float32 are read from.
template <int ROW_CHUNKS, bool PAIRS>
__device__ __forceinline__ int chunk_offset(int row, int chunk) {
    const int swizzle = PAIRS ? row % 4 * 2 : row % 8;
    return (row * ROW_CHUNKS + (chunk ^ swizzle)) * CHUNK_BYTES;
}

// One operand. Its outer dimension, the rows of a or the columns of b, has 128 entries in
// a tile. A tile in shared memory has the operand's own order.
template <typename T, bool K_CONTIGUOUS>
struct Operand {
    static constexpr int BLOCK_K = BLOCK_K_BYTES / sizeof(T);
    static constexpr int CHUNK = CHUNK_BYTES / sizeof(T);
    static constexpr int ROW_CHUNKS = (K_CONTIGUOUS ? BLOCK_K : BLOCK_M) / CHUNK;
    static constexpr bool PAIRS = !K_CONTIGUOUS && sizeof(T) == 4;

    // A thread copies the same chunk of every ROW_STEPth row. The swizzle repeats itself
    // with those.
    static constexpr int ROW_STEP = NUM_THREADS / ROW_CHUNKS;
    static constexpr int ROWS_PER_THREAD = TILE_BYTES / CHUNK_BYTES / NUM_THREADS;
    static_assert(ROW_STEP % 8 == 0);

    const T* ptr;      // of the thread's first chunk of the next tile
    int64_t stride;    // from row to row
    int n_outer;       // entries that are left, from the thread's first chunk on
    int first_offset;  // of the thread's first chunk in the tile
    bool is_aligned;

    __device__ Operand(const T* tile_ptr, int64_t stride, int64_t n_outer)
        : stride(stride) {
        const int row = threadIdx.x / ROW_CHUNKS, chunk = threadIdx.x % ROW_CHUNKS;
        ptr = tile_ptr + row * stride + chunk * CHUNK;
        const int outer = K_CONTIGUOUS ? row : chunk * CHUNK;
        this->n_outer =
            (n_outer < BLOCK_M ? static_cast<int>(n_outer) : BLOCK_M) - outer;
        first_offset = chunk_offset<ROW_CHUNKS, PAIRS>(row, chunk);
        is_aligned = reinterpret_cast<uintptr_t>(tile_ptr) % CHUNK_BYTES == 0 &&
                     stride % CHUNK == 0 &&
                     (K_CONTIGUOUS || n_outer >= BLOCK_M || n_outer % CHUNK == 0);
    }

    // Starts to copy the next tile, with zeros past the ends. Of k n_k is left.
    __device__ void copy_to(unsigned char* tile, int64_t n_k) {
        const int row = threadIdx.x / ROW_CHUNKS, chunk = threadIdx.x % ROW_CHUNKS;
        const int left_k = n_k < BLOCK_K ? static_cast<int>(n_k) : BLOCK_K;
        const int n_rows = K_CONTIGUOUS ? n_outer : left_k - row;
        const int n_cols = K_CONTIGUOUS ? left_k - chunk * CHUNK : n_outer;
        const int n_valid = n_cols < 0 ? 0 : n_cols < CHUNK ? n_cols : CHUNK;
        // Of a chunk that ends within its 16 bytes compute-sanitizer takes all for read.
        const bool in_chunks = is_aligned && (!K_CONTIGUOUS || left_k % CHUNK == 0);
        const T* from = ptr;
        #pragma unroll
        for (int i = 0; i < ROWS_PER_THREAD; ++i) {
            const bool is_row = i * ROW_STEP < n_rows;
            unsigned char* to =
                tile + first_offset + i * ROW_STEP * ROW_CHUNKS * CHUNK_BYTES;
            if (in_chunks) {
                ptx::cp_async<CHUNK_BYTES>(to, from, is_row ? n_valid * sizeof(T) : 0);
            } else {
                store(
                    reinterpret_cast<T*>(to),
                    load<CHUNK>(from, is_row ? n_valid : 0, T{}, false)
                );
            }
            from += ROW_STEP * stride;
        }
        ptr += BLOCK_K * (K_CONTIGUOUS ? 1 : stride);
    }

    // What one mma.sync takes of 16 outer entries: the first and the second 8 of them
    // at the first half of k, then both at the second half.
    __device__ static void load_fragment(
        uint32_t (&fragment)[4], const unsigned char* tile, int outer, int step
    ) {
        const int lane = threadIdx.x % WARP_SIZE;
        constexpr int MMA_K = MMA_K_BYTES / sizeof(T);
        if constexpr (K_CONTIGUOUS) {
            const int row = outer + lane % 16, chunk = 2 * step + lane / 16;
            ptx::ldmatrix(fragment, tile + chunk_offset<ROW_CHUNKS, PAIRS>(row, chunk));
        } else if constexpr (sizeof(T) == 2) {
            const int row = step * MMA_K + lane / 16 * 8 + lane % 8;
            const int chunk = outer / CHUNK + lane / 8 % 2;
            ptx::ldmatrix_transposed(
                fragment, tile + chunk_offset<ROW_CHUNKS, PAIRS>(row, chunk)
            );
        } else {  // ldmatrix transposes nothing but elements of 16 bits
            #pragma unroll
            for (int i = 0; i < 4; ++i) {
                const int row = step * MMA_K + i / 2 * 4 + lane % 4;
                const int col = outer + i % 2 * 8 + lane / 4;
                fragment[i] = *reinterpret_cast<const uint32_t*>(
                    tile + chunk_offset<ROW_CHUNKS, PAIRS>(row, col / CHUNK) +
                    col % CHUNK * sizeof(T)
                );
            }
        }
        if constexpr (sizeof(T) == 4) {
            #pragma unroll
            for (int i = 0; i < 4; ++i) {
                fragment[i] = ptx::round_to_tf32(__uint_as_float(fragment[i]));
            }
        }
    }
};
}  // namespace tensor_cores

// Of float32 it computes the product of the operands rounded to tf32.
template <typename T, bool A_K_CONTIGUOUS, bool B_K_CONTIGUOUS, Activation ACTIVATION>
__global__ void __launch_bounds__(tensor_cores::NUM_THREADS) matmul_tensor_cores_kernel(
    T* __restrict__ out_ptr,         // (n_batches, M, N)
    const T* __restrict__ a_ptr,     // (n_batches, M, K)
    const T* __restrict__ b_ptr,     // (n_batches, K, N)
    const T* __restrict__ bias_ptr,  // (N), or null
    int64_t M,
    int64_t N,
    int64_t K,
    int64_t a_stride_batch,
    int64_t a_stride_row,
    int64_t a_stride_col,
    int64_t b_stride_batch,
    int64_t b_stride_row,
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

    // -- compute: two tiles are under way while one is multiplied; where none is left, a
    // group of copies is empty
    A a(a_ptr + batch * a_stride_batch + tile_row * a_stride_row,
        A_K_CONTIGUOUS ? a_stride_row : a_stride_col,
        M - tile_row);
    B b(b_ptr + batch * b_stride_batch + tile_col * b_stride_col,
        B_K_CONTIGUOUS ? b_stride_col : b_stride_row,
        N - tile_col);
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
        // Behind the barrier all have the stage's tile, and nobody reads the last one.
        ptx::cp_async_wait_group<STAGES - 2>();
        __syncthreads();
        copy_tiles(stage == 0 ? STAGES - 1 : stage - 1, n_k - (STAGES - 1) * BLOCK_K);
        const unsigned char* a_tile = shared + stage * 2 * TILE_BYTES;
        const unsigned char* b_tile = a_tile + TILE_BYTES;
        #pragma unroll
        for (int step = 0; step < BLOCK_K_BYTES / MMA_K_BYTES; ++step) {
            uint32_t b_fragments[WARP_N / 16][4];
            #pragma unroll
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

    // -- store: after the epilogue, rounded once, and by way of shared memory, from where
    // a row leaves in vectors
    constexpr int CHUNK = A::CHUNK, ROW_CHUNKS = BLOCK_N / CHUNK;
    __syncthreads();
    #pragma unroll
    for (int j = 0; j < WARP_N / 8; ++j) {
        const int col = warp_col + j * 8 + lane % 4 * 2;
        float bias[2] = {0.0f, 0.0f};
        #pragma unroll
        for (int c = 0; c < 2; ++c) {
            if (bias_ptr && tile_col + col + c < N) {
                const float unscaled = to_float(bias_ptr[tile_col + col + c]);
                bias[c] = argument_scale<T>(ACTIVATION) * unscaled;
            }
        }
        #pragma unroll
        for (int i = 0; i < WARP_M / 16 * 2; ++i) {
            const int row = warp_row + i * 8 + lane / 4;
            const float* sums = accumulators[i / 2][j] + i % 2 * 2;
            Vec<float, 2> out;
            #pragma unroll
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

template <typename T>
cudaError_t matmul_tensor_cores(
    const Launcher& launch,
    T* out,
    const T* a,
    const T* b,
    const T* bias,
    int64_t n_batches,
    int64_t M,
    int64_t N,
    int64_t K,
    int64_t a_stride_batch,
    int64_t a_stride_row,
    int64_t a_stride_col,
    int64_t b_stride_batch,
    int64_t b_stride_row,
    int64_t b_stride_col,
    Activation activation
) {
    using namespace tensor_cores;
    const dim3 grid(n_batches * ceil_div(M, BLOCK_M) * ceil_div(N, BLOCK_N));
    const auto start = [&]<Activation ACTIVATION>() {
        const auto kernel =
            a_stride_col == 1
                ? b_stride_row == 1
                      ? matmul_tensor_cores_kernel<T, true, true, ACTIVATION>
                      : matmul_tensor_cores_kernel<T, true, false, ACTIVATION>
            : b_stride_row == 1
                ? matmul_tensor_cores_kernel<T, false, true, ACTIVATION>
                : matmul_tensor_cores_kernel<T, false, false, ACTIVATION>;
        return launch(
            Plan{kernel, grid, dim3(NUM_THREADS), SHARED_BYTES},
            out,
            a,
            b,
            bias,
            M,
            N,
            K,
            a_stride_batch,
            a_stride_row,
            a_stride_col,
            b_stride_batch,
            b_stride_row,
            b_stride_col
        );
    };
    return dispatch_activation<cudaError_t>(activation, start);
}
