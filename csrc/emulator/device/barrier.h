// Barriers, fences, and functions that threads poll with.
#pragma once

#include <time.h>  // clock(), which CUDA has in kernels, too

#include "../runtime.h"

inline void __syncthreads(emulator::Site site = emulator::Site::here()) {
    emulator::barrier("__syncthreads", site, false);
}

inline int __syncthreads_count(
    int predicate, emulator::Site site = emulator::Site::here()
) {
    return emulator::barrier("__syncthreads_count", site, predicate != 0).votes;
}

inline int __syncthreads_and(
    int predicate, emulator::Site site = emulator::Site::here()
) {
    auto result = emulator::barrier("__syncthreads_and", site, predicate != 0);
    return result.votes == result.threads;
}

inline int __syncthreads_or(
    int predicate, emulator::Site site = emulator::Site::here()
) {
    return emulator::barrier("__syncthreads_or", site, predicate != 0).votes != 0;
}

/// Only the compiler could reorder accesses, since a block's threads share one
/// processor.
inline void __threadfence_block() { __atomic_signal_fence(__ATOMIC_SEQ_CST); }
inline void __threadfence() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
inline void __threadfence_system() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }

inline void __nanosleep(unsigned, emulator::Site site = emulator::Site::here()) {
    emulator::poll("__nanosleep", site);
}

/// Nanoseconds, not cycles. It counts as a poll, because a kernel may wait for time to
/// pass.
inline long long clock64(emulator::Site site = emulator::Site::here()) {
    emulator::poll("clock64", site);
    return emulator::clock_nanoseconds();
}

[[noreturn]] inline void __trap(emulator::Site site = emulator::Site::here()) {
    emulator::trap(site);
}
