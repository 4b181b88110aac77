// Device functions on bits: integer intrinsics, and numbers as bit patterns.
#pragma once

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

/// As above, but a shift of more than 32 bits is one of 32.
inline unsigned __funnelshift_lc(unsigned low, unsigned high, unsigned shift) {
    return shift >= 32 ? low : __funnelshift_l(low, high, shift);
}
inline unsigned __funnelshift_rc(unsigned low, unsigned high, unsigned shift) {
    return shift >= 32 ? high : __funnelshift_r(low, high, shift);
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

inline unsigned __dp4a(unsigned a, unsigned b, unsigned c) {
    for (int shift = 0; shift < 32; shift += 8) {
        c += (a >> shift & 0xff) * (b >> shift & 0xff);
    }
    return c;
}

/// The product of the lower 24 bits.
inline int __mul24(int x, int y) {
    int low_x = static_cast<int>(static_cast<unsigned>(x) << 8) >> 8;
    int low_y = static_cast<int>(static_cast<unsigned>(y) << 8) >> 8;
    return static_cast<int>(static_cast<long long>(low_x) * low_y);
}
inline unsigned __umul24(unsigned x, unsigned y) {
    return (x & 0xffffff) * (y & 0xffffff);
}

/// |x - y| + z
inline unsigned __sad(int x, int y, unsigned z) {
    long long difference = static_cast<long long>(x) - y;
    return static_cast<unsigned>(difference < 0 ? -difference : difference) + z;
}
inline unsigned __usad(unsigned x, unsigned y, unsigned z) {
    return (x < y ? y - x : x - y) + z;
}

/// Averages, rounded down and, those with an r, up.
inline int __hadd(int x, int y) {
    return static_cast<int>((static_cast<long long>(x) + y) >> 1);
}
inline int __rhadd(int x, int y) {
    return static_cast<int>((static_cast<long long>(x) + y + 1) >> 1);
}
inline unsigned __uhadd(unsigned x, unsigned y) {
    return static_cast<unsigned>((static_cast<unsigned long long>(x) + y) >> 1);
}
inline unsigned __urhadd(unsigned x, unsigned y) {
    return static_cast<unsigned>((static_cast<unsigned long long>(x) + y + 1) >> 1);
}

// ---- Numbers as bit patterns --------------------------------------------------------

inline int __float_as_int(float x) { return emulator::as<int>(x); }
inline unsigned __float_as_uint(float x) { return emulator::as<unsigned>(x); }
inline float __int_as_float(int x) { return emulator::as<float>(x); }
inline float __uint_as_float(unsigned x) { return emulator::as<float>(x); }
inline long long __double_as_longlong(double x) { return emulator::as<long long>(x); }
inline double __longlong_as_double(long long x) { return emulator::as<double>(x); }
inline int __double2hiint(double x) {
    return static_cast<int>(emulator::as<std::uint64_t>(x) >> 32);
}
inline int __double2loint(double x) {
    return static_cast<int>(emulator::as<std::uint64_t>(x));
}
inline double __hiloint2double(int high, int low) {
    auto upper = static_cast<std::uint64_t>(static_cast<unsigned>(high)) << 32;
    return emulator::as<double>(upper | static_cast<unsigned>(low));
}
