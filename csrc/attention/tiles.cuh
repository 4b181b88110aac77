// Tiles of q, k and v in shared memory, how they come there, and the fragments that the tensor
// cores take of them.
//
// The rows of a tile are chunks of 16 bytes, swizzled: a copy, which writes along rows, and
// ldmatrix, which reads across them, both spread 8 chunks over all banks.
#pragma once

#include "common/launch.cuh"
#include "common/ptx/async_copy.cuh"
#include "common/ptx/mma.cuh"
#include "common/vec.cuh"

namespace tensor_cores {
constexpr int CHUNK = VEC_BYTES / 2;  // elements, of 16 bits each
constexpr int MMA_K = 16;             // summands of one mma.sync

// Keys that a query sees, or queries that see a key, counted from the first one that concerns
// the block: in 32 bits, to save registers.
struct Span {
    int first;
    int end;

    template <typename Seen>
    __device__ static Span from(const Seen& seen, int64_t start) {
        return {
            static_cast<int>(seen.first - start), static_cast<int>(seen.end - start)
        };
    }
    __device__ bool contains(int i) const { return first <= i && i < end; }
};

template <typename T, int N_ROWS, int N_COLS>
struct alignas(128) Tile {
    static constexpr int ROW_CHUNKS = N_COLS / CHUNK;
    static_assert(ROW_CHUNKS % 8 == 0);

    Vec<T, CHUNK> chunks[N_ROWS * ROW_CHUNKS];

    // The swizzle puts a column of chunks into 8 different places in 8 rows.
    __device__ T* chunk(int row, int chunk) {
        return chunks[row * ROW_CHUNKS + (chunk ^ row % 8)].values;
    }

    // Starts to copy the first n_valid elements of a chunk; zeros fill the rest. Of a part of a
    // chunk they are copied one by one: compute-sanitizer takes all 16 bytes for read.
    __device__ void copy_chunk(int row, int i, const T* ptr, int n_valid) {
        n_valid = max(0, min(n_valid, CHUNK));
        if (reinterpret_cast<uintptr_t>(ptr) % VEC_BYTES == 0 && n_valid % CHUNK == 0) {
            ptx::cp_async<VEC_BYTES>(chunk(row, i), ptr, n_valid * sizeof(T));
        } else {
            store(chunk(row, i), load<CHUNK>(ptr, n_valid, T{}, false));
        }
    }

    // Starts to copy n_rows rows of head_dim columns; zeros fill the rest of the tile. All of
    // NUM_THREADS threads, a block's or a warp's, call it.
    template <int NUM_THREADS>
    __device__ void copy_from(
        const T* ptr, int64_t stride_row, int n_rows, int head_dim
    ) {
        constexpr int ROW_STEP = NUM_THREADS / ROW_CHUNKS;
        const int thread = threadIdx.x % NUM_THREADS;
        const int first_row = thread / ROW_CHUNKS, col = thread % ROW_CHUNKS * CHUNK;
        const bool in_chunks = reinterpret_cast<uintptr_t>(ptr) % VEC_BYTES == 0 &&
                               stride_row % CHUNK == 0 && head_dim % CHUNK == 0;
        const int n_cols = max(0, min(head_dim - col, CHUNK));
        ptr += first_row * stride_row + col;
        if (in_chunks) {
            #pragma unroll
            for (int row = first_row; row < first_row + N_ROWS; row += ROW_STEP) {
                const int n_valid = row < n_rows ? n_cols : 0;
                T* const to = chunk(row, col / CHUNK);
                ptx::cp_async<VEC_BYTES>(to, ptr, n_valid * sizeof(T));
                ptr += ROW_STEP * stride_row;
            }
            return;
        }
        // Rare, and kept small: unrolled, it would push the loop out of the instruction cache.
        #pragma unroll 1
        for (int row = first_row; row < first_row + N_ROWS; row += ROW_STEP) {
            T* const to = chunk(row, col / CHUNK);
            store(to, load<CHUNK>(ptr, row < n_rows ? n_cols : 0, T{}, false));
            ptr += ROW_STEP * stride_row;
        }
    }

    // Loads 16 rows and 16 columns as the left operand of mma.sync has them: the first half of
    // the columns for rows 0 to 7 and 8 to 15, then the second half for both.
    __device__ void load_left(uint32_t (&fragment)[4], int row, int col) {
        const int lane = threadIdx.x % WARP_SIZE;
        ptx::ldmatrix(fragment, chunk(row + lane % 16, col / CHUNK + lane / 16));
    }

    // Loads 16 rows and 16 columns as two right operands, of 8 rows each: sums are over the
    // columns, as in q k^T. An operand's registers are neighbours, as mma.sync needs them.
    __device__ void load_right(uint32_t (&fragments)[4], int row, int col) {
        const int lane = threadIdx.x % WARP_SIZE;
        row += lane / 16 * 8 + lane % 8;
        ptx::ldmatrix(fragments, chunk(row, col / CHUNK + lane / 8 % 2));
    }

    // Likewise two of 8 columns each: sums are over the rows, as in p v.
    __device__ void load_right_transposed(uint32_t (&fragments)[4], int row, int col) {
        const int lane = threadIdx.x % WARP_SIZE;
        ptx::ldmatrix_transposed(
            fragments, chunk(row + lane % 16, col / CHUNK + lane / 16)
        );
    }
};
}  // namespace tensor_cores
