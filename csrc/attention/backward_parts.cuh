// What a step of attention_backward_kernel is made of, besides its products of queries and keys:
// gradients of scores, and the sums and parts of queries' gradients that come of them.
#pragma once

#include "attention/backward_turns.cuh"
#include "common/ptx/wgmma_shapes.cuh"

namespace twin {

// Of so many steps there are gradients of scores: a warpgroup stores those of one as soon as the
// other has stored those of the last one, and may still multiply those of the last but one.
constexpr int NUM_SCORE_STEPS = 3;

// The keys that a block owns stay, and their gradients take their place in the end; queries,
// gradients and statistics come by rings, of which each warp tells what it has used.
template <int HEAD_DIM, int BLOCK_M, int BLOCK_N, int NUM_STAGES>
struct BackwardShared {
    static constexpr int COL_BOXES = HEAD_DIM / BOX_SIZE,
                         ROW_BOXES = BLOCK_M / BOX_SIZE;

    Box k[BLOCK_N / BOX_SIZE][COL_BOXES];
    Box v[BLOCK_N / BOX_SIZE][COL_BOXES];
    Ring<HEAD_DIM, BLOCK_M, NUM_STAGES> q;
    Ring<HEAD_DIM, BLOCK_M, NUM_STAGES> grad;
    Box grad_scores[NUM_SCORE_STEPS][BLOCK_N / BOX_SIZE][ROW_BOXES];
    QueryStatistics statistics[NUM_STAGES][ROW_BOXES];
    uint64_t statistics_full[NUM_STAGES];
    uint64_t grad_scores_full[NUM_SCORE_STEPS];
    uint64_t own_full;
    uint64_t is_ahead;  // the first warpgroup, by half a step
    Turn turn;

    __device__ void begin() {
        begin_ring(q, BACKWARD_CONSUMER_WARPS);
        begin_ring(grad, BACKWARD_CONSUMER_WARPS);
        for (uint64_t& full : statistics_full) ptx::mbarrier_init(&full, 1);
        for (uint64_t& full : grad_scores_full) {
            ptx::mbarrier_init(&full, BACKWARD_CONSUMERS);
        }
        ptx::mbarrier_init(&own_full, 1);
        ptx::mbarrier_init(&is_ahead, 1);
        turn.begin();
        ptx::fence_mbarrier_init();
    }
};

// Writes a warpgroup's left matrix of a product to boxes of 64 columns.
template <int NUM_COLS>
__device__ __forceinline__ void store_operand(
    Box (&boxes)[NUM_COLS / BOX_SIZE], const uint32_t (&operand)[NUM_COLS / 16][4],
    int thread
) {
    const int row = thread / WARP_SIZE * 16 + thread % 16;
    #pragma unroll
    for (int col = 0; col < NUM_COLS; col += 16) {
        // Lane l passes the address of row l % 16 in the first or second 8 columns.
        const int chunk = (col % BOX_SIZE / 8 + thread % WARP_SIZE / 16) ^ row % 8;
        unsigned char* bytes = boxes[col / BOX_SIZE].bytes;
        ptx::stmatrix(bytes + row * ROW_BYTES + chunk * 16, operand[col / 16]);
    }
}

// What a thread has of the exponents of p: scores in units of log 2, minus lse.
template <int BLOCK_M, int ROW_BOXES>
__device__ __forceinline__ void subtract_lse(
    float (&scores)[BLOCK_M / 8][2][2], const QueryStatistics (&statistics)[ROW_BOXES],
    float scale_log2
) {
    #pragma unroll
    for (int i = 0; i < BLOCK_M / 2; ++i) {
        const int col = i / 4, query = col % 8 * 8 + threadIdx.x % 4 * 2 + i % 2;
        float& score = scores[col][i / 2 % 2][i % 2];
        score = fmaf(score, scale_log2, -statistics[col / 8].lse[query]);
    }
}

// What it has of gradients of scores: p times (grad_p minus delta), in the place of p.
template <int BLOCK_M, int ROW_BOXES>
__device__ __forceinline__ void multiply_by_grad_p(
    float (&p)[BLOCK_M / 8][2][2], const float (&grad_p)[BLOCK_M / 8][2][2],
    const QueryStatistics (&statistics)[ROW_BOXES]
) {
    #pragma unroll
    for (int i = 0; i < BLOCK_M / 2; ++i) {
        const int col = i / 4, query = col % 8 * 8 + threadIdx.x % 4 * 2 + i % 2;
        p[col][i / 2 % 2][i % 2] *=
            grad_p[col][i / 2 % 2][i % 2] - statistics[col / 8].delta[query];
    }
}

// part (64 queries x 64 columns) = grad_scores (keys x queries) transposed times k (keys x
// columns). Of both, descriptors tell where the first 64 keys are, and bytes lead to more.
template <typename T, int NUM_KEYS>
__device__ __forceinline__ void start_part(
    float (&part)[BOX_SIZE / 8][2][2], uint64_t grad_scores, int grad_scores_bytes,
    uint64_t k, int k_bytes
) {
    ptx::wgmma_fence();
    #pragma unroll
    for (int key = 0; key < NUM_KEYS; key += 16) {
        const int box = key / BOX_SIZE, bytes = key % BOX_SIZE * ROW_BYTES;
        ptx::wgmma_m64k16<T, ptx::Major::MN, ptx::Major::MN, BOX_SIZE>(
            reinterpret_cast<float (&)[BOX_SIZE / 2]>(part),
            ptx::wgmma_advance(grad_scores, box * grad_scores_bytes + bytes),
            ptx::wgmma_advance(k, box * k_bytes + bytes), key > 0
        );
    }
    ptx::wgmma_commit_group();
}

}  // namespace twin
