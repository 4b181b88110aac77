// Inline PTX: what the blocks of a cluster do for each other, since Hopper: one loads for all,
// and each tells the others what they may write to.
#pragma once

#include "common/ptx/memory.cuh"
#include "common/ptx/tma.cuh"

#ifndef TWIN_EMULATOR

namespace ptx {

// Starts a load for several blocks of the cluster, those whose bits are set: the box comes to
// the same place in each one's shared memory, and its bytes count for each one's mbarrier.
__device__ __forceinline__ void tma_load_multicast(
    void* shared, const CUtensorMap* map, int x, int y, int z, uint64_t* barrier,
    uint16_t blocks
) {
    asm volatile(
        "cp.async.bulk.tensor.3d.shared::cluster.global.tile"
        ".mbarrier::complete_tx::bytes.multicast::cluster "
        "[%0], [%1, {%3, %4, %5}], [%2], %6;" ::"r"(shared_address(shared)),
        "l"(map), "r"(shared_address(barrier)), "r"(x), "r"(y), "r"(z), "h"(blocks)
        : "memory"
    );
}

// Arrives at another block's instance of the barrier, in the same cluster. It orders no accesses
// of that block to memory: those of the tensor cores, which have been waited for, need none.
__device__ __forceinline__ void mbarrier_arrive_remote(uint64_t* barrier, int block) {
    asm volatile(
        "{\n"
        ".reg .b32 remote;\n"
        "mapa.shared::cluster.u32 remote, %0, %1;\n"
        "mbarrier.arrive.shared::cluster.b64 _, [remote];\n"
        "}\n" ::"r"(shared_address(barrier)),
        "r"(block)
        : "memory"
    );
}

}  // namespace ptx

#endif  // TWIN_EMULATOR
