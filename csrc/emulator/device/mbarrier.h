// Mbarriers, which count arrivals and the bytes of asynchronous copies, and named
// barriers.
//
// A waiting thread does not poll: the end of the phase wakes it, so a deadlock is found
// at once. runtime/mbarrier.h describes the 8 bytes of an mbarrier.
#pragma once

#include "../runtime.h"

namespace emulator {

void initialise_mbarrier(std::uint64_t* barrier, int arrivals, Site site);

/// Makes the mbarriers that the thread has initialised visible to the cluster and to
/// asynchronous copies.
void publish_mbarriers();

/// Adds to the bytes that the running phase expects, and arrives.
void arrive_at_mbarrier(
    std::uint64_t* barrier, int bytes, const char* operation, Site site
);

/// Arrives at the mbarrier with the same offset in another block of the cluster.
void arrive_at_remote_mbarrier(std::uint64_t* barrier, int block, Site site);

/// Counts bytes that were written to another block of the cluster at the mbarrier with
/// the same offset there.
void complete_remote_bytes(std::uint64_t* barrier, int bytes, int block, Site site);

/// Waits until the phase with this parity has ended.
void wait_for_mbarrier(std::uint64_t* barrier, int parity, Site site);

/// Waits until this many threads have arrived at the barrier with this number.
void meet_at_named_barrier(int barrier, int threads, Site site);

/// Arrives there and goes on.
void arrive_at_named_barrier(int barrier, int threads, Site site);

}  // namespace emulator
