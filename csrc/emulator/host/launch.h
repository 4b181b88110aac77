// cudaLaunchKernelEx, the only way to launch a kernel: `<<<>>>` is not C++.
#pragma once

#include "../runtime.h"
#include "api.h"

enum cudaLaunchAttributeID : int {
    cudaLaunchAttributeIgnore = 0,
    cudaLaunchAttributeCooperative = 2,
    cudaLaunchAttributeClusterDimension = 4,
    cudaLaunchAttributeProgrammaticStreamSerialization = 6,
};

union cudaLaunchAttributeValue {
    int cooperative;
    dim3 clusterDim;
    int programmaticStreamSerializationAllowed;

    constexpr cudaLaunchAttributeValue() : cooperative(0) {}
};

struct cudaLaunchAttribute {
    cudaLaunchAttributeID id;
    cudaLaunchAttributeValue val;
};

struct cudaLaunchConfig_t {
    dim3 gridDim;
    dim3 blockDim;
    std::size_t dynamicSmemBytes;
    cudaStream_t stream;
    cudaLaunchAttribute* attrs;
    unsigned int numAttrs;
};

// Marks code that the checker (checker/) does not see.
#define TWIN_UNCHECKED __attribute__((no_sanitize("thread")))

namespace emulator {

/// Refuses attributes that change the meaning of a kernel and are not modelled, such as
/// cooperative launches.
cudaError_t check_attributes(const void* kernel, const cudaLaunchConfig_t& config);

/// The cluster dimension attribute; one block by default.
dim3 cluster_size(const cudaLaunchConfig_t& config);

}  // namespace emulator

/// Converts the arguments to the kernel's parameter types once; every emulated thread
/// then gets its own copy, as on the GPU.
template <typename... Parameters, typename... Arguments>
cudaError_t cudaLaunchKernelEx(
    const cudaLaunchConfig_t* config, void (*kernel)(Parameters...),
    Arguments&&... arguments
) {
    auto address = reinterpret_cast<const void*>(kernel);
    cudaError_t error = emulator::check_attributes(address, *config);
    if (error != cudaSuccess) return error;
    auto launch = [&](Parameters... converted) {
        // These two read the program's stack, which the checker forbids to kernels.
        auto call = [&]() TWIN_UNCHECKED { kernel(converted...); };
        auto run_thread = [](void* call_address) TWIN_UNCHECKED {
            (*static_cast<decltype(call)*>(call_address))();
        };
        return emulator::launch(
            {address, config->gridDim, config->blockDim, config->dynamicSmemBytes,
             emulator::cluster_size(*config), run_thread, &call}
        );
    };
    return launch(static_cast<Arguments&&>(arguments)...);
}
