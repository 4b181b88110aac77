// The options of a user: environment variables, read at every launch. README.md lists
// them.
#pragma once

#include <cstdint>
#include <string>

namespace [[gnu::visibility("hidden")]] emulator {

enum class Order { forward, reverse, random };

struct Options {
    Order order = Order::forward;
    std::uint64_t seed = 0;
    unsigned workers = 1;
    std::uint64_t step_limit = 50'000'000;
    unsigned time_limit_seconds = 10;
    bool late_copies = true;  // asynchronous operations: as late as allowed, or at once

    std::string error;  // empty if the options are valid
};

Options read_options();

/// splitmix64: every seed, also 0, gives a good sequence.
class Random {
  public:
    explicit Random(std::uint64_t seed = 0) : state_(seed) {}

    std::uint64_t next() {
        std::uint64_t value = state_ += 0x9E3779B97F4A7C15;
        value = (value ^ (value >> 30)) * 0xBF58476D1CE4E5B9;
        value = (value ^ (value >> 27)) * 0x94D049BB133111EB;
        return value ^ (value >> 31);
    }
    std::uint64_t below(std::uint64_t limit) { return next() % limit; }

  private:
    std::uint64_t state_;
};

}  // namespace emulator
