// Stands in for torch's header of this name: guards without effect. They also take the
// devices of tensors on the CPU, where the emulator's memory is.
#pragma once

#include <ATen/DeviceGuard.h>
#include <c10/core/Device.h>
#include <c10/cuda/CUDAStream.h>

#include <optional>

namespace c10::cuda {

class CUDAGuard {
  public:
    explicit CUDAGuard(DeviceIndex) {}
    explicit CUDAGuard(Device) {}
    CUDAGuard(const CUDAGuard&) = delete;
    CUDAGuard& operator=(const CUDAGuard&) = delete;

    void set_device(Device) {}
    void reset_device(Device) {}
    void set_index(DeviceIndex) {}
    Device original_device() const { return Device(DeviceType::CUDA, 0); }
    Device current_device() const { return Device(DeviceType::CUDA, 0); }
};

class OptionalCUDAGuard {
  public:
    OptionalCUDAGuard() = default;
    explicit OptionalCUDAGuard(std::optional<Device> device)
        : is_set_(device.has_value()) {}
    explicit OptionalCUDAGuard(std::optional<DeviceIndex> device)
        : is_set_(device.has_value()) {}
    OptionalCUDAGuard(const OptionalCUDAGuard&) = delete;
    OptionalCUDAGuard& operator=(const OptionalCUDAGuard&) = delete;

    void set_device(Device) { is_set_ = true; }
    void reset_device(Device) { is_set_ = true; }
    void set_index(DeviceIndex) { is_set_ = true; }
    void reset() { is_set_ = false; }
    std::optional<Device> original_device() const { return current_device(); }
    std::optional<Device> current_device() const {
        if (!is_set_) return std::nullopt;
        return Device(DeviceType::CUDA, 0);
    }

  private:
    bool is_set_ = false;
};

class CUDAStreamGuard {
  public:
    explicit CUDAStreamGuard(CUDAStream stream) : stream_(stream) {}
    explicit CUDAStreamGuard(Stream) {}
    CUDAStreamGuard(const CUDAStreamGuard&) = delete;
    CUDAStreamGuard& operator=(const CUDAStreamGuard&) = delete;

    void reset_stream(CUDAStream stream) { stream_ = stream; }
    CUDAStream original_stream() const { return {}; }
    CUDAStream current_stream() const { return stream_; }
    Device original_device() const { return Device(DeviceType::CUDA, 0); }
    Device current_device() const { return Device(DeviceType::CUDA, 0); }

  private:
    CUDAStream stream_;
};

}  // namespace c10::cuda
