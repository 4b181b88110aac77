// Inline PTX: clusters, blocks that reach each other's shared memory, since Hopper.
#pragma once

#include "common/ptx/memory.cuh"

#ifndef TWIN_EMULATOR

namespace ptx {

// A barrier for all threads of the cluster; it orders their accesses to shared memory.
__device__ __forceinline__ void cluster_sync() {
    asm volatile(
        "barrier.cluster.arrive.release.aligned;\n"
        "barrier.cluster.wait.acquire.aligned;" ::
            : "memory"
    );
}

// The same barrier in two halves, which orders no accesses. A thread that has waited knows
// that all blocks have started, so that it may use their shared memory, and nothing more.
__device__ __forceinline__ void cluster_arrive() {
    asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
}

__device__ __forceinline__ void cluster_wait() {
    asm volatile("barrier.cluster.wait.aligned;" ::: "memory");
}

// The address of another block's instance of `shared`.
template <typename T>
__device__ __forceinline__ T* map_shared(T* shared, int block) {
    uint64_t remote;
    asm volatile("mapa.u64 %0, %1, %2;" : "=l"(remote) : "l"(shared), "r"(block));
    return reinterpret_cast<T*>(remote);
}

// Stores 4 or 8 bytes in another block's instance of `shared`, and reports them to its
// instance of the mbarrier once they are there. Only that block waits, and for these bytes
// alone, where cluster_sync would make all blocks wait for each other.
template <typename T>
__device__ __forceinline__ void store_remote(
    T* shared, T value, uint64_t* barrier, int block
) {
    static_assert(sizeof(T) == 4 || sizeof(T) == 8);
    const auto remote = [&](const void* local) {
        uint32_t address;
        asm("mapa.shared::cluster.u32 %0, %1, %2;"
            : "=r"(address)
            : "r"(shared_address(local)), "r"(block));
        return address;
    };
    if constexpr (sizeof(T) == 4) {
        asm volatile(
            "st.async.shared::cluster.mbarrier::complete_tx::bytes.b32 [%0], %1, "
            "[%2];" ::"r"(remote(shared)),
            "r"(__builtin_bit_cast(uint32_t, value)), "r"(remote(barrier))
            : "memory"
        );
    } else {
        asm volatile(
            "st.async.shared::cluster.mbarrier::complete_tx::bytes.b64 [%0], %1, "
            "[%2];" ::"r"(remote(shared)),
            "l"(__builtin_bit_cast(uint64_t, value)), "r"(remote(barrier))
            : "memory"
        );
    }
}

}  // namespace ptx

#endif  // TWIN_EMULATOR
