// The Python module: the fingerprint of its sources, and for every op three functions.
// `softmax(..., stream)` launches, `softmax_plan(..., arch)` describes the launches, kernel
// by kernel, and `softmax_replay(..., places)` returns a function that launches again on
// other tensors. `softmax_parameters` lists what they take: a name, and whether it is
// written through.
#include <pybind11/pybind11.h>

#include <bit>
#include <tuple>

#include "binding.h"

extern const char SOURCE_HASH[];  // made at build time by bindings/sources.py

namespace [[gnu::visibility("hidden")]] native {

// The tensor of a call that an argument points into, by index, and the offset from its
// start in bytes.
struct Place {
    size_t argument;
    size_t tensor;
    int64_t offset;
};

// What Python passed. The first is the dtype, `last` (the stream, say) is no argument of
// the op; those between them are.
struct Arguments {
    Call call;
    pybind11::object last;
};

static Slot read(pybind11::handle argument, Kind kind) {
    switch (kind) {
        case Kind::address:
            return argument.cast<std::uintptr_t>();
        case Kind::boolean:
            return argument.cast<bool>();
        case Kind::int32:
            return static_cast<Slot>(argument.cast<std::int32_t>());
        case Kind::int64:
            return static_cast<Slot>(argument.cast<std::int64_t>());
        case Kind::uint32:
            return argument.cast<std::uint32_t>();
        case Kind::uint64:
            return argument.cast<std::uint64_t>();
        case Kind::float32:
            break;
    }
    return std::bit_cast<std::uint32_t>(argument.cast<float>());
}

static Arguments split(const Bindable& op, const pybind11::args& args) {
    const size_t n_arguments = op.parameters.size();
    if (args.size() != n_arguments + 2) {
        throw pybind11::type_error(
            op.name + " takes " + std::to_string(n_arguments + 2) + " arguments, got " +
            std::to_string(args.size())
        );
    }
    Slots slots{};
    for (size_t i = 0; i < n_arguments; ++i) {
        slots[i] = read(args[i + 1], op.parameters[i].kind);
    }
    return {{args[0].cast<int>(), slots}, args[n_arguments + 1]};
}

static pybind11::tuple as_tuple(const Size& size) {
    return pybind11::make_tuple(size[0], size[1], size[2]);
}

static pybind11::dict as_dict(const KernelLaunch& launch) {
    pybind11::dict result;
    result["kernel"] = launch.symbol;
    result["signature"] = launch.signature;
    result["grid"] = as_tuple(launch.grid);
    result["block"] = as_tuple(launch.block);
    if (launch.cluster) result["cluster"] = as_tuple(*launch.cluster);
    result["shared_bytes"] = launch.shared_bytes;
    pybind11::list arguments;
    for (const std::vector<int64_t>& numbers : launch.arguments) {
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

static std::vector<Place> places_of(const Bindable& op, pybind11::handle given) {
    std::vector<Place> places;
    for (const pybind11::handle each : given) {
        const auto [position, tensor, offset] =
            each.cast<std::tuple<size_t, size_t, int64_t>>();
        // The dtype is at position 0.
        if (position < 1 || position > op.parameters.size()) {
            throw pybind11::index_error(op.name + ": no such argument");
        }
        places.push_back({position - 1, tensor, offset});
    }
    return places;
}

// Python passes only addresses and the stream in every call, which takes a third of the
// time that all arguments would take.
static pybind11::cpp_function replay(const Bindable& op, const pybind11::args& args) {
    const Arguments given = split(op, args);
    const std::vector<Place> places = places_of(op, given.last);
    return [&op, places,
            call = given.call](const pybind11::list& addresses, std::uintptr_t stream) {
        Call moved = call;
        for (const Place& place : places) {
            moved.slots[place.argument] =
                addresses[place.tensor].cast<std::uintptr_t>() + place.offset;
        }
        const pybind11::gil_scoped_release release;
        op.launch(moved, stream);
    };
}

static void bind(const Bindable& op, pybind11::module_& module) {
    pybind11::list described;
    for (const Parameter& each : op.parameters) {
        described.append(pybind11::make_tuple(each.name, each.is_written));
    }
    module.attr((op.name + "_parameters").c_str()) = described;
    module.def(op.name.c_str(), [&op](const pybind11::args& args) {
        const Arguments given = split(op, args);
        const auto stream = given.last.cast<std::uintptr_t>();
        const pybind11::gil_scoped_release release;
        op.launch(given.call, stream);
    });
    module.def((op.name + "_plan").c_str(), [&op](const pybind11::args& args) {
        const Arguments given = split(op, args);
        pybind11::list result;
        for (const KernelLaunch& each : op.plan(given.call, given.last.cast<int>())) {
            result.append(as_dict(each));
        }
        return result;
    });
    module.def((op.name + "_replay").c_str(), [&op](const pybind11::args& args) {
        return replay(op, args);
    });
}

}  // namespace native

PYBIND11_MODULE(twin_kernels, module) {
    module.attr("source_hash") = pybind11::str(SOURCE_HASH);
    for (const native::Bindable* op : native::Bindable::all())
        native::bind(*op, module);
}

// For entry.cpp, which gives the module its name. No other module of the process may answer
// in this one's place, as it could under a name that the loader sees.
extern "C" [[gnu::alias("PyInit_twin_kernels"), gnu::visibility("hidden")]] PyObject*
twin_kernels_module();
