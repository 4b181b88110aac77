// Performs tensor copies and matrix multiplications late, if TWIN_EMULATOR_ASYNC is
// "late": when no thread of the block can go on, one of those in flight is performed.
//
// The hardware may perform them in any order. In the order "forward" the oldest load is
// first, so that a stage of a ring that is refilled too early is overwritten before a
// multiplication has read it. In "reverse" the multiplications are first, so that they
// read a stage that has not been loaded.

#include <array>

#include "block.h"
#include "launch.h"

namespace emulator {

/// Performs an asynchronous operation in flight. False if there is none.
bool Block::finish_something() {
    enum Kind { load, store, multiplication };
    std::array<Kind, 3> kinds{load, store, multiplication};
    if (order_ == Order::reverse) kinds = {multiplication, store, load};
    if (order_ == Order::random) {
        for (unsigned i = 2; i > 0; --i)
            std::swap(kinds[i], kinds[random_.below(i + 1)]);
    }
    auto choose = [this](std::size_t count) {
        if (order_ == Order::random) return std::size_t{random_.below(count)};
        return order_ == Order::reverse ? count - 1 : 0;
    };
    for (Kind kind : kinds) {
        if (kind == load && !tensor_copies_.loads.empty()) {
            finish_box_load(choose(tensor_copies_.loads.size()));
            return true;
        }
        if (kind == store && !tensor_copies_.waiting.empty()) {
            finish_box_stores(choose(tensor_copies_.waiting.size()));
            return true;
        }
        if (kind == multiplication && finish_some_multiplications()) return true;
    }
    return false;
}

bool Block::finish_some_multiplications() {
    std::size_t count = warpgroups_.size();
    std::size_t first = order_ == Order::random && count > 0 ? random_.below(count) : 0;
    for (std::size_t i = 0; i < count; ++i) {
        std::size_t number = (first + i) % count;
        if (order_ == Order::reverse) number = count - 1 - number;
        Warpgroup* group = warpgroups_[number].get();
        if (group != nullptr && finish_multiplications_waited_for(*group)) return true;
    }
    return false;
}

}  // namespace emulator
