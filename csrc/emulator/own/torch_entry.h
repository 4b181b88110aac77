// Functions of tensors: what Python passes becomes torch's types, and back.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "entry.h"

namespace own {

at::Tensor tensor_of(const Value& value);
void keep(const at::Tensor& tensor);

template <>
struct Read<at::Tensor> {
    static at::Tensor from(const Value& value) { return tensor_of(value); }
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
    static void of(const at::Tensor& tensor) { keep(tensor); }
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

#ifdef __CUDACC__
#include "torch_values.cpp"  // which for the emulator is compiled once for all files
#endif
