// Warp operations: shuffles, votes, reductions, matches.
#pragma once

#include <type_traits>

#include "../runtime.h"
#include "bits.h"

namespace emulator {

/// A type that shuffles move: 4 or 8 bytes, or the 2 of a half or bfloat16.
template <typename T>
concept Shuffled =
    std::is_trivially_copyable_v<T> &&
    (sizeof(T) == 4 || sizeof(T) == 8 || (sizeof(T) == 2 && !std::is_arithmetic_v<T>));

/// Integers that become an int in a call of CUDA's shuffles.
template <typename T>
concept Promoted = std::is_integral_v<T> && sizeof(T) < sizeof(int);

template <Shuffled T>
T shuffle_value(
    ShuffleKind kind, unsigned mask, T value, unsigned operand, int width,
    const char* operation, Site site
) {
    using Bits = BitsOf<T>;
    auto bits = as<Bits>(value);
    bits =
        static_cast<Bits>(shuffle(kind, mask, bits, operand, width, operation, site));
    return as<T>(bits);
}

/// Calls visit(lane) for every lane of a mask, in ascending order.
template <typename Visit>
void for_each_lane(unsigned mask, Visit visit) {
    for (; mask != 0; mask &= mask - 1) visit(__builtin_ctz(mask));
}

/// Combines the values of all lanes in ascending order; all get the result.
template <auto combine, typename T>
T warp_reduce(unsigned mask, T value, const char* operation, Site site) {
    warp_meet(mask, operation, site, &value, [](void* const* payloads, unsigned lanes) {
        T result = *static_cast<T*>(payloads[__builtin_ctz(lanes)]);
        for_each_lane(lanes & (lanes - 1), [&](int lane) {
            result = combine(result, *static_cast<T*>(payloads[lane]));
        });
        for_each_lane(lanes, [&](int lane) {
            *static_cast<T*>(payloads[lane]) = result;
        });
    });
    return value;
}

template <typename T>
T bit_and(T a, T b) {
    return a & b;
}
template <typename T>
T bit_or(T a, T b) {
    return a | b;
}
template <typename T>
T bit_exclusive_or(T a, T b) {
    return a ^ b;
}
template <typename T>
T sum(T a, T b) {
    // Signed numbers wrap around, too.
    return static_cast<T>(static_cast<unsigned>(a) + static_cast<unsigned>(b));
}
template <typename T>
T smaller(T a, T b) {
    return b < a ? b : a;
}
template <typename T>
T larger(T a, T b) {
    return a < b ? b : a;
}

template <typename T>
concept WarpReduced = std::is_same_v<T, int> || std::is_same_v<T, unsigned>;

}  // namespace emulator

// ---- Shuffles -----------------------------------------------------------------------

template <emulator::Shuffled T>
T __shfl_sync(
    unsigned mask, T value, int source_lane, int width = 32,
    emulator::Site site = emulator::Site::here()
) {
    auto operand = static_cast<unsigned>(source_lane);
    return emulator::shuffle_value(
        emulator::ShuffleKind::index, mask, value, operand, width, "__shfl_sync", site
    );
}

template <emulator::Shuffled T>
T __shfl_up_sync(
    unsigned mask, T value, unsigned delta, int width = 32,
    emulator::Site site = emulator::Site::here()
) {
    return emulator::shuffle_value(
        emulator::ShuffleKind::up, mask, value, delta, width, "__shfl_up_sync", site
    );
}

template <emulator::Shuffled T>
T __shfl_down_sync(
    unsigned mask, T value, unsigned delta, int width = 32,
    emulator::Site site = emulator::Site::here()
) {
    return emulator::shuffle_value(
        emulator::ShuffleKind::down, mask, value, delta, width, "__shfl_down_sync", site
    );
}

template <emulator::Shuffled T>
T __shfl_xor_sync(
    unsigned mask, T value, int lane_mask, int width = 32,
    emulator::Site site = emulator::Site::here()
) {
    auto operand = static_cast<unsigned>(lane_mask);
    return emulator::shuffle_value(
        emulator::ShuffleKind::exclusive_or, mask, value, operand, width,
        "__shfl_xor_sync", site
    );
}

template <emulator::Promoted T>
int __shfl_sync(
    unsigned mask, T value, int source_lane, int width = 32,
    emulator::Site site = emulator::Site::here()
) {
    return __shfl_sync(mask, int{value}, source_lane, width, site);
}

template <emulator::Promoted T>
int __shfl_up_sync(
    unsigned mask, T value, unsigned delta, int width = 32,
    emulator::Site site = emulator::Site::here()
) {
    return __shfl_up_sync(mask, int{value}, delta, width, site);
}

template <emulator::Promoted T>
int __shfl_down_sync(
    unsigned mask, T value, unsigned delta, int width = 32,
    emulator::Site site = emulator::Site::here()
) {
    return __shfl_down_sync(mask, int{value}, delta, width, site);
}

template <emulator::Promoted T>
int __shfl_xor_sync(
    unsigned mask, T value, int lane_mask, int width = 32,
    emulator::Site site = emulator::Site::here()
) {
    return __shfl_xor_sync(mask, int{value}, lane_mask, width, site);
}

// ---- Votes --------------------------------------------------------------------------

inline void __syncwarp(
    unsigned mask = 0xffffffff, emulator::Site site = emulator::Site::here()
) {
    emulator::warp_meet(mask, "__syncwarp", site, nullptr, [](void* const*, unsigned) {
    });
}

inline unsigned __ballot_sync(
    unsigned mask, int predicate, emulator::Site site = emulator::Site::here()
) {
    unsigned own_bit = predicate != 0 ? 1u << emulator::lane() : 0;
    return emulator::warp_reduce<emulator::bit_or<unsigned>>(
        mask, own_bit, "__ballot_sync", site
    );
}

inline int __any_sync(
    unsigned mask, int predicate, emulator::Site site = emulator::Site::here()
) {
    return emulator::warp_reduce<emulator::bit_or<int>>(
        mask, int{predicate != 0}, "__any_sync", site
    );
}

inline int __all_sync(
    unsigned mask, int predicate, emulator::Site site = emulator::Site::here()
) {
    return emulator::warp_reduce<emulator::bit_and<int>>(
        mask, int{predicate != 0}, "__all_sync", site
    );
}

inline unsigned __activemask(emulator::Site site = emulator::Site::here()) {
    return emulator::active_mask(site);
}

// ---- Reductions ---------------------------------------------------------------------

template <emulator::WarpReduced T>
T __reduce_add_sync(
    unsigned mask, T value, emulator::Site site = emulator::Site::here()
) {
    return emulator::warp_reduce<emulator::sum<T>>(
        mask, value, "__reduce_add_sync", site
    );
}

template <emulator::WarpReduced T>
T __reduce_min_sync(
    unsigned mask, T value, emulator::Site site = emulator::Site::here()
) {
    return emulator::warp_reduce<emulator::smaller<T>>(
        mask, value, "__reduce_min_sync", site
    );
}

template <emulator::WarpReduced T>
T __reduce_max_sync(
    unsigned mask, T value, emulator::Site site = emulator::Site::here()
) {
    return emulator::warp_reduce<emulator::larger<T>>(
        mask, value, "__reduce_max_sync", site
    );
}

inline unsigned __reduce_and_sync(
    unsigned mask, unsigned value, emulator::Site site = emulator::Site::here()
) {
    return emulator::warp_reduce<emulator::bit_and<unsigned>>(
        mask, value, "__reduce_and_sync", site
    );
}

inline unsigned __reduce_or_sync(
    unsigned mask, unsigned value, emulator::Site site = emulator::Site::here()
) {
    return emulator::warp_reduce<emulator::bit_or<unsigned>>(
        mask, value, "__reduce_or_sync", site
    );
}

inline unsigned __reduce_xor_sync(
    unsigned mask, unsigned value, emulator::Site site = emulator::Site::here()
) {
    return emulator::warp_reduce<emulator::bit_exclusive_or<unsigned>>(
        mask, value, "__reduce_xor_sync", site
    );
}

// ---- Matches ------------------------------------------------------------------------

/// The lanes whose value has the same bits.
template <emulator::Shuffled T>
unsigned __match_any_sync(
    unsigned mask, T value, emulator::Site site = emulator::Site::here()
) {
    struct Payload {
        T value;
        unsigned equal;
    };
    Payload payload{value, 0};
    auto match = [](void* const* payloads, unsigned lanes) {
        emulator::for_each_lane(lanes, [&](int a) {
            auto* own = static_cast<Payload*>(payloads[a]);
            emulator::for_each_lane(lanes, [&](int b) {
                auto* other = static_cast<Payload*>(payloads[b]);
                bool equal =
                    __builtin_memcmp(&own->value, &other->value, sizeof(T)) == 0;
                if (equal) own->equal |= 1u << b;
            });
        });
    };
    emulator::warp_meet(mask, "__match_any_sync", site, &payload, match);
    return payload.equal;
}

/// The mask if all lanes have the same bits, 0 otherwise; *predicate tells which.
template <emulator::Shuffled T>
unsigned __match_all_sync(
    unsigned mask, T value, int* predicate, emulator::Site site = emulator::Site::here()
) {
    unsigned lanes = __ballot_sync(mask, true, site);
    bool all_equal = __match_any_sync(mask, value, site) == lanes;
    *predicate = all_equal;
    return all_equal ? lanes : 0;
}
