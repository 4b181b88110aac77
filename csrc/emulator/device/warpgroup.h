// wgmma: asynchronous multiplications of matrices in shared memory by the four warps of
// a warpgroup.
#pragma once

#include "../runtime.h"
#include "matrix.h"

namespace emulator {

/// A matrix descriptor of the PTX ISA, with the offset in the block's dynamic shared
/// memory as the address.
std::uint64_t matrix_descriptor(
    const void* shared, int leading_bytes, int stride_bytes, Site site
);

/// d (64 x n) = a (64 x k) * b (k x n), plus d if it accumulates, where a row of k has 32
/// bytes. Only matrices of 16 bits are transposed.
struct Multiplication {
    MatrixFormat format;
    int n;
    bool a_is_transposed;  // m-major: neighbours in memory are neighbours along m
    bool b_is_transposed;  // n-major
    bool accumulates;
    std::uint64_t a;  // 0 where it is in registers
    std::uint64_t b;
    bool a_is_in_registers = false;
    MatrixFormat b_format = format;  // another one of 8 bits

    bool operator==(const Multiplication&) const = default;
};

/// Starts a multiplication. `d` is the calling thread's part of the result, n / 2
/// floats; `a`, where it is in registers, that of the left matrix.
void start_multiplication(
    const Multiplication& what, float* d, const std::uint32_t* a, Site site
);

void fence_multiplications(Site site);

void commit_multiplications(Site site);

/// Waits for all groups but this many of the newest.
void wait_for_multiplications(std::size_t unfinished, Site site);

}  // namespace emulator
