// 8-bit floats as bits, which any architecture can convert.
#pragma once

#include "common/ptx/wgmma_float8.cuh"
#include "common/tensor_map.cuh"
#include "common/vec.cuh"

using ptx::Float8;

template <Float8 TYPE>
__device__ __forceinline__ float float8_to_float(uint8_t bits) {
    // The upper byte of a half.
    if constexpr (TYPE == Float8::e5m2) {
        return to_float(__ushort_as_half(static_cast<unsigned short>(bits << 8)));
    }
    // Exponent and fraction of a float whose exponent is 120 too small, subnormals included.
    const uint32_t sign = (bits & 0x80u) << 24, rest = bits & 0x7fu;
    if (rest == 0x7f) return __uint_as_float(0x7fffffff);  // NaN
    return __uint_as_float(sign | rest << 20) * 0x1p120f;
}

// The tensor memory accelerator copies them as bytes.
template <>
constexpr CUtensorMapDataType tensor_map_type<uint8_t>() {
    return CU_TENSOR_MAP_DATA_TYPE_UINT8;
}
