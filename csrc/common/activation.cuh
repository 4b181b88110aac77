// An activation and its backward, as pure functions. A kernel takes the activation as a
// template argument, and does not know what it computes. Memory bounds these kernels and
// leaves time for forms as exact as T, the type of the result, resolves: the epilogue of a
// matmul, which has no such time, takes shorter ones.
#pragma once

#include "common/epilogue.cuh"

template <Activation ACTIVATION, typename T>
__device__ __forceinline__ float activate(float x) {
    switch (ACTIVATION) {
        case Activation::none:
            return x;
        case Activation::relu:
            return relu(x);
        case Activation::leaky_relu:
            return leaky_relu(x);
        case Activation::gelu:
            return gelu<T, false>(x);
        case Activation::gelu_tanh:
            return gelu<T, true>(x);
        case Activation::silu:
            return silu<T>(x);
    }
    return x;
}

// The gradient of x from that of its activation.
template <Activation ACTIVATION, typename T>
__device__ __forceinline__ float activate_backward(float grad, float x) {
    switch (ACTIVATION) {
        case Activation::none:
            return grad;
        case Activation::relu:
            return relu_backward(grad, x);
        case Activation::leaky_relu:
            return leaky_relu_backward(grad, x);
        case Activation::gelu:
            return grad * gelu_derivative<T, false>(x);
        case Activation::gelu_tanh:
            return grad * gelu_derivative<T, true>(x);
        case Activation::silu:
            return grad * silu_derivative<T>(x);
    }
    return grad;
}
