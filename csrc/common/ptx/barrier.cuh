// Inline PTX: barriers among some threads of a block, and barriers in shared memory, since
// Hopper.
//
// An mbarrier is 8 bytes of shared memory. A phase of it ends when as many threads have
// arrived as it was initialised for, and as many bytes have come as they announced. Phases
// are even and odd in turn; the first one is even.
#pragma once

#include "common/ptx/memory.cuh"

#ifndef TWIN_EMULATOR

namespace ptx {

// Waits for the n_threads threads that name this barrier, 1 to 15; 0 is __syncthreads'.
__device__ __forceinline__ void named_barrier_sync(int barrier, int n_threads) {
    asm volatile("barrier.sync %0, %1;" ::"r"(barrier), "r"(n_threads) : "memory");
}

__device__ __forceinline__ void mbarrier_init(uint64_t* barrier, int n_arrivals) {
    asm volatile(
        "mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(barrier)),
        "r"(n_arrivals)
        : "memory"
    );
}

// Makes initialised barriers visible to the cluster and to the tensor memory accelerator.
__device__ __forceinline__ void fence_mbarrier_init() {
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

__device__ __forceinline__ void mbarrier_arrive(uint64_t* barrier) {
    asm volatile(
        "mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(barrier))
        : "memory"
    );
}

// Arrives, and announces bytes that the phase has to wait for as well.
__device__ __forceinline__ void mbarrier_arrive_expect_bytes(
    uint64_t* barrier, int bytes
) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(
                     shared_address(barrier)
                 ),
                 "r"(bytes)
                 : "memory");
}

// Waits for the end of the running phase if that has this parity. Else returns at once: the
// phase before it, which has this parity, is over.
__device__ __forceinline__ void mbarrier_wait(uint64_t* barrier, int parity) {
    asm volatile(
        "{\n"
        ".reg .pred is_over;\n"
        "again:\n"
        "mbarrier.try_wait.parity.shared::cta.b64 is_over, [%0], %1;\n"
        "@!is_over bra again;\n"
        "}\n" ::"r"(shared_address(barrier)),
        "r"(parity)
        : "memory"
    );
}

}  // namespace ptx

#endif  // TWIN_EMULATOR
