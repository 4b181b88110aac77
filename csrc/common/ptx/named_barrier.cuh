// Inline PTX: the half of a named barrier at which a thread arrives without waiting.
#pragma once

#include "common/ptx/barrier.cuh"

#ifndef TWIN_EMULATOR

namespace ptx {

// Arrives at the barrier and goes on. n_threads counts these threads and those that wait
// there by named_barrier_sync.
__device__ __forceinline__ void named_barrier_arrive(int barrier, int n_threads) {
    asm volatile("barrier.arrive %0, %1;" ::"r"(barrier), "r"(n_threads) : "memory");
}

}  // namespace ptx

#endif  // TWIN_EMULATOR
