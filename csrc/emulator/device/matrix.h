// Matrix instructions (ldmatrix, stmatrix, mma.sync), which all 32 lanes of a warp
// execute together.
//
// A fragment is one lane's part of a matrix. The PTX ISA defines its elements in
// "Matrix multiply-accumulate operation using mma instruction".
#pragma once

#include "../runtime.h"

namespace emulator {

/// ldmatrix: four matrices of 8 rows of 16 bytes. Lanes 8 i to 8 i + 7 pass the
/// addresses of the rows of matrix i. Lane l gets the columns 2 (l % 4) and 2 (l % 4) +
/// 1 of row l / 4; transposed, these rows of column l / 4.
void load_matrices(
    std::uint32_t (&fragment)[4], bool transposed, const void* row,
    const char* operation, Site site
);

/// stmatrix: four matrices, the inverse of ldmatrix.
void store_matrices(void* row, const std::uint32_t (&fragment)[4], Site site);

/// A warp operation that is undefined unless all 32 lanes of the warp take part.
void meet_whole_warp(
    const char* operation, Site site, void* payload, WarpFunction function
);

/// The type of a and b. A lane's accumulator is four floats, or two pairs of halves of
/// 32 bits each. Those of 8 bits are multiplied by warpgroups alone.
enum class MatrixFormat { half, bfloat16, tf32, e4m3, e5m2 };

template <typename Accumulator>
struct MatrixFragments {
    Accumulator* d;
    const std::uint32_t* a;
    const std::uint32_t* b;
    const Accumulator* c;
};

/// mma.sync: d (16 x 8) = a (16 x k) * b (k x 8) + c (16 x 8), where k is 8 for tf32
/// and 16 otherwise. README.md describes its rounding.
template <typename Accumulator>
void multiply_matrices(
    MatrixFormat format, MatrixFragments<Accumulator> fragments, Site site
);

extern template void multiply_matrices(
    MatrixFormat format, MatrixFragments<float> fragments, Site site
);
extern template void multiply_matrices(
    MatrixFormat format, MatrixFragments<std::uint32_t> fragments, Site site
);

}  // namespace emulator
