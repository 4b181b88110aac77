// How the runtime tells the checker (checker/) what a kernel does. A build without the
// checker has no observer.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>

#include "runtime.h"

namespace [[gnu::visibility("hidden")]] emulator {

/// One block, from when a thread of the operating system begins to run it.
struct BlockFacts {
    const void* kernel;
    std::uint64_t number;  // in its grid
    unsigned rank;         // in its cluster
    unsigned cluster_size;
    dim3 size;
    const unsigned char* shared_memory;  // dynamic
    std::size_t shared_bytes;
    std::atomic<bool>* in_kernel;  // whether the kernel's own code runs
};

/// An asynchronous write is noted when it is started, because it may happen from then on,
/// and as a write, of the same site, when it has been waited for.
enum class Access : std::uint8_t {
    read,
    write,
    atomic,
    asynchronous_read,
    asynchronous_write,
};

/// What accesses shared memory on its own, on behalf of threads that go on: the loads that
/// tell one mbarrier, the stores of one warp, the multiplications of one warpgroup. What
/// one agent does, it does piece by piece.
constexpr unsigned LOAD_AGENTS =
    64;  // the last one stands for all mbarriers from there
constexpr unsigned STORE_AGENTS = 32;
constexpr unsigned MULTIPLY_AGENTS = 8;
constexpr unsigned AGENTS = LOAD_AGENTS + STORE_AGENTS + MULTIPLY_AGENTS;

constexpr unsigned load_agent(unsigned mbarrier) {
    return mbarrier < LOAD_AGENTS ? mbarrier : LOAD_AGENTS - 1;
}
constexpr unsigned store_agent(unsigned warp) { return LOAD_AGENTS + warp; }
constexpr unsigned multiply_agent(unsigned warpgroup) {
    return LOAD_AGENTS + STORE_AGENTS + warpgroup;
}

struct MbarrierId {
    unsigned rank;    // of its block in the cluster
    unsigned number;  // in the block
};

class Observer {
  public:
    virtual void memory_allocated(const void* address, std::size_t bytes) = 0;
    virtual void memory_freed(const void* address) = 0;
    virtual void launch_begins() = 0;
    // By the thread of the operating system that runs the block:
    virtual void block_begins(const BlockFacts& block) = 0;
    virtual void block_ends(unsigned rank) = 0;
    /// Of a cluster, it is this block that runs from now on.
    virtual void block_goes_on(unsigned rank) = 0;
    /// All threads of the block are in a barrier, or have returned.
    virtual void barrier_completes() = 0;
    /// The same of all blocks of the cluster.
    virtual void cluster_barrier_completes() = 0;
    /// These lanes have met in an operation that orders their memory accesses.
    virtual void warp_barrier_completes(unsigned warp, unsigned lanes) = 0;
    virtual void accesses(
        const void* address, std::size_t bytes, Access access, Site site
    ) = 0;

    // Of a part of the block, and of mbarriers, also of other blocks of the cluster:
    virtual void threads_meet(const unsigned* threads, std::size_t count) = 0;
    virtual void mbarrier_begins(MbarrierId mbarrier) = 0;
    virtual void mbarrier_is_arrived_at(MbarrierId mbarrier, unsigned thread) = 0;
    virtual void mbarrier_phase_ends(MbarrierId mbarrier) = 0;
    virtual void mbarrier_is_awaited(MbarrierId mbarrier, unsigned thread) = 0;
    /// What is known of shared memory to the thread, is so to agents that it starts.
    virtual void writes_are_published(unsigned thread) = 0;

    // Of agents:
    /// A piece of work begins on behalf of threads: what they have not waited for, it has
    /// not. Returns its time.
    virtual std::uint32_t agent_begins(
        unsigned agent, const unsigned* threads, std::size_t count
    ) = 0;
    /// What the piece of work that was begun last will access.
    virtual void agent_accesses(
        const void* address, std::size_t bytes, Access access, Site site
    ) = 0;
    virtual void agent_has_written(const void* address, std::size_t bytes) = 0;
    /// The mbarrier counts what an agent of the block of this rank did up to a time.
    virtual void mbarrier_hears_of(
        MbarrierId mbarrier, unsigned rank, unsigned agent, std::uint32_t time
    ) = 0;
    virtual void agent_is_awaited(
        unsigned agent, std::uint32_t time, unsigned thread
    ) = 0;

  protected:
    ~Observer() = default;
};

/// Set before the program begins, if at all.
inline constinit Observer* observer = nullptr;

/// The running thread accesses memory in a way that the kernel's compiler does not see,
/// because the runtime does it on the thread's behalf.
inline void note_access(
    const void* address, std::size_t bytes, Access access, Site site
) {
    if (observer != nullptr) observer->accesses(address, bytes, access, site);
}

/// Ends the launch, because of what a thread of the running block did.
[[noreturn]] void fail_in_thread(
    cudaError error, const std::string& what, unsigned thread
);

}  // namespace emulator
