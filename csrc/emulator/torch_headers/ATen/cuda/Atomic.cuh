// Stands in for torch's header of this name: atomics on the element types of tensors.
#pragma once

#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>
#include <cuda_runtime.h>

#include <cstdint>

namespace emulator {

/// Of 2, 4 or 8 bytes.
template <typename T>
concept TensorElement = sizeof(T) == 2 || sizeof(T) == 4 || sizeof(T) == 8;

}  // namespace emulator

#define TWIN_TENSOR_ATOMIC(name, update)                                             \
    template <emulator::TensorElement T>                                             \
    __forceinline__ T name(                                                          \
        T* address, std::type_identity_t<T> value,                                   \
        emulator::Site site = emulator::Site::here()                                 \
    ) {                                                                              \
        return emulator::atomic_update(address, value, #name, site, [value](T old) { \
            return static_cast<T>(update);                                           \
        });                                                                          \
    }

TWIN_TENSOR_ATOMIC(gpuAtomicAdd, old + value)
TWIN_TENSOR_ATOMIC(gpuAtomicAddNoReturn, old + value)
TWIN_TENSOR_ATOMIC(gpuAtomicMul, old* value)
TWIN_TENSOR_ATOMIC(gpuAtomicMax, old < value ? value : old)
TWIN_TENSOR_ATOMIC(gpuAtomicMin, value < old ? value : old)

#undef TWIN_TENSOR_ATOMIC

/// For these types CUDA has no atomicAdd, but torch has.
template <emulator::OneOf<c10::Half, c10::BFloat16, std::int16_t, std::int64_t> T>
__forceinline__ T atomicAdd(
    T* address, std::type_identity_t<T> value,
    emulator::Site site = emulator::Site::here()
) {
    return gpuAtomicAdd(address, value, site);
}
