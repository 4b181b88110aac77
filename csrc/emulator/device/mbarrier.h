// Barriers in shared memory (mbarrier), which count arrivals and the bytes of asynchronous
// copies, and barriers of a part of a block.
//
// A thread that waits is woken by what it waits for: nothing polls, so that a deadlock is
// seen at once. runtime/mbarrier.h says what a barrier's 8 bytes hold.
#pragma once

#include "../runtime.h"

namespace emulator {

void initialise_mbarrier(std::uint64_t* barrier, int arrivals, Site site);

/// Makes the barriers that the thread has initialised known to the cluster and to
/// asynchronous copies.
void publish_mbarriers();

/// Lets the running phase expect this many bytes more, and arrives.
void arrive_at_mbarrier(
    std::uint64_t* barrier, int bytes, const char* operation, Site site
);

/// Arrives at the same barrier of another block of the cluster.
void arrive_at_remote_mbarrier(std::uint64_t* barrier, int block, Site site);

/// Tells the same barrier of another block of the cluster of bytes that were written there.
void complete_remote_bytes(std::uint64_t* barrier, int bytes, int block, Site site);

/// Waits while the running phase has this parity.
void wait_for_mbarrier(std::uint64_t* barrier, int parity, Site site);

/// Waits until this many threads are at the barrier of this number.
void meet_at_named_barrier(int barrier, int threads, Site site);

}  // namespace emulator
