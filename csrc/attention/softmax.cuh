// Softmax of scores that come tile by tile, while they are in the registers of a warpgroup:
// a lane has 2 of each 8 columns, in row lane / 4 and 8 rows below, as wgmma leaves them.
#pragma once

#include "attention/scores.cuh"
#include "common/vec.cuh"

namespace twin {

// f over the values of the four lanes that have a row.
template <typename F>
__device__ __forceinline__ float reduce_row(float value, F f) {
    value = f(value, __shfl_xor_sync(0xffffffff, value, 1));
    return f(value, __shfl_xor_sync(0xffffffff, value, 2));
}

// What leads from a row's scores to exponents of 2: scale_log2, or a power of two.
//
// A score's product is not rounded before the origin is subtracted, which is such a product,
// rounded. That makes no difference up to 2^23. Beyond, it could be a factor of 2^30 in
// exponentials; there a power of two, whose products are exact, is near enough: scores that
// differ are so far apart that one of them has all the weight.
__device__ __forceinline__ float unit_of(float row_max, float scale_log2) {
    constexpr uint32_t EXPONENT = 0x7f800000;
    const float power =
        __builtin_bit_cast(float, __builtin_bit_cast(uint32_t, scale_log2) & EXPONENT);
    return fabsf(row_max) * scale_log2 < 0x1p23f ? scale_log2 : power;
}

// No score that a lane has of a row is larger than this. It is their maximum if that is
// positive, and costs half as much: of integers, an instruction compares three, and positive
// floats have the order of the integers of their bits.
template <int NUM_COL_TILES>
__device__ __forceinline__ float bound_of_row(
    const float (&scores)[NUM_COL_TILES][2][2], int row
) {
    int bound = 0;
    #pragma unroll
    for (int i = 0; i < NUM_COL_TILES; ++i) {
        const auto [left, right] = scores[i][row];
        bound = max(max(bound, ptx::bits_of(left)), ptx::bits_of(right));
    }
    return __builtin_bit_cast(float, bound);
}

// What softmax has to remember of the tiles so far, for each of a lane's two rows.
struct RunningSoftmax {
    float row_max[2] = {-INFINITY, -INFINITY};  // of the scores, not scaled yet
    float row_sum[2] = {0.0f, 0.0f};            // over the lane's own columns alone

    // Turns scores into exponentials relative to an earlier score of the row, as long as none
    // exceeds that by a factor of more than 2^8 then, or else to the largest score so far.
    // Returns whether a row of the warp may have moved on, and what earlier sums have to be
    // multiplied by then. A row decides for itself, so that no other changes its result.
    // scale_log2 > 0 leads from scores to exponents of 2.
    template <int NUM_COLS>
    __device__ __forceinline__ bool add(
        float (&scores)[NUM_COLS / 8][2][2], float scale_log2, float (&rescale)[2]
    ) {
        constexpr float MOST_EXCESS = 8.0f;
        const auto exceeds = [&](int row, float score) {
            return (score - row_max[row]) * scale_log2 > MOST_EXCESS;
        };
        const bool may_rescale = __any_sync(
            0xffffffff,
            exceeds(0, bound_of_row(scores, 0)) || exceeds(1, bound_of_row(scores, 1))
        );
        if (may_rescale) {
            #pragma unroll
            for (int row = 0; row < 2; ++row) {
                float new_max = row_max[row];
                #pragma unroll
                for (int i = 0; i < NUM_COLS / 4; ++i) {
                    new_max = fmaxf(new_max, scores[i / 2][row][i % 2]);
                }
                new_max = reduce_row(new_max, fmaxf);
                const bool moves = exceeds(row, new_max);
                const float next = moves ? new_max : row_max[row];
                const float unit = unit_of(next, scale_log2);
                const float origin = finite_origin(next) * unit;
                rescale[row] =
                    moves ? ptx::exp2(fmaf(row_max[row], unit, -origin)) : 1.0f;
                row_sum[row] *= rescale[row];
                row_max[row] = next;
            }
        }
        #pragma unroll
        for (int row = 0; row < 2; ++row) {
            const float unit = unit_of(row_max[row], scale_log2);
            const float origin = finite_origin(row_max[row]) * unit;
            float sum[2] = {row_sum[row], 0.0f};
            #pragma unroll
            for (int i = 0; i < NUM_COLS / 8; ++i) {
                #pragma unroll
                for (int col = 0; col < 2; ++col) {
                    float& score = scores[i][row][col];
                    score = ptx::exp2(fmaf(score, unit, -origin));
                    sum[col] += score;
                }
            }
            row_sum[row] = sum[0] + sum[1];
        }
        return may_rescale;
    }

    // Of all four lanes that have the row.
    __device__ __forceinline__ float sum_of_row(int row) const {
        return reduce_row(row_sum[row], [](float x, float y) { return x + y; });
    }
};

// Hides the scores of the keys that a lane's two queries do not see, or those of the queries
// that do not see its two keys. `start` is the key or the query of the lane's first column.
template <int NUM_COLS, typename Seen>
__device__ __forceinline__ void hide_unseen(
    float (&scores)[NUM_COLS / 8][2][2], const Seen& upper, const Seen& lower, int start
) {
    #pragma unroll
    for (int row = 0; row < 2; ++row) {
        const Seen& seen = row == 0 ? upper : lower;
        const int first = seen.first - start, end = seen.end - start;
        #pragma unroll
        for (int i = 0; i < NUM_COLS / 8; ++i) {
            #pragma unroll
            for (int col = 0; col < 2; ++col) {
                const int offset = i * 8 + col;
                if (offset < first || offset >= end) scores[i][row][col] = -INFINITY;
            }
        }
    }
}

// Rounds exponentials to the left matrix of the product with v, of which a lane has the same
// elements: nothing has to be exchanged.
template <typename T, int NUM_COLS>
__device__ __forceinline__ void round_to_operand(
    uint32_t (&p)[NUM_COLS / 16][4], const float (&exponentials)[NUM_COLS / 8][2][2]
) {
    #pragma unroll
    for (int i = 0; i < NUM_COLS / 4; ++i) {
        const auto [left, right] = exponentials[i / 2][i % 2];
        p[i / 4][i % 4] =
            __builtin_bit_cast(uint32_t, from_float<T>(Vec<float, 2>{left, right}));
    }
}

}  // namespace twin
