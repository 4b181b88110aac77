#include "happens_before.h"

#include <algorithm>
#include <numeric>

namespace emulator {
namespace [[gnu::visibility("hidden")]] checking {

// ---- Views --------------------------------------------------------------------------

void HappensBefore::View::begin(std::size_t components) {
    seen.begin(components);
    published.begin(components);
    published_interval = 0;
}

void HappensBefore::View::publish(std::uint32_t interval) {
    published.join(seen);
    published_interval = interval;
}

void HappensBefore::View::join(const View& other) {
    seen.join(other.seen);
    published.join(other.published);
    published_interval = std::max(published_interval, other.published_interval);
}

void HappensBefore::View::meet(const View& other) {
    seen.meet(other.seen);
    published.meet(other.published);
    published_interval = std::min(published_interval, other.published_interval);
}

std::size_t HappensBefore::component(unsigned rank, unsigned number) const {
    bool is_thread = number < MAX_THREADS;
    return std::size_t{rank} * (threads_ + AGENTS) +
           (is_thread ? number : threads_ + (number - MAX_THREADS));
}

// ---- Barriers -----------------------------------------------------------------------

void HappensBefore::begin(
    const BlockFacts& facts, const std::vector<HappensBefore*>& cluster
) {
    number_ = static_cast<std::uint32_t>(facts.number);
    rank_ = facts.rank;
    threads_ = facts.size.x * facts.size.y * facts.size.z;
    cluster_ = &cluster;
    interval_ = 1;
    std::fill_n(clocks_.begin(), threads_, 1);
    for (unsigned thread = 0; thread < threads_; ++thread) lanes_seen_[thread].fill(0);
    intervals_seen_.fill(0);
    follows_each_thread_ = false;
}

void HappensBefore::complete_barrier() {
    ++interval_;
    if (!follows_each_thread_) return;
    std::vector<unsigned> all(threads_);
    std::iota(all.begin(), all.end(), 0);
    threads_meet(all.data(), all.size());
}

void HappensBefore::complete_warp_barrier(unsigned warp, unsigned lanes) {
    std::array<std::uint32_t, WARP_SIZE> joint{};
    auto for_each_lane = [&](auto visit) {
        for (unsigned rest = lanes; rest != 0; rest &= rest - 1) {
            auto lane = static_cast<unsigned>(__builtin_ctz(rest));
            visit(lane, warp * WARP_SIZE + lane);
        }
    };
    for_each_lane([&](unsigned lane, unsigned thread) {
        for (unsigned other = 0; other < WARP_SIZE; ++other) {
            joint[other] = std::max(joint[other], lanes_seen_[thread][other]);
        }
        joint[lane] = std::max(joint[lane], clocks_[thread]);
    });
    for_each_lane([&](unsigned, unsigned thread) {
        lanes_seen_[thread] = joint;
        if (!follows_each_thread_) ++clocks_[thread];
    });
    if (!follows_each_thread_) return;
    std::array<unsigned, WARP_SIZE> threads;
    std::size_t count = 0;
    for_each_lane([&](unsigned, unsigned thread) { threads[count++] = thread; });
    threads_meet(threads.data(), count);
}

// ---- Full vector clocks -------------------------------------------------------------

void HappensBefore::follow_each_thread() {
    if (follows_each_thread_) return;
    for (HappensBefore* block : *cluster_) block->follow_own_threads();
}

void HappensBefore::follow_own_threads() {
    follows_each_thread_ = true;
    views_.resize(std::max<std::size_t>(views_.size(), threads_));
    for (unsigned thread = 0; thread < threads_; ++thread) {
        views_[thread].begin(components());
        unsigned first = thread / WARP_SIZE * WARP_SIZE;
        for (unsigned lane = 0; lane < WARP_SIZE; ++lane) {
            if (first + lane >= threads_) break;
            views_[thread].seen.advance(
                component(rank_, first + lane), lanes_seen_[thread][lane]
            );
        }
    }
    mbarriers_.clear();
    agent_times_.fill(0);
}

void HappensBefore::threads_meet(const unsigned* threads, std::size_t count) {
    follow_each_thread();
    View joint = views_[threads[0]];
    for (std::size_t i = 0; i < count; ++i) {
        joint.join(views_[threads[i]]);
        joint.seen.advance(component(rank_, threads[i]), clocks_[threads[i]]++);
    }
    for (std::size_t i = 0; i < count; ++i) views_[threads[i]] = joint;
}

void HappensBefore::complete_cluster_barrier() {
    for (HappensBefore* block : *cluster_) ++block->interval_;
    for (HappensBefore* block : *cluster_) {
        for (const HappensBefore* other : *cluster_) {
            block->intervals_seen_[other->rank_] = other->interval_;
        }
    }
    if (!follows_each_thread_) return;
    View joint = views_[0];
    for (HappensBefore* block : *cluster_) {
        for (unsigned thread = 0; thread < threads_; ++thread) {
            joint.join(block->views_[thread]);
            joint.seen.advance(
                component(block->rank_, thread), block->clocks_[thread]++
            );
        }
    }
    for (HappensBefore* block : *cluster_) {
        std::fill_n(block->views_.begin(), threads_, joint);
    }
}

void HappensBefore::mbarrier_begins(MbarrierId mbarrier) {
    follow_each_thread();
    if (mbarrier.number >= mbarriers_.size()) mbarriers_.resize(mbarrier.number + 1);
    Mbarrier& own = mbarriers_[mbarrier.number];
    own.arrived.begin(components());
    own.complete.begin(components());
}

HappensBefore::Mbarrier& HappensBefore::state_of(MbarrierId mbarrier) {
    return (*cluster_)[mbarrier.rank]->mbarriers_[mbarrier.number];
}

void HappensBefore::mbarrier_is_arrived_at(MbarrierId mbarrier, unsigned thread) {
    View& own = views_[thread];
    own.seen.advance(component(rank_, thread), clocks_[thread]++);
    state_of(mbarrier).arrived.join(own);
}

void HappensBefore::mbarrier_phase_ends(MbarrierId mbarrier) {
    Mbarrier& state = state_of(mbarrier);
    state.complete.join(state.arrived);
}

void HappensBefore::mbarrier_is_awaited(MbarrierId mbarrier, unsigned thread) {
    views_[thread].join(state_of(mbarrier).complete);
}

void HappensBefore::writes_are_published(unsigned thread) {
    follow_each_thread();
    views_[thread].seen.advance(component(rank_, thread), clocks_[thread]++);
    views_[thread].publish(interval_);
}

std::uint32_t HappensBefore::agent_begins(
    unsigned agent, const unsigned* threads, std::size_t count, unsigned beginner
) {
    follow_each_thread();
    work_.agent = agent;
    work_.beginner = beginner;
    for (std::size_t i = 0; i < count; ++i) {
        View own = views_[threads[i]];
        own.seen.advance(component(rank_, threads[i]), clocks_[threads[i]]);
        if (i == 0) {
            work_.view = own;
        } else {
            work_.view.meet(own);
        }
    }
    return ++agent_times_[agent];
}

void HappensBefore::mbarrier_hears_of(
    MbarrierId mbarrier, unsigned rank, unsigned agent, std::uint32_t time
) {
    state_of(mbarrier).arrived.seen.advance(
        component(rank, event_number_of_agent(agent)), time
    );
}

void HappensBefore::agent_is_awaited(
    unsigned agent, std::uint32_t time, unsigned thread
) {
    views_[thread].seen.advance(component(rank_, event_number_of_agent(agent)), time);
}

// ---- The relation -------------------------------------------------------------------

Event HappensBefore::event_of_thread(
    unsigned thread, Access kind, Location location
) const {
    return {
        .location = location,
        .block = number_,
        .interval = interval_,
        .clock = clocks_[thread],
        .thread = static_cast<std::uint16_t>(thread),
        .is_atomic = kind == Access::atomic,
    };
}

Event HappensBefore::event_of_agent(Location location) const {
    return {
        .location = location,
        .block = number_,
        .interval = interval_,
        .clock = agent_times_[work_.agent],
        .thread = static_cast<std::uint16_t>(event_number_of_agent(work_.agent)),
        .is_atomic = false,
    };
}

bool HappensBefore::happened_before(const Event& earlier, const Event& now) const {
    if (earlier.interval == 0) return true;
    const HappensBefore* other = of_cluster(earlier.block);
    if (other == nullptr) return blocks_communicate;
    bool is_own = other == this;
    if (!earlier.is_by_agent()) {
        if (is_own && earlier.thread == now.thread) return true;
        if (earlier.interval <
            (is_own ? now.interval : intervals_seen_[other->rank_])) {
            return true;
        }
    }
    if (follows_each_thread_) {
        const View& view = now.is_by_agent() ? work_.view : views_[now.thread];
        return view.seen.covers(component(other->rank_, earlier.thread), earlier.clock);
    }
    if (!is_own) return false;
    return earlier.warp() == now.warp() &&
           lanes_seen_[now.thread][earlier.thread % WARP_SIZE] >= earlier.clock;
}

/// The block of the cluster with this number in the grid; null if it is in another one.
const HappensBefore* HappensBefore::of_cluster(std::uint32_t block) const {
    if (block == number_) return this;
    for (const HappensBefore* other : *cluster_) {
        if (other->number_ == block) return other;
    }
    return nullptr;
}

bool HappensBefore::is_unpublished(const Event& write, Access kind) const {
    if (kind != Access::asynchronous_read || write.is_by_agent()) return false;
    const HappensBefore* writer = of_cluster(write.block);
    if (write.interval == 0 || writer == nullptr) return false;
    if (writer == this && write.interval < work_.view.published_interval) return false;
    return !work_.view.published.covers(
        component(writer->rank_, write.thread), write.clock
    );
}

}  // namespace checking
}  // namespace emulator
