// wgmma: matrices in shared memory, multiplied by the four warps of a warpgroup while
// their threads go on.
#pragma once

#include "../runtime.h"
#include "matrix.h"

namespace emulator {

/// As the PTX ISA lays it down, with the offset in the block's dynamic shared memory for
/// the address.
std::uint64_t matrix_descriptor(
    const void* shared, int leading_bytes, int stride_bytes, Site site
);

/// d (64 x n) = a (64 x 16) * b (16 x n), plus d if it accumulates.
struct Multiplication {
    MatrixFormat format;
    int n;
    bool a_is_transposed;  // neighbours of a in memory are those of m, not those of k
    bool b_is_transposed;  // the same of b and n
    bool accumulates;
    std::uint64_t a;
    std::uint64_t b;

    bool operator==(const Multiplication&) const = default;
};

/// Starts a multiplication. `d` is what the calling thread holds of it, n / 2 floats.
void start_multiplication(const Multiplication& what, float* d, Site site);

void fence_multiplications(Site site);

void commit_multiplications(Site site);

/// Waits until only this many of the groups, the newest, are unfinished.
void wait_for_multiplications(std::size_t unfinished, Site site);

}  // namespace emulator
