// Stands in for CUDA's header of this name: reductions over a tile or over the
// converged threads of a warp, whose result all threads get.
#pragma once

#include "../cooperative_groups.h"

namespace cooperative_groups {

template <typename T>
struct plus {
    T operator()(T a, T b) const { return a + b; }
};

/// The minimum.
template <typename T>
struct less {
    T operator()(T a, T b) const { return b < a ? b : a; }
};

/// The maximum.
template <typename T>
struct greater {
    T operator()(T a, T b) const { return a < b ? b : a; }
};

template <typename T>
struct bit_and {
    T operator()(T a, T b) const { return a & b; }
};

template <typename T>
struct bit_or {
    T operator()(T a, T b) const { return a | b; }
};

template <typename T>
struct bit_xor {
    T operator()(T a, T b) const { return a ^ b; }
};

/// Reduces by butterfly, as CUDA does, so sums of floats agree to the last bit.
template <unsigned SIZE, typename Parent, typename T, typename Operation>
auto reduce(
    const thread_block_tile<SIZE, Parent>& group, T&& value, Operation&& operation,
    emulator::Site site = emulator::Site::here()
) -> decltype(operation(value, value)) {
    auto result = value;
    for (unsigned distance = SIZE / 2; distance > 0; distance /= 2) {
        result = operation(result, group.shfl_xor(result, distance, site));
    }
    return result;
}

/// Reduces 32 lanes by butterfly, too. Fewer are scanned by doubling distances, which
/// leaves the result with the last lane.
template <typename T, typename Operation>
auto reduce(
    const coalesced_group& group, T&& value, Operation&& operation,
    emulator::Site site = emulator::Site::here()
) -> decltype(operation(value, value)) {
    auto result = value;
    unsigned rank = group.thread_rank();
    unsigned size = group.size();
    if (size == 32) {
        for (unsigned distance = size / 2; distance > 0; distance /= 2) {
            auto source = static_cast<int>(rank ^ distance);
            result = operation(result, group.shfl(result, source, site));
        }
        return result;
    }
    for (unsigned distance = 1; distance < size; distance *= 2) {
        auto other = group.shfl_up(result, static_cast<int>(distance), site);
        if (rank >= distance) result = operation(result, other);
    }
    return group.shfl(result, static_cast<int>(size) - 1, site);
}

}  // namespace cooperative_groups
