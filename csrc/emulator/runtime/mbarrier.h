// Mbarriers and named barriers.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "../observer.h"
#include "../runtime.h"

namespace [[gnu::visibility("hidden")]] emulator {

/// An mbarrier as the PTX ISA describes it. Its 8 bytes in shared memory hold a copy of
/// the numbers, which shows whether the kernel has overwritten them.
struct Mbarrier {
    static constexpr int MAX_ARRIVALS = (1 << 20) - 1;
    static constexpr int MAX_BYTES = (1 << 20) - 1;

    std::uint64_t* word;
    MbarrierId id;
    unsigned initialiser;
    bool is_published = false;

    unsigned expected;  // arrivals of a phase
    unsigned pending;   // arrivals that the running phase still waits for
    int bytes = 0;      // still expected; negative if more have arrived than expected
    unsigned parity = 0;

    std::vector<Thread*> waiting;
    /// Threads that the end of the last phase has woken and that have not run since.
    unsigned woken = 0;

    /// The 8 bytes in shared memory.
    std::uint64_t encoded() const;
    /// "1 of 2 arrivals and 4096 bytes are missing"
    std::string missing() const;
};

/// The mbarriers of one block.
class Mbarriers {
  public:
    void begin() { barriers_.clear(); }

    Mbarrier& add(
        unsigned rank, std::uint64_t* word, unsigned expected, unsigned initialiser
    );
    Mbarrier* find(const std::uint64_t* word);
    void publish(unsigned initialiser);

  private:
    std::deque<Mbarrier> barriers_;  // a deque, whose elements never move
};

struct NamedBarrier {
    unsigned threads = 0;  // that meet; 0 while nobody has arrived
    std::vector<Thread*> waiting;
    std::vector<const Thread*> gone_on;  // that have arrived and do not wait

    std::size_t arrived() const { return waiting.size() + gone_on.size(); }
};

constexpr unsigned NAMED_BARRIERS = 16;
using NamedBarriers = std::array<NamedBarrier, NAMED_BARRIERS>;

}  // namespace emulator
