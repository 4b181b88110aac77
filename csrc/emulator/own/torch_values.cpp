// Tensors of Python become torch's, and back.

#include <ATen/core/Tensor.h>
#include <ATen/ops/from_blob.h>

#include <memory>

#include "results.h"
#include "torch_entry.h"

namespace own {

#ifdef __CUDACC__
constexpr at::DeviceType DEVICE = at::kCUDA;
#else
constexpr at::DeviceType DEVICE = at::kCPU;
#endif

at::Tensor tensor_of(const Value& value) {
    if (value.kind == Kind::none) return {};
    if (value.kind != Kind::tensor) throw Mismatch("a tensor is expected");
    const auto count = static_cast<std::size_t>(value.count);
    return at::from_blob(
        value.address, c10::IntArrayRef(value.sizes, count),
        c10::IntArrayRef(value.strides, count),
        at::TensorOptions(DEVICE).dtype(static_cast<at::ScalarType>(value.dtype))
    );
}

void keep(const at::Tensor& tensor) {
    if (!tensor.defined()) {
        results.values.push_back({});
        return;
    }
    const auto owner = std::make_shared<at::Tensor>(tensor);
    Value value{};
    value.kind = Kind::tensor;
    value.dtype = static_cast<std::int32_t>(tensor.scalar_type());
    value.address = tensor.data_ptr();
    value.count = tensor.dim();
    value.sizes = owner->sizes().data();
    value.strides = owner->strides().data();
    results.values.push_back(value);
    results.owners.push_back(owner);
}

}  // namespace own
