// Which accesses of a cluster's threads happened before which (Lamport 1978), by the
// barriers that its blocks have passed. A race is a pair that neither way is true of.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "../observer.h"
#include "location.h"
#include "vector_clock.h"

namespace emulator {
namespace [[gnu::visibility("hidden")]] checking {

constexpr unsigned MAX_THREADS = 1024;
constexpr unsigned WARP_SIZE = 32;
constexpr unsigned MAX_CLUSTER_SIZE = 8;

/// Threads have their numbers in the block; those of agents follow on the largest.
constexpr unsigned event_number_of_agent(unsigned agent) { return MAX_THREADS + agent; }

/// Whether blocks of this launch wait for each other, by atomics, fences or volatile
/// variables. The checker cannot tell what is ordered by that.
inline std::atomic<bool> blocks_communicate{false};

/// An access by one thread, or by an agent. Thread and clock are what is called an epoch in
/// FastTrack (Flanagan & Freund 2009).
struct Event {
    Location location;
    std::uint32_t block;     // its number in the grid, modulo 2^32
    std::uint32_t interval;  // counts from 1 between barriers; 0: no access
    std::uint32_t clock;     // counts what lets others know of the thread's accesses
    std::uint16_t thread;
    bool is_atomic;

    bool is_by_agent() const { return thread >= MAX_THREADS; }

    bool by_same_thread(const Event& other) const {
        return thread == other.thread && block == other.block;
    }
    unsigned warp() const { return thread / 32; }
};

/// The happens-before relation of a block's threads and agents, and of its cluster's.
///
/// While threads meet only at barriers of the block, the cluster and the warp, intervals
/// and the clocks of a warp's lanes tell. From the first other meeting on (of mbarriers and
/// the like), every thread and every agent's work has vector clocks of its own.
class HappensBefore {
  public:
    /// `cluster` has those of all blocks of the cluster, by rank.
    void begin(const BlockFacts& facts, const std::vector<HappensBefore*>& cluster);

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
        unsigned agent, const unsigned* threads, std::size_t count, unsigned beginner
    );
    void mbarrier_hears_of(
        MbarrierId mbarrier, unsigned rank, unsigned agent, std::uint32_t time
    );
    void agent_is_awaited(unsigned agent, std::uint32_t time, unsigned thread);

    Event event_of_thread(unsigned thread, Access kind, Location location) const;
    Event event_of_agent(Location location) const;
    /// The thread that began what an agent does now, or one of them.
    unsigned beginner() const { return work_.beginner; }

    bool happened_before(const Event& earlier, const Event& now) const;
    /// Whether an asynchronous access may miss what a thread has written.
    bool is_unpublished(const Event& write, Access kind) const;
    bool is_of_cluster(std::uint32_t block) const {
        return of_cluster(block) != nullptr;
    }
    bool follows_each_thread() const { return follows_each_thread_; }

  private:
    /// What a thread, an mbarrier or an agent's work knows of accesses.
    struct View {
        VectorClock seen;       // those that happened before
        VectorClock published;  // of them, those that asynchronous accesses see, too,
        std::uint32_t published_interval = 0;  // as they see all before this interval

        void begin(std::size_t components);
        void publish(std::uint32_t interval);
        void join(const View& other);
        void meet(const View& other);
    };
    struct Mbarrier {
        View arrived;   // of those that have arrived, whether the phase has ended
        View complete;  // or not, and where it has
    };
    /// What an agent has begun last.
    struct Work {
        unsigned agent;
        unsigned beginner;
        View view;
    };

    void follow_each_thread();
    void follow_own_threads();
    const HappensBefore* of_cluster(std::uint32_t block) const;
    Mbarrier& state_of(MbarrierId mbarrier);
    std::size_t components() const { return cluster_->size() * (threads_ + AGENTS); }
    std::size_t component(unsigned rank, unsigned number) const;

    std::uint32_t number_ = 0;  // of the block in its grid
    unsigned rank_ = 0;         // in its cluster
    unsigned threads_ = 0;
    const std::vector<HappensBefore*>* cluster_ = nullptr;

    // How many barriers the block has passed, how many of its warp each thread has, and
    // what that tells it of the other lanes.
    std::uint32_t interval_ = 0;
    std::array<std::uint32_t, MAX_THREADS> clocks_;
    std::array<std::array<std::uint32_t, WARP_SIZE>, MAX_THREADS> lanes_seen_;
    /// Of each block of the cluster, the interval from which on nothing is known of it.
    std::array<std::uint32_t, MAX_CLUSTER_SIZE> intervals_seen_;

    // The same where each thread is followed.
    bool follows_each_thread_ = false;
    std::vector<View> views_;  // by thread
    std::vector<Mbarrier> mbarriers_;
    std::array<std::uint32_t, AGENTS> agent_times_;
    Work work_{};
};

}  // namespace checking
}  // namespace emulator
