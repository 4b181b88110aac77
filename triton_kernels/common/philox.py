"""Random numbers by counting: the mirror of philox.cuh.

Philox4x32-10: a key and a counter give four words of 32 random bits, without any state,
so whoever knows both can make the same words again. Salmon et al. 2011, "Parallel
random numbers: as easy as 1, 2, 3".
"""

import triton
import triton.language as tl


@triton.jit
def philox(count, key):
    """The block of four words that belongs to a counter, of 64 bits here.

    The keys are meant to wrap around, which TRITON_DEBUG=1 would take for an accident.
    """
    counter_0, counter_1 = count.to(tl.uint32), (count >> 32).to(tl.uint32)
    counter_2, counter_3 = tl.zeros_like(counter_0), tl.zeros_like(counter_0)
    key = tl.cast(key, tl.uint64)
    key_0, key_1 = key.to(tl.uint32), (key >> 32).to(tl.uint32)
    for _ in tl.static_range(10):
        product_0 = counter_0.to(tl.uint64) * 0xD2511F53
        product_1 = counter_2.to(tl.uint64) * 0xCD9E8D57
        counter_0 = (product_1 >> 32).to(tl.uint32) ^ counter_1 ^ key_0
        counter_1 = product_1.to(tl.uint32)
        counter_2 = (product_0 >> 32).to(tl.uint32) ^ counter_3 ^ key_1
        counter_3 = product_0.to(tl.uint32)
        key_0 = tl.add(key_0, 0x9E3779B9, sanitize_overflow=False)
        key_1 = tl.add(key_1, 0xBB67AE85, sanitize_overflow=False)
    return counter_0, counter_1, counter_2, counter_3


@triton.jit
def random_word(i, seed):
    """Element i takes word i % 4 of the block of counter i / 4."""
    word_0, word_1, word_2, word_3 = philox(i // 4, seed)
    even = tl.where(i % 4 == 0, word_0, word_2)
    odd = tl.where(i % 4 == 1, word_1, word_3)
    return tl.where(i % 2 == 0, even, odd)


@triton.jit
def random_words(tile, RUN_SIZE: tl.constexpr, seed):
    """The words of a program's elements, one block for every four.

    A thread makes those of RUN_SIZE neighbours, 4 or 8: as many as it reads at a time,
    or the words would have to go from thread to thread through shared memory.
    """
    block_start, offsets, _, _ = tile
    N_RUNS: tl.constexpr = offsets.shape[0] * offsets.shape[1] // RUN_SIZE
    count = block_start // 4 + RUN_SIZE // 4 * tl.arange(0, N_RUNS)
    word_0, word_1, word_2, word_3 = philox(count, seed)
    if RUN_SIZE == 8:
        next_0, next_1, next_2, next_3 = philox(count | 1, seed)
        word_0, word_1 = tl.join(word_0, next_0), tl.join(word_1, next_1)
        word_2, word_3 = tl.join(word_2, next_2), tl.join(word_3, next_3)
    words = tl.join(tl.join(word_0, word_2), tl.join(word_1, word_3))
    return tl.reshape(words, offsets.shape)
