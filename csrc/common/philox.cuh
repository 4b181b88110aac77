// Philox4x32-10: random numbers by counting. A key and a counter give four words of 32
// random bits, without any state, so whoever knows both can make the same words again.
// Salmon et al. 2011, "Parallel random numbers: as easy as 1, 2, 3".
#pragma once

#include "common/elementwise.cuh"
#include "common/ptx/math.cuh"

// The block of four words that belongs to a counter.
__device__ __forceinline__ Vec<uint32_t, 4> philox(uint64_t count, uint64_t key) {
    Vec<uint32_t, 4> counter{
        static_cast<uint32_t>(count), static_cast<uint32_t>(count >> 32), 0, 0
    };
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

// Element i takes word i % 4 of the block of counter i / 4.
__device__ __forceinline__ uint32_t random_word(int64_t i, int64_t seed) {
    const Vec<uint32_t, 4> block = philox(i / 4, seed);
    const uint32_t even = i % 4 == 0 ? block[0] : block[2];
    const uint32_t odd = i % 4 == 1 ? block[1] : block[3];
    return i % 2 == 0 ? even : odd;
}

// The words of a thread's elements, one block for every four. The length of its runs is a
// power of 2 from 4 on.
template <int VEC_SIZE, bool STRIDED, int COUNT, int VECS_PER_RUN>
__device__ __forceinline__ Tile<uint32_t, VEC_SIZE, COUNT> random_words(
    const ElementTile<VEC_SIZE, STRIDED, COUNT, VECS_PER_RUN>& tile, int64_t seed
) {
    Tile<uint32_t, VEC_SIZE, COUNT> words;
    #pragma unroll
    for (int i = 0; i < COUNT; i += VECS_PER_RUN) {
        const uint64_t count = static_cast<uint64_t>(tile[i]) / 4;
        #pragma unroll
        for (int j = 0; j < VECS_PER_RUN * VEC_SIZE; j += 4) {
            const Vec<uint32_t, 4> block = philox(count | j / 4, seed);
            #pragma unroll
            for (int k = 0; k < 4; ++k) {
                words[i + (j + k) / VEC_SIZE][(j + k) % VEC_SIZE] = block[k];
            }
        }
    }
    return words;
}
