// The emulated device, an H100: its limits, and the attributes that it reports.
#pragma once

#include <cstddef>

#include "../device/vector_types.h"

namespace emulator {

constexpr unsigned WARP_SIZE = 32;
constexpr unsigned MAX_THREADS = 1024;  // of a block
constexpr unsigned MAX_WARPS = MAX_THREADS / WARP_SIZE;
constexpr dim3 MAX_BLOCK_SIZE{1024, 1024, 64};
constexpr dim3 MAX_GRID_SIZE{0x7fffffff, 65535, 65535};

constexpr unsigned MAX_CLUSTER_SIZE = 8;  // blocks, without the non-portable opt-in

constexpr std::size_t SHARED_BYTES_WITHOUT_OPT_IN = 48 * 1024;
constexpr std::size_t MAX_SHARED_BYTES = 227 * 1024;
constexpr std::size_t SHARED_BYTES_PER_MULTIPROCESSOR = 228 * 1024;

constexpr unsigned MULTIPROCESSORS = 132;
constexpr unsigned THREADS_PER_MULTIPROCESSOR = 2048;
constexpr unsigned BLOCKS_PER_MULTIPROCESSOR = 32;
constexpr unsigned REGISTERS_PER_MULTIPROCESSOR = 64 * 1024;
constexpr std::size_t RESERVED_SHARED_BYTES = 1024;  // of every block

constexpr std::size_t GLOBAL_BYTES = std::size_t{80} << 30;
constexpr unsigned L2_BYTES = 50 << 20;
constexpr std::size_t PITCH_ALIGNMENT = 512;
constexpr unsigned CLOCK_KHZ = 1980000;
constexpr unsigned MEMORY_CLOCK_KHZ = 2619000;
constexpr unsigned MEMORY_BUS_BITS = 5120;

// Blocks that can wait for each other: two on every multiprocessor, as many as fit of
// blocks of 1024 threads. More of the smaller ones fit on the device, but here each
// takes a thread of the operating system.
constexpr unsigned MAX_RESIDENT_BLOCKS = 2 * MULTIPROCESSORS;

}  // namespace emulator
