// When late things happen: copies of boxes and matrix multiplications that a kernel has
// started, where TWIN_EMULATOR_ASYNC is "late".
//
// No thread of the block can go on, so one of them has to happen now. Which one, nothing
// prescribes; forward it is the oldest load, so that a stage is filled again before a
// multiplication has read it, and in reverse the multiplications are first, so that they
// read what has not been loaded.

#include <array>

#include "block.h"
#include "launch.h"

namespace emulator {

/// Finishes something that was started. False if there is nothing.
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
