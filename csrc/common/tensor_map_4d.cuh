// Tensor maps of tensors of four dimensions: those of attention, where sequences and heads
// may lie in memory in either order. common/tensor_map.cuh has those of three.
#pragma once

#include "common/tensor_map.cuh"

// Kernels take it as `const __grid_constant__`.
struct TensorMap4D {
    CUtensorMap map;  // opaque
    // Its contents, for readers of a plan; the contiguous dimension comes first.
    const void* data;
    int64_t element_bytes;
    cuuint64_t sizes[4];    // in elements
    cuuint64_t strides[3];  // in bytes, of all dimensions but the first
    cuuint32_t box[4];      // in elements
};

// The address, and then the rest of the contents in the order above.
inline std::vector<int64_t> describe_argument(const TensorMap4D& map) {
    std::vector<int64_t> numbers{
        reinterpret_cast<intptr_t>(map.data), map.element_bytes
    };
    for (const cuuint64_t size : map.sizes) numbers.push_back(size);
    for (const cuuint64_t stride : map.strides) numbers.push_back(stride);
    for (const cuuint32_t size : map.box) numbers.push_back(size);
    return numbers;
}

// A tensor (n_batches, n_rows, n_heads, n_cols) of 16-bit numbers whose columns are
// neighbours.
struct HeadRows {
    const void* data;
    int64_t n_batches, n_rows, n_heads, n_cols;
    int64_t stride_batch, stride_row, stride_head;  // in elements

    // Whether there can be a map of it: there are elements, and every row begins at a
    // multiple of 16 bytes, a place of its own.
    bool have_tensor_map() const {
        constexpr int64_t IN_16_BYTES = 8, END = int64_t{1} << 39;  // 2^40 bytes
        const auto fits = [&](int64_t size, int64_t stride) {
            return size == 1 ||
                   (stride > 0 && stride % IN_16_BYTES == 0 && stride < END);
        };
        return n_batches > 0 && n_rows > 0 && n_heads > 0 && n_cols > 0 &&
               reinterpret_cast<uintptr_t>(data) % 16 == 0 &&
               fits(n_batches, stride_batch) && fits(n_rows, stride_row) &&
               fits(n_heads, stride_head);
    }
};

// A map of it, of which a copy takes box_rows rows of 64 columns of a head at a time,
// swizzled as in common/tensor_map.cuh. The stride of a dimension that has one element does
// not matter.
template <typename T>
TensorMap4D make_tensor_map(const HeadRows& rows, cuuint32_t box_rows) {
    static_assert(sizeof(T) == 2);
    const auto bytes = [&](int64_t size, int64_t stride) {
        if (size == 1) stride = (rows.n_cols + 7) / 8 * 8;
        return static_cast<cuuint64_t>(stride) * sizeof(T);
    };
    return {
        .map = {},
        .data = rows.data,
        .element_bytes = sizeof(T),
        .sizes =
            {static_cast<cuuint64_t>(rows.n_cols), static_cast<cuuint64_t>(rows.n_rows),
             static_cast<cuuint64_t>(rows.n_heads),
             static_cast<cuuint64_t>(rows.n_batches)},
        .strides =
            {bytes(rows.n_rows, rows.stride_row), bytes(rows.n_heads, rows.stride_head),
             bytes(rows.n_batches, rows.stride_batch)},
        .box = {128 / sizeof(T), box_rows, 1, 1}
    };
}

// Makes the opaque part of a map. The driver checks the address, so there has to be memory.
template <typename T>
cudaError_t encode_tensor_map(TensorMap4D* map) {
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
    const cuuint32_t steps[] = {1, 1, 1, 1};
    const CUresult result = encode(
        &map->map,
        std::is_same_v<T, __half> ? CU_TENSOR_MAP_DATA_TYPE_FLOAT16
                                  : CU_TENSOR_MAP_DATA_TYPE_BFLOAT16,
        4, const_cast<void*>(map->data), map->sizes, map->strides, map->box, steps,
        CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
        CU_TENSOR_MAP_L2_PROMOTION_L2_128B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE
    );
    return result == CUDA_SUCCESS ? cudaSuccess : cudaErrorInvalidValue;
}
