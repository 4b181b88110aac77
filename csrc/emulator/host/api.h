// The part of the CUDA runtime API that launchers use: errors, the device, memory.
#pragma once

#include <cstddef>

#include "../runtime.h"

// ---- Errors -------------------------------------------------------------------------

enum cudaError : int {
    cudaSuccess = 0,
    cudaErrorInvalidValue = 1,
    cudaErrorMemoryAllocation = 2,
    cudaErrorInvalidConfiguration = 9,
    cudaErrorInvalidDeviceFunction = 98,
    cudaErrorInvalidDevice = 101,
    cudaErrorInvalidResourceHandle = 400,
    cudaErrorIllegalAddress = 700,
    cudaErrorLaunchOutOfResources = 701,
    cudaErrorLaunchTimeout = 702,
    cudaErrorAssert = 710,
    cudaErrorMisalignedAddress = 716,
    cudaErrorLaunchFailure = 719,
    cudaErrorNotSupported = 801,
    cudaErrorInvalidClusterSize = 912,
    cudaErrorUnknown = 999,
};
using cudaError_t = cudaError;

/// The detailed message, if this error is the calling thread's last failure; CUDA's
/// general wording otherwise.
const char* cudaGetErrorString(cudaError_t error);
const char* cudaGetErrorName(cudaError_t error);
cudaError_t cudaGetLastError();
cudaError_t cudaPeekAtLastError();

// ---- The device: one emulated H100 --------------------------------------------------

enum cudaDeviceAttr : int {
    cudaDevAttrMaxThreadsPerBlock = 1,
    cudaDevAttrMaxSharedMemoryPerBlock = 8,
    cudaDevAttrWarpSize = 10,
    cudaDevAttrMultiProcessorCount = 16,
    cudaDevAttrMaxThreadsPerMultiProcessor = 39,
    cudaDevAttrComputeCapabilityMajor = 75,
    cudaDevAttrComputeCapabilityMinor = 76,
    cudaDevAttrMaxSharedMemoryPerMultiprocessor = 81,
    cudaDevAttrMaxSharedMemoryPerBlockOptin = 97,
};

cudaError_t cudaGetDeviceCount(int* count);
cudaError_t cudaGetDevice(int* device);
cudaError_t cudaSetDevice(int device);
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device);
cudaError_t cudaDeviceSynchronize();

// ---- Streams: every call is synchronous ---------------------------------------------

using cudaStream_t = struct CUstream_st*;

cudaError_t cudaStreamSynchronize(cudaStream_t stream);

// ---- Memory -------------------------------------------------------------------------

enum cudaMemcpyKind : int {
    cudaMemcpyHostToHost = 0,
    cudaMemcpyHostToDevice = 1,
    cudaMemcpyDeviceToHost = 2,
    cudaMemcpyDeviceToDevice = 3,
    cudaMemcpyDefault = 4,
};

/// Fills the memory with the byte 0xFF: floats of every width then read as NaN, which
/// exposes a kernel that relies on unwritten memory.
cudaError_t cudaMalloc(void** pointer, std::size_t bytes);
cudaError_t cudaFree(void* pointer);
cudaError_t cudaMemcpy(
    void* target, const void* source, std::size_t bytes, cudaMemcpyKind kind
);
cudaError_t cudaMemcpyAsync(
    void* target, const void* source, std::size_t bytes, cudaMemcpyKind kind,
    cudaStream_t stream = nullptr
);
cudaError_t cudaMemset(void* pointer, int value, std::size_t bytes);
cudaError_t cudaMemsetAsync(
    void* pointer, int value, std::size_t bytes, cudaStream_t stream = nullptr
);

template <typename T>
cudaError_t cudaMalloc(T** pointer, std::size_t bytes) {
    return cudaMalloc(reinterpret_cast<void**>(pointer), bytes);
}

// ---- Kernel attributes --------------------------------------------------------------

enum cudaFuncAttribute : int {
    cudaFuncAttributeMaxDynamicSharedMemorySize = 8,
    cudaFuncAttributePreferredSharedMemoryCarveout = 9,
};

cudaError_t cudaFuncSetAttribute(
    const void* kernel, cudaFuncAttribute attribute, int value
);

template <typename Kernel>
cudaError_t cudaFuncSetAttribute(
    Kernel* kernel, cudaFuncAttribute attribute, int value
) {
    return cudaFuncSetAttribute(
        reinterpret_cast<const void*>(kernel), attribute, value
    );
}

// ---- Functions of the driver --------------------------------------------------------

enum cudaDriverEntryPointQueryResult : int {
    cudaDriverEntryPointSuccess = 0,
    cudaDriverEntryPointSymbolNotFound = 1,
    cudaDriverEntryPointVersionNotSufficent = 2,
};

constexpr unsigned long long cudaEnableDefault = 0;

/// Finds the functions of cuda.h.
cudaError_t cudaGetDriverEntryPointByVersion(
    const char* symbol, void** function, unsigned version, unsigned long long flags,
    cudaDriverEntryPointQueryResult* status = nullptr
);
