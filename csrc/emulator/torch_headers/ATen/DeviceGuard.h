// Stands in for torch's header of this name, which goes through all of torch's own types
// of lists to tell where a list's tensors are.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/DeviceGuard.h>

#include <optional>

namespace at {

inline std::optional<Device> device_of(const Tensor& tensor) {
    if (!tensor.defined()) return std::nullopt;
    return tensor.device();
}

inline std::optional<Device> device_of(const std::optional<Tensor>& tensor) {
    return tensor.has_value() ? device_of(*tensor) : std::nullopt;
}

inline std::optional<Device> device_of(TensorList tensors) {
    return tensors.empty() ? std::nullopt : device_of(tensors.front());
}

}  // namespace at
