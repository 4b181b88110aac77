// The same functions of a user's, compiled by nvcc for a GPU: there is no checker, and
// launches are the GPU's own.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <string>
#include <type_traits>

namespace own {

/// PyTorch's current stream, for what takes a stream and for bare kernels.
inline cudaStream_t stream = nullptr;

inline std::string fault;
inline std::string refusal;

/// The first fault of a call is the one that counts.
inline void report_fault(const char* message) {
    if (fault.empty()) fault = message;
}

/// What the function has raised, or that it declines its arguments.
inline void note_refusal(const char* message) { refusal = message; }

/// Launches a bare kernel, with as much shared memory as it asks for.
template <typename... Parameters>
void launch_recorded(
    cudaLaunchConfig_t config, const char*, void (*kernel)(Parameters...),
    std::type_identity_t<Parameters>... arguments
) {
    config.stream = stream;
    cudaError_t error = cudaFuncSetAttribute(
        kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
        static_cast<int>(config.dynamicSmemBytes)
    );
    if (error == cudaSuccess) error = cudaLaunchKernelEx(&config, kernel, arguments...);
    if (error != cudaSuccess) report_fault(cudaGetErrorString(error));
}

}  // namespace own
