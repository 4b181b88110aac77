// Inline PTX: the tensor memory accelerator (TMA), since Hopper. One thread starts the copy
// of a whole box of a tensor, and needs no registers for it.
//
// A tensor map, made on the host, describes a tensor of 3 dimensions and the size of the
// box; x counts along the contiguous dimension. Elements of the box that lie outside of the
// tensor are read as 0, and not written.
#pragma once

#include "common/ptx/memory.cuh"

#ifndef TWIN_EMULATOR

typedef struct CUtensorMap_st CUtensorMap;  // as in <cuda.h>, which kernels do not need

namespace ptx {

// Starts a load. Its bytes count for the mbarrier's phase as they arrive.
__device__ __forceinline__ void tma_load(
    void* shared, const CUtensorMap* map, int x, int y, int z, uint64_t* barrier
) {
    asm volatile(
        "cp.async.bulk.tensor.3d.shared::cluster.global.tile"
        ".mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %5}], [%2];" ::"r"(
            shared_address(shared)
        ),
        "l"(map), "r"(shared_address(barrier)), "r"(x), "r"(y), "r"(z)
        : "memory"
    );
}

// Makes the thread's writes to shared memory visible to TMA, which is another proxy.
__device__ __forceinline__ void fence_async_proxy() {
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

__device__ __forceinline__ void tma_store(
    const CUtensorMap* map, int x, int y, int z, const void* shared
) {
    asm volatile(
        "cp.async.bulk.tensor.3d.global.shared::cta.tile.bulk_group "
        "[%0, {%2, %3, %4}], [%1];" ::"l"(map),
        "r"(shared_address(shared)), "r"(x), "r"(y), "r"(z)
        : "memory"
    );
}

// Closes a group: the stores that the thread has started since its last group.
__device__ __forceinline__ void tma_store_commit_group() {
    asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}

// Waits until at most this many of the thread's groups, the newest ones, have yet to be read
// from shared memory, which may then be written again. The tensor need not have them yet.
template <int UNREAD>
__device__ __forceinline__ void tma_store_wait_group_read() {
    asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(UNREAD) : "memory");
}

}  // namespace ptx

#endif  // TWIN_EMULATOR
