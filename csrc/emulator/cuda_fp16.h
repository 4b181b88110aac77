// Stands in for CUDA's header of this name: __half and __half2. Arithmetic, comparisons
// and functions, which bfloat16 shares, are in device/narrow_float.h and narrow_pair.h.
#pragma once

#include "cuda_runtime.h"
#include "device/narrow_float.h"
#include "device/narrow_pair.h"

namespace emulator {

struct HalfFormat {
    template <Rounding ROUNDING = Rounding::nearest_even, typename Float>
    static std::uint16_t round(Float value) {
        return round_to_narrow<5, 10, ROUNDING>(value);
    }

    static float to_float(std::uint16_t bits) {
        constexpr unsigned INFINITE = 0x7c00;
        constexpr unsigned LOWEST_NORMAL = 0x0400;
        constexpr unsigned BIAS_DIFFERENCE = (127 - 15) << 23;
        unsigned magnitude = bits & 0x7fffu;
        if (magnitude > INFINITE) return as<float>(0x7fffffffu);
        unsigned sign = (bits & 0x8000u) << 16;
        unsigned wide = (magnitude << 13) + BIAS_DIFFERENCE;
        if (magnitude == INFINITE) wide = 0x7f800000;
        if (magnitude < LOWEST_NORMAL) {
            wide = as<unsigned>(static_cast<float>(magnitude) * 0x1p-24f);
        }
        return as<float>(sign | wide);
    }
};

}  // namespace emulator

/// The bits of a half.
struct __half_raw {
    unsigned short x;
};

struct alignas(2) __half : emulator::NarrowFloat<__half, emulator::HalfFormat> {
    using NarrowFloat::NarrowFloat;
    __half() = default;
    __half(const __half_raw& raw) : NarrowFloat(from_bits(raw.x)) {}
    operator __half_raw() const { return {bits()}; }
};

struct alignas(4) __half2 : emulator::NarrowPair<__half2, __half> {
    using NarrowPair::NarrowPair;
    __half2() = default;
};

using half = __half;
using half2 = __half2;

template <>
inline constexpr bool emulator::is_narrow_float<__half> = true;
template <>
inline constexpr bool emulator::is_narrow_pair<__half2> = true;

// ---- From and to float and double ---------------------------------------------------

inline __half __float2half(float x) { return __half(x); }
inline __half __float2half_rn(float x) { return __half(x); }
inline __half __float2half_rz(float x) {
    using emulator::HalfFormat, emulator::Rounding;
    return __half::from_bits(HalfFormat::round<Rounding::toward_zero>(x));
}
inline __half __float2half_ru(float x) {
    using emulator::HalfFormat, emulator::Rounding;
    return __half::from_bits(HalfFormat::round<Rounding::up>(x));
}
inline __half __float2half_rd(float x) {
    using emulator::HalfFormat, emulator::Rounding;
    return __half::from_bits(HalfFormat::round<Rounding::down>(x));
}
inline __half __double2half(double x) { return __half(x); }
inline float __half2float(__half x) { return x; }

inline __half2 __float2half2_rn(float x) { return {__half(x), __half(x)}; }
inline __half2 __floats2half2_rn(float x, float y) { return {__half(x), __half(y)}; }
inline __half2 __float22half2_rn(float2 x) { return {__half(x.x), __half(x.y)}; }
inline float2 __half22float2(__half2 x) { return {x.x, x.y}; }

// ---- From and to integers -----------------------------------------------------------

inline __half __int2half_rn(int x) { return __half(x); }
inline __half __uint2half_rn(unsigned x) { return __half(x); }
inline __half __short2half_rn(short x) { return __half(x); }
inline __half __ushort2half_rn(unsigned short x) { return __half(x); }
inline __half __ll2half_rn(long long x) { return __half(x); }
inline __half __ull2half_rn(unsigned long long x) { return __half(x); }
inline int __half2int_rn(__half x) { return __float2int_rn(x); }
inline int __half2int_rz(__half x) { return static_cast<int>(x); }
inline int __half2int_rd(__half x) { return __float2int_rd(x); }
inline int __half2int_ru(__half x) { return __float2int_ru(x); }
inline unsigned __half2uint_rn(__half x) { return __float2uint_rn(x); }
inline unsigned __half2uint_rz(__half x) { return static_cast<unsigned>(x); }
inline long long __half2ll_rn(__half x) { return __float2ll_rn(x); }
inline long long __half2ll_rz(__half x) { return static_cast<long long>(x); }
inline unsigned long long __half2ull_rn(__half x) { return __float2ull_rn(x); }
inline unsigned long long __half2ull_rz(__half x) { return __float2ull_rz(x); }
inline short __half2short_rn(__half x) { return emulator::saturate<short>(rintf(x)); }
inline short __half2short_rz(__half x) { return static_cast<short>(x); }
inline unsigned short __half2ushort_rn(__half x) {
    return emulator::saturate<unsigned short>(rintf(x));
}
inline unsigned short __half2ushort_rz(__half x) {
    return static_cast<unsigned short>(x);
}

// ---- Bits and pairs -----------------------------------------------------------------

inline unsigned short __half_as_ushort(__half x) { return x.bits(); }
inline short __half_as_short(__half x) { return static_cast<short>(x.bits()); }
inline __half __ushort_as_half(unsigned short x) { return __half::from_bits(x); }
inline __half __short_as_half(short x) {
    return __half::from_bits(static_cast<unsigned short>(x));
}

inline __half2 make_half2(__half x, __half y) { return {x, y}; }
inline __half2 __halves2half2(__half x, __half y) { return {x, y}; }
inline __half2 __half2half2(__half x) { return {x, x}; }
inline __half __low2half(__half2 x) { return x.x; }
inline __half __high2half(__half2 x) { return x.y; }
inline __half2 __low2half2(__half2 x) { return {x.x, x.x}; }
inline __half2 __high2half2(__half2 x) { return {x.y, x.y}; }
inline __half2 __lows2half2(__half2 x, __half2 y) { return {x.x, y.x}; }
inline __half2 __highs2half2(__half2 x, __half2 y) { return {x.y, y.y}; }
inline __half2 __lowhigh2highlow(__half2 x) { return {x.y, x.x}; }
