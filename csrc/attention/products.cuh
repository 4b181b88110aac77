// The two kinds of products of the kernels for Hopper, which a warpgroup starts and does not
// wait for. Here they have the names of the forward; in the backward q is k, v or grad, too.
#pragma once

#include "attention/ring.cuh"
#include "common/ptx/wgmma_registers.cuh"
#include "common/ptx/wgmma_shapes.cuh"

namespace twin {

// scores (64 x BLOCK_N) = q (64 x HEAD_DIM) times k (BLOCK_N x HEAD_DIM) transposed, of which
// descriptors tell where they are in shared memory.
template <typename T, int HEAD_DIM, int BLOCK_N>
__device__ __forceinline__ void start_scores(
    float (&scores)[BLOCK_N / 8][2][2], uint64_t q, uint64_t k
) {
    ptx::wgmma_fence();
    #pragma unroll
    for (int d = 0; d < HEAD_DIM; d += 16) {
        const int box = d / BOX_SIZE, bytes = d % BOX_SIZE * int{sizeof(T)};
        ptx::wgmma_m64k16<T, ptx::Major::K, ptx::Major::K, BLOCK_N>(
            reinterpret_cast<float (&)[BLOCK_N / 2]>(scores),
            ptx::wgmma_advance(q, box * int{sizeof(Box)} + bytes),
            ptx::wgmma_advance(k, box * int{sizeof(KeyBox<BLOCK_N>)} + bytes), d > 0
        );
    }
    ptx::wgmma_commit_group();
}

// out (64 x HEAD_DIM) += p (64 x BLOCK_N), in registers, times v (BLOCK_N x HEAD_DIM).
template <typename T, int HEAD_DIM, int BLOCK_N>
__device__ __forceinline__ void start_values(
    float (&out)[HEAD_DIM / 8][2][2], const uint32_t (&p)[BLOCK_N / 16][4], uint64_t v
) {
    ptx::wgmma_fence();
    #pragma unroll
    for (int key = 0; key < BLOCK_N; key += 16) {
        ptx::wgmma_m64k16<T, ptx::Major::MN, HEAD_DIM>(
            reinterpret_cast<float (&)[HEAD_DIM / 2]>(out), p[key / 16],
            ptx::wgmma_advance(v, key * ROW_BYTES), true
        );
    }
    ptx::wgmma_commit_group();
}

}  // namespace twin
