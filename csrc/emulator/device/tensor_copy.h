// Copies of boxes of a tensor between global and shared memory, which the tensor memory
// accelerator makes while the threads go on.
#pragma once

#include "../cuda.h"
#include "../runtime.h"

namespace emulator {

/// Where the box begins, in elements.
struct BoxPosition {
    int x, y, z;
};

/// Starts to copy a box into shared memory; the barrier is told of its bytes. What lies
/// outside of the tensor is 0. With `blocks`, a bit for each block of the cluster, it goes
/// to the same place of those and is told to the same barrier of each.
void start_box_load(
    void* shared, const CUtensorMap* map, BoxPosition position, std::uint64_t* barrier,
    const std::uint16_t* blocks, const char* operation, Site site
);

/// Starts to copy a box from shared memory.
void start_box_store(
    const CUtensorMap* map, BoxPosition position, const void* shared, Site site
);

void commit_box_stores();

/// Waits until only this many of the thread's groups of stores, the newest, are still to
/// be read from shared memory.
void wait_for_box_stores(std::size_t unread, Site site);

/// Makes the thread's writes to shared memory, and those it knows of, visible to
/// asynchronous copies and to matrix multiplications.
void publish_shared_writes();

void check_tensor_map(const CUtensorMap* map, const char* operation, Site site);

}  // namespace emulator
