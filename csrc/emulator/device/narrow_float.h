// The common base of __half and __nv_bfloat16: arithmetic, comparisons and the
// functions that both cuda_fp16.h and cuda_bf16.h have.
#pragma once

#include <math.h>

#include <concepts>
#include <cstdint>
#include <type_traits>

#include "atomics.h"
#include "conversions.h"
#include "narrow_rounding.h"

namespace emulator {

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

}  // namespace emulator
