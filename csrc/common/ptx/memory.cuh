// Inline PTX: addresses in shared memory, and loads that tell the caches what comes next.
#pragma once

#include <cuda_runtime.h>

#ifdef TWIN_EMULATOR
#include "emulated_ptx.h"
#else

#include <cstdint>

namespace ptx {

// The 32-bit address that instructions on shared memory take.
__device__ __forceinline__ uint32_t shared_address(const void* shared) {
    return static_cast<uint32_t>(__cvta_generic_to_shared(shared));
}

// Loads data that will soon be read again: both caches evict it last, while other data
// streams through them. By default the oldest goes first, which is just what is read next.
__device__ __forceinline__ uint4 load_evict_last(const uint4* ptr) {
    uint64_t policy;
    asm("createpolicy.fractional.L2::evict_last.b64 %0, 1.0;" : "=l"(policy));
    uint4 value;
    asm volatile(
        "ld.global.L1::evict_last.L2::cache_hint.v4.u32 {%0, %1, %2, %3}, [%4], %5;"
        : "=r"(value.x), "=r"(value.y), "=r"(value.z), "=r"(value.w)
        : "l"(ptr), "l"(policy)
    );
    return value;
}

}  // namespace ptx

#endif  // TWIN_EMULATOR
