// How __half and __nv_bfloat16 round: in integers or in double, so exactly on every
// processor. A result in double precision, rounded once more, is the correctly rounded
// one.
#pragma once

#include <math.h>

#include <concepts>
#include <cstdint>
#include <type_traits>

#include "bits.h"

namespace emulator {

enum class Rounding { nearest_even, toward_zero, up, down };

constexpr std::uint16_t NARROW_SIGN = 0x8000;
constexpr std::uint16_t NARROW_NAN = 0x7fff;  // the GPU's canonical NaN

/// Rounds a float or double to the bits of a 16-bit format.
template <int EXPONENT_BITS, int MANTISSA_BITS, Rounding ROUNDING, typename Float>
constexpr std::uint16_t round_to_narrow(Float value) {
    constexpr bool is_float = std::is_same_v<Float, float>;
    using Bits = std::conditional_t<is_float, std::uint32_t, std::uint64_t>;
    constexpr int WIDTH = 8 * sizeof(Bits);
    constexpr int SOURCE_MANTISSA = is_float ? 23 : 52;
    constexpr int SOURCE_BIAS = is_float ? 127 : 1023;
    constexpr int BIAS = (1 << (EXPONENT_BITS - 1)) - 1;
    constexpr int LOWEST_EXPONENT = 1 - BIAS;
    constexpr auto INFINITE =
        static_cast<std::uint16_t>(((1 << EXPONENT_BITS) - 1) << MANTISSA_BITS);

    Bits bits = as<Bits>(value);
    auto sign = static_cast<std::uint16_t>(bits >> (WIDTH - 16) & NARROW_SIGN);
    Bits magnitude = bits & ~(Bits{1} << (WIDTH - 1));
    int exponent = static_cast<int>(magnitude >> SOURCE_MANTISSA) - SOURCE_BIAS;
    if (value != value) return NARROW_NAN;
    constexpr bool NEAREST = ROUNDING == Rounding::nearest_even;
    bool away_from_zero = (ROUNDING == Rounding::up && sign == 0) ||
                          (ROUNDING == Rounding::down && sign != 0);
    if (exponent > BIAS) {
        bool to_infinity = NEAREST || away_from_zero || exponent > SOURCE_BIAS;
        return sign | (to_infinity ? INFINITE : INFINITE - 1);
    }

    // A number below the lowest exponent loses bits instead: the result is denormal.
    // (Denormals of the source need no care: they round to 0, or callers pass none.)
    int missing = exponent < LOWEST_EXPONENT ? LOWEST_EXPONENT - exponent : 0;
    int shift = SOURCE_MANTISSA - MANTISSA_BITS + missing;
    if (shift > SOURCE_MANTISSA + 1) {
        return sign | (away_from_zero && magnitude != 0 ? 1 : 0);
    }
    Bits significand =
        (magnitude & ((Bits{1} << SOURCE_MANTISSA) - 1)) | Bits{1} << SOURCE_MANTISSA;
    Bits kept = significand >> shift;
    Bits lost = significand & ((Bits{1} << shift) - 1);
    Bits tie = Bits{1} << (shift - 1);
    bool nearer_above = lost > tie || (lost == tie && (kept & 1) != 0);
    if (NEAREST ? nearer_above : away_from_zero && lost != 0) ++kept;
    // The leading bit of `kept`, or a carry out of it, adds one to the exponent.
    int exponent_below = exponent + missing + BIAS - 1;
    return sign | static_cast<std::uint16_t>((exponent_below << MANTISSA_BITS) + kept);
}

/// x * y + z as a double that rounds correctly to 16 bits: round to odd. If the sum is
/// not exact in double precision, its last bit is set, which tells it from a tie. The
/// product must be exact.
inline double multiply_add_to_odd(double x, double y, double z) {
    double product = x * y;
    double sum = product + z;
    double z_part = sum - product;
    double error = (product - (sum - z_part)) + (z - z_part);
    auto bits = as<std::uint64_t>(sum);
    if (!(fabs(sum) < HUGE_VAL) || !(error != 0) || (bits & 1) != 0) return sum;
    return as<double>((error > 0) == (sum > 0) ? bits + 1 : bits - 1);
}

/// An integer as a double, by round to odd if it has more than 53 bits.
template <std::integral Integer>
constexpr double integer_to_odd(Integer value) {
    if constexpr (sizeof(Integer) < 8) {
        return static_cast<double>(value);
    } else {
        constexpr Integer LOW_BITS = 0x7ff;
        constexpr Integer LIMIT = Integer{1} << 53;
        bool fits = value < LIMIT && (std::is_unsigned_v<Integer> || value > -LIMIT);
        if (fits || (value & LOW_BITS) == 0) return static_cast<double>(value);
        return static_cast<double>((value & ~LOW_BITS) | (LOW_BITS + 1));
    }
}

}  // namespace emulator
