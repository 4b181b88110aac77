// The element types, and the step from what is known at run time to template arguments.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <cstdint>
#include <type_traits>

enum class DType : int { float32 = 0, float16 = 1, bfloat16 = 2 };

constexpr int64_t element_bytes_of(DType dtype) {
    return dtype == DType::float32 ? 4 : 2;
}

// Calls `body.template operator()<T>()` with the T of `dtype`, and returns its Result.
// With TWIN_SINGLE_KERNEL the launch tables are left uninstantiated, so that a file
// that includes an op and instantiates one kernel by name compiles that kernel alone.
template <typename Result, typename Body>
Result dispatch_float(DType dtype, Body&& body) {
#ifdef TWIN_SINGLE_KERNEL
    (void)dtype, (void)body;
    return {};
#else
    switch (dtype) {
        case DType::float16:
            return body.template operator()<__half>();
        case DType::bfloat16:
            return body.template operator()<__nv_bfloat16>();
        case DType::float32:
            break;
    }
    return body.template operator()<float>();
#endif
}

// Calls `body.template operator()<FLAGS...>()` with the flags, and returns its result.
template <bool... FLAGS, typename Body>
auto dispatch_flags(Body&& body) {
    return body.template operator()<FLAGS...>();
}

template <bool... FLAGS, typename Body, typename... Rest>
auto dispatch_flags(Body&& body, bool flag, Rest... rest) {
    return flag ? dispatch_flags<FLAGS..., true>(body, rest...)
                : dispatch_flags<FLAGS..., false>(body, rest...);
}
