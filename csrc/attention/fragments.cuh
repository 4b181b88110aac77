// Softmax in the registers in which the tensor cores leave scores, and take probabilities.
#pragma once

#include "common/math.cuh"
#include "common/ptx/mma.cuh"
#include "common/reduce.cuh"
#include "common/vec.cuh"

namespace tensor_cores {
// Adds the products of 16 rows with 16 columns, which are two right operands.
template <typename T>
__device__ __forceinline__ void add_products(
    float (&sums)[2][4], const uint32_t (&left)[4], const uint32_t (&right)[4]
) {
    for (int j = 0; j < 2; ++j) {
        const uint32_t half[2] = {right[2 * j], right[2 * j + 1]};
        ptx::mma_m16n8k16<T>(sums[j], left, half, sums[j]);
    }
}

// Of the rows and columns that a thread has of such sums, those i and j: rows are 8 apart, and
// so are pairs of columns.
template <int N_ROW_BLOCKS, int N_COL_BLOCKS>
__device__ __forceinline__ float& element(
    float (&sums)[N_ROW_BLOCKS][N_COL_BLOCKS][2][4], int i, int j
) {
    return sums[i / 2][j / 4][j / 2 % 2][i % 2 * 2 + j % 2];
}

// Two neighbouring values, rounded, as one register of a fragment.
template <typename T>
__device__ __forceinline__ uint32_t pack(float first, float second) {
    return __builtin_bit_cast(uint32_t, from_float<T>(Vec<float, 2>{first, second}));
}

// What softmax keeps of a thread's rows.
template <int ROWS>
struct RunningSoftmax {
    float row_max[ROWS];
    float row_sum[ROWS];  // over the thread's columns

    __device__ RunningSoftmax() {
        for (int i = 0; i < ROWS; ++i) row_max[i] = -INFINITY, row_sum[i] = 0.0f;
    }

    // Turns scores into probabilities p, the left operand of the product with v. The sums so
    // far are scaled down to the maximum that p is relative to.
    template <typename T, int M, int N, int D>
    __device__ __forceinline__ void add(
        uint32_t (&p)[M][N][4], float (&sums)[M][D][2][4], float (&scores)[M][N][2][4],
        float exponent_unit
    ) {
        #pragma unroll
        for (int i = 0; i < ROWS; ++i) {
            float new_max = row_max[i];
            for (int j = 0; j < 4 * N; ++j) {
                new_max = fmaxf(new_max, element(scores, i, j));
            }
            new_max = warp_reduce<4>(new_max, Max{});
            const float origin = finite_origin(new_max);
            const float rescale = ptx::exp2((row_max[i] - origin) * exponent_unit);
            row_max[i] = new_max;
            row_sum[i] *= rescale;
            for (int j = 0; j < 4 * D; ++j) element(sums, i, j) *= rescale;
            #pragma unroll
            for (int j = 0; j < 4 * N; j += 2) {
                float two[2];
                for (int c = 0; c < 2; ++c) {
                    // The difference first: the rounding error of a large product could
                    // be more than the exponents of T hold.
                    const float distance = element(scores, i, j + c) - origin;
                    two[c] = ptx::exp2(distance * exponent_unit);
                    row_sum[i] += two[c];
                }
                p[i / 2][j / 4][j / 2 % 2 * 2 + i % 2] = pack<T>(two[0], two[1]);
            }
        }
    }
};
}  // namespace tensor_cores
