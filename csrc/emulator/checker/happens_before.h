// The happens-before relation (Lamport 1978) of a cluster's accesses, as its barriers
// establish it. Two accesses race if neither happened before the other.
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

/// Events number threads as the block does; agents follow on the largest thread number.
constexpr unsigned event_number_of_agent(unsigned agent) { return MAX_THREADS + agent; }

/// Whether blocks of this launch may communicate through atomics, fences or volatile
/// accesses. The checker does not follow the order that these establish.
inline std::atomic<bool> blocks_communicate{false};

/// An access by a thread or an agent. Thread and clock form the epoch of FastTrack
/// (Flanagan & Freund 2009).
struct Event {
    Location location;
    std::uint32_t block;     // its number in the grid, modulo 2^32
    std::uint32_t interval;  // between barriers, counted from 1; 0: no access
    std::uint32_t clock;     // advances with every release by the thread
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
/// As long as threads synchronise only at barriers of the block, the cluster and the
/// warp, intervals and the clocks of a warp's lanes decide. From the first other
/// synchronisation on (an mbarrier, a named barrier, an agent), every thread and every
/// agent's work has a full vector clock.
class HappensBefore {
  public:
    /// `cluster` has those of all blocks of the cluster, by rank.
    void begin(const BlockFacts& facts, const std::vector<HappensBefore*>& cluster);

    void complete_barrier();
    void complete_warp_barrier(unsigned warp, unsigned lanes);

    // Other barriers, and agents: Observer describes them.
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
    /// The thread, or one of the threads, that began the current agent's work.
    unsigned beginner() const { return work_.beginner; }

    bool happened_before(const Event& earlier, const Event& now) const;
    /// Whether an asynchronous access may miss a thread's write for want of a proxy
    /// fence.
    bool is_unpublished(const Event& write, Access kind) const;
    bool is_of_cluster(std::uint32_t block) const {
        return of_cluster(block) != nullptr;
    }
    bool follows_each_thread() const { return follows_each_thread_; }

  private:
    /// The accesses that happened before a thread's next one, the completion of an
    /// mbarrier or an agent's work.
    struct View {
        VectorClock seen;
        // Those of them that a proxy fence has made visible to asynchronous accesses,
        // and the interval before which all are.
        VectorClock published;
        std::uint32_t published_interval = 0;

        void begin(std::size_t components);
        void publish(std::uint32_t interval);
        void join(const View& other);
        void meet(const View& other);
    };
    struct Mbarrier {
        View arrived;   // joins every arrival, also of the running phase
        View complete;  // joins the arrivals of completed phases
    };
    /// The piece of work that an agent began last.
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

    // Barriers that the block has passed, releases of each thread, and for each thread
    // the clocks of its warp's lanes that it has acquired.
    std::uint32_t interval_ = 0;
    std::array<std::uint32_t, MAX_THREADS> clocks_;
    std::array<std::array<std::uint32_t, WARP_SIZE>, MAX_THREADS> lanes_seen_;
    /// For each block of the cluster, its first interval that is not ordered before
    /// ours.
    std::array<std::uint32_t, MAX_CLUSTER_SIZE> intervals_seen_;

    // Full vector clocks, once each thread is followed.
    bool follows_each_thread_ = false;
    std::vector<View> views_;  // by thread
    std::vector<Mbarrier> mbarriers_;
    std::array<std::uint32_t, AGENTS> agent_times_;
    Work work_{};
};

}  // namespace checking
}  // namespace emulator
