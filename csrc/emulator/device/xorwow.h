// cuRAND's generator XORWOW: Marsaglia's shift register of 160 bits and a counter.
// Marsaglia 2003, "Xorshift RNGs".
#pragma once

#include "language.h"

struct curandStateXORWOW {
    unsigned d;
    unsigned v[5];
    int boxmuller_flag;
    float boxmuller_extra;
};
using curandStateXORWOW_t = curandStateXORWOW;

namespace emulator {

constexpr unsigned XORWOW_INCREMENT = 362437;

/// Moves the register on by sequences of 2^67 steps, and by single steps. Defined in
/// runtime/xorwow.cpp.
void skip_xorwow(
    unsigned (&words)[5], unsigned long long sequences, unsigned long long steps
);

}  // namespace emulator

/// Skips n words.
__forceinline__ void skipahead(unsigned long long n, curandStateXORWOW_t* state) {
    unsigned words[5];
    for (int i = 0; i < 5; ++i) words[i] = state->v[i];
    emulator::skip_xorwow(words, 0, n);
    for (int i = 0; i < 5; ++i) state->v[i] = words[i];
    state->d += emulator::XORWOW_INCREMENT * static_cast<unsigned>(n);
}

/// Skips n sequences of 2^67 words, of which the counter is a divisor.
__forceinline__ void skipahead_sequence(
    unsigned long long n, curandStateXORWOW_t* state
) {
    unsigned words[5];
    for (int i = 0; i < 5; ++i) words[i] = state->v[i];
    emulator::skip_xorwow(words, n, 0);
    for (int i = 0; i < 5; ++i) state->v[i] = words[i];
}

__forceinline__ void curand_init(
    unsigned long long seed, unsigned long long subsequence, unsigned long long offset,
    curandStateXORWOW_t* state
) {
    unsigned low = 1099087573u * (static_cast<unsigned>(seed) ^ 0xaad26b49u);
    unsigned high = 2591861531u * (static_cast<unsigned>(seed >> 32) ^ 0xf7dcefddu);
    *state = {
        6615241u + low + high,
        {123456789u + low, 362436069u ^ low, 521288629u + high, 88675123u ^ high,
         5783321u + low},
        0,
        0.0f
    };
    skipahead_sequence(subsequence, state);
    skipahead(offset, state);
}

__forceinline__ unsigned curand(curandStateXORWOW_t* state) {
    unsigned (&v)[5] = state->v;
    unsigned t = v[0] ^ v[0] >> 2;
    for (int i = 0; i < 4; ++i) v[i] = v[i + 1];
    v[4] = (v[4] ^ v[4] << 4) ^ (t ^ t << 1);
    state->d += emulator::XORWOW_INCREMENT;
    return v[4] + state->d;
}
