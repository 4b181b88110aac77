// Binds an op's host function for module.cpp, which makes functions for Python of it.
#pragma once

#include <cxxabi.h>
#include <dlfcn.h>

#include <array>
#include <bit>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "binding.h"
#include "common/dtype.cuh"
#include "common/launch.cuh"
#ifdef TWIN_EMULATOR
#include "host/rehearsal.h"
#endif

namespace [[gnu::visibility("hidden")]] native {

// Whether a launcher writes through a parameter of this type.
template <typename T>
constexpr bool is_written =
    std::is_pointer_v<T> && !std::is_const_v<std::remove_pointer_t<T>>;

template <typename T>
constexpr Kind kind_of() {
    if constexpr (std::is_pointer_v<T>) {
        return Kind::address;
    } else if constexpr (std::is_same_v<T, bool>) {
        return Kind::boolean;
    } else if constexpr (std::is_same_v<T, float>) {
        return Kind::float32;
    } else {
        static_assert(std::is_integral_v<T> && (sizeof(T) == 4 || sizeof(T) == 8));
        constexpr bool is_long = sizeof(T) == 8;
        return std::is_signed_v<T> ? is_long ? Kind::int64 : Kind::int32
               : is_long           ? Kind::uint64
                                   : Kind::uint32;
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

inline Size as_size(dim3 size) { return {size.x, size.y, size.z}; }

// A launcher as bindings/sources.py binds each that a .cu defines.
class Binding final : public Bindable {
  public:
    template <typename... Params>
    Binding(
        const std::string& name,
        cudaError_t (*op)(const Launcher& launch, DType dtype, Params...),
        const std::array<const char*, sizeof...(Params)>& names
    )
        : Bindable(name, described<Params...>(names)), op_(any_op(op)) {
        static_assert(sizeof...(Params) <= MAX_ARGUMENTS);
    }

    void launch(const Call& call, std::uintptr_t stream) const override {
        run(Launcher(reinterpret_cast<cudaStream_t>(stream)), call);
    }

    std::vector<KernelLaunch> plan(const Call& call, int arch) const override {
        std::vector<PlanDescription> plans;
        run(Launcher(arch, &plans), call);
        std::vector<KernelLaunch> result;
        for (const PlanDescription& each : plans) {
            const std::string symbol = symbol_of(each.kernel);
            result.push_back(
                {symbol,
                 demangled(symbol),
                 as_size(each.grid),
                 as_size(each.block),
                 {},
                 each.shared_bytes,
                 each.arguments}
            );
        }
#ifdef TWIN_EMULATOR
        // A description leaves clusters out; a launch asks for them.
        const emulator::Rehearsal rehearsal;
        run(Launcher(arch, nullptr), call);
        for (size_t i = 0; i < result.size(); ++i) {
            result[i].cluster = as_size(rehearsal.cluster_sizes[i]);
        }
#endif
        return result;
    }

  private:
    using AnyOp = std::function<cudaError_t(const Launcher&, DType, const Slots&)>;

    template <typename... Params>
    static std::vector<Parameter> described(
        const std::array<const char*, sizeof...(Params)>& names
    ) {
        size_t i = 0;
        return {Parameter{names[i++], kind_of<Params>(), is_written<Params>}...};
    }

    template <typename... Params>
    static AnyOp any_op(cudaError_t (*op)(const Launcher&, DType, Params...)) {
        return [=](const Launcher& launch, DType dtype, const Slots& slots) {
            return [&]<size_t... I>(std::index_sequence<I...>) {
                return op(launch, dtype, as<Params>(slots[I])...);
            }(std::index_sequence_for<Params...>{});
        };
    }

    void run(const Launcher& launch, const Call& call) const {
        const cudaError_t error = op_(launch, DType{call.dtype}, call.slots);
        if (error != cudaSuccess) {
            throw std::runtime_error(name + ": " + cudaGetErrorString(error));
        }
    }

    AnyOp op_;
};

}  // namespace native
