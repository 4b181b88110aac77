// Tensor maps: how the host encodes them.

#include "tensor_map.h"

#include <optional>
#include <string>
#include <string_view>

#include "errors.h"
#include "text.h"

namespace emulator {
namespace {

std::optional<unsigned> element_bytes(CUtensorMapDataType type) {
    switch (type) {
        case CU_TENSOR_MAP_DATA_TYPE_UINT8:
            return 1;
        case CU_TENSOR_MAP_DATA_TYPE_UINT16:
        case CU_TENSOR_MAP_DATA_TYPE_FLOAT16:
        case CU_TENSOR_MAP_DATA_TYPE_BFLOAT16:
            return 2;
        case CU_TENSOR_MAP_DATA_TYPE_UINT32:
        case CU_TENSOR_MAP_DATA_TYPE_INT32:
        case CU_TENSOR_MAP_DATA_TYPE_FLOAT32:
        case CU_TENSOR_MAP_DATA_TYPE_TFLOAT32:
            return 4;
        case CU_TENSOR_MAP_DATA_TYPE_UINT64:
        case CU_TENSOR_MAP_DATA_TYPE_INT64:
        case CU_TENSOR_MAP_DATA_TYPE_FLOAT64:
            return 8;
    }
    return std::nullopt;
}

bool is_multiple(const void* address, std::uintptr_t alignment) {
    return reinterpret_cast<std::uintptr_t>(address) % alignment == 0;
}

/// Why the driver refuses a tensor; empty if it does not.
std::string find_fault(
    unsigned rank, const void* address, const cuuint64_t* sizes,
    const cuuint64_t* strides, const cuuint32_t* box_sizes,
    const cuuint32_t* element_strides, unsigned bytes, CUtensorMapSwizzle swizzle
) {
    constexpr cuuint64_t MAX_SIZE = cuuint64_t{1} << 32;
    constexpr cuuint64_t MAX_STRIDE = cuuint64_t{1} << 40;
    constexpr cuuint32_t MAX_BOX_SIZE = 256;
    constexpr unsigned ALIGNMENT = 16;
    if (rank < 1 || rank > MAX_TENSOR_RANK) {
        return text("rank %u, expected 1 to 5", rank);
    }
    if (address == nullptr || !is_multiple(address, ALIGNMENT)) {
        return text(
            "the tensor's address is %p, expected a multiple of 16 other than 0",
            address
        );
    }
    for (unsigned i = 0; i < rank; ++i) {
        if (sizes[i] == 0 || sizes[i] > MAX_SIZE) {
            return text(
                "size %u of the tensor is %llu, expected 1 to 2^32", i,
                static_cast<unsigned long long>(sizes[i])
            );
        }
        if (box_sizes[i] == 0 || box_sizes[i] > MAX_BOX_SIZE) {
            return text("size %u of the box is %u, expected 1 to 256", i, box_sizes[i]);
        }
        if (element_strides[i] != 1) {
            return text(
                "element stride %u is %u; the emulator models only 1", i,
                element_strides[i]
            );
        }
    }
    for (unsigned i = 0; i + 1 < rank; ++i) {
        if (strides[i] % ALIGNMENT != 0 || strides[i] >= MAX_STRIDE) {
            return text(
                "stride %u is %llu bytes, expected a multiple of 16 below 2^40", i,
                static_cast<unsigned long long>(strides[i])
            );
        }
    }
    unsigned row_bytes = box_sizes[0] * bytes;
    if (row_bytes % ALIGNMENT != 0) {
        return text(
            "a row of the box has %u bytes, expected a multiple of 16", row_bytes
        );
    }
    if (swizzle != CU_TENSOR_MAP_SWIZZLE_NONE) {
        unsigned limit = 16u << static_cast<unsigned>(swizzle);
        if (row_bytes > limit) {
            return text(
                "a row of the box has %u bytes, expected at most %u with this swizzle",
                row_bytes, limit
            );
        }
    }
    return "";
}

CUresult refuse(const std::string& why) {
    describe_error(cudaErrorInvalidValue, "cuTensorMapEncodeTiled: " + why);
    return CUDA_ERROR_INVALID_VALUE;
}

}  // namespace
}  // namespace emulator

CUresult cuTensorMapEncodeTiled(
    CUtensorMap* map, CUtensorMapDataType type, cuuint32_t rank, void* address,
    const cuuint64_t* sizes, const cuuint64_t* strides, const cuuint32_t* box_sizes,
    const cuuint32_t* element_strides, CUtensorMapInterleave interleave,
    CUtensorMapSwizzle swizzle, CUtensorMapL2promotion, CUtensorMapFloatOOBfill fill
) {
    using namespace emulator;
    if (map == nullptr || !is_multiple(map, alignof(CUtensorMap))) {
        return refuse(text(
            "the tensor map's address is %p, expected a multiple of 64 other than 0",
            static_cast<void*>(map)
        ));
    }
    std::optional<unsigned> bytes = element_bytes(type);
    bool is_modelled = bytes.has_value() &&
                       interleave == CU_TENSOR_MAP_INTERLEAVE_NONE &&
                       swizzle >= CU_TENSOR_MAP_SWIZZLE_NONE &&
                       swizzle <= CU_TENSOR_MAP_SWIZZLE_128B &&
                       fill == CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE;
    if (!is_modelled) {
        return refuse(
            "the emulator does not model this type, interleave, swizzle or fill"
        );
    }
    std::string fault = find_fault(
        rank, address, sizes, strides, box_sizes, element_strides, *bytes, swizzle
    );
    if (!fault.empty()) return refuse(fault);

    TensorMap result{};
    result.mark = TensorMap::MARK;
    result.address = static_cast<unsigned char*>(address);
    for (unsigned i = 0; i < rank; ++i) {
        result.sizes[i] = sizes[i];
        if (i > 0) result.strides[i - 1] = strides[i - 1];
        result.box_sizes[i] = static_cast<std::uint16_t>(box_sizes[i]);
    }
    result.rank = static_cast<std::uint8_t>(rank);
    result.element_bytes = static_cast<std::uint8_t>(*bytes);
    result.swizzled_bits = static_cast<std::uint8_t>(swizzle);
    result.rounds_to_tf32 = type == CU_TENSOR_MAP_DATA_TYPE_TFLOAT32;
    *map = {};
    std::memcpy(map, &result, sizeof(result));
    return CUDA_SUCCESS;
}

// ---- How a launcher gets that function without linking the driver -------------------

cudaError_t cudaGetDriverEntryPointByVersion(
    const char* symbol, void** function, unsigned version, unsigned long long,
    cudaDriverEntryPointQueryResult* status
) {
    constexpr unsigned FIRST_VERSION = 12000;
    bool is_known = std::string_view(symbol) == "cuTensorMapEncodeTiled";
    bool is_found = is_known && version >= FIRST_VERSION;
    *function = is_found ? reinterpret_cast<void*>(&cuTensorMapEncodeTiled) : nullptr;
    if (status != nullptr) {
        *status = is_found   ? cudaDriverEntryPointSuccess
                  : is_known ? cudaDriverEntryPointVersionNotSufficent
                             : cudaDriverEntryPointSymbolNotFound;
    }
    return cudaSuccess;
}
