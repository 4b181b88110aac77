// Inline PTX: copies of neighbouring bytes to shared memory by one thread, since Hopper;
// tma.cuh has those of boxes of tensors.
#pragma once

#include "common/ptx/memory.cuh"

#ifndef TWIN_EMULATOR

namespace ptx {

// Starts a copy of bytes, which count for the mbarrier's phase as they arrive. Their number
// and both addresses are multiples of 16.
__device__ __forceinline__ void bulk_load(
    void* shared, const void* global, int bytes, uint64_t* barrier
) {
    asm volatile(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes "
        "[%0], [%1], %2, [%3];" ::"r"(shared_address(shared)),
        "l"(global), "r"(bytes), "r"(shared_address(barrier))
        : "memory"
    );
}

}  // namespace ptx

#endif  // TWIN_EMULATOR
