// The end of attention_kernel's tile of queries: 64 rows of out leave a warpgroup's registers.
#pragma once

#include "common/launch.cuh"
#include "common/ptx/mma.cuh"
#include "common/vec.cuh"
#include "matmul/ring.cuh"

namespace twin {

// Writes rows, each times a factor, to boxes of 64 columns, swizzled as tensor maps have it.
// A lane has 2 of each 8 columns, in row lane / 4 and 8 rows below, as wgmma leaves them.
template <typename T, int HEAD_DIM>
__device__ __forceinline__ void store_rows(
    Box* boxes, const float (&rows)[HEAD_DIM / 8][2][2], const float (&factors)[2],
    int thread
) {
    const int warp = thread / WARP_SIZE, lane = thread % WARP_SIZE;
    const int row = warp * 16 + lane % 16;
    #pragma unroll
    for (int col = 0; col < HEAD_DIM; col += 16) {
        // Four matrices: rows 0 to 7 and 8 to 15 of 8 columns, and of the next 8. Lane l
        // passes the address of row l % 16 in the first or second 8 columns.
        uint32_t matrices[4];
        #pragma unroll
        for (int i = 0; i < 4; ++i) {
            const auto [left, right] = rows[col / 8 + i / 2][i % 2];
            const Vec<float, 2> pair{left * factors[i % 2], right * factors[i % 2]};
            matrices[i] = __builtin_bit_cast(uint32_t, from_float<T>(pair));
        }
        const int chunk = (col % BOX_SIZE / 8 + lane / 16) ^ row % 8;
        ptx::stmatrix(
            boxes[col / BOX_SIZE].bytes + row * ROW_BYTES + chunk * 16, matrices
        );
    }
}

}  // namespace twin
