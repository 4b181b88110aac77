// Binds an op's host function as three functions for Python: `softmax(..., stream)`
// launches, `softmax_plan(..., arch)` describes the launches, kernel by kernel, and
// `softmax_replay(..., places)` returns a function that launches again on other tensors.
// `softmax_parameters` lists what they take: a name, and whether it is written through.
#pragma once

#include <cxxabi.h>
#include <dlfcn.h>
#include <pybind11/pybind11.h>

#include <array>
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

// Hidden like pybind11's own types: each module keeps these to itself.
namespace [[gnu::visibility("hidden")]] native {

// Whether a launcher writes through a parameter of this type.
template <typename T>
constexpr bool is_written =
    std::is_pointer_v<T> && !std::is_const_v<std::remove_pointer_t<T>>;

// An argument's type on Python's side: an integer for an address, else the same number.
template <typename T>
using FromPython = std::conditional_t<std::is_pointer_v<T>, std::uintptr_t, T>;

template <typename T>
T convert(FromPython<T> value) {
    if constexpr (std::is_pointer_v<T>) {
        return reinterpret_cast<T>(value);
    } else {
        return value;
    }
}

// The tensor of a call that an argument points into, by index, and the offset from its
// start in bytes. A number or a null pointer points into none, which is -1.
struct Place {
    int tensor = -1;
    int64_t offset = 0;
};

template <typename T>
T convert(FromPython<T> value, const Place& place, const pybind11::list& addresses) {
    if constexpr (std::is_pointer_v<T>) {
        if (place.tensor >= 0) {
            value = addresses[place.tensor].cast<std::uintptr_t>() + place.offset;
        }
    }
    return convert<T>(value);
}

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

inline pybind11::dict as_dict(const PlanDescription& plan) {
    pybind11::dict result;
    const std::string symbol = symbol_of(plan.kernel);
    result["kernel"] = symbol;
    result["signature"] = demangled(symbol);
    result["grid"] = pybind11::make_tuple(plan.grid.x, plan.grid.y, plan.grid.z);
    result["block"] = pybind11::make_tuple(plan.block.x, plan.block.y, plan.block.z);
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
// defines. It adds itself to the list that module.cpp binds.
class Binding {
  public:
    template <typename... Params>
    Binding(
        const std::string& name,
        cudaError_t (*op)(const Launcher& launch, DType dtype, Params...),
        const std::array<const char*, sizeof...(Params)>& parameters
    )
        : bind_([=](pybind11::module_& module) {
              pybind11::list described;
              size_t i = 0;
              (described.append(
                   pybind11::make_tuple(parameters[i++], is_written<Params>)
               ),
               ...);
              module.attr((name + "_parameters").c_str()) = described;
              module.def(
                  name.c_str(),
                  [=](int dtype, FromPython<Params>... arguments,
                      std::uintptr_t stream) {
                      const Launcher launch(reinterpret_cast<cudaStream_t>(stream));
                      check(
                          name, op(launch, DType{dtype}, convert<Params>(arguments)...)
                      );
                  },
                  pybind11::call_guard<pybind11::gil_scoped_release>()
              );
              module.def(
                  (name + "_plan").c_str(),
                  [=](int dtype, FromPython<Params>... arguments, int arch) {
                      std::vector<PlanDescription> plans;
                      const Launcher describe(arch, &plans);
                      check(
                          name,
                          op(describe, DType{dtype}, convert<Params>(arguments)...)
                      );
                      pybind11::list result;
                      for (const PlanDescription& plan : plans) {
                          result.append(as_dict(plan));
                      }
                      return result;
                  }
              );
              // Python passes only addresses and the stream in every call, which takes a
              // third of the time that all arguments would take.
              module.def(
                  (name + "_replay").c_str(),
                  [=](int dtype, FromPython<Params>... arguments,
                      const pybind11::list& places) {
                      std::array<Place, sizeof...(Params)> place_of;
                      for (const pybind11::handle each : places) {
                          const auto [position, tensor, offset] =
                              each.cast<std::tuple<int, int, int64_t>>();
                          place_of.at(position - 1) = {tensor, offset};
                      }
                      const std::tuple values(arguments...);
                      return pybind11::cpp_function([=](const pybind11::list& addresses,
                                                        std::uintptr_t stream) {
                          [&]<size_t... I>(std::index_sequence<I...>) {
                              const std::tuple<Params...> moved(
                                  convert<Params>(
                                      std::get<I>(values), place_of[I], addresses
                                  )...
                              );
                              const pybind11::gil_scoped_release release;
                              const Launcher launch(
                                  reinterpret_cast<cudaStream_t>(stream)
                              );
                              check(
                                  name, op(launch, DType{dtype}, std::get<I>(moved)...)
                              );
                          }(std::index_sequence_for<Params...>{});
                      });
                  }
              );
          }) {
        all().push_back(this);
    }

    void bind(pybind11::module_& module) const { bind_(module); }

    static std::vector<const Binding*>& all();

  private:
    std::function<void(pybind11::module_&)> bind_;
};

}  // namespace native
