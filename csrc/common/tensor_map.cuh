// Tensor maps, by which the tensor memory accelerator, since Hopper, finds the boxes of a
// tensor of three dimensions.
#pragma once

#include <cuda.h>
#include <cudaTypedefs.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <cstdint>
#include <type_traits>
#include <vector>

// float32 that a copy to shared memory rounds to tf32, to the nearest.
struct Tf32 {
    uint32_t bits;
};

// Kernels take it as `const __grid_constant__`.
struct TensorMap {
    CUtensorMap map;  // opaque
    // Its contents, for readers of a plan; the contiguous dimension comes first.
    const void* data;
    int64_t element_bytes;
    cuuint64_t sizes[3];    // in elements
    cuuint64_t strides[2];  // in bytes, of all dimensions but the first
    cuuint32_t box[3];      // in elements
    bool rounds_to_tf32;    // as it copies to shared memory
};

// The address, and then the rest of the contents in the order above.
inline std::vector<int64_t> describe_argument(const TensorMap& map) {
    std::vector<int64_t> numbers{
        reinterpret_cast<intptr_t>(map.data), map.element_bytes
    };
    for (const cuuint64_t size : map.sizes) numbers.push_back(size);
    for (const cuuint64_t stride : map.strides) numbers.push_back(stride);
    for (const cuuint32_t size : map.box) numbers.push_back(size);
    numbers.push_back(map.rounds_to_tf32);
    return numbers;
}

// A map of a tensor (n_batches, n_rows, n_cols) of numbers, of which a copy takes
// box_rows rows of 128 bytes at a time. In shared memory the 16-byte chunks of a row are
// swizzled: chunk i of row r lies at i ^ (r % 8), so that neither rows nor columns have
// bank conflicts. The address and both strides are multiples of 16 bytes; the stride
// between batches is ignored where there is one batch.
template <typename T>
TensorMap make_tensor_map(
    const void* data, cuuint64_t n_batches, cuuint64_t n_rows, cuuint64_t n_cols,
    cuuint64_t stride_batch, cuuint64_t stride_row, cuuint32_t box_rows
) {
    if (n_batches == 1) stride_batch = stride_row;
    return {
        .map = {},
        .data = data,
        .element_bytes = sizeof(T),
        .sizes = {n_cols, n_rows, n_batches},
        .strides = {stride_row * sizeof(T), stride_batch * sizeof(T)},
        .box = {128 / sizeof(T), box_rows, 1},
        .rounds_to_tf32 = std::is_same_v<T, Tf32>
    };
}

template <typename T>
constexpr CUtensorMapDataType tensor_map_type() {
    if (std::is_same_v<T, __half>) return CU_TENSOR_MAP_DATA_TYPE_FLOAT16;
    if (std::is_same_v<T, __nv_bfloat16>) return CU_TENSOR_MAP_DATA_TYPE_BFLOAT16;
    if (std::is_same_v<T, Tf32>) return CU_TENSOR_MAP_DATA_TYPE_TFLOAT32;
    return CU_TENSOR_MAP_DATA_TYPE_FLOAT32;
}

// Makes the opaque part of a map. The driver checks the address, so there has to be memory.
template <typename T>
cudaError_t encode_tensor_map(TensorMap* map) {
    static PFN_cuTensorMapEncodeTiled_v12000 encode = nullptr;
    if (encode == nullptr) {
        void* function = nullptr;
        cudaDriverEntryPointQueryResult found{};
        const cudaError_t error = cudaGetDriverEntryPointByVersion(
            "cuTensorMapEncodeTiled", &function, 12000, cudaEnableDefault, &found
        );
        if (error != cudaSuccess) return error;
        if (found != cudaDriverEntryPointSuccess) return cudaErrorNotSupported;
        encode = reinterpret_cast<PFN_cuTensorMapEncodeTiled_v12000>(function);
    }
    const cuuint32_t steps[] = {1, 1, 1};
    const CUresult result = encode(
        &map->map, tensor_map_type<T>(), 3, const_cast<void*>(map->data), map->sizes,
        map->strides, map->box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE,
        CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_128B,
        CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE
    );
    return result == CUDA_SUCCESS ? cudaSuccess : cudaErrorInvalidValue;
}
