// Functions of tensors: what Python passes becomes torch's types, and back.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/ops/from_blob.h>

#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "entry.h"

namespace own {

#ifdef __CUDACC__
constexpr at::DeviceType DEVICE = at::kCUDA;
#else
constexpr at::DeviceType DEVICE = at::kCPU;
#endif

template <>
struct Read<at::Tensor> {
    static at::Tensor from(const Value& value) {
        if (value.kind == Kind::none) return {};
        if (value.kind != Kind::tensor) throw Mismatch("a tensor is expected");
        const auto count = static_cast<std::size_t>(value.count);
        return at::from_blob(
            value.address, c10::IntArrayRef(value.sizes, count),
            c10::IntArrayRef(value.strides, count),
            at::TensorOptions(DEVICE).dtype(static_cast<at::ScalarType>(value.dtype))
        );
    }
};

template <>
struct Read<at::Scalar> {
    static at::Scalar from(const Value& value) {
        if (value.kind == Kind::integer) return value.integer;
        return Read<double>::from(value);
    }
};

template <>
struct Read<at::ScalarType> {
    static at::ScalarType from(const Value& value) {
        return static_cast<at::ScalarType>(Read<std::int64_t>::from(value));
    }
};

template <>
struct Read<std::string> {
    static std::string from(const Value&) {
        throw Mismatch("a string cannot be passed to C++ here");
    }
};

template <typename T>
struct Read<std::optional<T>> {
    static std::optional<T> from(const Value& value) {
        if (value.kind == Kind::none) return std::nullopt;
        return Read<T>::from(value);
    }
};

template <typename T>
struct Read<std::vector<T>> {
    static std::vector<T> from(const Value& value) {
        if (value.kind != Kind::list) throw Mismatch("a list is expected");
        std::vector<T> result;
        for (std::int64_t i = 0; i < value.count; ++i) {
            result.push_back(Read<T>::from(value.items[i]));
        }
        return result;
    }
};

template <>
struct Keep<at::Tensor> {
    static void of(const at::Tensor& tensor) {
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
};

template <typename T>
struct Keep<std::vector<T>> {
    static void of(const std::vector<T>& values) {
        for (const T& each : values) Keep<T>::of(each);
    }
};

template <typename... T>
struct Keep<std::tuple<T...>> {
    static void of(const std::tuple<T...>& values) {
        std::apply([](const auto&... each) { (Keep<T>::of(each), ...); }, values);
    }
};

template <typename First, typename Second>
struct Keep<std::pair<First, Second>> {
    static void of(const std::pair<First, Second>& values) {
        Keep<First>::of(values.first);
        Keep<Second>::of(values.second);
    }
};

}  // namespace own
