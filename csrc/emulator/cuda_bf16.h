// Stands in for CUDA's header of this name: __nv_bfloat16 and __nv_bfloat162.
// Arithmetic, comparisons and functions, which half shares, are in
// device/narrow_float.h and narrow_pair.h.
#pragma once

#include "cuda_fp16.h"
#include "cuda_runtime.h"
#include "device/narrow_float.h"
#include "device/narrow_pair.h"

namespace emulator {

struct BFloat16Format {
    template <Rounding ROUNDING = Rounding::nearest_even>
    static std::uint16_t round(double value) {
        return round_to_narrow<8, 7, ROUNDING>(value);
    }

    // A bfloat16 is the upper half of a float. Adding just under half of a unit of it
    // carries into it if the number rounds up.
    static std::uint16_t round(float value) {
        if (value != value) return NARROW_NAN;
        auto bits = as<std::uint32_t>(value);
        std::uint32_t last_kept_bit = bits >> 16 & 1;
        return static_cast<std::uint16_t>((bits + 0x7fff + last_kept_bit) >> 16);
    }

    static std::uint16_t round_toward_zero(float value) {
        if (value != value) return NARROW_NAN;
        return static_cast<std::uint16_t>(as<std::uint32_t>(value) >> 16);
    }

    static float to_float(std::uint16_t bits) {
        return as<float>(static_cast<std::uint32_t>(bits) << 16);
    }
};

}  // namespace emulator

/// The bits of a bfloat16.
struct __nv_bfloat16_raw {
    unsigned short x;
};

struct alignas(2) __nv_bfloat16
    : emulator::NarrowFloat<__nv_bfloat16, emulator::BFloat16Format> {
    using NarrowFloat::NarrowFloat;
    __nv_bfloat16() = default;
    __nv_bfloat16(const __nv_bfloat16_raw& raw) : NarrowFloat(from_bits(raw.x)) {}
    operator __nv_bfloat16_raw() const { return {bits()}; }
    explicit __nv_bfloat16(__half x) : NarrowFloat(static_cast<float>(x)) {}
};

struct alignas(4) __nv_bfloat162 : emulator::NarrowPair<__nv_bfloat162, __nv_bfloat16> {
    using NarrowPair::NarrowPair;
    __nv_bfloat162() = default;
};

using nv_bfloat16 = __nv_bfloat16;
using nv_bfloat162 = __nv_bfloat162;

template <>
inline constexpr bool emulator::is_narrow_float<__nv_bfloat16> = true;
template <>
inline constexpr bool emulator::is_narrow_pair<__nv_bfloat162> = true;

// ---- From and to float and double ---------------------------------------------------

inline __nv_bfloat16 __float2bfloat16(float x) { return __nv_bfloat16(x); }
inline __nv_bfloat16 __float2bfloat16_rn(float x) { return __nv_bfloat16(x); }
inline __nv_bfloat16 __float2bfloat16_rz(float x) {
    using emulator::BFloat16Format;
    return __nv_bfloat16::from_bits(BFloat16Format::round_toward_zero(x));
}
inline __nv_bfloat16 __float2bfloat16_ru(float x) {
    using emulator::BFloat16Format, emulator::Rounding;
    return __nv_bfloat16::from_bits(BFloat16Format::round<Rounding::up>(double{x}));
}
inline __nv_bfloat16 __float2bfloat16_rd(float x) {
    using emulator::BFloat16Format, emulator::Rounding;
    return __nv_bfloat16::from_bits(BFloat16Format::round<Rounding::down>(double{x}));
}
inline __nv_bfloat16 __double2bfloat16(double x) { return __nv_bfloat16(x); }
inline float __bfloat162float(__nv_bfloat16 x) { return x; }

inline __nv_bfloat162 __float2bfloat162_rn(float x) {
    return {__nv_bfloat16(x), __nv_bfloat16(x)};
}
inline __nv_bfloat162 __floats2bfloat162_rn(float x, float y) {
    return {__nv_bfloat16(x), __nv_bfloat16(y)};
}
inline __nv_bfloat162 __float22bfloat162_rn(float2 x) {
    return {__nv_bfloat16(x.x), __nv_bfloat16(x.y)};
}
inline float2 __bfloat1622float2(__nv_bfloat162 x) { return {x.x, x.y}; }

// ---- From and to integers -----------------------------------------------------------

inline __nv_bfloat16 __int2bfloat16_rn(int x) { return __nv_bfloat16(x); }
inline __nv_bfloat16 __uint2bfloat16_rn(unsigned x) { return __nv_bfloat16(x); }
inline __nv_bfloat16 __short2bfloat16_rn(short x) { return __nv_bfloat16(x); }
inline __nv_bfloat16 __ushort2bfloat16_rn(unsigned short x) { return __nv_bfloat16(x); }
inline __nv_bfloat16 __ll2bfloat16_rn(long long x) { return __nv_bfloat16(x); }
inline __nv_bfloat16 __ull2bfloat16_rn(unsigned long long x) {
    return __nv_bfloat16(x);
}
inline int __bfloat162int_rn(__nv_bfloat16 x) { return __float2int_rn(x); }
inline int __bfloat162int_rz(__nv_bfloat16 x) { return static_cast<int>(x); }
inline int __bfloat162int_rd(__nv_bfloat16 x) { return __float2int_rd(x); }
inline int __bfloat162int_ru(__nv_bfloat16 x) { return __float2int_ru(x); }
inline unsigned __bfloat162uint_rn(__nv_bfloat16 x) { return __float2uint_rn(x); }
inline unsigned __bfloat162uint_rz(__nv_bfloat16 x) { return static_cast<unsigned>(x); }
inline long long __bfloat162ll_rz(__nv_bfloat16 x) { return static_cast<long long>(x); }

// ---- Bits and pairs -----------------------------------------------------------------

inline unsigned short __bfloat16_as_ushort(__nv_bfloat16 x) { return x.bits(); }
inline short __bfloat16_as_short(__nv_bfloat16 x) {
    return static_cast<short>(x.bits());
}
inline __nv_bfloat16 __ushort_as_bfloat16(unsigned short x) {
    return __nv_bfloat16::from_bits(x);
}
inline __nv_bfloat16 __short_as_bfloat16(short x) {
    return __nv_bfloat16::from_bits(static_cast<unsigned short>(x));
}

inline __nv_bfloat162 make_bfloat162(__nv_bfloat16 x, __nv_bfloat16 y) {
    return {x, y};
}
inline __nv_bfloat162 __halves2bfloat162(__nv_bfloat16 x, __nv_bfloat16 y) {
    return {x, y};
}
inline __nv_bfloat162 __bfloat162bfloat162(__nv_bfloat16 x) { return {x, x}; }
inline __nv_bfloat16 __low2bfloat16(__nv_bfloat162 x) { return x.x; }
inline __nv_bfloat16 __high2bfloat16(__nv_bfloat162 x) { return x.y; }
inline __nv_bfloat162 __low2bfloat162(__nv_bfloat162 x) { return {x.x, x.x}; }
inline __nv_bfloat162 __high2bfloat162(__nv_bfloat162 x) { return {x.y, x.y}; }
inline __nv_bfloat162 __lows2bfloat162(__nv_bfloat162 x, __nv_bfloat162 y) {
    return {x.x, y.x};
}
inline __nv_bfloat162 __highs2bfloat162(__nv_bfloat162 x, __nv_bfloat162 y) {
    return {x.y, y.y};
}
inline __nv_bfloat162 __lowhigh2highlow(__nv_bfloat162 x) { return {x.y, x.x}; }
