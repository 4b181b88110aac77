// The emulator's own contents of a CUtensorMap.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "../host/driver.h"

namespace [[gnu::visibility("hidden")]] emulator {

constexpr unsigned MAX_TENSOR_RANK = 5;

struct TensorMap {
    static constexpr std::uint64_t MARK = 0x6D61705F74776E31;

    std::uint64_t mark;  // shows that cuTensorMapEncodeTiled has made it
    unsigned char* address;
    std::uint64_t sizes[MAX_TENSOR_RANK];        // in elements
    std::uint64_t strides[MAX_TENSOR_RANK - 1];  // of all dimensions but the first
    std::uint16_t box_sizes[MAX_TENSOR_RANK];    // in elements
    std::uint8_t rank;
    std::uint8_t element_bytes;
    /// The number of address bits that the swizzle changes: from bit 4 on, they become
    /// the exclusive or with the bits from bit 7 on.
    std::uint8_t swizzled_bits;
    bool rounds_to_tf32;  // as it loads

    std::size_t row_bytes() const { return std::size_t{box_sizes[0]} * element_bytes; }
    std::size_t rows() const {
        std::size_t result = 1;
        for (unsigned i = 1; i < rank; ++i) result *= box_sizes[i];
        return result;
    }
    std::size_t box_bytes() const { return rows() * row_bytes(); }
};
static_assert(sizeof(TensorMap) <= sizeof(CUtensorMap));

inline TensorMap read_tensor_map(const CUtensorMap& map) {
    TensorMap result;
    std::memcpy(&result, &map, sizeof(result));
    return result;
}

/// The swizzled address of the 16 bytes that lie here in an unswizzled box.
inline std::uintptr_t swizzled(std::uintptr_t address, unsigned bits) {
    constexpr unsigned CHUNK_BIT = 4;
    constexpr unsigned ROW_BIT = 7;
    std::uintptr_t mask = (std::uintptr_t{1} << bits) - 1;
    return address ^ ((address >> ROW_BIT & mask) << CHUNK_BIT);
}

constexpr unsigned BITS_OF_SWIZZLE_128 = 3;

}  // namespace emulator
