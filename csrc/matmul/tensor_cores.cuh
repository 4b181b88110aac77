// The third rung: tensor cores multiply, and copies bypass the registers.
//
// A warp computes WARP_M x WARP_N elements of the result by mma.sync of 16 x 8, whose operands
// ldmatrix brings into the layout that the instruction asks for. cp.async copies into a ring
// of tiles in shared memory, so that several are under way while one is multiplied. This is
// the kernel for other GPUs than Hopper, for float32 as tf32, and for small products.
#pragma once

#include "common/epilogue.cuh"
#include "common/ptx/griddepcontrol.cuh"
#include "matmul/operand.cuh"
#include "matmul/tiles.cuh"

namespace tensor_cores {

// A block's shared memory.
template <typename T, int BLOCK_M, int BLOCK_N, int BLOCK_K, int NUM_STAGES>
struct Shared {
    struct Stage {
        unsigned char a[BLOCK_M * BLOCK_K * sizeof(T)];
        unsigned char b[BLOCK_N * BLOCK_K * sizeof(T)];
    };
    union {
        Stage stages[NUM_STAGES];
        unsigned char out[BLOCK_M * BLOCK_N * sizeof(T)];
    };

    // Stages that no step takes have no memory, so that a multiprocessor has more blocks.
    static constexpr int64_t bytes(int64_t n_steps) {
        const int64_t n_bytes =
            sizeof(Stage) * (n_steps < NUM_STAGES ? n_steps : NUM_STAGES);
        return n_bytes > int64_t{sizeof(out)} ? n_bytes : int64_t{sizeof(out)};
    }
};

// Blocks that a multiprocessor has registers for; 0 is the compiler's choice. That is too few
// registers to load ahead for four warps with words, too many for eight with elements.
constexpr int min_blocks(int n_warps, bool has_words) {
    return (n_warps == 4) == has_words ? 16 / n_warps : 0;
}

}  // namespace tensor_cores

// Rounds float32 to tf32. HAS_WORDS: rows of a and b begin and end at multiples of 4 bytes.
template <
    typename T, int BLOCK_M, int BLOCK_N, int BLOCK_K, int WARPS_M, int WARPS_N,
    int NUM_STAGES, bool A_K_CONTIGUOUS, bool B_K_CONTIGUOUS, bool HAS_WORDS,
    int MIN_BLOCKS = tensor_cores::min_blocks(WARPS_M * WARPS_N, HAS_WORDS)>
__global__ void
__launch_bounds__(WARPS_M * WARPS_N * WARP_SIZE, MIN_BLOCKS) matmul_tensor_cores_kernel(
    T* __restrict__ out_ptr,        // (n_batches, M, N)
    const T* a_ptr,                 // (n_batches, M, K)
    const T* b_ptr,                 // (n_batches, K, N)
    const T* bias_ptr,              // (N), or null
    float* __restrict__ parts_ptr,  // (2 * gridDim.x, BLOCK_M, BLOCK_N), or null
    int M, int N, int64_t K, int64_t a_stride_batch,
    int64_t a_stride,  // between rows or columns, whatever is contiguous
    int64_t b_stride_batch, int64_t b_stride, bool a_is_padded, bool b_is_padded,
    int activation, int n_parts, int n_steps, bool is_alone
) {
    using namespace tensor_cores;
    constexpr int NUM_THREADS = WARPS_M * WARPS_N * WARP_SIZE;
    constexpr int WARP_M = BLOCK_M / WARPS_M, WARP_N = BLOCK_N / WARPS_N;
    using A = Operand<T, BLOCK_M, BLOCK_K, NUM_THREADS, A_K_CONTIGUOUS>;
    using B = Operand<T, BLOCK_N, BLOCK_K, NUM_THREADS, B_K_CONTIGUOUS>;
    constexpr int CHUNK = A::CHUNK, MMA_K = MMA_K_BYTES / int{sizeof(T)};
    DYNAMIC_SHARED(shared_bytes, 1024);
    auto& shared = *reinterpret_cast<Shared<T, BLOCK_M, BLOCK_N, BLOCK_K, NUM_STAGES>*>(
        shared_bytes
    );

    // -- tile: a block owns BLOCK_M x BLOCK_N elements or, of n_parts, a part of their sums:
    // n_steps along k
    // Where a multiprocessor has this block alone, the next launch may begin at once. Else its
    // blocks would gather where there is room by now, and not be spread evenly.
    if (is_alone) ptx::griddepcontrol_launch_dependents();
    const int n_tile_rows = (M - 1) / BLOCK_M + 1, n_tile_cols = (N - 1) / BLOCK_N + 1;
    int index = blockIdx.x;
    if (n_parts > 1) [[unlikely]] {
        index /= n_parts;
    }
    const TileOrigin tile = tile_at(index, n_tile_rows, n_tile_cols, BLOCK_M, BLOCK_N);
    const int part = blockIdx.x - index * n_parts;
    const int64_t first_k = int64_t{part} * n_steps * BLOCK_K;
    const int warp = threadIdx.x / WARP_SIZE, lane = threadIdx.x % WARP_SIZE;
    const int warp_row = warp / WARPS_N * WARP_M;
    const int warp_col = warp % WARPS_N * WARP_N;

    // -- compute: tiles are under way while one is multiplied; past the last one groups of
    // copies are empty, so that the waits stay the same
    A a(a_ptr + tile.batch * a_stride_batch, a_stride, tile.row, M, first_k,
        a_is_padded);
    B b(b_ptr + tile.batch * b_stride_batch, b_stride, tile.col, N, first_k,
        b_is_padded);
    const auto copy_tiles = [&](int stage, int step) {
        const int64_t n_k = K - first_k - int64_t{step} * BLOCK_K;
        if (step < n_steps && n_k > 0) {
            auto& tiles = shared.stages[stage];
            if constexpr (HAS_WORDS) {
                a.copy_to(tiles.a, n_k);
                b.copy_to(tiles.b, n_k);
            } else {
                typename A::Chunks a_chunks;
                typename B::Chunks b_chunks;
                const bool a_waits = a.start_copy(tiles.a, n_k, a_chunks);
                const bool b_waits = b.start_copy(tiles.b, n_k, b_chunks);
                if (a_waits) a.store_to(tiles.a, a_chunks);
                if (b_waits) b.store_to(tiles.b, b_chunks);
            }
        }
        ptx::cp_async_commit_group();
    };
    float accumulators[WARP_M / 16][WARP_N / 8][4] = {};
    ptx::griddepcontrol_wait();
    const auto multiply = [&](const auto& stage, int k_step) {
        uint32_t b_fragments[WARP_N / 16][4];
        for (int j = 0; j < WARP_N / 16; ++j) {
            B::load_fragment(b_fragments[j], stage.b, warp_col + j * 16, k_step);
        }
        #pragma unroll
        for (int i = 0; i < WARP_M / 16; ++i) {
            uint32_t a_fragment[4];
            A::load_fragment(a_fragment, stage.a, warp_row + i * 16, k_step);
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
    };
    // The first NUM_STAGES - 1 turns only copy: a small product takes as long as its
    // instructions take to come, so that one place in the code has to do for all copies.
    int stage = 0, copied_stage = 0, n_rest = 0;
    #pragma unroll 1
    for (int step = 1 - NUM_STAGES; step < n_steps; ++step) {
        // Past the barrier all copies into this stage are visible to all threads, and no
        // thread still reads the stage before it, which is copied to next.
        if (step >= 0) {
            ptx::cp_async_wait_group<NUM_STAGES - 2>();
            __syncthreads();
        }
        copy_tiles(copied_stage, step + NUM_STAGES - 1);
        copied_stage = copied_stage == NUM_STAGES - 1 ? 0 : copied_stage + 1;
        if (step < 0) continue;
        const int64_t n_left = K - first_k - int64_t{step} * BLOCK_K;
        if (n_left <= BLOCK_K / 2) {
            n_rest = static_cast<int>(n_left);
            break;
        }
        #pragma unroll
        for (int k_step = 0; k_step < BLOCK_K / MMA_K; ++k_step) {
            multiply(shared.stages[stage], k_step);
        }
        stage = stage == NUM_STAGES - 1 ? 0 : stage + 1;
    }
    // Of a step that is half empty, no more than there is.
    #pragma unroll 1
    for (int k_step = 0; k_step * MMA_K < n_rest; ++k_step) {
        multiply(shared.stages[stage], k_step);
    }

    // -- parts: their sums, which matmul_sum_kernel adds
    ptx::griddepcontrol_launch_dependents();
    const auto for_each_pair = [&](auto&& use) {
        #pragma unroll
        for (int j = 0; j < WARP_N / 8; ++j) {
            const int col = warp_col + j * 8 + lane % 4 * 2;
            #pragma unroll
            for (int i = 0; i < WARP_M / 8; ++i) {
                float* const sums = accumulators[i / 2][j] + i % 2 * 2;
                use(warp_row + i * 8 + lane / 4, col, sums);
            }
        }
    };
    if (n_parts > 1) {
        float* const part_ptr = parts_ptr + int64_t{2 * BLOCK_M * BLOCK_N} * blockIdx.x;
        return for_each_pair([&](int row, int col, const float* sums) {
            const Vec<float, 2> pair{sums[0], sums[1]};
            store(part_ptr + row * BLOCK_N + col, pair, 2, true);
        });
    }

    // -- store: after the epilogue, rounded once, by way of shared memory
    if (bias_ptr || activation != int(Activation::none)) [[unlikely]] {
        for_each_pair([&](int, int col, float* sums) {
            for (int c = 0; c < 2; ++c) {
                const bool has_bias = bias_ptr && tile.col + col + c < N;
                sums[c] += has_bias ? to_float(bias_ptr[tile.col + col + c]) : 0.0f;
            }
        });
        dispatch_activation(Activation{activation}, [&]<Activation ACTIVATION>() {
            for_each_pair([&](int, int, float* sums) {
                for (int c = 0; c < 2; ++c) {
                    sums[c] = epilogue<ACTIVATION, T>(sums[c], 0.0f);
                }
            });
        });
    }
    constexpr int ROW_CHUNKS = BLOCK_N / CHUNK;
    __syncthreads();
    for_each_pair([&](int row, int col, const float* sums) {
        unsigned char* chunk =
            shared.out + chunk_offset<ROW_CHUNKS, sizeof(T) == 4>(row, col / CHUNK);
        const auto out = from_float<T>(Vec<float, 2>{sums[0], sums[1]});
        store(reinterpret_cast<T*>(chunk) + col % CHUNK, out);
    });
    __syncthreads();
    // In vectors or, where rows are not aligned, in pairs or elements: neighbours by neighbouring
    // lanes. A thread keeps to its columns, so that from row to row little has to be computed.
    out_ptr += (int64_t{tile.batch} * M + tile.row) * N + tile.col;
    const int n_rows = M - tile.row, n_cols = N - tile.col;
    const auto store_out = [&]<int SIZE>() {
        // Whole chunks as words: elements of a Vec the compiler may store one by one.
        using Words = std::conditional_t<SIZE == CHUNK, uint4, Vec<T, SIZE>>;
        constexpr int ROW_VECS = BLOCK_N / SIZE, ROW_STEP = NUM_THREADS / ROW_VECS;
        static_assert(NUM_THREADS % ROW_VECS == 0 && BLOCK_M % ROW_STEP == 0);
        const int first_row = threadIdx.x / ROW_VECS;
        const int col = threadIdx.x % ROW_VECS * SIZE;
        if (col >= n_cols) return;
        T* to_ptr = out_ptr + int64_t{first_row} * N + col;
        #pragma unroll 8
        for (int i = 0; i < BLOCK_M / ROW_STEP; ++i) {
            const int row = first_row + i * ROW_STEP;
            const unsigned char* chunk =
                shared.out + chunk_offset<ROW_CHUNKS, sizeof(T) == 4>(row, col / CHUNK);
            const auto words = *reinterpret_cast<const Words*>(
                reinterpret_cast<const T*>(chunk) + col % CHUNK
            );
            if (row < n_rows) *reinterpret_cast<Words*>(to_ptr) = words;
            to_ptr += int64_t{ROW_STEP} * N;
        }
    };
    const auto has_rows_of = [&](int size) {
        return reinterpret_cast<uintptr_t>(out_ptr) % (size * sizeof(T)) == 0 &&
               N % size == 0;
    };
    if (has_rows_of(CHUNK)) [[likely]] {
        store_out.template operator()<CHUNK>();
    } else if (has_rows_of(2)) {
        store_out.template operator()<2>();
    } else {
        store_out.template operator()<1>();
    }
}
