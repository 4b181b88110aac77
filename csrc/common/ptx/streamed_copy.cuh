// Inline PTX: asynchronous copies to shared memory, since Ampere, of what is read once. The L2
// evicts it first, so that what is read again, or was written just before, stays.
#pragma once

#include "common/ptx/memory.cuh"

#ifndef TWIN_EMULATOR

namespace ptx {

// As cp_async of 16 bytes.
__device__ __forceinline__ void cp_async_once(
    void* shared, const void* global, int source_bytes
) {
    uint64_t policy;
    asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
    asm volatile(
        "cp.async.cg.shared.global.L2::cache_hint [%0], [%1], 16, %2, %3;" ::"r"(
            shared_address(shared)
        ),
        "l"(global), "r"(source_bytes), "l"(policy)
        : "memory"
    );
}

}  // namespace ptx

#endif  // TWIN_EMULATOR
