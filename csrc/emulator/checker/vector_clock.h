// Vector clocks (Fidge 1988).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace emulator {
namespace [[gnu::visibility("hidden")]] checking {

/// For each component, a thread or an agent, the time up to which its accesses happened
/// before.
class VectorClock {
  public:
    void begin(std::size_t components) { times_.assign(components, 0); }

    /// Whether the component's accesses up to this time happened before.
    bool covers(std::size_t component, std::uint32_t time) const {
        return times_[component] >= time;
    }
    void advance(std::size_t component, std::uint32_t time) {
        times_[component] = std::max(times_[component], time);
    }
    /// The least upper bound of the two: what happened before either.
    void join(const VectorClock& other) {
        for (std::size_t i = 0; i < times_.size(); ++i) advance(i, other.times_[i]);
    }
    /// The greatest lower bound of the two: what happened before both.
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
