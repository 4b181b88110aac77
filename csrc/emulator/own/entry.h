// Calls a function or a kernel of a user's with arguments that Python gives.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <tuple>
#include <type_traits>
#include <utility>

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
class Mismatch {
  public:
    /// Takes what printf takes.
    template <typename... Values>
    explicit Mismatch(const char* format, const Values&... values) {
        std::snprintf(text_, sizeof(text_), format, values...);
    }

    const char* what() const { return text_; }

  private:
    char text_[200];
};

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

/// A function of any parameters, as Python calls it. A std::function would do, but to read
/// its header takes longer than to compile most files.
class Call {
  public:
    template <typename Function>
    Call(Function function)
        : function_(new Function(function)),  // stays as long as the library
          run_([](const void* self, const Value* arguments, std::size_t count) {
              (*static_cast<const Function*>(self))(arguments, count);
          }) {}

    void operator()(const Value* arguments, std::size_t count) const {
        run_(function_, arguments, count);
    }

  private:
    const void* function_;
    void (*run_)(const void* self, const Value* arguments, std::size_t count);
};

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
        throw Mismatch("argument %zu: %s", i + 1, error.what());
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
        "it takes %zu argument%s, %zu %s given", wanted, wanted == 1 ? "" : "s", count,
        count == 1 ? "was" : "were"
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

inline void judge_main(int status) {
    if (status == 0) return;
    char text[40];
    std::snprintf(text, sizeof(text), "main() returns %d", status);
    report_fault(text);
}

/// A program's main function, called without arguments of its own.
inline Call main_caller(int (*function)(int, char**)) {
    return [=](const Value*, std::size_t) {
        char name[] = "main";
        char* arguments[] = {name, nullptr};
        judge_main(function(1, arguments));
    };
}

inline Call main_caller(int (*function)()) {
    return [=](const Value*, std::size_t) { judge_main(function()); };
}

}  // namespace own
