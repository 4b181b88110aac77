// Helpers of the test kernels: a launch in one line, and its export to Python.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

// Python finds these by name and passes arrays and numbers.
#define EXPORT extern "C" __attribute__((visibility("default")))

template <typename... Parameters, typename... Arguments>
int launch(
    void (*kernel)(Parameters...), dim3 grid, dim3 block, std::size_t shared_bytes,
    Arguments... arguments
) {
    cudaLaunchConfig_t config{};
    config.gridDim = grid;
    config.blockDim = block;
    config.dynamicSmemBytes = shared_bytes;
    return cudaLaunchKernelEx(&config, kernel, static_cast<Parameters>(arguments)...);
}
