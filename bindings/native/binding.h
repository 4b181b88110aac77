// What Python may ask of an op's host function, in plain data, so that only module.cpp
// includes pybind11, whose headers take ten times as long to compile as most kernels.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

// Hidden like pybind11's own types: each module keeps these to itself.
namespace [[gnu::visibility("hidden")]] native {

// How Python's argument is read: an address is an integer there.
enum class Kind { address, boolean, int32, int64, uint32, uint64, float32 };

struct Parameter {
    const char* name;
    Kind kind;
    bool is_written;  // whether the launcher writes through it
};

// An argument as it is kept between Python and a launcher: an address, an integer or the
// bits of a float.
using Slot = std::uint64_t;

constexpr size_t MAX_ARGUMENTS = 48;
using Slots = std::array<Slot, MAX_ARGUMENTS>;

// What a launcher is called with.
struct Call {
    int dtype;
    Slots slots;
};

using Size = std::array<unsigned, 3>;  // x, y, z

// A kernel that a call would launch.
struct KernelLaunch {
    std::string symbol;  // its name in the PTX
    std::string signature;
    Size grid;
    Size block;
    std::optional<Size> cluster;  // told by the emulator
    int64_t shared_bytes;
    std::vector<std::vector<int64_t>> arguments;  // as in PlanDescription
};

// A launcher under its name in Python. All that there are add themselves to a list.
class Bindable {
  public:
    Bindable(std::string bound_name, std::vector<Parameter> bound_parameters)
        : name(std::move(bound_name)), parameters(std::move(bound_parameters)) {
        all().push_back(this);
    }

    virtual ~Bindable() = default;
    Bindable(const Bindable&) = delete;
    Bindable& operator=(const Bindable&) = delete;

    // Both throw a std::runtime_error that says what CUDA refuses.
    virtual void launch(const Call& call, std::uintptr_t stream) const = 0;
    virtual std::vector<KernelLaunch> plan(const Call& call, int arch) const = 0;

    static std::vector<const Bindable*>& all();

    const std::string name;
    const std::vector<Parameter> parameters;
};

}  // namespace native
