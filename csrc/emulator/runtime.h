// The interface of the scheduler (runtime/) to the device language (device/).
//
// It is small and free of heavy standard headers, because every kernel's translation
// unit includes it, indirectly.
#pragma once

#include <cstddef>
#include <cstdint>

#include "device/vector_types.h"

enum cudaError : int;

namespace emulator {

class Block;
struct Thread;

// ---- Call sites ---------------------------------------------------------------------

/// The place where a kernel called a device function. A default argument `Site::here()`
/// is evaluated at the caller, so messages name the kernel's own file and line.
struct Site {
    const char* file;
    int line;

    static constexpr Site here(
        const char* file = __builtin_FILE(), int line = __builtin_LINE()
    ) {
        return {file, line};
    }
};

// ---- The emulated thread that is running --------------------------------------------

/// The state of one of the emulated threads that share a thread of the operating
/// system. It lies near the top of the emulated thread's stack, and is found by
/// rounding the stack pointer.
struct alignas(64) ThreadRecord {
    uint3 thread_index;
    uint3 block_index;
    Thread* thread;
    Block* block;
};

constexpr std::size_t STACK_BYTES = 64 * 1024;

/// The record of the stack that contains `address`. Its offset depends on the number of
/// the stack: stacks are aligned to their size, so records at equal offsets would all
/// compete for the same cache sets.
inline ThreadRecord* record_of_stack(std::uintptr_t address) {
    constexpr std::uintptr_t STAGGERED_STACKS = 64;
    constexpr std::uintptr_t STAGGER_BYTES = 3 * sizeof(ThreadRecord);
    std::uintptr_t stack_number = address / STACK_BYTES;
    std::uintptr_t stagger = stack_number % STAGGERED_STACKS * STAGGER_BYTES;
    std::uintptr_t stack_end = (stack_number + 1) * STACK_BYTES;
    return reinterpret_cast<ThreadRecord*>(stack_end - stagger - sizeof(ThreadRecord));
}

inline const ThreadRecord& this_thread() {
    return *record_of_stack(
        reinterpret_cast<std::uintptr_t>(__builtin_frame_address(0))
    );
}

/// The block's dynamic shared memory, aligned to 1024 bytes.
unsigned char* dynamic_shared();

/// The lane of the running thread in its warp.
unsigned lane();

// ---- Synchronising with other threads -----------------------------------------------

struct BarrierVotes {
    int threads;  // that arrived
    int votes;    // how many of them voted true
};

/// Waits until every thread of the block has arrived.
BarrierVotes barrier(const char* operation, Site site, bool vote);

/// Computes a warp operation. payloads[lane] is the payload that each lane of the mask
/// passed to warp_meet. The last lane to arrive calls it once, on behalf of all.
using WarpFunction = void (*)(void* const* payloads, unsigned mask);

/// Waits until every lane of the mask has called the same operation at the same place,
/// applies the function to their payloads, and lets them go.
void warp_meet(
    unsigned mask, const char* operation, Site site, void* payload,
    WarpFunction function
);

enum class ShuffleKind { index, up, down, exclusive_or };

/// The value of another lane, chosen as the PTX instruction shfl.sync does.
std::uint64_t shuffle(
    ShuffleKind kind, unsigned mask, std::uint64_t value, unsigned operand, int width,
    const char* operation, Site site
);

/// The lanes that are converged with the running one: all that wait at the same call.
unsigned active_mask(Site site);

// ---- Waiting for memory -------------------------------------------------------------

/// Lets other threads run. Every function that a kernel may poll with in a loop calls
/// it.
void poll(const char* operation, Site site);

/// Nanoseconds of a monotonic clock.
std::int64_t clock_nanoseconds();

struct AtomicAccess {
    const void* address;
    std::uint64_t operand;  // as bits, like
    std::uint64_t before;   // the value in memory before
    std::uint64_t after;    // and after the atomic

    bool operator==(const AtomicAccess&) const = default;
};

/// Called after every atomic: one that is repeated with the same outcome is polling.
void after_atomic(const char* operation, Site site, const AtomicAccess& access);

// ---- Faults -------------------------------------------------------------------------

[[noreturn]] void trap(Site site);
[[noreturn]] void misaligned_access(
    const char* operation, Site site, const void* address, std::size_t alignment
);

/// Ends the launch if a kernel calls it; otherwise the process, as C's assert does.
[[noreturn]] void assertion_failed(
    const char* expression, const char* file, int line, const char* function
);

// ---- Launching ----------------------------------------------------------------------

struct LaunchRequest {
    const void* kernel;
    dim3 grid_size;
    dim3 block_size;
    std::size_t shared_bytes;
    dim3 cluster_size;
    void (*run_thread)(void* arguments);  // calls the kernel once
    void* arguments;
};

cudaError launch(const LaunchRequest& request);

}  // namespace emulator
