// Asynchronous copies from global to shared memory, for cp.async and for CUDA's
// functions (cuda_pipeline_primitives.h).
//
// A thread starts copies, commits them in groups and waits for its oldest groups. A
// copy may be performed at any time between its start and the end of the wait for it;
// TWIN_EMULATOR_ASYNC says when (README.md). A copy that its thread has not waited for
// when it returns may never be performed.
#pragma once

#include "../runtime.h"

namespace emulator {

/// Starts a copy of 4, 8 or 16 bytes. Only the first `source_bytes` are read; the rest
/// of the target becomes 0.
void start_async_copy(
    void* target, const void* source, std::size_t bytes, std::size_t source_bytes,
    const char* operation, Site site
);

/// Makes a group of the copies that the thread has started since its last group. An
/// empty group counts, too.
void commit_async_copies();

/// Waits for all of the thread's groups but this many of the newest.
void wait_for_async_groups(std::size_t unfinished);

/// Waits for all copies of the thread, whether in a group or not.
void wait_for_async_copies();

}  // namespace emulator
