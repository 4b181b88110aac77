// Binds an op's host function as three functions for Python: `softmax(..., stream)`
// launches, `softmax_plan(..., arch)` describes the launches, kernel by kernel, and
// `softmax_replay(..., places)` returns a function that launches again on other tensors.
// `softmax_parameters` lists what they take: a name, and whether it is written through.
#pragma once

#include <cxxabi.h>
#include <dlfcn.h>
#include <pybind11/pybind11.h>

#include <array>
#include <bit>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <stdexcept>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "common/dtype.cuh"
#include "common/launch.cuh"
#ifdef TWIN_EMULATOR
#include "host/rehearsal.h"
#endif

// Hidden like pybind11's own types: each module keeps these to itself.
namespace [[gnu::visibility("hidden")]] native {

// Whether a launcher writes through a parameter of this type.
template <typename T>
constexpr bool is_written =
    std::is_pointer_v<T> && !std::is_const_v<std::remove_pointer_t<T>>;

// An argument as it is kept between Python and a launcher: an address, an integer or the
// bits of a float.
using Slot = std::uint64_t;

constexpr size_t MAX_ARGUMENTS = 48;
using Slots = std::array<Slot, MAX_ARGUMENTS>;

// Reads an argument from Python, where an address is an integer.
using Read = Slot (*)(pybind11::handle argument);

template <typename T>
Slot read(pybind11::handle argument) {
    if constexpr (std::is_pointer_v<T>) {
        return argument.cast<std::uintptr_t>();
    } else if constexpr (std::is_floating_point_v<T>) {
        static_assert(sizeof(T) == sizeof(float));
        return std::bit_cast<std::uint32_t>(argument.cast<float>());
    } else {
        return static_cast<Slot>(argument.cast<T>());
    }
}

template <typename T>
T as(Slot slot) {
    if constexpr (std::is_pointer_v<T>) {
        return reinterpret_cast<T>(slot);
    } else if constexpr (std::is_floating_point_v<T>) {
        return std::bit_cast<float>(static_cast<std::uint32_t>(slot));
    } else {
        return static_cast<T>(slot);
    }
}

// The tensor of a call that an argument points into, by index, and the offset from its
// start in bytes.
struct Place {
    size_t argument;
    size_t tensor;
    int64_t offset;
};

inline void check(const std::string& name, cudaError_t error) {
    if (error != cudaSuccess) {
        throw std::runtime_error(name + ": " + cudaGetErrorString(error));
    }
}

// The kernel's name in the PTX.
inline std::string symbol_of(const void* kernel) {
    Dl_info info{};
    dladdr(kernel, &info);
    return info.dli_sname ? info.dli_sname : "";
}

inline std::string demangled(const std::string& symbol) {
    int status = 0;
    char* const name = abi::__cxa_demangle(symbol.c_str(), nullptr, nullptr, &status);
    const std::string result = status == 0 ? name : symbol;
    std::free(name);
    return result;
}

inline pybind11::tuple as_tuple(dim3 size) {
    return pybind11::make_tuple(size.x, size.y, size.z);
}

inline pybind11::dict as_dict(const PlanDescription& plan) {
    pybind11::dict result;
    const std::string symbol = symbol_of(plan.kernel);
    result["kernel"] = symbol;
    result["signature"] = demangled(symbol);
    result["grid"] = as_tuple(plan.grid);
    result["block"] = as_tuple(plan.block);
    result["shared_bytes"] = plan.shared_bytes;
    pybind11::list arguments;
    for (const std::vector<int64_t>& numbers : plan.arguments) {
        if (numbers.size() == 1) {
            arguments.append(numbers[0]);
        } else {
            pybind11::tuple structure(numbers.size());
            for (size_t i = 0; i < numbers.size(); ++i) structure[i] = numbers[i];
            arguments.append(structure);
        }
    }
    result["arguments"] = arguments;
    return result;
}

// A launcher under its name in Python. bindings/sources.py writes one for each that a .cu
// defines. It adds itself to the list that module.cpp binds. pybind11 sees the same few
// types whatever a launcher's parameters are: its code for each list of parameters takes
// four times as long to compile.
class Binding {
  public:
    template <typename... Params>
    Binding(
        const std::string& name,
        cudaError_t (*op)(const Launcher& launch, DType dtype, Params...),
        const std::array<const char*, sizeof...(Params)>& parameters
    )
        : name_(name), reads_{read<Params>...}, op_(any_op(op)) {
        static_assert(sizeof...(Params) <= MAX_ARGUMENTS);
        size_t i = 0;
        (parameters_.emplace_back(parameters[i++], is_written<Params>), ...);
        all().push_back(this);
    }

    void bind(pybind11::module_& module) const {
        pybind11::list described;
        for (const auto& [parameter, writes] : parameters_) {
            described.append(pybind11::make_tuple(parameter, writes));
        }
        module.attr((name_ + "_parameters").c_str()) = described;
        module.def(name_.c_str(), [this](const pybind11::args& args) {
            const Arguments call = split(args);
            const auto stream = call.last.cast<std::uintptr_t>();
            const pybind11::gil_scoped_release release;
            const Launcher launch(reinterpret_cast<cudaStream_t>(stream));
            check(name_, op_(launch, call.dtype, call.slots));
        });
        module.def((name_ + "_plan").c_str(), [this](const pybind11::args& args) {
            const Arguments call = split(args);
            const int arch = call.last.cast<int>();
            std::vector<PlanDescription> plans;
            const Launcher describe(arch, &plans);
            check(name_, op_(describe, call.dtype, call.slots));
            pybind11::list result;
            for (const PlanDescription& plan : plans) result.append(as_dict(plan));
#ifdef TWIN_EMULATOR
            // A description leaves clusters out; a launch asks for them.
            const emulator::Rehearsal rehearsal;
            const Launcher launch(arch, nullptr);
            check(name_, op_(launch, call.dtype, call.slots));
            for (size_t i = 0; i < plans.size(); ++i) {
                result[i]["cluster"] = as_tuple(rehearsal.cluster_sizes[i]);
            }
#endif
            return result;
        });
        // Python passes only addresses and the stream in every call, which takes a third
        // of the time that all arguments would take.
        module.def((name_ + "_replay").c_str(), [this](const pybind11::args& args) {
            const Arguments call = split(args);
            std::vector<Place> places;
            for (const pybind11::handle each : call.last) {
                const auto [position, tensor, offset] =
                    each.cast<std::tuple<size_t, size_t, int64_t>>();
                // The dtype is at position 0.
                if (position < 1 || position > reads_.size()) {
                    throw pybind11::index_error(name_ + ": no such argument");
                }
                places.push_back({position - 1, tensor, offset});
            }
            return pybind11::cpp_function([this, places, dtype = call.dtype,
                                           slots = call.slots](
                                              const pybind11::list& addresses,
                                              std::uintptr_t stream
                                          ) {
                Slots moved = slots;
                for (const Place& place : places) {
                    moved[place.argument] =
                        addresses[place.tensor].cast<std::uintptr_t>() + place.offset;
                }
                const pybind11::gil_scoped_release release;
                const Launcher launch(reinterpret_cast<cudaStream_t>(stream));
                check(name_, op_(launch, dtype, moved));
            });
        });
    }

    static std::vector<const Binding*>& all();

  private:
    using AnyOp = std::function<cudaError_t(const Launcher&, DType, const Slots&)>;

    // What Python passed. The first is the dtype, `last` (the stream, say) is no argument
    // of the op; those between them are.
    struct Arguments {
        DType dtype;
        Slots slots;
        pybind11::object last;
    };

    template <typename... Params>
    static AnyOp any_op(cudaError_t (*op)(const Launcher&, DType, Params...)) {
        return [=](const Launcher& launch, DType dtype, const Slots& slots) {
            return [&]<size_t... I>(std::index_sequence<I...>) {
                return op(launch, dtype, as<Params>(slots[I])...);
            }(std::index_sequence_for<Params...>{});
        };
    }

    Arguments split(const pybind11::args& args) const {
        const size_t n_arguments = reads_.size();
        if (args.size() != n_arguments + 2) {
            throw pybind11::type_error(
                name_ + " takes " + std::to_string(n_arguments + 2) +
                " arguments, got " + std::to_string(args.size())
            );
        }
        Slots slots{};
        for (size_t i = 0; i < n_arguments; ++i) slots[i] = reads_[i](args[i + 1]);
        return {DType{args[0].cast<int>()}, slots, args[n_arguments + 1]};
    }

    std::string name_;
    std::vector<std::pair<const char*, bool>> parameters_;
    std::vector<Read> reads_;
    AnyOp op_;
};

}  // namespace native
