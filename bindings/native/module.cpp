// The Python module: every registered op, and the fingerprint of the sources.
#include "native.h"

extern const char SOURCE_HASH[];  // made at build time by bindings/sources.py

namespace native {

// In a function, so that the list exists whichever op's file is initialised first.
std::vector<const Binding*>& Binding::all() {
    static std::vector<const Binding*> bindings;
    return bindings;
}

}  // namespace native

PYBIND11_MODULE(TORCH_EXTENSION_NAME, module) {
    module.attr("source_hash") = pybind11::str(SOURCE_HASH);
    for (const native::Binding* binding : native::Binding::all()) binding->bind(module);
}
