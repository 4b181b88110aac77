// One operand of matmul_tensor_cores_kernel: its tiles in shared memory, how they come there,
// and the fragments that the tensor cores take of them.
//
// The rows of a tile are chunks of 16 bytes, swizzled: a copy, which writes along rows, and
// ldmatrix, which reads across them, both spread 8 chunks over all banks.
#pragma once

#include "common/launch.cuh"
#include "common/ptx/async_copy.cuh"
#include "common/ptx/mma.cuh"
#include "common/vec.cuh"

namespace tensor_cores {
constexpr int CHUNK_BYTES = 16, WORD_BYTES = 4;  // of a copy past the registers
constexpr int MMA_K_BYTES = 32;  // of a row of a in one mma.sync, for every type

// Where a chunk lies in a tile whose rows have ROW_CHUNKS of them. The swizzle puts a column
// of chunks into 8 different places in 8 rows, or in as many as 128 bytes have. Single elements
// of float32 are read from PAIRS of chunks at a time, which it puts into 4 different places.
template <int ROW_CHUNKS, bool PAIRS>
__device__ __forceinline__ int chunk_offset(int row, int chunk) {
    constexpr int SHORT = ROW_CHUNKS < 8 ? 8 / ROW_CHUNKS : 1;  // rows in 128 bytes
    const int swizzle =
        PAIRS ? row / SHORT % (4 / SHORT) * 2 : row / SHORT % (8 / SHORT);
    return (row * ROW_CHUNKS + (chunk ^ swizzle)) * CHUNK_BYTES;
}

// A tile has OUTER_SIZE entries along the outer dimension, the rows of a or the columns of b,
// and BLOCK_K along k. It keeps the operand's own order: its rows are those in global memory.
template <typename T, int OUTER_SIZE, int BLOCK_K, int NUM_THREADS, bool K_CONTIGUOUS>
struct Operand {
    static constexpr int TILE_BYTES = OUTER_SIZE * BLOCK_K * int{sizeof(T)};
    static constexpr int CHUNK = CHUNK_BYTES / sizeof(T);
    static constexpr int ROW_CHUNKS = (K_CONTIGUOUS ? BLOCK_K : OUTER_SIZE) / CHUNK;
    static constexpr bool PAIRS = !K_CONTIGUOUS && sizeof(T) == 4;

    // A thread copies the same chunk of every ROW_STEP-th row, where the swizzle is the same.
    static constexpr int ROW_STEP = NUM_THREADS / ROW_CHUNKS;
    static constexpr int ROWS_PER_THREAD = TILE_BYTES / CHUNK_BYTES / NUM_THREADS;
    static_assert(ROW_STEP % 8 == 0 && ROWS_PER_THREAD > 0);

    const T* ptr;      // of the thread's first chunk of the next tile
    int64_t stride;    // from row to row
    int n_outer;       // entries left in the matrix, from the thread's first chunk on
    int first_offset;  // of the thread's first chunk in the tile
    int alignment;     // of all rows, in bytes: a chunk's, a word's or an element's
    bool is_padded;    // rows may be read to the end of a chunk, as those of copies

    // Of the first tile, and of the matrix, which has n_outer entries in all.
    __device__ Operand(
        const T* matrix, int64_t stride, int outer, int64_t n_outer, int64_t k,
        bool is_padded
    )
        : stride(stride), is_padded(is_padded) {
        const int row = threadIdx.x / ROW_CHUNKS, chunk = threadIdx.x % ROW_CHUNKS;
        const int64_t first_row = K_CONTIGUOUS ? outer : k;
        const int64_t first_col = K_CONTIGUOUS ? k : outer;
        const T* const tile_ptr = matrix + first_row * stride + first_col;
        const int64_t n_left = n_outer - outer;
        const auto begin_and_end_at = [&](int n_bytes) {
            const int count = n_bytes / int{sizeof(T)};
            const bool end = is_padded || K_CONTIGUOUS || n_left >= OUTER_SIZE ||
                             n_left % count == 0;
            return reinterpret_cast<uintptr_t>(tile_ptr) % n_bytes == 0 &&
                   stride % count == 0 && end;
        };
        ptr = tile_ptr + row * stride + chunk * CHUNK;
        this->n_outer = static_cast<int>(min(n_left, int64_t{OUTER_SIZE})) -
                        (K_CONTIGUOUS ? row : chunk * CHUNK);
        first_offset = chunk_offset<ROW_CHUNKS, PAIRS>(row, chunk);
        alignment = begin_and_end_at(CHUNK_BYTES)  ? CHUNK_BYTES
                    : begin_and_end_at(WORD_BYTES) ? WORD_BYTES
                                                   : int{sizeof(T)};
    }

    // Starts to copy the next tile, in words at least; n_k entries are left along k. Zeros
    // surround the matrix.
    __device__ void copy_to(unsigned char* tile, int64_t n_k) {
        if (alignment == CHUNK_BYTES && ends_whole<CHUNK>(n_k)) [[likely]] {
            copy_pieces<CHUNK_BYTES>(tile, n_k);
        } else {
            copy_pieces<WORD_BYTES>(tile, n_k);
        }
        ptr += BLOCK_K * (K_CONTIGUOUS ? 1 : stride);
    }

    // Elements that are no words cannot bypass the registers: a thread's chunks of the next tile
    // are on their way to these then, which the result tells.
    using Chunks = Vec<T, CHUNK>[ROWS_PER_THREAD];
    __device__ bool start_copy(unsigned char* tile, int64_t n_k, Chunks& chunks) {
        if (alignment >= WORD_BYTES && ends_whole<WORD_BYTES / int{sizeof(T)}>(n_k)) {
            copy_to(tile, n_k);
            return false;
        }
        const auto [n_rows, n_cols] = size_of(n_k);
        #pragma unroll
        for (int i = 0; i < ROWS_PER_THREAD; ++i) {
            const int n_left = i * ROW_STEP < n_rows ? n_cols : 0;
            chunks[i] = load<CHUNK>(ptr + i * ROW_STEP * stride, n_left, T{}, false);
        }
        ptr += BLOCK_K * (K_CONTIGUOUS ? 1 : stride);
        return true;
    }
    __device__ void store_to(unsigned char* tile, const Chunks& chunks) const {
        #pragma unroll
        for (int i = 0; i < ROWS_PER_THREAD; ++i) {
            store(reinterpret_cast<T*>(place(tile, i)), chunks[i]);
        }
    }

    // Whether the next tile ends with a whole piece of PIECE entries: compute-sanitizer takes all
    // bytes of a piece for read.
    template <int PIECE>
    __device__ bool ends_whole(int64_t n_k) const {
        return !K_CONTIGUOUS || is_padded || n_k >= BLOCK_K || n_k % PIECE == 0;
    }

    // Rows of the next tile from the thread's first one on, and entries from its chunk on.
    __device__ int2 size_of(int64_t n_k) const {
        const int row = threadIdx.x / ROW_CHUNKS, chunk = threadIdx.x % ROW_CHUNKS;
        const int left_k = static_cast<int>(min(n_k, int64_t{BLOCK_K}));
        return K_CONTIGUOUS ? int2{n_outer, left_k - chunk * CHUNK}
                            : int2{left_k - row, n_outer};
    }

    // Where the thread's chunk of its i-th row goes.
    __device__ unsigned char* place(unsigned char* tile, int i) const {
        return tile + first_offset + i * ROW_STEP * ROW_CHUNKS * CHUNK_BYTES;
    }

    template <int PIECE_BYTES>
    __device__ void copy_pieces(unsigned char* tile, int64_t n_k) const {
        constexpr int PIECE = PIECE_BYTES / int{sizeof(T)};
        const auto [n_rows, n_cols] = size_of(n_k);
        #pragma unroll
        for (int first = 0; first < CHUNK; first += PIECE) {
            const int n_bytes = max(0, min(n_cols - first, PIECE)) * int{sizeof(T)};
            #pragma unroll
            for (int i = 0; i < ROWS_PER_THREAD; ++i) {
                ptx::cp_async<PIECE_BYTES>(
                    place(tile, i) + first * sizeof(T),
                    ptr + i * ROW_STEP * stride + first,
                    i * ROW_STEP < n_rows ? n_bytes : 0
                );
            }
        }
    }

    // Loads what one mma.sync takes of 16 outer entries: the first half of its k for entries
    // 0 to 7 and 8 to 15, then the second half for both.
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
        } else {  // ldmatrix can transpose elements of 16 bits only
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
            for (int i = 0; i < 4; ++i) {
                fragment[i] = ptx::round_to_tf32(__uint_as_float(fragment[i]));
            }
        }
    }
};
}  // namespace tensor_cores
