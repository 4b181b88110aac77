// The common base of __half and __nv_bfloat16: rounding, arithmetic, comparisons and
// the functions that both cuda_fp16.h and cuda_bf16.h have.
//
// It computes in integers or in double, so it is exact on every processor: a result in
// double precision, rounded once more, is the correctly rounded one.
#pragma once

#include <math.h>

#include <concepts>
#include <cstdint>
#include <type_traits>

#include "atomics.h"
#include "bits.h"
#include "vector_types.h"

namespace emulator {

enum class Rounding { nearest_even, toward_zero };

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
    if (exponent > BIAS) {
        bool to_largest = ROUNDING == Rounding::toward_zero && exponent <= SOURCE_BIAS;
        return sign | (to_largest ? INFINITE - 1 : INFINITE);
    }

    // A number below the lowest exponent loses bits instead: the result is denormal.
    // (Denormals of the source need no care: they round to 0, or callers pass none.)
    int missing = exponent < LOWEST_EXPONENT ? LOWEST_EXPONENT - exponent : 0;
    int shift = SOURCE_MANTISSA - MANTISSA_BITS + missing;
    if (shift > SOURCE_MANTISSA + 1) return sign;
    Bits significand =
        (magnitude & ((Bits{1} << SOURCE_MANTISSA) - 1)) | Bits{1} << SOURCE_MANTISSA;
    Bits kept = significand >> shift;
    Bits lost = significand & ((Bits{1} << shift) - 1);
    Bits tie = Bits{1} << (shift - 1);
    if (ROUNDING == Rounding::nearest_even &&
        (lost > tie || (lost == tie && (kept & 1) != 0))) {
        ++kept;
    }
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

/// Base of __half and __nv_bfloat16. Format::round and Format::to_float convert.
template <typename Self, typename Format>
struct NarrowFloat {
    NarrowFloat() = default;
    NarrowFloat(float value) : bits_(Format::round(value)) {}
    NarrowFloat(double value) : bits_(Format::round(value)) {}
    template <std::integral Integer>
    NarrowFloat(Integer value) : bits_(Format::round(integer_to_odd(value))) {}

    operator float() const { return Format::to_float(bits_); }
    template <std::integral Integer>
    operator Integer() const {
        float value = Format::to_float(bits_);
        if constexpr (std::is_same_v<Integer, bool>) {
            return value != 0;
        } else {
            return saturate<Integer>(truncf(value));
        }
    }

    std::uint16_t bits() const { return bits_; }
    static Self from_bits(std::uint16_t bits) {
        Self result;
        result.bits_ = bits;
        return result;
    }

    // ---- Arithmetic ----
    friend Self __hadd(Self a, Self b) { return Self(wide(a) + wide(b)); }
    friend Self __hsub(Self a, Self b) { return Self(wide(a) - wide(b)); }
    friend Self __hmul(Self a, Self b) { return Self(wide(a) * wide(b)); }
    friend Self __hdiv(Self a, Self b) { return Self(wide(a) / wide(b)); }
    friend Self __hadd_rn(Self a, Self b) { return __hadd(a, b); }
    friend Self __hsub_rn(Self a, Self b) { return __hsub(a, b); }
    friend Self __hmul_rn(Self a, Self b) { return __hmul(a, b); }
    friend Self __hfma(Self a, Self b, Self c) {
        return Self(multiply_add_to_odd(wide(a), wide(b), wide(c)));
    }
    friend Self __hadd_sat(Self a, Self b) { return saturated(__hadd(a, b)); }
    friend Self __hsub_sat(Self a, Self b) { return saturated(__hsub(a, b)); }
    friend Self __hmul_sat(Self a, Self b) { return saturated(__hmul(a, b)); }
    friend Self __hfma_sat(Self a, Self b, Self c) {
        return saturated(__hfma(a, b, c));
    }
    friend Self __hfma_relu(Self a, Self b, Self c) {
        Self result = __hfma(a, b, c);
        return __hisnan(result) ? result : __hmax(result, Self(0.0f));
    }
    friend Self __hneg(Self a) { return Self(-wide(a)); }
    friend Self __habs(Self a) { return Self(fabs(wide(a))); }

    friend Self operator+(const Self& a, const Self& b) { return __hadd(a, b); }
    friend Self operator-(const Self& a, const Self& b) { return __hsub(a, b); }
    friend Self operator*(const Self& a, const Self& b) { return __hmul(a, b); }
    friend Self operator/(const Self& a, const Self& b) { return __hdiv(a, b); }
    friend Self& operator+=(Self& a, const Self& b) { return a = __hadd(a, b); }
    friend Self& operator-=(Self& a, const Self& b) { return a = __hsub(a, b); }
    friend Self& operator*=(Self& a, const Self& b) { return a = __hmul(a, b); }
    friend Self& operator/=(Self& a, const Self& b) { return a = __hdiv(a, b); }
    friend Self& operator++(Self& a) { return a = __hadd(a, Self(1.0f)); }
    friend Self& operator--(Self& a) { return a = __hsub(a, Self(1.0f)); }
    friend Self operator++(Self& a, int) {
        Self old = a;
        ++a;
        return old;
    }
    friend Self operator--(Self& a, int) {
        Self old = a;
        --a;
        return old;
    }
    friend Self operator+(const Self& a) { return a; }
    friend Self operator-(const Self& a) { return __hneg(a); }

    // ---- Comparisons. Those ending in u are also true for a NaN ----
    friend bool __heq(Self a, Self b) { return wide(a) == wide(b); }
    friend bool __hne(Self a, Self b) { return wide(a) < wide(b) || wide(a) > wide(b); }
    friend bool __hlt(Self a, Self b) { return wide(a) < wide(b); }
    friend bool __hle(Self a, Self b) { return wide(a) <= wide(b); }
    friend bool __hgt(Self a, Self b) { return wide(a) > wide(b); }
    friend bool __hge(Self a, Self b) { return wide(a) >= wide(b); }
    friend bool __hequ(Self a, Self b) { return !__hne(a, b); }
    friend bool __hneu(Self a, Self b) { return !__heq(a, b); }
    friend bool __hltu(Self a, Self b) { return !__hge(a, b); }
    friend bool __hleu(Self a, Self b) { return !__hgt(a, b); }
    friend bool __hgtu(Self a, Self b) { return !__hle(a, b); }
    friend bool __hgeu(Self a, Self b) { return !__hlt(a, b); }
    friend bool __hisnan(Self a) { return isnan(wide(a)); }
    friend int __hisinf(Self a) { return isinf(wide(a)) ? (wide(a) > 0 ? 1 : -1) : 0; }

    friend bool operator==(const Self& a, const Self& b) { return __heq(a, b); }
    friend bool operator!=(const Self& a, const Self& b) { return __hneu(a, b); }
    friend bool operator<(const Self& a, const Self& b) { return __hlt(a, b); }
    friend bool operator<=(const Self& a, const Self& b) { return __hle(a, b); }
    friend bool operator>(const Self& a, const Self& b) { return __hgt(a, b); }
    friend bool operator>=(const Self& a, const Self& b) { return __hge(a, b); }

    /// The number, if the other one is a NaN; +0 is more than -0.
    friend Self __hmax(Self a, Self b) {
        if (__hisnan(a)) return __hisnan(b) ? from_bits(NARROW_NAN) : b;
        if (wide(a) == wide(b)) return from_bits(a.bits() & b.bits());
        return __hisnan(b) || __hgt(a, b) ? a : b;
    }
    friend Self __hmin(Self a, Self b) {
        if (__hisnan(a)) return __hisnan(b) ? from_bits(NARROW_NAN) : b;
        if (wide(a) == wide(b)) return from_bits(a.bits() | b.bits());
        return __hisnan(b) || __hlt(a, b) ? a : b;
    }
    friend Self __hmax_nan(Self a, Self b) {
        return __hisnan(a) || __hisnan(b) ? from_bits(NARROW_NAN) : __hmax(a, b);
    }
    friend Self __hmin_nan(Self a, Self b) {
        return __hisnan(a) || __hisnan(b) ? from_bits(NARROW_NAN) : __hmin(a, b);
    }

    // ---- Functions ----
    friend Self hsqrt(Self a) { return Self(::sqrt(wide(a))); }
    friend Self hrsqrt(Self a) { return Self(1.0 / ::sqrt(wide(a))); }
    friend Self hrcp(Self a) { return Self(1.0 / wide(a)); }
    friend Self hexp(Self a) { return Self(::exp(wide(a))); }
    friend Self hexp2(Self a) { return Self(::exp2(wide(a))); }
    friend Self hexp10(Self a) { return Self(::pow(10.0, wide(a))); }
    friend Self hlog(Self a) { return Self(::log(wide(a))); }
    friend Self hlog2(Self a) { return Self(::log2(wide(a))); }
    friend Self hlog10(Self a) { return Self(::log10(wide(a))); }
    friend Self hsin(Self a) { return Self(::sin(wide(a))); }
    friend Self hcos(Self a) { return Self(::cos(wide(a))); }
    friend Self htanh(Self a) { return Self(::tanh(wide(a))); }
    friend Self hfloor(Self a) { return Self(::floor(wide(a))); }
    friend Self hceil(Self a) { return Self(::ceil(wide(a))); }
    friend Self htrunc(Self a) { return Self(::trunc(wide(a))); }
    friend Self hrint(Self a) { return Self(::rint(wide(a))); }

  private:
    static double wide(const Self& a) { return Format::to_float(a.bits()); }
    static Self saturated(Self a) { return __hmin(__hmax(a, Self(0.0f)), Self(1.0f)); }

    std::uint16_t bits_;
};

/// Base of __half2 and __nv_bfloat162, whose operations work element by element.
template <typename Self, typename Element>
struct NarrowPair {
    Element x;
    Element y;

    NarrowPair() = default;
    NarrowPair(const Element& x, const Element& y) : x(x), y(y) {}

    friend Self __hadd2(Self a, Self b) { return {a.x + b.x, a.y + b.y}; }
    friend Self __hsub2(Self a, Self b) { return {a.x - b.x, a.y - b.y}; }
    friend Self __hmul2(Self a, Self b) { return {a.x * b.x, a.y * b.y}; }
    friend Self __h2div(Self a, Self b) { return {a.x / b.x, a.y / b.y}; }
    friend Self __hfma2(Self a, Self b, Self c) {
        return {__hfma(a.x, b.x, c.x), __hfma(a.y, b.y, c.y)};
    }
    friend Self __hneg2(Self a) { return {-a.x, -a.y}; }
    friend Self __habs2(Self a) { return {__habs(a.x), __habs(a.y)}; }
    friend Self __hmax2(Self a, Self b) { return {__hmax(a.x, b.x), __hmax(a.y, b.y)}; }
    friend Self __hmin2(Self a, Self b) { return {__hmin(a.x, b.x), __hmin(a.y, b.y)}; }

    friend Self operator+(const Self& a, const Self& b) { return __hadd2(a, b); }
    friend Self operator-(const Self& a, const Self& b) { return __hsub2(a, b); }
    friend Self operator*(const Self& a, const Self& b) { return __hmul2(a, b); }
    friend Self operator/(const Self& a, const Self& b) { return __h2div(a, b); }
    friend Self& operator+=(Self& a, const Self& b) { return a = __hadd2(a, b); }
    friend Self& operator-=(Self& a, const Self& b) { return a = __hsub2(a, b); }
    friend Self& operator*=(Self& a, const Self& b) { return a = __hmul2(a, b); }
    friend Self& operator/=(Self& a, const Self& b) { return a = __h2div(a, b); }
    friend Self operator+(const Self& a) { return a; }
    friend Self operator-(const Self& a) { return __hneg2(a); }

    /// 1 for each element that satisfies the comparison, 0 for the others.
    friend Self __heq2(Self a, Self b) {
        return truth(__heq(a.x, b.x), __heq(a.y, b.y));
    }
    friend Self __hne2(Self a, Self b) {
        return truth(__hne(a.x, b.x), __hne(a.y, b.y));
    }
    friend Self __hlt2(Self a, Self b) {
        return truth(__hlt(a.x, b.x), __hlt(a.y, b.y));
    }
    friend Self __hle2(Self a, Self b) {
        return truth(__hle(a.x, b.x), __hle(a.y, b.y));
    }
    friend Self __hgt2(Self a, Self b) {
        return truth(__hgt(a.x, b.x), __hgt(a.y, b.y));
    }
    friend Self __hge2(Self a, Self b) {
        return truth(__hge(a.x, b.x), __hge(a.y, b.y));
    }

    /// Whether both elements satisfy the comparison.
    friend bool operator==(const Self& a, const Self& b) {
        return a.x == b.x && a.y == b.y;
    }
    friend bool operator!=(const Self& a, const Self& b) {
        return a.x != b.x && a.y != b.y;
    }
    friend bool operator<(const Self& a, const Self& b) {
        return a.x < b.x && a.y < b.y;
    }
    friend bool operator<=(const Self& a, const Self& b) {
        return a.x <= b.x && a.y <= b.y;
    }
    friend bool operator>(const Self& a, const Self& b) {
        return a.x > b.x && a.y > b.y;
    }
    friend bool operator>=(const Self& a, const Self& b) {
        return a.x >= b.x && a.y >= b.y;
    }

    friend float __low2float(Self a) { return a.x; }
    friend float __high2float(Self a) { return a.y; }

    friend Self h2sqrt(Self a) { return {hsqrt(a.x), hsqrt(a.y)}; }
    friend Self h2rsqrt(Self a) { return {hrsqrt(a.x), hrsqrt(a.y)}; }
    friend Self h2rcp(Self a) { return {hrcp(a.x), hrcp(a.y)}; }
    friend Self h2exp(Self a) { return {hexp(a.x), hexp(a.y)}; }
    friend Self h2exp2(Self a) { return {hexp2(a.x), hexp2(a.y)}; }
    friend Self h2log(Self a) { return {hlog(a.x), hlog(a.y)}; }
    friend Self h2log2(Self a) { return {hlog2(a.x), hlog2(a.y)}; }
    friend Self h2tanh(Self a) { return {htanh(a.x), htanh(a.y)}; }

  private:
    static Self truth(bool x, bool y) {
        return {Element(x ? 1.0f : 0.0f), Element(y ? 1.0f : 0.0f)};
    }
};

}  // namespace emulator
