// The device and its memory, as the host sees them. Device memory is host memory, and
// every call is synchronous. CUDA's other functions are in errors.cpp,
// launch_checks.cpp (cudaFuncSetAttribute) and host/launch.h.

#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <string>

#include "../host/api.h"
#include "../observer.h"
#include "errors.h"
#include "h100.h"

// ---- The device ---------------------------------------------------------------------

cudaError_t cudaGetDeviceCount(int* count) {
    *count = 1;
    return cudaSuccess;
}

cudaError_t cudaGetDevice(int* device) {
    *device = 0;
    return cudaSuccess;
}

cudaError_t cudaSetDevice(int device) {
    if (device == 0) return cudaSuccess;
    return emulator::report(
        cudaErrorInvalidDevice,
        "device " + std::to_string(device) + ": the emulator has only device 0"
    );
}

namespace emulator {
namespace {

std::optional<int> attribute_value(cudaDeviceAttr attribute) {
    switch (attribute) {
        case cudaDevAttrMaxThreadsPerBlock:
            return MAX_THREADS;
        case cudaDevAttrMaxSharedMemoryPerBlock:
            return SHARED_BYTES_WITHOUT_OPT_IN;
        case cudaDevAttrWarpSize:
            return WARP_SIZE;
        case cudaDevAttrMultiProcessorCount:
            return MULTIPROCESSORS;
        case cudaDevAttrMaxThreadsPerMultiProcessor:
            return THREADS_PER_MULTIPROCESSOR;
        case cudaDevAttrComputeCapabilityMajor:
            return 9;
        case cudaDevAttrComputeCapabilityMinor:
            return 0;
        case cudaDevAttrMaxSharedMemoryPerMultiprocessor:
            return SHARED_BYTES_PER_MULTIPROCESSOR;
        case cudaDevAttrMaxSharedMemoryPerBlockOptin:
            return MAX_SHARED_BYTES;
    }
    return std::nullopt;
}

}  // namespace
}  // namespace emulator

cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device) {
    if (cudaError_t error = cudaSetDevice(device)) return error;
    std::optional<int> known = emulator::attribute_value(attribute);
    if (!known) {
        return emulator::report(
            cudaErrorInvalidValue, "cudaDeviceGetAttribute: attribute " +
                                       std::to_string(int{attribute}) +
                                       " is not modelled by the emulator"
        );
    }
    *value = *known;
    return cudaSuccess;
}

cudaError_t cudaDeviceSynchronize() { return cudaSuccess; }

cudaError_t cudaStreamSynchronize(cudaStream_t) { return cudaSuccess; }

// ---- Memory -------------------------------------------------------------------------

cudaError_t cudaMalloc(void** pointer, std::size_t bytes) {
    constexpr std::size_t ALIGNMENT = 256;  // as on the GPU
    std::size_t rounded = (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    *pointer = bytes == 0 ? nullptr : std::aligned_alloc(ALIGNMENT, rounded);
    if (bytes != 0 && *pointer == nullptr) {
        return emulator::report(cudaErrorMemoryAllocation, "cudaMalloc: out of memory");
    }
    if (bytes != 0) std::memset(*pointer, 0xFF, rounded);
    if (emulator::observer != nullptr) {
        emulator::observer->memory_allocated(*pointer, bytes);
    }
    return cudaSuccess;
}

cudaError_t cudaFree(void* pointer) {
    if (emulator::observer != nullptr) emulator::observer->memory_freed(pointer);
    std::free(pointer);
    return cudaSuccess;
}

cudaError_t cudaMemcpy(
    void* target, const void* source, std::size_t bytes, cudaMemcpyKind
) {
    std::memmove(target, source, bytes);
    return cudaSuccess;
}

cudaError_t cudaMemcpyAsync(
    void* target, const void* source, std::size_t bytes, cudaMemcpyKind kind,
    cudaStream_t
) {
    return cudaMemcpy(target, source, bytes, kind);
}

cudaError_t cudaMemset(void* pointer, int value, std::size_t bytes) {
    std::memset(pointer, value, bytes);
    return cudaSuccess;
}

cudaError_t cudaMemsetAsync(void* pointer, int value, std::size_t bytes, cudaStream_t) {
    return cudaMemset(pointer, value, bytes);
}
