// Tensor copies: asynchronous copies of boxes of a tensor, or of neighbouring bytes,
// between global and shared memory by the tensor memory accelerator.
#pragma once

#include "../cuda.h"
#include "../runtime.h"

namespace emulator {

/// The first element of the box, of a tensor of 3 or 4 dimensions.
struct BoxPosition {
    int x, y, z;
    int w = 0;
    unsigned rank = 3;
};

/// Starts to copy a box into shared memory; the mbarrier counts its bytes. Elements
/// outside of the tensor become 0. `blocks` has a bit for each block of the cluster
/// that gets the box, at the same offset, and whose mbarrier at the same offset counts
/// it.
void start_box_load(
    void* shared, const CUtensorMap* map, BoxPosition position, std::uint64_t* barrier,
    const std::uint16_t* blocks, const char* operation, Site site
);

/// Starts to copy neighbouring bytes into shared memory; the mbarrier counts them.
void start_bulk_load(
    void* shared, const void* global, int bytes, std::uint64_t* barrier, Site site
);

/// Starts to copy a box from shared memory.
void start_box_store(
    const CUtensorMap* map, BoxPosition position, const void* shared, Site site
);

void commit_box_stores();

/// Waits until all of the thread's groups of stores but this many of the newest have
/// been read from shared memory.
void wait_for_box_stores(std::size_t unread, Site site);

/// Proxy fence: makes writes to shared memory that happened before visible to tensor
/// copies and to matrix multiplications.
void publish_shared_writes();

void check_tensor_map(const CUtensorMap* map, const char* operation, Site site);

}  // namespace emulator
