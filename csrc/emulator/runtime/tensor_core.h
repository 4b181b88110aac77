// How the tensor cores of an H100 multiply and add.
//
// They add the products and the accumulator of one element of d at once, in fixed
// point: every term is aligned to the largest exponent and truncated 25 bits below it.
// The sum is exact, and is then truncated to a float or rounded to the nearest half.
// The exponent of a product is the sum of its factors' exponents, even if their
// significands multiply to 2 or more. Of 8-bit floats, both are cut off at 13 bits: measured
// on an H200. After
//   Khattak & Mikaitis 2025, Accurate models of NVIDIA tensor cores, arXiv:2512.07004
//   Xie et al. 2025, MMA-Sim, arXiv:2511.10909
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "../cuda_bf16.h"
#include "../cuda_fp16.h"
#include "../device/bits.h"
#include "../device/matrix.h"

namespace [[gnu::visibility("hidden")]] emulator {

/// Below the exponent of the largest term.
constexpr int KEPT_BITS = 25;
constexpr int KEPT_BITS_OF_FLOAT8 = 13;
constexpr int EXPONENT_OF_ZERO = -10000;     // below that of any product
constexpr int EXPONENT_BIAS = 127;           // of a float
constexpr int LOWEST_FLOAT_EXPONENT = -126;  // of a normal one

/// A number as the tensor cores see it. A denormal has the exponent of the smallest
/// normal number.
struct Term {
    double value;
    int exponent;
};

inline Term term_of(float value, int lowest_exponent) {
    if (value == 0) return {value, EXPONENT_OF_ZERO};
    auto biased = static_cast<int>(as<std::uint32_t>(value) >> 23 & 0xff);
    return {value, std::max(biased - EXPONENT_BIAS, lowest_exponent)};
}

inline float e4m3_to_float(std::uint8_t bits) {
    constexpr float SCALE = 0x1p120f;  // the exponents' biases differ by it
    if ((bits & 0x7f) == 0x7f) return as<float>(0x7fffffffu);
    return as<float>((bits & 0x80u) << 24 | (bits & 0x7fu) << 20) * SCALE;
}

/// An element of a or of b. Of tf32 they ignore the lowest 13 bits.
template <MatrixFormat FORMAT>
Term input_term(std::uint32_t bits) {
    if constexpr (FORMAT == MatrixFormat::e4m3) {
        return term_of(e4m3_to_float(static_cast<std::uint8_t>(bits)), -6);
    }
    if constexpr (FORMAT == MatrixFormat::e5m2) {
        return input_term<MatrixFormat::half>((bits & 0xff) << 8);
    }
    if constexpr (FORMAT == MatrixFormat::half) {
        return term_of(HalfFormat::to_float(static_cast<std::uint16_t>(bits)), -14);
    } else if constexpr (FORMAT == MatrixFormat::bfloat16) {
        auto half_word = static_cast<std::uint16_t>(bits);
        return term_of(BFloat16Format::to_float(half_word), LOWEST_FLOAT_EXPONENT);
    } else {
        constexpr std::uint32_t IGNORED_BITS = 0x1fff;
        return term_of(as<float>(bits & ~IGNORED_BITS), LOWEST_FLOAT_EXPONENT);
    }
}

/// 8 columns of a row, in the compilers' vector types.
constexpr int COLUMNS = 8;
using Doubles = double __attribute__((vector_size(COLUMNS * sizeof(double))));
using Integers = int __attribute__((vector_size(COLUMNS * sizeof(int))));
using WideIntegers =
    std::int64_t __attribute__((vector_size(COLUMNS * sizeof(double))));

/// Terms, one in each column.
struct TermColumns {
    Doubles values;
    Integers exponents;
};

/// row * columns + accumulators: the exact sums of the truncated terms. The row has K
/// terms, of the columns there are as many rows.
template <int K, int KEPT = KEPT_BITS>
void add_products(
    const Term* row, const TermColumns* columns, const TermColumns& accumulators,
    Doubles& sums
) {
    Integers largest = accumulators.exponents;
    for (int k = 0; k < K; ++k) {
        Integers exponents = columns[k].exponents + row[k].exponent;
        largest = exponents > largest ? exponents : largest;
    }
    // Any scale will do if all terms are zero.
    constexpr int LOWEST_OF_PRODUCTS = -300;
    largest = largest > LOWEST_OF_PRODUCTS ? largest : LOWEST_OF_PRODUCTS;
    constexpr int DOUBLE_BIAS = 1023;
    constexpr int DOUBLE_SIGNIFICAND_BITS = 52;
    auto wide = __builtin_convertvector(largest, WideIntegers);
    auto scale = reinterpret_cast<Doubles>(
        (DOUBLE_BIAS + KEPT - wide) << DOUBLE_SIGNIFICAND_BITS
    );
    auto unit = reinterpret_cast<Doubles>(
        (DOUBLE_BIAS - KEPT + wide) << DOUBLE_SIGNIFICAND_BITS
    );
    // The significand of a product is below 4, so a term is below 2^27 and fits an int:
    // converting it truncates it. The sum of 33 terms needs the bits of a double.
    Doubles terms = accumulators.values * scale;
    Doubles result =
        __builtin_convertvector(__builtin_convertvector(terms, Integers), Doubles);
    for (int k = 0; k < K; ++k) {
        terms = row[k].value * columns[k].values * scale;
        result +=
            __builtin_convertvector(__builtin_convertvector(terms, Integers), Doubles);
    }
    sums = result * unit;
}

/// The same for terms that may be infinite or NaN. Where none of a column is, the sum is
/// as above; elsewhere truncation changes nothing and is left out.
template <int K, int KEPT = KEPT_BITS>
void add_any_products(
    const Term* row, const TermColumns* columns, const TermColumns& accumulators,
    Doubles& sums
) {
    Doubles untruncated = accumulators.values;
    for (int k = 0; k < K; ++k) untruncated += row[k].value * columns[k].values;
    auto is_finite = untruncated - untruncated == 0;
    Term finite_row[K];
    TermColumns finite_columns[K];
    auto finite = [](const TermColumns& terms) -> TermColumns {
        return {
            terms.values - terms.values == 0 ? terms.values : Doubles{}, terms.exponents
        };
    };
    for (int k = 0; k < K; ++k) {
        finite_row[k] =
            std::isfinite(row[k].value) ? row[k] : Term{0, EXPONENT_OF_ZERO};
        finite_columns[k] = finite(columns[k]);
    }
    add_products<K, KEPT>(finite_row, finite_columns, finite(accumulators), sums);
    sums = is_finite ? sums : untruncated;
}

inline float cut_off_to_float(double value) {
    if (std::isnan(value)) return as<float>(0x7fffffffu);  // the NaN that the GPU makes
    float rounded = static_cast<float>(value);
    // A sum of 2^128 or more is infinite; one that only rounds up to 2^128 is not.
    double magnitude = std::abs(value);
    bool away_from_zero = std::abs(rounded) > magnitude && magnitude < 0x1p128;
    return away_from_zero ? as<float>(as<std::uint32_t>(rounded) - 1) : rounded;
}

}  // namespace emulator
