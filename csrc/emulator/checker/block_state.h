// Checks every access of a running block: against the shadow memory and the
// happens-before relation for races, against the bounds of what it lies in, and for
// reads of memory that was never written.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "../observer.h"
#include "happens_before.h"
#include "location.h"
#include "memory.h"
#include "module.h"
#include "shadow.h"

namespace emulator {
namespace [[gnu::visibility("hidden")]] checking {

/// Counts launches. All accesses of a launch happen before those of the next.
inline std::atomic<std::uint32_t> launch_number{0};

/// The checker's state of one running block.
class BlockState {
  public:
    BlockState()
        : thread_local_base_(Module::own().thread_local_base()),
          static_shadow_(Module::own().thread_local_bytes()) {}

    /// `cluster` has the states of all blocks of the cluster, by rank.
    void begin(const BlockFacts& facts, const std::vector<BlockState*>& cluster);
    void end() { in_kernel_ = nullptr; }
    /// Orders the block's accesses, and reports the premature read if there was one.
    void complete_barrier();

    void agent_accesses(
        std::uintptr_t address, std::size_t bytes, Access kind, Location location
    );
    void agent_has_written(std::uintptr_t address, std::size_t bytes);

    /// Marks what follows as the checker's own work; false if no kernel code is
    /// running.
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
        std::uintptr_t address, std::size_t bytes, Access kind, Location location,
        bool is_volatile
    );

    unsigned running_thread() const;

    /// "byte 4 of tensor 'x'"; the bare address if it lies in no known memory.
    std::string name_of(std::uintptr_t address) const;

    HappensBefore order;

  private:
    BlockState* owner_of(std::uintptr_t shared_address);
    bool is_in_cluster() const { return cluster_->size() > 1; }

    /// An access under check.
    struct Attempt {
        std::uintptr_t address;
        std::size_t bytes;
        Access kind;
        Event event;
    };
    /// An earlier access that conflicts with a new one.
    struct Race {
        Event earlier;
        bool earlier_wrote;
        bool is_in_flight;
        bool is_unpublished;
        std::size_t offset;
    };

    /// Checks an access to static or dynamic shared memory of a block of the cluster. A
    /// static variable has a name.
    void access_shared(
        BlockState& owner, Shadow& shadow, std::size_t offset, const Attempt& access,
        const std::string* name
    );
    void access_region(
        Region& region, const Attempt& access, std::unique_lock<std::mutex>& lock
    );
    /// Returns the race with an earlier access; notes the new access if there is none.
    std::optional<Race> find_race(
        Shadow& shadow, std::size_t offset, const Attempt& access,
        std::uint32_t generation
    );
    const SharedVariable* variable_at(std::size_t offset) const;

    // Reports (reports.cpp).
    static std::string verb(const Attempt& access);
    std::string actor(const Event& event, const Event& other) const;
    std::string missing_order(const Event& earlier, const Event& now) const;
    [[noreturn]] void fail_for_race(
        const Race& race, const Attempt& access, const std::string& place
    ) const;
    [[noreturn]] void fail_for_bounds(const Attempt& access) const;
    [[noreturn]] void fail_for_static_variable(
        const Attempt& access, const std::string& name
    ) const;
    std::string describe_stray_access(const Attempt& access) const;
    [[noreturn]] void fail(
        cudaError error, const Event& event, const std::string& what
    ) const;

    // The block.
    std::atomic<bool>* in_kernel_ = nullptr;
    std::uint32_t number_ = 0;  // in its grid
    const std::vector<BlockState*>* cluster_ = nullptr;
    dim3 size_;
    std::uintptr_t shared_begin_ = 0;
    std::size_t shared_bytes_ = 0;

    // Shared memory.
    std::uint32_t generation_ = 0;  // how many blocks it has served
    /// A read of bytes that no thread has written yet. It is reported at the next
    /// barrier: a write before that makes it a race, and the report of a race names
    /// both accesses.
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
