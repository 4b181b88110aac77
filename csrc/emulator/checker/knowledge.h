// What a thread knows of the others' accesses to memory, where more than barriers of the
// whole block order them.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "../observer.h"

namespace emulator {
namespace [[gnu::visibility("hidden")]] checking {

constexpr unsigned MAX_THREADS = 1024;

/// Threads have their numbers in the block; those of agents follow on the largest.
constexpr unsigned event_number_of_agent(unsigned agent) { return MAX_THREADS + agent; }

/// A vector clock: for each thread and each agent of a cluster's blocks the time up to
/// which its accesses are known to have happened.
class Knowledge {
  public:
    void begin(unsigned blocks, unsigned threads) {
        threads_ = threads;
        seen_.assign(blocks * (threads + AGENTS), 0);
        published_.assign(blocks * (threads + AGENTS), 0);
        published_epoch_ = 0;
    }

    bool has_seen(unsigned rank, unsigned number, std::uint32_t time) const {
        return seen_[slot(rank, number)] >= time;
    }
    /// Whether an access has been made visible to asynchronous ones.
    bool knows_as_published(unsigned rank, unsigned number, std::uint32_t time) const {
        return published_[slot(rank, number)] >= time;
    }

    void see(unsigned rank, unsigned number, std::uint32_t time) {
        std::uint32_t& seen = seen_[slot(rank, number)];
        seen = std::max(seen, time);
    }
    /// What of the block is older than an epoch, everyone knows.
    void publish(std::uint32_t epoch) {
        raise(published_, seen_);
        published_epoch_ = epoch;
    }
    std::uint32_t published_epoch() const { return published_epoch_; }

    void learn_from(const Knowledge& other) {
        raise(seen_, other.seen_);
        raise(published_, other.published_);
        published_epoch_ = std::max(published_epoch_, other.published_epoch_);
    }
    /// Forgets what the other does not know.
    void keep_what_is_known_to(const Knowledge& other) {
        lower(seen_, other.seen_);
        lower(published_, other.published_);
        published_epoch_ = std::min(published_epoch_, other.published_epoch_);
    }

  private:
    using Times = std::vector<std::uint32_t>;

    std::size_t slot(unsigned rank, unsigned number) const {
        std::size_t first = std::size_t{rank} * (threads_ + AGENTS);
        bool is_thread = number < MAX_THREADS;
        return first + (is_thread ? number : threads_ + (number - MAX_THREADS));
    }
    static void raise(Times& times, const Times& others) {
        for (std::size_t i = 0; i < times.size(); ++i) {
            times[i] = std::max(times[i], others[i]);
        }
    }
    static void lower(Times& times, const Times& others) {
        for (std::size_t i = 0; i < times.size(); ++i) {
            times[i] = std::min(times[i], others[i]);
        }
    }

    unsigned threads_ = 0;
    Times seen_;
    Times published_;
    std::uint32_t published_epoch_ = 0;
};

}  // namespace checking
}  // namespace emulator
