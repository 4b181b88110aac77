// cuRAND's generator Philox4x32-10: ten rounds of a cipher turn a key and a counter into
// four words. Salmon et al. 2011, "Parallel random numbers: as easy as 1, 2, 3".
#pragma once

#include "language.h"
#include "vector_types.h"

namespace emulator {

__forceinline__ uint4 philox(uint4 counter, uint2 key) {
    constexpr unsigned long long MULTIPLIER_0 = 0xD2511F53;
    constexpr unsigned long long MULTIPLIER_1 = 0xCD9E8D57;
    for (int round = 0; round < 10; ++round) {
        unsigned long long product_0 = MULTIPLIER_0 * counter.x;
        unsigned long long product_1 = MULTIPLIER_1 * counter.z;
        counter = {
            static_cast<unsigned>(product_1 >> 32) ^ counter.y ^ key.x,
            static_cast<unsigned>(product_1),
            static_cast<unsigned>(product_0 >> 32) ^ counter.w ^ key.y,
            static_cast<unsigned>(product_0)
        };
        key.x += 0x9E3779B9;
        key.y += 0xBB67AE85;
    }
    return counter;
}

}  // namespace emulator

struct curandStatePhilox4_32_10 {
    uint4 ctr;
    uint4 output;  // of the counter
    uint2 key;
    unsigned STATE;  // how many words of the output are used
    int boxmuller_flag;
    float boxmuller_extra;
};
using curandStatePhilox4_32_10_t = curandStatePhilox4_32_10;

namespace emulator {

/// Adds to the counter's lower half, and carries into its upper one.
__forceinline__ void advance(
    curandStatePhilox4_32_10_t* state, unsigned long long count
) {
    uint4& counter = state->ctr;
    unsigned long long low =
        static_cast<unsigned long long>(counter.y) << 32 | counter.x;
    low += count;
    counter.x = static_cast<unsigned>(low);
    counter.y = static_cast<unsigned>(low >> 32);
    if (low < count && ++counter.z == 0) ++counter.w;
    state->output = philox(counter, state->key);
}

}  // namespace emulator

/// Skips n words.
__forceinline__ void skipahead(
    unsigned long long n, curandStatePhilox4_32_10_t* state
) {
    state->STATE += static_cast<unsigned>(n % 4);
    unsigned long long blocks = n / 4 + state->STATE / 4;
    state->STATE %= 4;
    if (blocks != 0) emulator::advance(state, blocks);
}

/// Skips n sequences of 2^66 words.
__forceinline__ void skipahead_sequence(
    unsigned long long n, curandStatePhilox4_32_10_t* state
) {
    uint4& counter = state->ctr;
    unsigned long long high =
        static_cast<unsigned long long>(counter.w) << 32 | counter.z;
    high += n;
    counter.z = static_cast<unsigned>(high);
    counter.w = static_cast<unsigned>(high >> 32);
    emulator::advance(state, 0);
}

__forceinline__ void curand_init(
    unsigned long long seed, unsigned long long subsequence, unsigned long long offset,
    curandStatePhilox4_32_10_t* state
) {
    *state = {};
    state->key = {static_cast<unsigned>(seed), static_cast<unsigned>(seed >> 32)};
    skipahead_sequence(subsequence, state);
    skipahead(offset, state);
}

__forceinline__ unsigned curand(curandStatePhilox4_32_10_t* state) {
    const uint4& words = state->output;
    unsigned word = state->STATE == 0   ? words.x
                    : state->STATE == 1 ? words.y
                    : state->STATE == 2 ? words.z
                                        : words.w;
    skipahead(1, state);
    return word;
}

/// The next four words.
__forceinline__ uint4 curand4(curandStatePhilox4_32_10_t* state) {
    uint4 first = state->output;
    emulator::advance(state, 1);
    const uint4& next = state->output;
    switch (state->STATE) {
        case 0:
            return first;
        case 1:
            return {first.y, first.z, first.w, next.x};
        case 2:
            return {first.z, first.w, next.x, next.y};
        default:
            return {first.w, next.x, next.y, next.z};
    }
}
