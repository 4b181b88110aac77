// The epilogue of a matmul, as pure functions of a sum. A kernel takes the activation as a
// template argument, and does not know what it computes.
#pragma once

#include <type_traits>
#include <utility>

#include "common/dtype.cuh"
#include "common/math.cuh"

enum class Activation : int { none, relu, leaky_relu, gelu, gelu_tanh, silu };

// An activation takes x times this power of two, which loses no digit of x: one that needs
// x / 2 gets it from the instruction that adds sum and bias, at no cost.
template <typename T>
constexpr __device__ __forceinline__ float argument_scale(Activation activation) {
    const bool is_gelu =
        activation == Activation::gelu || activation == Activation::gelu_tanh;
    return is_gelu && std::is_same_v<T, __nv_bfloat16> ? 0.5f : 1.0f;
}

// The activation of a scaled x, with an error below what T, the result's type, resolves.
template <Activation ACTIVATION, typename T>
__device__ __forceinline__ float activate_scaled(float x) {
    constexpr bool IS_FLOAT32 = sizeof(T) == 4;
    constexpr bool IS_BFLOAT16 = std::is_same_v<T, __nv_bfloat16>;
    switch (ACTIVATION) {
        case Activation::none:
            return x;
        case Activation::relu:
            return relu(x);
        case Activation::leaky_relu:
            return leaky_relu(x);
        case Activation::gelu:
            return IS_FLOAT32    ? gelu_erf(x)
                   : IS_BFLOAT16 ? gelu_erf_bfloat16_of_half(x)
                                 : gelu_erf_fast(x);
        case Activation::gelu_tanh:
            return IS_BFLOAT16 ? gelu_tanh_bfloat16_of_half(x) : gelu_tanh(x);
        case Activation::silu:
            return IS_FLOAT32 ? silu<T>(x) : silu_fast(x);
    }
    return x;
}

// The activation of a sum plus its column's scaled bias, which is 0 where there is none.
template <Activation ACTIVATION, typename T>
__device__ __forceinline__ float epilogue(float accumulator, float scaled_bias) {
    constexpr float SCALE = argument_scale<T>(ACTIVATION);
    return activate_scaled<ACTIVATION, T>(SCALE * accumulator + scaled_bias);
}

// Calls `body.template operator()<ACTIVATION>()` and returns its result: on the host, where
// that picks an instance of a kernel, or in a kernel that is not compiled for each activation,
// as a branch that all threads take alike. The pragma: a body is for one of the two alone.
#pragma nv_exec_check_disable
template <typename Body>
__host__ __device__ auto dispatch_activation(Activation activation, Body&& body) {
    switch (activation) {
        case Activation::none:
            break;
        case Activation::relu:
            return body.template operator()<Activation::relu>();
        case Activation::leaky_relu:
            return body.template operator()<Activation::leaky_relu>();
        case Activation::gelu:
            return body.template operator()<Activation::gelu>();
        case Activation::gelu_tanh:
            return body.template operator()<Activation::gelu_tanh>();
        case Activation::silu:
            return body.template operator()<Activation::silu>();
    }
    return body.template operator()<Activation::none>();
}
