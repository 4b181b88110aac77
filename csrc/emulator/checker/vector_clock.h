// Vector clocks (Fidge 1988): how far each of many threads is known to have come.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace emulator {
namespace [[gnu::visibility("hidden")]] checking {

/// For each component, a thread or an agent, the time up to which it is known.
class VectorClock {
  public:
    void begin(std::size_t components) { times_.assign(components, 0); }

    /// Whether a time of a component is known.
    bool covers(std::size_t component, std::uint32_t time) const {
        return times_[component] >= time;
    }
    void advance(std::size_t component, std::uint32_t time) {
        times_[component] = std::max(times_[component], time);
    }
    /// Learns all that the other knows: the least upper bound of the two.
    void join(const VectorClock& other) {
        for (std::size_t i = 0; i < times_.size(); ++i) advance(i, other.times_[i]);
    }
    /// Forgets what the other does not know: the greatest lower bound.
    void meet(const VectorClock& other) {
        for (std::size_t i = 0; i < times_.size(); ++i) {
            times_[i] = std::min(times_[i], other.times_[i]);
        }
    }

  private:
    std::vector<std::uint32_t> times_;
};

}  // namespace checking
}  // namespace emulator
