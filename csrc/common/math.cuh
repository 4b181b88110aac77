// Functions of one float, without a pointer in them.
#pragma once

#include "common/ptx/math.cuh"

constexpr float LOG2_E = 1.44269504088896341f;
constexpr float SQRT_HALF = 0.70710678118654752f;
constexpr float INVERSE_SQRT_2PI = 0.39894228040143268f;
constexpr float LEAKY_RELU_SLOPE = 0.01f;

// e^x with a relative error of 2^-22 + |x| 2^-23. Results below 2^-126 become 0.
__device__ __forceinline__ float fast_exp(float x) { return ptx::exp2(x * LOG2_E); }

// e^x with an error of two units in the last place. Results below 2^-126 keep digits.
__device__ __forceinline__ float accurate_exp(float x) { return expf(x); }

// 1 / x with an error of one unit in the last place.
__device__ __forceinline__ float fast_reciprocal(float x) { return ptx::reciprocal(x); }

// What exponents are relative to: the largest so far, or 0 while that is -inf. -inf - -inf
// would make a sum of exponentials NaN, where it has to stay 0.
__device__ __forceinline__ float finite_origin(float max) {
    return max == -INFINITY ? 0.0f : max;
}

// tanh(x) with an error of 2^-11, relative; beyond 9 or so the result is 1.
__device__ __forceinline__ float fast_tanh(float x) { return ptx::tanh(x); }

// max(x, 0), and NaN of NaN, which fmaxf would make 0.
__device__ __forceinline__ float relu(float x) { return ptx::max_or_nan(x, 0.0f); }

// The gradient of x from that of the result; at x = 0 it is 0, as in PyTorch. It is chosen,
// not multiplied by a derivative of 0, which would make inf NaN.
__device__ __forceinline__ float relu_backward(float grad, float x) {
    return x <= 0.0f ? 0.0f : grad;
}

__device__ __forceinline__ float leaky_relu(float x) {
    return x < 0.0f ? LEAKY_RELU_SLOPE * x : x;
}

// The gradient of x from that of the result.
__device__ __forceinline__ float leaky_relu_backward(float grad, float x) {
    return x > 0.0f ? grad : LEAKY_RELU_SLOPE * grad;
}

// 0.5 x (1 + erf(x / sqrt(2)))
__device__ __forceinline__ float gelu_erf(float x) {
    return 0.5f * x * (1.0f + erff(x * SQRT_HALF));
}

// Its derivative, Phi(x) + x phi(x), of the standard normal distribution.
__device__ __forceinline__ float gelu_erf_derivative(float x) {
    const float z = x * SQRT_HALF;
    return 0.5f * (1.0f + erff(z)) + x * (INVERSE_SQRT_2PI * fast_exp(-z * z));
}

// 0.5 erfc(z) for z >= 0, from exp(-z^2), with an error of 0.75e-7. Abramowitz & Stegun
// 1964, formula 7.1.26: with t = 1 / (1 + p z), erfc(z) = (a1 t + a2 t^2 + a3 t^3 + a4
// t^4 + a5 t^5) exp(-z^2). The coefficients are halved.
__device__ __forceinline__ float half_erfc_fast(float z, float exp_minus_z2) {
    const float t = fast_reciprocal(1.0f + 0.3275911f * z);
    float half_erfc = t * 0.5307027145f - 0.7265760135f;
    half_erfc = half_erfc * t + 0.7107068705f;
    half_erfc = half_erfc * t - 0.142248368f;
    half_erfc = half_erfc * t + 0.127414796f;
    return half_erfc * (t * exp_minus_z2);
}

// gelu_erf in half the instructions, off by 0.75e-7 x: for types of 16 bits.
__device__ __forceinline__ float gelu_erf_fast(float x) {
    const float z = fabsf(x) * SQRT_HALF;
    const float half_erfc = half_erfc_fast(z, fast_exp(-z * z));
    return x * (x < 0.0f ? half_erfc : 1.0f - half_erfc);
}

// Its derivative: one exponential serves distribution function and density.
__device__ __forceinline__ float gelu_erf_fast_derivative(float x) {
    const float z = fabsf(x) * SQRT_HALF;
    const float exp_minus_z2 = fast_exp(-z * z);
    const float half_erfc = half_erfc_fast(z, exp_minus_z2);
    const float phi = INVERSE_SQRT_2PI * exp_minus_z2;
    return (x < 0.0f ? half_erfc : 1.0f - half_erfc) + x * phi;
}

// gelu_erf in a third of the instructions, for bfloat16 alone: 0.5 x (1 + tanh(u)) with
// the u = x (a + b x^2) that comes closest to it, within 2^-12. The instruction for tanh
// is off by 2^-12 |x| more; bfloat16 resolves 2^-9 of the result. It takes half of x.
__device__ __forceinline__ float gelu_erf_bfloat16_of_half(float half_x) {
    constexpr float LINEAR = 2.0f * 0.80015707f;
    constexpr float CUBIC = 8.0f * 0.0347009f;
    const float tanh_u = fast_tanh(half_x * (LINEAR + CUBIC * half_x * half_x));
    return half_x * tanh_u + half_x;
}

// gelu_tanh in the same way.
__device__ __forceinline__ float gelu_tanh_bfloat16_of_half(float half_x) {
    constexpr float LINEAR = 2.0f * 0.79788456080286536f;
    constexpr float CUBIC = 4.0f * LINEAR * 0.044715f;
    const float tanh_u = fast_tanh(half_x * (LINEAR + CUBIC * half_x * half_x));
    return half_x * tanh_u + half_x;
}

// 0.5 x (1 + tanh(u)) with u = sqrt(2 / pi) (x + 0.044715 x^3), written as x / (1 +
// exp(-2 u)): the exponential of a large argument is inf or 0 and leaves x / inf or x,
// where the textbook's (exp(2 u) - 1) / (exp(2 u) + 1) would be inf / inf.
__device__ __forceinline__ float gelu_tanh(float x) {
    constexpr float LINEAR = -2.0f * 0.79788456080286536f;
    constexpr float CUBIC = LINEAR * 0.044715f;
    const float minus_2u = x * (LINEAR + CUBIC * x * x);
    return x * fast_reciprocal(1.0f + fast_exp(minus_2u));
}

// Its derivative, s + x s (1 - s) (2 u)' with s = 1 / (1 + exp(-2 u)). From e = exp(-|2
// u|), which is at most 1, both s and s (1 - s) = e / (1 + e)^2 follow without a
// difference of numbers that are nearly the same. From x^2 = 1024 on e is 0 and the
// result 0 or 1; x^2 ends there, because 0 times an x^2 of inf would be NaN.
__device__ __forceinline__ float gelu_tanh_derivative(float x) {
    constexpr float LINEAR = 2.0f * 0.79788456080286536f;
    constexpr float CUBIC = LINEAR * 0.044715f;
    const float x2 = fminf(x * x, 1024.0f);
    const float e = fast_exp(-fabsf(x) * (LINEAR + CUBIC * x2));
    const float inverse = fast_reciprocal(1.0f + e);
    const float slope = x * (e * inverse * inverse) * (LINEAR + 3.0f * CUBIC * x2);
    return (x < 0.0f ? e * inverse : inverse) + slope;
}

// The gelu of x, by its fast form where T does not resolve the error.
template <typename T, bool APPROXIMATE_TANH>
__device__ __forceinline__ float gelu(float x) {
    if constexpr (APPROXIMATE_TANH) return gelu_tanh(x);
    return sizeof(T) == 4 ? gelu_erf(x) : gelu_erf_fast(x);
}

// Its derivative, likewise.
template <typename T, bool APPROXIMATE_TANH>
__device__ __forceinline__ float gelu_derivative(float x) {
    if constexpr (APPROXIMATE_TANH) return gelu_tanh_derivative(x);
    return sizeof(T) == 4 ? gelu_erf_derivative(x) : gelu_erf_fast_derivative(x);
}

// exp(-|x|), which is at most 1, as T resolves it.
template <typename T>
__device__ __forceinline__ float exp_minus_abs(float x) {
    return sizeof(T) == 4 ? accurate_exp(-fabsf(x)) : fast_exp(-fabsf(x));
}

// x / (1 + exp(-x)), from e = exp(-|x|): 1 + e cannot overflow.
template <typename T>
__device__ __forceinline__ float silu(float x) {
    const float e = exp_minus_abs<T>(x);
    const float inverse = fast_reciprocal(1.0f + e);
    return x * (x < 0.0f ? e * inverse : inverse);
}

// silu in half the instructions, for types of 16 bits: the exponential of a large argument is
// inf and leaves x / inf. The error grows to 2^-17 of the result at x = -80.
__device__ __forceinline__ float silu_fast(float x) {
    return x * fast_reciprocal(1.0f + fast_exp(-x));
}

// Its derivative, s (1 + x (1 - s)) with s = 1 / (1 + exp(-x)), from the same e as silu. s
// and 1 - s are 1 / (1 + e) and e / (1 + e), or the other way round, so that no difference
// of numbers that are nearly the same is taken but the one that makes the derivative 0.
template <typename T>
__device__ __forceinline__ float silu_derivative(float x) {
    const float e = exp_minus_abs<T>(x);
    const float inverse = fast_reciprocal(1.0f + e);
    const float s = x < 0.0f ? e * inverse : inverse;
    const float one_minus_s = x < 0.0f ? inverse : e * inverse;
    return s * (1.0f + x * one_minus_s);
}
