// The part of a module that bears its name: compiled with the ops that it binds, where
// module.cpp serves every module as it is.
#include "native.h"

namespace native {

// In a function, so that the list exists whichever op's file is initialised first.
std::vector<const Bindable*>& Bindable::all() {
    static std::vector<const Bindable*> bindings;
    return bindings;
}

}  // namespace native

// Python's own headers would take longer than all else here.
extern "C" struct _object* twin_kernels_module();

#define TWIN_JOINED(a, b) a##b
#define TWIN_ENTRY(name) TWIN_JOINED(PyInit_, name)

extern "C"
    [[gnu::visibility("default")]] struct _object* TWIN_ENTRY(TORCH_EXTENSION_NAME)() {
    return twin_kernels_module();
}
