// Conversions between numbers, with a rounding mode: _rn to nearest even, _rz towards
// zero, _rd down, _ru up.
#pragma once

#include <math.h>

namespace emulator {

/// Converts a rounded floating-point number to an integer as the GPU does: it
/// saturates, and NaN becomes 0.
template <typename Integer, typename Float>
Integer saturate(Float rounded) {
    constexpr bool is_signed = static_cast<Integer>(-1) < 0;
    constexpr int value_bits = 8 * sizeof(Integer) - (is_signed ? 1 : 0);
    constexpr Integer lowest =
        is_signed ? static_cast<Integer>(Integer{1} << value_bits) : Integer{0};
    const Float beyond = static_cast<Float>(ldexp(1.0, value_bits));
    if (rounded != rounded) return 0;
    if (rounded >= beyond) return static_cast<Integer>(~lowest);
    if (rounded < static_cast<Float>(lowest)) return lowest;
    return static_cast<Integer>(rounded);
}

}  // namespace emulator

#define TWIN_TO_INTEGER(integer, suffix, mode, round)     \
    inline integer __float2##suffix##_##mode(float x) {   \
        return emulator::saturate<integer>(round##f(x));  \
    }                                                     \
    inline integer __double2##suffix##_##mode(double x) { \
        return emulator::saturate<integer>(::round(x));   \
    }
#define TWIN_CONVERSIONS(integer, suffix)                                           \
    TWIN_TO_INTEGER(integer, suffix, rn, rint)                                      \
    TWIN_TO_INTEGER(integer, suffix, rz, trunc)                                     \
    TWIN_TO_INTEGER(integer, suffix, rd, floor)                                     \
    TWIN_TO_INTEGER(integer, suffix, ru, ceil)                                      \
    inline float __##suffix##2float_rn(integer x) { return static_cast<float>(x); } \
    inline double __##suffix##2double_rn(integer x) { return static_cast<double>(x); }

TWIN_CONVERSIONS(int, int)
TWIN_CONVERSIONS(unsigned, uint)
TWIN_CONVERSIONS(long long, ll)
TWIN_CONVERSIONS(unsigned long long, ull)

#undef TWIN_CONVERSIONS
#undef TWIN_TO_INTEGER

inline float __double2float_rn(double x) { return static_cast<float>(x); }
