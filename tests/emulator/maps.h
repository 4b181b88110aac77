// Tensor maps of test kernels.
#pragma once

#include <cuda.h>
#include <cudaTypedefs.h>
#include <cuda_runtime.h>

#include <cstdint>

// A map of a tensor, with strides in elements; x is the last dimension.
inline bool make_map(
    CUtensorMap* map, void* address, const int64_t (&sizes)[3],
    const int64_t (&strides)[2], const int (&box)[2],
    CUtensorMapDataType type = CU_TENSOR_MAP_DATA_TYPE_BFLOAT16,
    CUtensorMapSwizzle swizzle = CU_TENSOR_MAP_SWIZZLE_128B
) {
    const bool is_wide = type == CU_TENSOR_MAP_DATA_TYPE_FLOAT32 ||
                         type == CU_TENSOR_MAP_DATA_TYPE_TFLOAT32;
    const int width = is_wide ? 4 : 2;
    void* function = nullptr;
    cudaDriverEntryPointQueryResult status;
    cudaGetDriverEntryPointByVersion(
        "cuTensorMapEncodeTiled", &function, 12000, cudaEnableDefault, &status
    );
    if (status != cudaDriverEntryPointSuccess) return false;
    const cuuint64_t dims[3] = {
        cuuint64_t(sizes[0]), cuuint64_t(sizes[1]), cuuint64_t(sizes[2])
    };
    const cuuint64_t bytes[2] = {
        cuuint64_t(width * strides[0]), cuuint64_t(width * strides[1])
    };
    const cuuint32_t box_sizes[3] = {cuuint32_t(box[0]), cuuint32_t(box[1]), 1};
    const cuuint32_t element_strides[3] = {1, 1, 1};
    return reinterpret_cast<PFN_cuTensorMapEncodeTiled_v12000>(function)(
               map, type, 3, address, dims, bytes, box_sizes, element_strides,
               CU_TENSOR_MAP_INTERLEAVE_NONE, swizzle, CU_TENSOR_MAP_L2_PROMOTION_NONE,
               CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE
           ) == CUDA_SUCCESS;
}
