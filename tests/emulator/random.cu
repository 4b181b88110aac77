// The random numbers of kernels.
#include <curand_kernel.h>

#include "launch.h"

template <typename State>
__global__ void words_kernel(
    unsigned* out, int count, unsigned long long seed, unsigned long long offset
) {
    State state;
    curand_init(seed, threadIdx.x, offset, &state);
    for (int i = 0; i < count; ++i) out[threadIdx.x * count + i] = curand(&state);
}

// Of 10 threads, one sequence each.
EXPORT int philox_words(unsigned* out, int64_t count, int64_t seed, int64_t offset) {
    return launch(
        words_kernel<curandStatePhilox4_32_10_t>, 1, 10, 0, out, count, seed, offset
    );
}
EXPORT int xorwow_words(unsigned* out, int64_t count, int64_t seed, int64_t offset) {
    return launch(words_kernel<curandState>, 1, 10, 0, out, count, seed, offset);
}

// The block of words of a counter and a key.
EXPORT int philox_block(unsigned* out, const unsigned* counter, const unsigned* key) {
    uint4 words = emulator::philox(
        {counter[0], counter[1], counter[2], counter[3]}, {key[0], key[1]}
    );
    out[0] = words.x;
    out[1] = words.y;
    out[2] = words.z;
    out[3] = words.w;
    return 0;
}

// After `skipped` words: the next four at once, and by skipahead.
__global__ void four_kernel(unsigned* out, int skipped) {
    curandStatePhilox4_32_10_t state;
    curand_init(3, 0, 0, &state);
    for (int i = 0; i < skipped; ++i) curand(&state);
    uint4 words = curand4(&state);
    out[0] = words.x;
    out[1] = words.y;
    out[2] = words.z;
    out[3] = words.w;
    curand_init(3, 0, 0, &state);
    skipahead(skipped, &state);
    for (int i = 4; i < 8; ++i) out[i] = curand(&state);
}
EXPORT int philox_four(unsigned* out, int64_t skipped) {
    return launch(four_kernel, 1, 1, 0, out, skipped);
}

// Rows: uniform, uniform double, normal.
template <typename State>
__global__ void numbers_kernel(float* out, int count) {
    State state;
    curand_init(5, 0, 0, &state);
    for (int i = 0; i < count; ++i) out[i] = curand_uniform(&state);
    for (int i = 0; i < count; ++i) {
        out[count + i] = static_cast<float>(curand_uniform_double(&state));
    }
    curand_init(5, 0, 0, &state);
    for (int i = 0; i < count; ++i) out[2 * count + i] = curand_normal(&state);
}

EXPORT int philox_numbers(float* out, int64_t count) {
    return launch(numbers_kernel<curandStatePhilox4_32_10_t>, 1, 1, 0, out, count);
}
EXPORT int xorwow_numbers(float* out, int64_t count) {
    return launch(numbers_kernel<curandState_t>, 1, 1, 0, out, count);
}
