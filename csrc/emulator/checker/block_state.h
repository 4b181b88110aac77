// Checks the accesses of a block that runs: for races, by the shadow of the memory and the
// happens-before relation, for their bounds, and for what they read unwritten.
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

/// Counts launches. What a launch did is over when the next begins.
inline std::atomic<std::uint32_t> launch_number{0};

/// What the checker knows of the block that a thread of the operating system runs.
class BlockState {
  public:
    BlockState()
        : thread_local_base_(Module::own().thread_local_base()),
          static_shadow_(Module::own().thread_local_bytes()) {}

    /// `cluster` has the states of all blocks of the cluster, by rank.
    void begin(const BlockFacts& facts, const std::vector<BlockState*>& cluster);
    void end() { in_kernel_ = nullptr; }
    /// A barrier of the block: also where a premature read is reported.
    void complete_barrier();

    void agent_accesses(
        std::uintptr_t address, std::size_t bytes, Access kind, Location location
    );
    void agent_has_written(std::uintptr_t address, std::size_t bytes);

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
        std::uintptr_t address, std::size_t bytes, Access kind, Location location,
        bool is_volatile
    );

    unsigned running_thread() const;

    /// "byte 4 of tensor 'x'": where an address lies, as far as that is known.
    std::string name_of(std::uintptr_t address) const;

    /// Told of all else that orders accesses.
    HappensBefore order;

  private:
    BlockState* owner_of(std::uintptr_t shared_address);
    bool is_in_cluster() const { return cluster_->size() > 1; }

    /// An access that is to be decided on.
    struct Attempt {
        std::uintptr_t address;
        std::size_t bytes;
        Access kind;
        Event event;
    };
    /// An earlier access that is in conflict with a new one.
    struct Race {
        Event earlier;
        bool earlier_wrote;
        bool is_in_flight;
        bool is_unpublished;
        std::size_t offset;
    };

    /// In the static or the dynamic shared memory of a block of the cluster.
    void access_shared(
        BlockState& owner, Shadow& shadow, std::size_t offset, const Attempt& access,
        const std::string* name
    );
    void access_region(
        Region& region, const Attempt& access, std::unique_lock<std::mutex>& lock
    );
    /// Looks for a race with an earlier access, and notes the new one if there is none.
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
