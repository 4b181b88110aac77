// Asynchronous copies from global to shared memory: what cp.async and CUDA's functions
// for it (cuda_pipeline_primitives.h) have in common.
//
// A thread starts copies, closes them off in groups and waits for its oldest groups.
// Between the two a copy may happen at any time; TWIN_EMULATOR_ASYNC says when it does
// (README.md). What a thread has not waited for when it returns, nobody may rely on.
#pragma once

#include "../runtime.h"

namespace emulator {

/// Starts a copy of 4, 8 or 16 bytes. Only the first `source_bytes` are read, the rest
/// of the target becomes 0.
void start_async_copy(
    void* target, const void* source, std::size_t bytes, std::size_t source_bytes,
    const char* operation, Site site
);

/// Makes one group of the copies that the thread has started since the last group. It
/// may be empty, and counts all the same.
void commit_async_copies();

/// Waits until only this many of the thread's groups, the newest, are unfinished.
void wait_for_async_groups(std::size_t unfinished);

/// Waits for all copies of the thread, whether in a group or not.
void wait_for_async_copies();

}  // namespace emulator
