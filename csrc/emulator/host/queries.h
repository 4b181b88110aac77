// What a program asks before it launches: the device's properties, the attributes of a
// kernel, and its occupancy.
//
// The registers and the static shared memory of a kernel are not known here. Occupancy
// counts threads and dynamic shared memory alone.
#pragma once

#include <cstddef>

#include "device.h"
#include "errors.h"

// ---- Properties ---------------------------------------------------------------------

struct cudaDeviceProp {
    char name[256];
    std::size_t totalGlobalMem;
    std::size_t sharedMemPerBlock;
    int regsPerBlock;
    int warpSize;
    std::size_t memPitch;
    int maxThreadsPerBlock;
    int maxThreadsDim[3];
    int maxGridSize[3];
    int clockRate;  // kHz
    std::size_t totalConstMem;
    int major;
    int minor;
    std::size_t textureAlignment;
    int deviceOverlap;
    int multiProcessorCount;
    int kernelExecTimeoutEnabled;
    int integrated;
    int canMapHostMemory;
    int computeMode;
    int concurrentKernels;
    int ECCEnabled;
    int pciBusID;
    int pciDeviceID;
    int pciDomainID;
    int tccDriver;
    int asyncEngineCount;
    int unifiedAddressing;
    int memoryClockRate;  // kHz
    int memoryBusWidth;   // bits
    int l2CacheSize;      // bytes
    int persistingL2CacheMaxSize;
    int maxThreadsPerMultiProcessor;
    int streamPrioritiesSupported;
    int globalL1CacheSupported;
    int localL1CacheSupported;
    std::size_t sharedMemPerMultiprocessor;
    int regsPerMultiprocessor;
    int managedMemory;
    int isMultiGpuBoard;
    int multiGpuBoardGroupID;
    int singleToDoublePrecisionPerfRatio;
    int pageableMemoryAccess;
    int concurrentManagedAccess;
    int computePreemptionSupported;
    int cooperativeLaunch;
    std::size_t sharedMemPerBlockOptin;
    int maxBlocksPerMultiProcessor;
    std::size_t reservedSharedMemPerBlock;
};

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device);

// ---- Kernel attributes --------------------------------------------------------------

enum cudaFuncAttribute : int {
    cudaFuncAttributeMaxDynamicSharedMemorySize = 8,
    cudaFuncAttributePreferredSharedMemoryCarveout = 9,
};

enum cudaSharedCarveout : int {
    cudaSharedmemCarveoutDefault = -1,
    cudaSharedmemCarveoutMaxL1 = 0,
    cudaSharedmemCarveoutMaxShared = 100,
};

struct cudaFuncAttributes {
    std::size_t sharedSizeBytes;  // 0: not known, as constSizeBytes and localSizeBytes
    std::size_t constSizeBytes;
    std::size_t localSizeBytes;
    int maxThreadsPerBlock;
    int numRegs;  // 0: not known
    int ptxVersion;
    int binaryVersion;
    int cacheModeCA;
    int maxDynamicSharedSizeBytes;
    int preferredShmemCarveout;
};

cudaError_t cudaFuncSetAttribute(
    const void* kernel, cudaFuncAttribute attribute, int value
);
cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, const void* kernel);
/// Without effect.
cudaError_t cudaFuncSetCacheConfig(const void* kernel, cudaFuncCache preference);

template <typename Kernel>
cudaError_t cudaFuncSetAttribute(
    Kernel* kernel, cudaFuncAttribute attribute, int value
) {
    return cudaFuncSetAttribute(
        reinterpret_cast<const void*>(kernel), attribute, value
    );
}
template <typename Kernel>
cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, Kernel* kernel) {
    return cudaFuncGetAttributes(attributes, reinterpret_cast<const void*>(kernel));
}
template <typename Kernel>
cudaError_t cudaFuncSetCacheConfig(Kernel* kernel, cudaFuncCache preference) {
    return cudaFuncSetCacheConfig(reinterpret_cast<const void*>(kernel), preference);
}

// ---- Occupancy ----------------------------------------------------------------------

namespace emulator {

cudaError_t count_resident_blocks(
    int* blocks, int block_size, std::size_t dynamic_shared_bytes
);

}  // namespace emulator

template <typename Kernel>
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(
    int* blocks, Kernel, int block_size, std::size_t dynamic_shared_bytes
) {
    return emulator::count_resident_blocks(blocks, block_size, dynamic_shared_bytes);
}

constexpr unsigned cudaOccupancyDefault = 0;
constexpr unsigned cudaOccupancyDisableCachingOverride = 1;

template <typename Kernel>
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
    int* blocks, Kernel, int block_size, std::size_t dynamic_shared_bytes, unsigned
) {
    return emulator::count_resident_blocks(blocks, block_size, dynamic_shared_bytes);
}

/// The largest block size, in whole warps, with the most resident threads, and the grid
/// that fills the device with it. `shared_bytes_of` tells the dynamic shared memory for
/// a block size.
template <typename Function, typename Kernel>
cudaError_t cudaOccupancyMaxPotentialBlockSizeVariableSMem(
    int* grid_size, int* block_size, Kernel, Function shared_bytes_of,
    int largest_block_size = 0
) {
    constexpr int WARP = 32;
    constexpr int MOST = 1024;
    bool limited = largest_block_size > 0 && largest_block_size < MOST;
    int first = limited ? largest_block_size : MOST;
    int most_threads = 0;
    for (int size = first; size > 0; size = (size - 1) / WARP * WARP) {
        int blocks = 0;
        cudaError_t error =
            emulator::count_resident_blocks(&blocks, size, shared_bytes_of(size));
        if (error != cudaSuccess) return error;
        if (blocks * size <= most_threads) continue;
        most_threads = blocks * size;
        *block_size = size;
        *grid_size = blocks;
    }
    if (most_threads == 0) return cudaErrorInvalidValue;
    int multiprocessors = 0;
    cudaError_t error =
        cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, 0);
    *grid_size *= multiprocessors;
    return error;
}

template <typename Kernel>
cudaError_t cudaOccupancyMaxPotentialBlockSize(
    int* grid_size, int* block_size, Kernel kernel,
    std::size_t dynamic_shared_bytes = 0, int largest_block_size = 0
) {
    return cudaOccupancyMaxPotentialBlockSizeVariableSMem(
        grid_size, block_size, kernel, [=](int) { return dynamic_shared_bytes; },
        largest_block_size
    );
}
