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
    dim3 size;
    const unsigned char* shared_memory;  // dynamic
    std::size_t shared_bytes;
    std::atomic<bool>* in_kernel;  // whether the kernel's own code runs
};

/// An asynchronous write is noted when it is started, because it may happen from then on,
/// and as a write, of the same site, when it has been waited for.
enum class Access : std::uint8_t { read, write, atomic, asynchronous_write };

class Observer {
  public:
    virtual void memory_allocated(const void* address, std::size_t bytes) = 0;
    virtual void memory_freed(const void* address) = 0;
    virtual void launch_begins() = 0;
    // By the thread of the operating system that runs the block:
    virtual void block_begins(const BlockFacts& block) = 0;
    virtual void block_ends() = 0;
    /// All threads of the block are in a barrier, or have returned.
    virtual void barrier_completes() = 0;
    /// These lanes have met in an operation that orders their memory accesses.
    virtual void warp_barrier_completes(unsigned warp, unsigned lanes) = 0;
    virtual void accesses(
        const void* address, std::size_t bytes, Access access, Site site
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
