// Stands in for torch's header of this name. Every stream is the default one, because
// all calls are synchronous.
#pragma once

#include <c10/core/Device.h>
#include <c10/core/Stream.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAFunctions.h>

namespace c10::cuda {

class CUDAStream {
  public:
    CUDAStream() = default;
    explicit CUDAStream(cudaStream_t stream) : stream_(stream) {}

    operator cudaStream_t() const { return stream_; }
    cudaStream_t stream() const { return stream_; }

    DeviceIndex device_index() const { return 0; }
    Device device() const { return Device(DeviceType::CUDA, 0); }
    DeviceType device_type() const { return DeviceType::CUDA; }
    StreamId id() const { return reinterpret_cast<StreamId>(stream_); }
    int priority() const { return 0; }
    bool is_capturing() const { return false; }
    bool query() const { return true; }
    void synchronize() const { stream_synchronize(stream_); }

    bool operator==(const CUDAStream& other) const { return stream_ == other.stream_; }
    bool operator!=(const CUDAStream& other) const { return stream_ != other.stream_; }

  private:
    cudaStream_t stream_ = nullptr;
};

inline CUDAStream getCurrentCUDAStream(DeviceIndex = -1) { return {}; }
inline CUDAStream getDefaultCUDAStream(DeviceIndex = -1) { return {}; }
inline CUDAStream getStreamFromPool(bool = false, DeviceIndex = -1) { return {}; }
inline CUDAStream getStreamFromPool(int, DeviceIndex = -1) { return {}; }
inline CUDAStream getStreamFromExternal(cudaStream_t stream, DeviceIndex) {
    return CUDAStream(stream);
}
inline void setCurrentCUDAStream(CUDAStream) {}

}  // namespace c10::cuda

namespace at::cuda {

using namespace c10::cuda;

}  // namespace at::cuda
