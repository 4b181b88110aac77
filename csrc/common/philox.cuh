// Philox4x32-10: random numbers by counting. A key and a counter give four words of 32
// random bits, without any state, so whoever knows both can make the same words again.
// Salmon et al. 2011, "Parallel random numbers: as easy as 1, 2, 3".
#pragma once

#include "common/ptx/math.cuh"
#include "common/vec.cuh"

// The block of four words that belongs to a counter.
__device__ __forceinline__ Vec<uint32_t, 4> philox(
    Vec<uint32_t, 4> counter, uint64_t key
) {
    uint32_t key_0 = static_cast<uint32_t>(key);
    uint32_t key_1 = static_cast<uint32_t>(key >> 32);
    #pragma unroll
    for (int round = 0; round < 10; ++round) {
        const uint64_t product_0 = ptx::multiply_wide(0xD2511F53, counter[0]);
        const uint64_t product_1 = ptx::multiply_wide(0xCD9E8D57, counter[2]);
        counter = {
            static_cast<uint32_t>(product_1 >> 32) ^ counter[1] ^ key_0,
            static_cast<uint32_t>(product_1),
            static_cast<uint32_t>(product_0 >> 32) ^ counter[3] ^ key_1,
            static_cast<uint32_t>(product_0)
        };
        key_0 += 0x9E3779B9;
        key_1 += 0xBB67AE85;
    }
    return counter;
}

// The words of SIZE neighbouring elements, a power of 2 from 4 on, of which the first is
// a multiple of SIZE: element i takes word i % 4 of the block of counter i / 4.
template <int SIZE>
__device__ __forceinline__ Vec<uint32_t, SIZE> random_words(
    int64_t first, int64_t seed
) {
    const uint64_t counter = static_cast<uint64_t>(first) / 4;
    const uint32_t low = static_cast<uint32_t>(counter);
    const uint32_t high = static_cast<uint32_t>(counter >> 32);
    Vec<uint32_t, SIZE> words;
    #pragma unroll
    for (int i = 0; i < SIZE; i += 4) {
        const Vec<uint32_t, 4> block = philox({low | i / 4, high, 0, 0}, seed);
        #pragma unroll
        for (int j = 0; j < 4; ++j) words[i + j] = block[j];
    }
    return words;
}
