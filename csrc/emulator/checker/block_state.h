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
#include <vector>

#include "../observer.h"
#include "knowledge.h"
#include "location.h"
#include "memory.h"
#include "module.h"
#include "shadow.h"

namespace emulator {
namespace [[gnu::visibility("hidden")]] checking {

constexpr unsigned WARP_SIZE = 32;
constexpr unsigned MAX_CLUSTER_SIZE = 8;
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

    /// `cluster` has the states of all blocks of the cluster, by rank.
    void begin(const BlockFacts& facts, const std::vector<BlockState*>& cluster);
    void end() { in_kernel_ = nullptr; }
    void complete_barrier();
    void complete_warp_barrier(unsigned warp, unsigned lanes);

    // Barriers of other kinds, and agents: see Observer.
    void complete_cluster_barrier();
    void threads_meet(const unsigned* threads, std::size_t count);
    void mbarrier_begins(MbarrierId mbarrier);
    void mbarrier_is_arrived_at(MbarrierId mbarrier, unsigned thread);
    void mbarrier_phase_ends(MbarrierId mbarrier);
    void mbarrier_is_awaited(MbarrierId mbarrier, unsigned thread);
    void writes_are_published(unsigned thread);
    std::uint32_t agent_begins(
        unsigned agent, const unsigned* threads, std::size_t count
    );
    void agent_accesses(
        std::uintptr_t address, std::size_t bytes, Access kind, Location location
    );
    void agent_has_written(std::uintptr_t address, std::size_t bytes);
    void mbarrier_hears_of(
        MbarrierId mbarrier, unsigned rank, unsigned agent, std::uint32_t time
    );
    void agent_is_awaited(unsigned agent, std::uint32_t time, unsigned thread);

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

  private:
    Event event_of_running_thread(Access kind, Location location) const;
    bool is_ordered(const Event& earlier, const Event& now) const;
    bool is_unpublished(const Event& write, Access kind) const;
    unsigned thread_count() const { return size_.x * size_.y * size_.z; }
    void follow_each_thread();
    void follow_own_threads();
    const BlockState* of_cluster(std::uint32_t block) const;
    BlockState* owner_of(std::uintptr_t shared_address);
    bool is_in_cluster() const { return cluster_->size() > 1; }

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
    /// Checks an access against the earlier ones and notes it.
    std::optional<Finding> check_order(
        Shadow& shadow, std::size_t offset, const Attempt& access,
        std::uint32_t generation
    );
    const SharedVariable* variable_at(std::size_t offset) const;

    // Reports (reports.cpp).
    static std::string verb(const Attempt& access);
    std::string actor(const Event& event, const Event& other) const;
    std::string missing_order(const Event& earlier, const Event& now) const;
    [[noreturn]] void fail_for_order(
        const Finding& finding, const Attempt& access, const std::string& place
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
    unsigned rank_ = 0;         // in its cluster
    const std::vector<BlockState*>* cluster_ = nullptr;
    dim3 size_;
    std::uintptr_t shared_begin_ = 0;
    std::size_t shared_bytes_ = 0;

    // Time: how many barriers the block has passed, how many of its warp each thread has,
    // and what that tells it of the other lanes.
    std::uint32_t generation_ = 0;
    std::uint32_t epoch_ = 0;
    std::array<std::uint32_t, MAX_THREADS> clocks_;
    std::array<std::array<std::uint32_t, WARP_SIZE>, MAX_THREADS> seen_;

    /// Of each block of the cluster, the epoch from which on nothing is known of it.
    std::array<std::uint32_t, MAX_CLUSTER_SIZE> seen_epochs_;

    // The same where threads also meet in other ways, by mbarriers and the like: from the
    // first of those on, what each thread knows of each.
    struct Mbarrier {
        Knowledge arrived;   // of those that have arrived, whether the phase has ended
        Knowledge complete;  // or not, and where it has
    };
    Mbarrier& state_of(MbarrierId mbarrier);
    bool follows_each_thread_ = false;
    std::vector<Knowledge> knowledge_;
    std::vector<Mbarrier> mbarriers_;
    std::array<std::uint32_t, AGENTS> agent_times_;
    /// The agent's piece of work that was begun last.
    struct Piece {
        unsigned agent;
        unsigned thread;  // one of those that began it
        Knowledge knowledge;
    };
    Piece piece_{};

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
