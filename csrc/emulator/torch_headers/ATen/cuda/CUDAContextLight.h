// Stands in for torch's header of this name, without the handles of cuBLAS, cuSOLVER and
// cuSPARSE, which the emulator does not model.
#pragma once

#include <c10/core/Allocator.h>
#include <c10/cuda/CUDAFunctions.h>
#include <cuda_runtime_api.h>

namespace at::cuda {

using namespace c10::cuda;

inline std::int64_t getNumGPUs() { return device_count(); }
inline bool is_available() { return true; }
inline int warp_size() { return 32; }
inline bool canDeviceAccessPeer(c10::DeviceIndex, c10::DeviceIndex) { return false; }
inline c10::Allocator* getCUDADeviceAllocator() {
    return c10::GetAllocator(c10::DeviceType::CPU);
}

/// Of the one device, whatever number the caller has for that of its tensors.
inline cudaDeviceProp* getDeviceProperties(c10::DeviceIndex) {
    static cudaDeviceProp properties = [] {
        cudaDeviceProp result;
        C10_CUDA_CHECK(cudaGetDeviceProperties(&result, 0));
        return result;
    }();
    return &properties;
}
inline cudaDeviceProp* getCurrentDeviceProperties() { return getDeviceProperties(0); }

}  // namespace at::cuda
