// What the checker knows of a block that runs: the shadow of its shared memory, and which
// of its threads' accesses are ordered by barriers.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "../observer.h"
#include "location.h"
#include "memory.h"
#include "module.h"
#include "shadow.h"

namespace emulator {
namespace [[gnu::visibility("hidden")]] checking {

constexpr unsigned WARP_SIZE = 32;
constexpr unsigned MAX_THREADS = 1024;

/// Counts launches. What a launch did is over when the next begins.
inline std::atomic<std::uint32_t> launch_number{0};

/// Whether blocks of this launch wait for each other, by atomics, fences or volatile
/// variables. The checker cannot tell what is ordered by that.
inline std::atomic<bool> blocks_communicate{false};

/// What the checker knows of the block that a thread of the operating system runs.
class BlockState {
  public:
    BlockState()
        : thread_local_base_(Module::own().thread_local_base()),
          static_shadow_(Module::own().thread_local_bytes()) {}

    void begin(const BlockFacts& facts);
    void end() { in_kernel_ = nullptr; }
    void complete_barrier();
    void complete_warp_barrier(unsigned warp, unsigned lanes);

    /// Marks the checker's own work; false if it is not the kernel that runs.
    bool pause_kernel() {
        if (in_kernel_ == nullptr || !in_kernel_->load(std::memory_order_relaxed)) {
            return false;
        }
        in_kernel_->store(false, std::memory_order_relaxed);
        std::atomic_signal_fence(std::memory_order_seq_cst);
        return true;
    }
    void resume_kernel() {
        std::atomic_signal_fence(std::memory_order_seq_cst);
        in_kernel_->store(true, std::memory_order_relaxed);
    }

    void access(
        std::uintptr_t address,
        std::size_t bytes,
        Access kind,
        Location location,
        bool is_volatile
    );

    unsigned running_thread() const;

    /// "byte 4 of tensor 'x'": where an address lies, as far as that is known.
    std::string name_of(std::uintptr_t address) const;

  private:
    Event event_of_running_thread(Access kind, Location location) const;
    bool is_ordered(const Event& earlier, const Event& now) const;

    /// An access that is to be decided on.
    struct Attempt {
        std::uintptr_t address;
        std::size_t bytes;
        Access kind;
        Event event;
    };
    /// An earlier access that a new one is not ordered with.
    struct Finding {
        Event earlier;
        bool earlier_wrote;
        bool is_in_flight;
        std::size_t offset;
    };

    void access_shared(
        Shadow& shadow,
        std::size_t offset,
        const Attempt& access,
        const std::string* name
    );
    void access_region(
        Region& region, const Attempt& access, std::unique_lock<std::mutex>& lock
    );
    /// Checks an access against the earlier ones and notes it.
    std::optional<Finding> check_order(
        Shadow& shadow,
        std::size_t offset,
        const Attempt& access,
        std::uint32_t generation
    );
    const SharedVariable* variable_at(std::size_t offset) const;

    // Reports (reports.cpp).
    static std::string verb(const Attempt& access);
    [[noreturn]] static void fail_for_order(
        const Finding& finding, const Attempt& access, const std::string& place
    );
    [[noreturn]] void fail_for_bounds(const Attempt& access) const;
    std::string describe_stray_access(const Attempt& access) const;
    [[noreturn]] static void fail(
        cudaError error, const Event& event, const std::string& what
    );

    // The block.
    std::atomic<bool>* in_kernel_ = nullptr;
    std::uint32_t number_ = 0;  // in its grid
    dim3 size_;
    std::uintptr_t shared_begin_ = 0;
    std::size_t shared_bytes_ = 0;

    // Time: how many barriers the block has passed, how many of its warp each thread has,
    // and what that tells it of the other lanes.
    std::uint32_t generation_ = 0;
    std::uint32_t epoch_ = 0;
    std::array<std::uint32_t, MAX_THREADS> clocks_;
    std::array<std::array<std::uint32_t, WARP_SIZE>, MAX_THREADS> seen_;

    // Shared memory.
    /// A read of what nobody has written yet. If somebody does before the next barrier,
    /// it is a race, which names both; so it is reported no earlier.
    struct PrematureRead {
        Event event;
        std::string what;
    };
    std::optional<PrematureRead> premature_read_;
    std::uintptr_t thread_local_base_;
    Shadow static_shadow_;
    std::unique_ptr<Shadow> dynamic_shadow_;
};

}  // namespace checking
}  // namespace emulator
