// Loads and stores with a cache hint. There is no cache; but unlike plain accesses,
// whose instruction the compiler chooses, these check the alignment.
#pragma once

#include <type_traits>

#include "../runtime.h"
#include "language.h"

namespace emulator {

template <typename T>
__forceinline__ T checked_load(const T* address, const char* operation, Site site) {
    if (reinterpret_cast<std::uintptr_t>(address) % alignof(T) != 0) {
        misaligned_access(operation, site, address, alignof(T));
    }
    return *address;
}

template <typename T>
__forceinline__ void checked_store(
    T* address, T value, const char* operation, Site site
) {
    if (reinterpret_cast<std::uintptr_t>(address) % alignof(T) != 0) {
        misaligned_access(operation, site, address, alignof(T));
    }
    *address = value;
}

}  // namespace emulator

// Always inlined, so that the checker sees the kernel's line and not one of this file.
#define TWIN_LOAD(name)                                                \
    template <typename T>                                              \
    __forceinline__ T name(                                            \
        const T* address, emulator::Site site = emulator::Site::here() \
    ) {                                                                \
        return emulator::checked_load(address, #name, site);           \
    }

#define TWIN_STORE(name)                                      \
    template <typename T>                                     \
    __forceinline__ void name(                                \
        T* address, std::type_identity_t<T> value,            \
        emulator::Site site = emulator::Site::here()          \
    ) {                                                       \
        emulator::checked_store(address, value, #name, site); \
    }

TWIN_LOAD(__ldg)
TWIN_LOAD(__ldca)
TWIN_LOAD(__ldcg)
TWIN_LOAD(__ldcs)
TWIN_LOAD(__ldlu)
TWIN_LOAD(__ldcv)
TWIN_STORE(__stwb)
TWIN_STORE(__stcg)
TWIN_STORE(__stcs)
TWIN_STORE(__stwt)

#undef TWIN_LOAD
#undef TWIN_STORE
