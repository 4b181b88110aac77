// Stands in for CUDA's header of this name: asynchronous copies, as functions.
#pragma once

#include "cuda_runtime.h"
#include "device/async_copy.h"

/// The last `zero_filled` bytes of the target become 0; their source is not read.
inline void __pipeline_memcpy_async(
    void* target, const void* source, std::size_t bytes, std::size_t zero_filled = 0,
    emulator::Site site = emulator::Site::here()
) {
    emulator::start_async_copy(
        target, source, bytes, bytes - zero_filled, "__pipeline_memcpy_async", site
    );
}

inline void __pipeline_commit() { emulator::commit_async_copies(); }

/// Leaves at most 8 groups unfinished, as CUDA's function does.
inline void __pipeline_wait_prior(std::size_t unfinished) {
    constexpr std::size_t MOST = 8;
    emulator::wait_for_async_groups(unfinished < MOST ? unfinished : MOST);
}
