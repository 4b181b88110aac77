// CUDA's error functions. cudaGetErrorString gives the detailed message of the calling
// thread's last failure: CUDA has no other place for it.

#include "errors.h"

#include <utility>

#include "text.h"

namespace emulator {
namespace {

struct LastError {
    cudaError code = cudaSuccess;  // what cudaGetLastError returns and clears
    cudaError described = cudaSuccess;
    std::string message;  // of `described`
};

thread_local LastError last_error;

struct ErrorText {
    cudaError code;
    const char* name;
    const char* description;
};

constexpr ErrorText ERROR_TEXTS[] = {
    {cudaSuccess, "cudaSuccess", "no error"},
    {cudaErrorInvalidValue, "cudaErrorInvalidValue", "invalid argument"},
    {cudaErrorMemoryAllocation, "cudaErrorMemoryAllocation", "out of memory"},
    {cudaErrorInitializationError, "cudaErrorInitializationError",
     "initialization error"},
    {cudaErrorInvalidConfiguration, "cudaErrorInvalidConfiguration",
     "invalid configuration argument"},
    {cudaErrorInvalidPitchValue, "cudaErrorInvalidPitchValue",
     "invalid pitch argument"},
    {cudaErrorInvalidSymbol, "cudaErrorInvalidSymbol", "invalid device symbol"},
    {cudaErrorInvalidMemcpyDirection, "cudaErrorInvalidMemcpyDirection",
     "invalid copy direction for memcpy"},
    {cudaErrorInsufficientDriver, "cudaErrorInsufficientDriver",
     "CUDA driver version is insufficient for CUDA runtime version"},
    {cudaErrorInvalidDeviceFunction, "cudaErrorInvalidDeviceFunction",
     "invalid device function"},
    {cudaErrorNoDevice, "cudaErrorNoDevice", "no CUDA-capable device is detected"},
    {cudaErrorInvalidDevice, "cudaErrorInvalidDevice", "invalid device ordinal"},
    {cudaErrorNoKernelImageForDevice, "cudaErrorNoKernelImageForDevice",
     "no kernel image is available for execution on the device"},
    {cudaErrorInvalidResourceHandle, "cudaErrorInvalidResourceHandle",
     "invalid resource handle"},
    {cudaErrorNotReady, "cudaErrorNotReady", "device not ready"},
    {cudaErrorIllegalAddress, "cudaErrorIllegalAddress",
     "an illegal memory access was encountered"},
    {cudaErrorLaunchOutOfResources, "cudaErrorLaunchOutOfResources",
     "too many resources requested for launch"},
    {cudaErrorLaunchTimeout, "cudaErrorLaunchTimeout",
     "the launch timed out and was terminated"},
    {cudaErrorAssert, "cudaErrorAssert", "device-side assert triggered"},
    {cudaErrorMisalignedAddress, "cudaErrorMisalignedAddress", "misaligned address"},
    {cudaErrorLaunchFailure, "cudaErrorLaunchFailure", "unspecified launch failure"},
    {cudaErrorNotSupported, "cudaErrorNotSupported", "operation not supported"},
    {cudaErrorInvalidClusterSize, "cudaErrorInvalidClusterSize",
     "cluster misconfiguration"},
    {cudaErrorUnknown, "cudaErrorUnknown", "unknown error"},
};

constexpr ErrorText UNKNOWN_CODE = {
    {}, "unrecognized error code", "unrecognized error code"
};

const ErrorText& general_text(cudaError error) {
    for (const ErrorText& entry : ERROR_TEXTS) {
        if (entry.code == error) return entry;
    }
    return UNKNOWN_CODE;
}

}  // namespace

cudaError report(cudaError error, std::string message) {
    last_error = {error, error, std::move(message)};
    return error;
}

cudaError report(const void* kernel, cudaError error, const std::string& message) {
    return report(error, kernel_name(kernel) + ": " + message);
}

void describe_error(cudaError error, std::string message) {
    last_error.described = error;
    last_error.message = std::move(message);
}

cudaError pending_fault() {
    switch (last_error.code) {
        case cudaErrorIllegalAddress:
        case cudaErrorLaunchTimeout:
        case cudaErrorAssert:
        case cudaErrorMisalignedAddress:
        case cudaErrorLaunchFailure:
            return last_error.code;
        default:
            return cudaSuccess;
    }
}

}  // namespace emulator

const char* cudaGetErrorString(cudaError_t error) {
    const emulator::LastError& last = emulator::last_error;
    if (error != cudaSuccess && error == last.described) return last.message.c_str();
    return emulator::general_text(error).description;
}

const char* cudaGetErrorName(cudaError_t error) {
    return emulator::general_text(error).name;
}

cudaError_t cudaGetLastError() {
    return std::exchange(emulator::last_error.code, cudaSuccess);
}

cudaError_t cudaPeekAtLastError() { return emulator::last_error.code; }
