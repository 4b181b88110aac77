// Stands in for torch's header of this name: there is one device, whose number is 0.
#pragma once

#include <c10/core/Device.h>
#include <c10/cuda/CUDAException.h>

namespace c10::cuda {

inline DeviceIndex device_count() noexcept { return 1; }
inline DeviceIndex device_count_ensure_non_zero() { return 1; }
inline DeviceIndex current_device() { return 0; }
inline void set_device(DeviceIndex device, bool = false) {
    C10_CUDA_CHECK(cudaSetDevice(device));
}
inline void device_synchronize() { C10_CUDA_CHECK(cudaDeviceSynchronize()); }
inline void stream_synchronize(cudaStream_t stream) {
    C10_CUDA_CHECK(cudaStreamSynchronize(stream));
}

}  // namespace c10::cuda
