// Stands in for torch's header of this name: tensors and their methods, without the
// Python bindings, which take half a minute to compile. The functions of `torch::` that a
// file names come from headers of their own, which are included before it.
#pragma once

#include <ATen/Dispatch.h>
#include <ATen/core/Tensor.h>

#include <optional>

namespace torch {

using namespace at;  // NOLINT
using std::nullopt;
using std::optional;

using Dtype = at::ScalarType;

constexpr auto kUInt8 = at::kByte;
constexpr auto kInt8 = at::kChar;
constexpr auto kInt16 = at::kShort;
constexpr auto kInt32 = at::kInt;
constexpr auto kInt64 = at::kLong;
constexpr auto kFloat16 = at::kHalf;
constexpr auto kFloat32 = at::kFloat;
constexpr auto kFloat64 = at::kDouble;

}  // namespace torch
