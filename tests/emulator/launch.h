// Helpers of the test kernels: a launch in one line, and its export to Python.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

// Python finds these by name and passes arrays and numbers.
#define EXPORT extern "C" __attribute__((visibility("default")))

#if defined(TWIN_EMULATOR) || defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define HAS_HOPPER 1
#endif

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

template <typename... Parameters, typename... Arguments>
int launch_clusters(
    void (*kernel)(Parameters...), dim3 cluster, dim3 grid, dim3 block,
    std::size_t shared_bytes, Arguments... arguments
) {
    cudaLaunchAttribute attribute{};
    attribute.id = cudaLaunchAttributeClusterDimension;
    attribute.val.clusterDim.x = cluster.x;
    attribute.val.clusterDim.y = cluster.y;
    attribute.val.clusterDim.z = cluster.z;
    cudaLaunchConfig_t config{};
    config.gridDim = grid;
    config.blockDim = block;
    config.dynamicSmemBytes = shared_bytes;
    config.attrs = &attribute;
    config.numAttrs = 1;
    return cudaLaunchKernelEx(&config, kernel, static_cast<Parameters>(arguments)...);
}
