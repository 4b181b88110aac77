// The events that the runtime reports to the checker (checker/). A build without the
// checker has no observer.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>

#include "runtime.h"

namespace [[gnu::visibility("hidden")]] emulator {

struct BlockFacts {
    const void* kernel;
    std::uint64_t number;  // in its grid
    unsigned rank;         // in its cluster
    unsigned cluster_size;
    dim3 size;
    const unsigned char* shared_memory;  // dynamic
    std::size_t shared_bytes;
    std::atomic<bool>* in_kernel;  // whether the kernel's own code is running
};

/// An asynchronous write is reported at its start, because it may be performed from
/// then on, and as a write of the same site at the end of the wait for it.
enum class Access : std::uint8_t {
    read,
    write,
    atomic,
    asynchronous_read,
    asynchronous_write,
};

/// An agent accesses shared memory asynchronously, on behalf of threads: one for the
/// loads of each mbarrier, for the stores of each warp, and for the multiplications of
/// each warpgroup. It does one piece of work after another.
constexpr unsigned LOAD_AGENTS = 64;  // mbarriers from the 64th on share the last one
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
    /// Memory from a function of CUDA, such as "cudaMalloc".
    virtual void memory_allocated(
        const char* function, const void* address, std::size_t bytes
    ) = 0;
    virtual void memory_freed(const void* address) = 0;
    /// The host has written to memory by a copy or a fill of CUDA.
    virtual void host_has_written(const void* address, std::size_t bytes) = 0;
    virtual void launch_begins() = 0;
    // Called by the thread of the operating system that runs the block:
    virtual void block_begins(const BlockFacts& block) = 0;
    virtual void block_ends(unsigned rank) = 0;
    /// This block of the cluster runs from now on.
    virtual void block_goes_on(unsigned rank) = 0;
    /// All threads of the block wait in a barrier, or have returned.
    virtual void barrier_completes() = 0;
    /// All threads of the cluster wait in its barrier, or have returned.
    virtual void cluster_barrier_completes() = 0;
    /// These lanes have synchronised in an operation that orders their memory accesses.
    virtual void warp_barrier_completes(unsigned warp, unsigned lanes) = 0;
    virtual void accesses(
        const void* address, std::size_t bytes, Access access, Site site
    ) = 0;

    // Named barriers, and mbarriers of any block of the cluster:
    virtual void threads_meet(const unsigned* threads, std::size_t count) = 0;
    virtual void mbarrier_begins(MbarrierId mbarrier) = 0;
    virtual void mbarrier_is_arrived_at(MbarrierId mbarrier, unsigned thread) = 0;
    virtual void mbarrier_phase_ends(MbarrierId mbarrier) = 0;
    virtual void mbarrier_is_awaited(MbarrierId mbarrier, unsigned thread) = 0;
    /// A proxy fence: the accesses to shared memory that happened before it in the
    /// thread also happen before the work of agents that the thread begins.
    virtual void writes_are_published(unsigned thread) = 0;

    // Agents:
    /// An agent begins a piece of work on behalf of threads. Only accesses that
    /// happened before it in all of these threads happen before the work. Returns its
    /// time.
    virtual std::uint32_t agent_begins(
        unsigned agent, const unsigned* threads, std::size_t count
    ) = 0;
    /// The piece of work that was begun last will make this access.
    virtual void agent_accesses(
        const void* address, std::size_t bytes, Access access, Site site
    ) = 0;
    virtual void agent_has_written(const void* address, std::size_t bytes) = 0;
    /// The work of an agent of the block of this rank, up to a time, arrives at the
    /// mbarrier.
    virtual void mbarrier_hears_of(
        MbarrierId mbarrier, unsigned rank, unsigned agent, std::uint32_t time
    ) = 0;
    virtual void agent_is_awaited(
        unsigned agent, std::uint32_t time, unsigned thread
    ) = 0;

  protected:
    ~Observer() = default;
};

/// The checker sets it before the program's main function begins.
inline constinit Observer* observer = nullptr;

/// Reports an access that the runtime makes on behalf of the running thread, and that
/// the kernel's compiler therefore does not see.
inline void note_access(
    const void* address, std::size_t bytes, Access access, Site site
) {
    if (observer != nullptr) observer->accesses(address, bytes, access, site);
}

/// Ends the launch for a fault of a thread of the running block.
[[noreturn]] void fail_in_thread(
    cudaError error, const std::string& what, unsigned thread
);

}  // namespace emulator
