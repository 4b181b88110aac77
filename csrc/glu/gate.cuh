// The activation of a gate and its derivative, as pure functions. A kernel takes the
// activation as a template argument, and does not know what it computes.
#pragma once

#include "common/math.cuh"

enum class Gate { gelu, gelu_tanh, silu };

// The factor of the value, as exact as T, the type of the result, resolves.
template <Gate GATE, typename T>
__device__ __forceinline__ float activate_gate(float gate) {
    if constexpr (GATE == Gate::silu) return silu<T>(gate);
    return gelu<T, GATE == Gate::gelu_tanh>(gate);
}

// Its derivative, likewise.
template <Gate GATE, typename T>
__device__ __forceinline__ float activate_gate_derivative(float gate) {
    if constexpr (GATE == Gate::silu) return silu_derivative<T>(gate);
    return gelu_derivative<T, GATE == Gate::gelu_tanh>(gate);
}
