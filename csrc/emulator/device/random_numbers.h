// Uniform and normal numbers from the words of cuRAND's generators, by its formulas. The
// logarithm, sine and cosine of normal numbers are the C library's.
#pragma once

#include <math.h>

#include "language.h"
#include "philox.h"
#include "vector_types.h"
#include "xorwow.h"

namespace emulator {

template <typename T>
concept RandomState = requires(T* state) {
    state->boxmuller_extra;
    curand(state);
};

/// From 0, exclusive, to 1, inclusive.
__forceinline__ float uniform(unsigned word) {
    return static_cast<float>(word) * 0x1p-32f + 0x1p-33f;
}

/// Of 53 bits.
__forceinline__ double uniform_double(unsigned word, unsigned other) {
    unsigned long long bits = word ^ static_cast<unsigned long long>(other) << 21;
    return static_cast<double>(bits) * 0x1p-53 + 0x1p-54;
}

/// Two normal numbers from two words, by Box and Muller.
__forceinline__ float2 box_muller(unsigned word, unsigned other) {
    constexpr float TWO_PI = 6.2831855f;
    float angle =
        static_cast<float>(other) * (0x1p-32f * TWO_PI) + 0x1p-32f * TWO_PI / 2;
    float radius = sqrtf(-2.0f * logf(uniform(word)));
    return {sinf(angle) * radius, cosf(angle) * radius};
}

}  // namespace emulator

// ---- Uniform numbers ----------------------------------------------------------------

template <emulator::RandomState State>
__forceinline__ float curand_uniform(State* state) {
    return emulator::uniform(curand(state));
}

__forceinline__ float4 curand_uniform4(curandStatePhilox4_32_10_t* state) {
    using emulator::uniform;
    uint4 words = curand4(state);
    return {uniform(words.x), uniform(words.y), uniform(words.z), uniform(words.w)};
}

__forceinline__ double curand_uniform_double(curandStateXORWOW_t* state) {
    unsigned word = curand(state);
    unsigned other = curand(state);
    return emulator::uniform_double(word, other);
}

/// Of 32 bits only.
__forceinline__ double curand_uniform_double(curandStatePhilox4_32_10_t* state) {
    return curand(state) * 0x1p-32 + 0x1p-32;
}

__forceinline__ double2 curand_uniform2_double(curandStatePhilox4_32_10_t* state) {
    using emulator::uniform_double;
    uint4 words = curand4(state);
    return {uniform_double(words.x, words.y), uniform_double(words.z, words.w)};
}

// ---- Normal numbers -----------------------------------------------------------------

template <emulator::RandomState State>
__forceinline__ float2 curand_normal2(State* state) {
    unsigned word = curand(state);
    unsigned other = curand(state);
    return emulator::box_muller(word, other);
}

/// Of the two numbers that two words give, the second one is kept for the next call.
template <emulator::RandomState State>
__forceinline__ float curand_normal(State* state) {
    state->boxmuller_flag = !state->boxmuller_flag;
    if (!state->boxmuller_flag) return state->boxmuller_extra;
    float2 pair = curand_normal2(state);
    state->boxmuller_extra = pair.y;
    return pair.x;
}

__forceinline__ float4 curand_normal4(curandStatePhilox4_32_10_t* state) {
    uint4 words = curand4(state);
    float2 first = emulator::box_muller(words.x, words.y);
    float2 second = emulator::box_muller(words.z, words.w);
    return {first.x, first.y, second.x, second.y};
}

template <emulator::RandomState State>
__forceinline__ float curand_log_normal(State* state, float mean, float deviation) {
    return expf(mean + deviation * curand_normal(state));
}
