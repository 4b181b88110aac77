// Device functions on numbers that the C library lacks.
//
// Functions that CUDA approximates (__expf, __fdividef, ...) are as exact as the C
// library: the emulator does not show the error of the approximation.
#pragma once

#include <math.h>

#include <type_traits>

// C linkage, because newer C libraries declare these two themselves.
extern "C" inline float rsqrtf(float x) noexcept { return 1.0f / sqrtf(x); }
extern "C" inline double rsqrt(double x) noexcept { return 1.0 / ::sqrt(x); }

// ---- Approximations on the GPU ------------------------------------------------------

inline float __expf(float x) { return expf(x); }
inline float __exp10f(float x) { return powf(10.0f, x); }
inline float __logf(float x) { return logf(x); }
inline float __log2f(float x) { return log2f(x); }
inline float __log10f(float x) { return log10f(x); }
inline float __powf(float x, float y) { return powf(x, y); }
inline float __sinf(float x) { return sinf(x); }
inline float __cosf(float x) { return cosf(x); }
inline float __tanf(float x) { return tanf(x); }
inline float __tanhf(float x) { return tanhf(x); }
inline void __sincosf(float x, float* sine, float* cosine) {
    *sine = sinf(x);
    *cosine = cosf(x);
}

/// For a divisor between 2^126 and 2^128 CUDA delivers 0, or NaN if the dividend is
/// infinite.
inline float __fdividef(float x, float y) {
    float magnitude = fabsf(y);
    if (magnitude > 0x1p126f && magnitude < INFINITY) return isinf(x) ? NAN : 0.0f;
    return x / y;
}
inline float fdividef(float x, float y) { return x / y; }

// ---- Rounded to nearest -------------------------------------------------------------

inline float __fadd_rn(float x, float y) { return x + y; }
inline float __fsub_rn(float x, float y) { return x - y; }
inline float __fmul_rn(float x, float y) { return x * y; }
inline float __fdiv_rn(float x, float y) { return x / y; }
inline float __fmaf_rn(float x, float y, float z) { return fmaf(x, y, z); }
inline float __frcp_rn(float x) { return 1.0f / x; }
inline float __fsqrt_rn(float x) { return sqrtf(x); }
inline float __frsqrt_rn(float x) {
    return static_cast<float>(1.0 / ::sqrt(double{x}));
}
inline double __dadd_rn(double x, double y) { return x + y; }
inline double __dmul_rn(double x, double y) { return x * y; }
inline double __ddiv_rn(double x, double y) { return x / y; }
inline double __dsub_rn(double x, double y) { return x - y; }
inline double __drcp_rn(double x) { return 1.0 / x; }
inline double __dsqrt_rn(double x) { return ::sqrt(x); }
inline double __fma_rn(double x, double y, double z) { return ::fma(x, y, z); }

/// NaN becomes 0, as on the GPU.
inline float __saturatef(float x) { return x > 0.0f ? (x < 1.0f ? x : 1.0f) : 0.0f; }

// ---- Minimum and maximum ------------------------------------------------------------

// The number, if the other one is a NaN: CUDA's overloads for float are fminf and
// fmaxf.
template <typename A, typename B>
    requires(std::is_arithmetic_v<A> && std::is_arithmetic_v<B>)
constexpr std::common_type_t<A, B> min(A a, B b) {
    using Common = std::common_type_t<A, B>;
    Common x = static_cast<Common>(a);
    Common y = static_cast<Common>(b);
    return y < x || x != x ? y : x;
}

template <typename A, typename B>
    requires(std::is_arithmetic_v<A> && std::is_arithmetic_v<B>)
constexpr std::common_type_t<A, B> max(A a, B b) {
    using Common = std::common_type_t<A, B>;
    Common x = static_cast<Common>(a);
    Common y = static_cast<Common>(b);
    return x < y || x != x ? y : x;
}

inline unsigned umin(unsigned a, unsigned b) { return b < a ? b : a; }
inline unsigned umax(unsigned a, unsigned b) { return a < b ? b : a; }
inline long long llmin(long long a, long long b) { return b < a ? b : a; }
inline long long llmax(long long a, long long b) { return a < b ? b : a; }
