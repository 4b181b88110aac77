// What ldmatrix and mma.sync compute: the last lane of a warp to arrive does so for all.

#include "../device/matrix.h"
#include "../observer.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <type_traits>

#include "../cuda_bf16.h"
#include "../cuda_fp16.h"
#include "block.h"
#include "text.h"

namespace emulator {

namespace {

/// A warp operation that is undefined unless all 32 lanes of the warp take part.
void meet_whole_warp(
    const char* operation, Site site, void* payload, WarpFunction function
) {
    uint3 index = this_thread().thread_index;
    unsigned rank = index.x + blockDim.x * (index.y + blockDim.y * index.z);
    if (rank - lane() + warpSize > blockDim.x * blockDim.y * blockDim.z) {
        this_block().fail_at(
            cudaErrorLaunchFailure,
            text("%s in a warp of less than 32 lanes", operation),
            site
        );
    }
    warp_meet(0xffffffff, operation, site, payload, function);
}

}  // namespace

// ---- ldmatrix -----------------------------------------------------------------------

namespace {

constexpr unsigned ROWS = 8;          // of one matrix, each of
constexpr unsigned ROW_ELEMENTS = 8;  // 16 bits

struct Load {
    const unsigned char* row;
    std::uint32_t* fragment;
    unsigned count;
    bool transposed;
};

std::uint32_t element(const Load& load, unsigned column) {
    std::uint16_t value;
    std::memcpy(&value, load.row + column * sizeof(value), sizeof(value));
    return value;
}

void load_for_all(void* const* payloads, unsigned) {
    auto load_of = [payloads](unsigned lane) -> const Load& {
        return *static_cast<const Load*>(payloads[lane]);
    };
    for (unsigned matrix = 0; matrix < load_of(0).count; ++matrix) {
        auto row = [&](unsigned number) -> const Load& {
            return load_of(matrix * ROWS + number);
        };
        for (unsigned lane = 0; lane < warpSize; ++lane) {
            unsigned outer = lane / 4;
            unsigned inner = lane % 4 * 2;
            std::uint32_t low = 0, high = 0;
            if (load_of(lane).transposed) {
                low = element(row(inner), outer);
                high = element(row(inner + 1), outer);
            } else {
                low = element(row(outer), inner);
                high = element(row(outer), inner + 1);
            }
            load_of(lane).fragment[matrix] = low | high << 16;
        }
    }
}

}  // namespace

void load_matrices(
    std::uint32_t* fragment,
    unsigned count,
    bool transposed,
    const void* row,
    const char* operation,
    Site site
) {
    constexpr std::size_t ROW_BYTES = ROW_ELEMENTS * sizeof(std::uint16_t);
    if (lane() < count * ROWS) {
        if (reinterpret_cast<std::uintptr_t>(row) % ROW_BYTES != 0) {
            misaligned_access(operation, site, row, ROW_BYTES);
        }
        note_access(row, ROW_BYTES, Access::read, site);
    }
    Load load{static_cast<const unsigned char*>(row), fragment, count, transposed};
    meet_whole_warp(operation, site, &load, load_for_all);
}

// ---- mma.sync -----------------------------------------------------------------------

// The tensor cores of an H100 add the products and the accumulator of one element of d
// at once, as integers: every term is brought to the exponent of the largest one, and
// what then lies more than 25 bits below that is cut off. The sum is exact, and is cut
// off once more where it becomes a float, or rounded to nearest where it becomes a
// half. The exponent of a product is the sum of its factors' exponents, whether their
// significands multiply to 2 and more or not. After
//   Khattak & Mikaitis 2025, Accurate models of NVIDIA tensor cores, arXiv:2512.07004
//   Xie et al. 2025, MMA-Sim, arXiv:2511.10909
namespace {

constexpr int M = 16;
constexpr int N = 8;
constexpr int KEPT_BITS = 25;  // below the exponent of the largest term

constexpr int EXPONENT_OF_ZERO = -10000;  // less than that of any product

/// A number as the tensor cores see it. Those below the normal ones have the exponent
/// of the smallest normal one.
struct Term {
    double value;
    int exponent;
};

Term term_of(float value, int lowest_exponent) {
    if (value == 0) return {value, EXPONENT_OF_ZERO};
    auto biased = static_cast<int>(as<std::uint32_t>(value) >> 23 & 0xff);
    return {value, std::max(biased - 127, lowest_exponent)};
}

/// Element `position` of the pairs or single numbers of a fragment's word.
template <MatrixFormat FORMAT>
Term input_term(std::uint32_t word, int position) {
    auto half_word = static_cast<std::uint16_t>(word >> (16 * position));
    if constexpr (FORMAT == MatrixFormat::half) {
        return term_of(HalfFormat::to_float(half_word), -14);
    } else if constexpr (FORMAT == MatrixFormat::bfloat16) {
        return term_of(BFloat16Format::to_float(half_word), -126);
    } else {
        constexpr std::uint32_t IGNORED_BITS = 0x1fff;
        return term_of(as<float>(word & ~IGNORED_BITS), -126);
    }
}

/// All columns of a row at once, in the compilers' own vector types.
using Doubles = double __attribute__((vector_size(N * sizeof(double))));
using Integers = int __attribute__((vector_size(N * sizeof(int))));
using WideIntegers = std::int64_t __attribute__((vector_size(N * sizeof(double))));

template <int K>
struct Problem {
    Term a[M][K];
    Doubles b_values[K];
    Integers b_exponents[K];
    Doubles c_values[M];
    Integers c_exponents[M];
};

/// The exact sums of the terms that were cut off, for each column of a row of d.
template <int K>
void add_row(const Problem<K>& problem, int row, Doubles& sums) {
    Integers largest = problem.c_exponents[row];
    for (int k = 0; k < K; ++k) {
        Integers exponents = problem.b_exponents[k] + problem.a[row][k].exponent;
        largest = exponents > largest ? exponents : largest;
    }
    // Where all terms are zero any scale will do.
    constexpr int LOWEST_OF_PRODUCTS = -300;
    largest = largest > LOWEST_OF_PRODUCTS ? largest : LOWEST_OF_PRODUCTS;
    constexpr int DOUBLE_BIAS = 1023;
    constexpr int DOUBLE_SIGNIFICAND_BITS = 52;
    auto wide = __builtin_convertvector(largest, WideIntegers);
    auto scale = reinterpret_cast<Doubles>(
        (DOUBLE_BIAS + KEPT_BITS - wide) << DOUBLE_SIGNIFICAND_BITS
    );
    auto unit = reinterpret_cast<Doubles>(
        (DOUBLE_BIAS - KEPT_BITS + wide) << DOUBLE_SIGNIFICAND_BITS
    );
    // No significand of a product reaches 4, so the terms stay below 2^27, and their
    // conversion to an int is what cuts off. The sum of 17 of them needs more bits.
    Doubles terms = problem.c_values[row] * scale;
    Doubles result =
        __builtin_convertvector(__builtin_convertvector(terms, Integers), Doubles);
    for (int k = 0; k < K; ++k) {
        terms = problem.a[row][k].value * problem.b_values[k] * scale;
        result +=
            __builtin_convertvector(__builtin_convertvector(terms, Integers), Doubles);
    }
    sums = result * unit;
}

/// With an infinity or a NaN among the terms no bit is cut off that mattered.
template <int K>
void add_row_with_non_finite(const Problem<K>& problem, int row, Doubles& sums) {
    sums = problem.c_values[row];
    for (int k = 0; k < K; ++k) {
        sums += problem.a[row][k].value * problem.b_values[k];
    }
}

float cut_off_to_float(double value) {
    if (std::isnan(value)) return as<float>(0x7fffffffu);  // the NaN that the GPU makes
    float rounded = static_cast<float>(value);
    // A sum beyond the largest float is infinite, one that only rounds to it is not.
    double magnitude = std::abs(value);
    bool away_from_zero = std::abs(rounded) > magnitude && magnitude < 0x1p128;
    return away_from_zero ? as<float>(as<std::uint32_t>(rounded) - 1) : rounded;
}

/// The accumulator in its place: lane, and which of the lane's four elements.
struct Place {
    int row, column;
};

Place place_of_accumulator(int lane, int element) {
    return {lane / 4 + element / 2 * 8, lane % 4 * 2 + element % 2};
}

template <typename Accumulator>
float accumulator_to_float(const Accumulator* c, int element) {
    if constexpr (std::is_same_v<Accumulator, float>) {
        return c[element];
    } else {
        auto bits = static_cast<std::uint16_t>(c[element / 2] >> (element % 2 * 16));
        return HalfFormat::to_float(bits);
    }
}

template <typename Accumulator>
void store_accumulator(Accumulator* d, int element, double value) {
    if constexpr (std::is_same_v<Accumulator, float>) {
        d[element] = cut_off_to_float(value);
    } else {
        int shift = element % 2 * 16;
        std::uint32_t bits = HalfFormat::round(value);
        d[element / 2] = (d[element / 2] & ~(0xffffu << shift)) | bits << shift;
    }
}

template <MatrixFormat FORMAT, int K, typename Accumulator>
void read_lane(
    Problem<K>& problem, int lane, const MatrixFragments<Accumulator>& fragments
) {
    // Registers hold pairs of neighbours along k, or one tf32 number; a's registers
    // alternate between the upper and the lower 8 rows.
    constexpr int PER_REGISTER = FORMAT == MatrixFormat::tf32 ? 1 : 2;
    int group = lane / 4;
    int first_k = lane % 4 * PER_REGISTER;
    for (int half = 0; half < 2; ++half) {
        for (int i = 0; i < PER_REGISTER; ++i) {
            int k = first_k + half * (K / 2) + i;
            Term b = input_term<FORMAT>(fragments.b[half], i);
            problem.b_values[k][group] = b.value;
            problem.b_exponents[k][group] = b.exponent;
            for (int upper = 0; upper < 2; ++upper) {
                problem.a[group + 8 * upper][k] =
                    input_term<FORMAT>(fragments.a[2 * half + upper], i);
            }
        }
    }
    constexpr int LOWEST = std::is_same_v<Accumulator, float> ? -126 : -14;
    for (int i = 0; i < 4; ++i) {
        Place place = place_of_accumulator(lane, i);
        Term c = term_of(accumulator_to_float(fragments.c, i), LOWEST);
        problem.c_values[place.row][place.column] = c.value;
        problem.c_exponents[place.row][place.column] = c.exponent;
    }
}

template <int K>
bool is_finite(const Problem<K>& problem) {
    double sum = 0;  // of zeros, and NaN if any number is not finite
    for (const auto& row : problem.a) {
        for (const Term& term : row) sum += term.value * 0;
    }
    Doubles sums{};
    for (const Doubles& row : problem.b_values) sums += row * 0;
    for (const Doubles& row : problem.c_values) sums += row * 0;
    for (int n = 0; n < N; ++n) sum += sums[n];
    return sum == 0;
}

template <MatrixFormat FORMAT, typename Accumulator>
void multiply_for_all(void* const* payloads, unsigned) {
    constexpr int K = FORMAT == MatrixFormat::tf32 ? 8 : 16;
    Problem<K> problem;
    auto fragments_of = [payloads](int lane) -> const MatrixFragments<Accumulator>& {
        return *static_cast<const MatrixFragments<Accumulator>*>(payloads[lane]);
    };
    for (int lane = 0; lane < warpSize; ++lane) {
        read_lane<FORMAT>(problem, lane, fragments_of(lane));
    }
    Doubles sums[M];
    bool finite = is_finite(problem);
    for (int row = 0; row < M; ++row) {
        if (finite) {
            add_row(problem, row, sums[row]);
        } else {
            add_row_with_non_finite(problem, row, sums[row]);
        }
    }
    for (int lane = 0; lane < warpSize; ++lane) {
        for (int i = 0; i < 4; ++i) {
            Place place = place_of_accumulator(lane, i);
            store_accumulator(fragments_of(lane).d, i, sums[place.row][place.column]);
        }
    }
}

}  // namespace

template <typename Accumulator>
void multiply_matrices(
    MatrixFormat format, MatrixFragments<Accumulator> fragments, Site site
) {
    switch (format) {
        case MatrixFormat::half:
            return meet_whole_warp(
                "mma.sync.m16n8k16.f16",
                site,
                &fragments,
                multiply_for_all<MatrixFormat::half, Accumulator>
            );
        case MatrixFormat::bfloat16:
            return meet_whole_warp(
                "mma.sync.m16n8k16.bf16",
                site,
                &fragments,
                multiply_for_all<MatrixFormat::bfloat16, Accumulator>
            );
        case MatrixFormat::tf32:
            return meet_whole_warp(
                "mma.sync.m16n8k8.tf32",
                site,
                &fragments,
                multiply_for_all<MatrixFormat::tf32, Accumulator>
            );
    }
}

template void multiply_matrices(
    MatrixFormat format, MatrixFragments<float> fragments, Site site
);
template void multiply_matrices(
    MatrixFormat format, MatrixFragments<std::uint32_t> fragments, Site site
);

}  // namespace emulator
