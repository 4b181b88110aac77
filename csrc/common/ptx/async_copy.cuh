// Inline PTX: asynchronous copies from global to shared memory, since Ampere. A thread starts
// them and waits for them later; they hold no registers while they are under way.
#pragma once

#include "common/ptx/memory.cuh"

#ifndef TWIN_EMULATOR

namespace ptx {

// Starts a copy of 4, 8 or 16 bytes between addresses that are multiples of that. Only the
// first source_bytes are read; zeros fill the rest. Copies of 16 bytes bypass the L1 (.cg),
// which has no use for data that is read once; shorter ones cannot (.ca).
template <int BYTES>
__device__ __forceinline__ void cp_async(
    void* shared, const void* global, int source_bytes = BYTES
) {
    static_assert(BYTES == 4 || BYTES == 8 || BYTES == 16);
    const uint32_t to = shared_address(shared);
    if constexpr (BYTES == 16) {
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to),
                     "l"(global), "r"(source_bytes)
                     : "memory");
    } else {
        asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(to),
                     "l"(global), "n"(BYTES), "r"(source_bytes)
                     : "memory");
    }
}

// Closes a group: the copies that the thread has started since its last group.
__device__ __forceinline__ void cp_async_commit_group() {
    asm volatile("cp.async.commit_group;" ::: "memory");
}

// Waits until at most this many of the thread's groups, the newest ones, are under way.
template <int UNFINISHED>
__device__ __forceinline__ void cp_async_wait_group() {
    asm volatile("cp.async.wait_group %0;" ::"n"(UNFINISHED) : "memory");
}

// Waits for all copies of the thread.
__device__ __forceinline__ void cp_async_wait_all() {
    asm volatile("cp.async.wait_all;" ::: "memory");
}

}  // namespace ptx

#endif  // TWIN_EMULATOR
