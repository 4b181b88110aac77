// Tensor maps: they tell the tensor memory accelerator, since Hopper, where the boxes of a
// tensor of three dimensions lie.
#pragma once

#include <cuda.h>
#include <cudaTypedefs.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <cstdint>
#include <type_traits>
#include <vector>

// The columns of a box, whose rows are 128 bytes.
template <typename T>
constexpr int BOX_COLS = 128 / sizeof(T);

// Kernels take it as `const __grid_constant__`.
struct TensorMap {
    CUtensorMap map;  // opaque
    // What it says, for those who read a plan; the contiguous dimension comes first.
    const void* data;
    int64_t element_bytes;
    int64_t sizes[3];    // in elements
    int64_t strides[2];  // in bytes, of all dimensions but the first
    int64_t box[3];      // in elements
};

// The address, and then all else in the order above.
inline std::vector<int64_t> describe_argument(const TensorMap& map) {
    const auto [x, y, z] = map.sizes;
    const auto [box_x, box_y, box_z] = map.box;
    const auto [stride_y, stride_z] = map.strides;
    const int64_t address = reinterpret_cast<intptr_t>(map.data);
    return {address,  map.element_bytes, x,     y,     z,
            stride_y, stride_z,          box_x, box_y, box_z};
}

// A map of a tensor (n_batches, n_rows, n_cols) of 16-bit numbers, of which a copy takes
// box_rows rows of 128 bytes at a time. In shared memory the 16-byte chunks of a row are
// swizzled: chunk i of row r lies at i ^ (r % 8), so that neither rows nor columns have
// bank conflicts. The address and both strides are multiples of 16 bytes; the stride
// between batches is ignored where there is one batch.
template <typename T>
TensorMap make_tensor_map(
    const void* data, int64_t n_batches, int64_t n_rows, int64_t n_cols,
    int64_t stride_batch, int64_t stride_row, int box_rows
) {
    const int64_t bytes = sizeof(T);
    return {
        .map = {},
        .data = data,
        .element_bytes = bytes,
        .sizes = {n_cols, n_rows, n_batches},
        .strides =
            {stride_row * bytes, (n_batches == 1 ? stride_row : stride_batch) * bytes},
        .box = {BOX_COLS<T>, box_rows, 1}
    };
}

// Makes the opaque part of a map. The driver checks the address, which has to be real.
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
    cuuint64_t sizes[3], strides[2];
    cuuint32_t box[3];
    for (int i = 0; i < 3; ++i) {
        sizes[i] = map->sizes[i];
        box[i] = map->box[i];
    }
    for (int i = 0; i < 2; ++i) strides[i] = map->strides[i];
    const cuuint32_t steps[] = {1, 1, 1};
    const CUresult result = encode(
        &map->map,
        std::is_same_v<T, __half> ? CU_TENSOR_MAP_DATA_TYPE_FLOAT16
                                  : CU_TENSOR_MAP_DATA_TYPE_BFLOAT16,
        3, const_cast<void*>(map->data), sizes, strides, box, steps,
        CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
        CU_TENSOR_MAP_L2_PROMOTION_L2_128B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE
    );
    return result == CUDA_SUCCESS ? cudaSuccess : cudaErrorInvalidValue;
}
