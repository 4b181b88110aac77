// What is known of memory that CUDA's functions have allocated.
#pragma once

#include <cstddef>
#include <optional>

#include "../host/memory.h"

namespace [[gnu::visibility("hidden")]] emulator {

struct Allocation {
    const char* function;  // that made it
    std::size_t bytes;
    cudaMemoryType type;
};

struct PlaceInMemory {
    Allocation allocation;
    std::size_t offset;
};

/// The allocation that contains an address, if there is one.
std::optional<PlaceInMemory> find_allocation(const void* address);

}  // namespace emulator
