// Device functions on bits: integer intrinsics, and numbers as bit patterns.
#pragma once

#include <math.h>

#include <cstdint>
#include <type_traits>

namespace emulator {

/// The unsigned integer of the size of a T.
template <typename T>
using BitsOf = std::conditional_t<
    sizeof(T) == 8, std::uint64_t,
    std::conditional_t<sizeof(T) == 4, std::uint32_t, std::uint16_t>>;

/// Reinterprets bits as another type.
template <typename To, typename From>
constexpr To as(From from) {
    return __builtin_bit_cast(To, from);
}

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

// ---- Counting and moving bits -------------------------------------------------------

inline int __popc(unsigned x) { return __builtin_popcount(x); }
inline int __popcll(unsigned long long x) { return __builtin_popcountll(x); }
inline int __clz(int x) {
    return x == 0 ? 32 : __builtin_clz(static_cast<unsigned>(x));
}
inline int __clzll(long long x) {
    return x == 0 ? 64 : __builtin_clzll(static_cast<unsigned long long>(x));
}
inline int __ffs(int x) { return __builtin_ffs(x); }
inline int __ffsll(long long x) { return __builtin_ffsll(x); }

inline unsigned __brev(unsigned x) {
    x = (x >> 1 & 0x55555555) | (x & 0x55555555) << 1;
    x = (x >> 2 & 0x33333333) | (x & 0x33333333) << 2;
    x = (x >> 4 & 0x0f0f0f0f) | (x & 0x0f0f0f0f) << 4;
    return __builtin_bswap32(x);
}
inline unsigned long long __brevll(unsigned long long x) {
    auto low = static_cast<unsigned>(x);
    auto high = static_cast<unsigned>(x >> 32);
    return static_cast<unsigned long long>(__brev(low)) << 32 | __brev(high);
}

/// Each of the selector's four hexadecimal digits picks one of the eight bytes of x and
/// y; its top bit replicates that byte's sign instead.
inline unsigned __byte_perm(unsigned x, unsigned y, unsigned selector) {
    unsigned long long bytes = static_cast<unsigned long long>(y) << 32 | x;
    unsigned result = 0;
    for (int i = 0; i < 4; ++i) {
        unsigned digit = selector >> (4 * i) & 0xf;
        auto byte = static_cast<unsigned>(bytes >> (8 * (digit & 7)) & 0xff);
        if ((digit & 8) != 0) byte = (byte & 0x80) != 0 ? 0xff : 0;
        result |= byte << (8 * i);
    }
    return result;
}

/// Funnel shifts of the 64 bits high:low; _l returns the upper, _r the lower half.
inline unsigned __funnelshift_l(unsigned low, unsigned high, unsigned shift) {
    unsigned long long both = static_cast<unsigned long long>(high) << 32 | low;
    return static_cast<unsigned>(both << (shift & 31) >> 32);
}
inline unsigned __funnelshift_r(unsigned low, unsigned high, unsigned shift) {
    unsigned long long both = static_cast<unsigned long long>(high) << 32 | low;
    return static_cast<unsigned>(both >> (shift & 31));
}

// ---- Integer arithmetic -------------------------------------------------------------

inline int __mulhi(int x, int y) {
    return static_cast<int>(static_cast<long long>(x) * y >> 32);
}
inline unsigned __umulhi(unsigned x, unsigned y) {
    return static_cast<unsigned>(static_cast<unsigned long long>(x) * y >> 32);
}
inline long long __mul64hi(long long x, long long y) {
    return static_cast<long long>(static_cast<__int128>(x) * y >> 64);
}
inline unsigned long long __umul64hi(unsigned long long x, unsigned long long y) {
    return static_cast<unsigned long long>(static_cast<unsigned __int128>(x) * y >> 64);
}

/// The sum of c and four products of signed bytes.
inline int __dp4a(int a, int b, int c) {
    auto sum = static_cast<unsigned>(c);
    for (int shift = 0; shift < 32; shift += 8) {
        int product =
            static_cast<signed char>(a >> shift) * static_cast<signed char>(b >> shift);
        sum += static_cast<unsigned>(product);
    }
    return static_cast<int>(sum);
}

// ---- Numbers as bit patterns --------------------------------------------------------

inline int __float_as_int(float x) { return emulator::as<int>(x); }
inline unsigned __float_as_uint(float x) { return emulator::as<unsigned>(x); }
inline float __int_as_float(int x) { return emulator::as<float>(x); }
inline float __uint_as_float(unsigned x) { return emulator::as<float>(x); }
inline long long __double_as_longlong(double x) { return emulator::as<long long>(x); }
inline double __longlong_as_double(long long x) { return emulator::as<double>(x); }

// ---- Conversions with a rounding mode: _rn nearest even, _rz zero, _rd down, _ru up -

inline int __float2int_rn(float x) { return emulator::saturate<int>(rintf(x)); }
inline int __float2int_rz(float x) { return emulator::saturate<int>(truncf(x)); }
inline int __float2int_rd(float x) { return emulator::saturate<int>(floorf(x)); }
inline int __float2int_ru(float x) { return emulator::saturate<int>(ceilf(x)); }
inline unsigned __float2uint_rn(float x) {
    return emulator::saturate<unsigned>(rintf(x));
}
inline unsigned __float2uint_rz(float x) {
    return emulator::saturate<unsigned>(truncf(x));
}
inline unsigned __float2uint_rd(float x) {
    return emulator::saturate<unsigned>(floorf(x));
}
inline unsigned __float2uint_ru(float x) {
    return emulator::saturate<unsigned>(ceilf(x));
}
inline long long __float2ll_rn(float x) {
    return emulator::saturate<long long>(rintf(x));
}
inline long long __float2ll_rz(float x) {
    return emulator::saturate<long long>(truncf(x));
}
inline int __double2int_rn(double x) { return emulator::saturate<int>(rint(x)); }
inline int __double2int_rz(double x) { return emulator::saturate<int>(trunc(x)); }
inline float __int2float_rn(int x) { return static_cast<float>(x); }
inline float __uint2float_rn(unsigned x) { return static_cast<float>(x); }
inline float __ll2float_rn(long long x) { return static_cast<float>(x); }
inline float __ull2float_rn(unsigned long long x) { return static_cast<float>(x); }
inline float __double2float_rn(double x) { return static_cast<float>(x); }
