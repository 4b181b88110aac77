// Calls a function or a kernel of a user's with arguments that Python gives.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#ifdef __CUDACC__
#include "gpu_launch.h"
#else
#include "launch.h"
#include "records.h"
#endif

namespace own {

#ifndef __CUDACC__
constexpr cudaStream_t stream = nullptr;  // the emulator has one that is always done
#endif

enum class Kind : std::int32_t { none, boolean, integer, number, tensor, list };

/// An argument, or a result that is a tensor.
struct Value {
    Kind kind;
    std::int32_t dtype;  // as c10::ScalarType counts them
    std::int64_t integer;
    double number;
    void* address;
    std::int64_t count;  // of dimensions, or of items
    const std::int64_t* sizes;
    const std::int64_t* strides;  // in elements
    const Value* items;
};

/// The arguments do not fit the function's parameters.
struct Mismatch : std::runtime_error {
    using std::runtime_error::runtime_error;
};

using Owners = std::vector<std::shared_ptr<void>>;

/// Tensors that a function has returned; they live until the next call.
struct Results {
    std::vector<Value> values;
    Owners owners;
};

inline Results results;

// ---- From Python to C++ --------------------------------------------------------------

template <typename T>
struct Read {
    static T from(const Value& value) {
        if constexpr (std::is_pointer_v<T>) {
            return read_address(value);
        } else if constexpr (std::is_enum_v<T>) {
            return static_cast<T>(Read<std::int64_t>::from(value));
        } else if constexpr (std::is_integral_v<T>) {
            if (value.kind == Kind::boolean || value.kind == Kind::integer) {
                return static_cast<T>(value.integer);
            }
            throw Mismatch("an integer is expected");
        } else {
            // Numbers of the device, such as __half, are made from float.
            if (value.kind == Kind::number) return number<T>(value.number);
            if (value.kind == Kind::integer) return number<T>(double(value.integer));
            throw Mismatch("a number is expected");
        }
    }

  private:
    static T read_address(const Value& value) {
        if constexpr (std::is_same_v<T, cudaStream_t>) {
            return stream;
        } else {
            using Pointer = std::conditional_t<std::is_pointer_v<T>, T, void*>;
            if (value.kind == Kind::tensor) return static_cast<Pointer>(value.address);
            if (value.kind == Kind::none) return nullptr;
            throw Mismatch("a tensor is expected");
        }
    }

    template <typename Number>
    static Number number(double value) {
        if constexpr (std::is_floating_point_v<Number>) {
            return static_cast<Number>(value);
        } else {
            return Number(static_cast<float>(value));
        }
    }
};

// ---- Calls ----------------------------------------------------------------------------

using Call = std::function<void(const Value* arguments, std::size_t count)>;

/// Keeps what a function has returned; most types are of no interest, such as a count.
template <typename T>
struct Keep {
    static void of(const T&) {}
};

template <>
struct Keep<cudaError_t> {
    static void of(cudaError_t error) {
        if (error != cudaSuccess) report_fault(cudaGetErrorString(error));
    }
};

/// How many of the last parameters are streams, which a caller may leave out.
template <typename... Parameters>
constexpr std::size_t streams_at_the_end() {
    constexpr bool are_streams[] = {std::is_same_v<Parameters, cudaStream_t>..., false};
    std::size_t count = 0;
    while (count < sizeof...(Parameters) &&
           are_streams[sizeof...(Parameters) - 1 - count]) {
        ++count;
    }
    return count;
}

template <typename T>
std::remove_cvref_t<T> read(const Value* arguments, std::size_t count, std::size_t i) {
    constexpr Value NONE{};
    try {
        return Read<std::remove_cvref_t<T>>::from(i < count ? arguments[i] : NONE);
    } catch (const Mismatch& error) {
        throw Mismatch("argument " + std::to_string(i + 1) + ": " + error.what());
    }
}

/// Declines a number of arguments that the parameters do not take, of which so many at
/// the end may be left out.
template <typename... Parameters>
void check_count(std::size_t count, std::size_t optional) {
    constexpr std::size_t MOST = sizeof...(Parameters);
    const std::size_t least = MOST - optional;
    if (least <= count && count <= MOST) return;
    const std::size_t wanted = count < least ? least : MOST;
    throw Mismatch(
        "it takes " + std::to_string(wanted) +
        (wanted == 1 ? " argument, " : " arguments, ") + std::to_string(count) +
        (count == 1 ? " was given" : " were given")
    );
}

/// Calls a function with the first COUNT of its parameters.
template <std::size_t COUNT, typename Result, typename... Parameters, typename Function>
void call(
    Result (*)(Parameters...), Function function, const Value* arguments,
    std::size_t count
) {
    using Types = std::tuple<Parameters...>;
    [&]<std::size_t... I>(std::index_sequence<I...>) {
        // In an order that is defined, and kept alive for the references.
        std::tuple<std::remove_cvref_t<std::tuple_element_t<I, Types>>...> values{
            read<std::tuple_element_t<I, Types>>(arguments, count, I)...
        };
        if constexpr (std::is_void_v<Result>) {
            function(
                static_cast<std::tuple_element_t<I, Types>>(std::get<I>(values))...
            );
        } else {
            Keep<std::remove_cvref_t<Result>>::of(function(
                static_cast<std::tuple_element_t<I, Types>>(std::get<I>(values))...
            ));
        }
    }(std::make_index_sequence<COUNT>());
}

/// Makes a function callable whose last parameters, DEFAULTS of them, have defaults. A
/// pointer to it does not know these, so `function` calls it by its name.
template <
    std::size_t DEFAULTS, typename Result, typename... Parameters, typename Function>
Call caller(Result (*pointer)(Parameters...), Function function) {
    return [=](const Value* arguments, std::size_t count) {
        constexpr std::size_t STREAMS = streams_at_the_end<Parameters...>();
        check_count<Parameters...>(count, STREAMS > DEFAULTS ? STREAMS : DEFAULTS);
        constexpr std::size_t LEAST = sizeof...(Parameters) - DEFAULTS;
        const std::size_t passed = count < LEAST ? LEAST : count;
        [&]<std::size_t... I>(std::index_sequence<I...>) {
            ((passed == LEAST + I ? call<LEAST + I>(pointer, function, arguments, count)
                                  : void()),
             ...);
        }(std::make_index_sequence<DEFAULTS + 1>());
    };
}

template <typename Result, typename... Parameters>
Call caller(Result (*function)(Parameters...)) {
    return caller<0>(function, function);
}

/// Grid, block and bytes of shared memory of the next launch of a bare kernel.
inline cudaLaunchConfig_t next_config{};

template <typename... Parameters>
Call kernel_caller(void (*kernel)(Parameters...), const char* names) {
    return [=](const Value* arguments, std::size_t count) {
        check_count<Parameters...>(count, streams_at_the_end<Parameters...>());
        [&]<std::size_t... I>(std::index_sequence<I...>) {
            launch_recorded(
                next_config, names, kernel, read<Parameters>(arguments, count, I)...
            );
        }(std::index_sequence_for<Parameters...>());
    };
}

/// A program's main function, called without arguments of its own.
inline Call main_caller(int (*function)(int, char**)) {
    return [=](const Value*, std::size_t) {
        char name[] = "main";
        char* arguments[] = {name, nullptr};
        if (int status = function(1, arguments)) {
            report_fault("main() returns " + std::to_string(status));
        }
    };
}

inline Call main_caller(int (*function)()) {
    return [=](const Value*, std::size_t) {
        if (int status = function()) {
            report_fault("main() returns " + std::to_string(status));
        }
    };
}

}  // namespace own
