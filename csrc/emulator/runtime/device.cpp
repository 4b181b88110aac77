// The device as the host sees it: attributes, properties, limits, versions.

#include <algorithm>
#include <cstring>
#include <mutex>
#include <optional>
#include <string>

#include "../host/api.h"
#include "errors.h"
#include "h100.h"

namespace emulator {
namespace {

std::optional<int> attribute_value(cudaDeviceAttr attribute) {
    switch (attribute) {
        case cudaDevAttrMaxThreadsPerBlock:
            return MAX_THREADS;
        case cudaDevAttrMaxBlockDimX:
            return MAX_BLOCK_SIZE.x;
        case cudaDevAttrMaxBlockDimY:
            return MAX_BLOCK_SIZE.y;
        case cudaDevAttrMaxBlockDimZ:
            return MAX_BLOCK_SIZE.z;
        case cudaDevAttrMaxGridDimX:
            return MAX_GRID_SIZE.x;
        case cudaDevAttrMaxGridDimY:
            return MAX_GRID_SIZE.y;
        case cudaDevAttrMaxGridDimZ:
            return MAX_GRID_SIZE.z;
        case cudaDevAttrMaxSharedMemoryPerBlock:
            return SHARED_BYTES_WITHOUT_OPT_IN;
        case cudaDevAttrWarpSize:
            return WARP_SIZE;
        case cudaDevAttrMaxRegistersPerBlock:
        case cudaDevAttrMaxRegistersPerMultiprocessor:
            return REGISTERS_PER_MULTIPROCESSOR;
        case cudaDevAttrClockRate:
            return CLOCK_KHZ;
        case cudaDevAttrMultiProcessorCount:
            return MULTIPROCESSORS;
        case cudaDevAttrMemoryClockRate:
            return MEMORY_CLOCK_KHZ;
        case cudaDevAttrGlobalMemoryBusWidth:
            return MEMORY_BUS_BITS;
        case cudaDevAttrL2CacheSize:
            return L2_BYTES;
        case cudaDevAttrMaxThreadsPerMultiProcessor:
            return THREADS_PER_MULTIPROCESSOR;
        case cudaDevAttrComputeCapabilityMajor:
            return 9;
        case cudaDevAttrComputeCapabilityMinor:
            return 0;
        case cudaDevAttrMaxSharedMemoryPerMultiprocessor:
            return SHARED_BYTES_PER_MULTIPROCESSOR;
        case cudaDevAttrManagedMemory:
            return 1;
        case cudaDevAttrCooperativeLaunch:
            return 0;  // an H100 has them, the emulator does not
        case cudaDevAttrMaxSharedMemoryPerBlockOptin:
            return MAX_SHARED_BYTES;
        case cudaDevAttrMaxBlocksPerMultiprocessor:
            return BLOCKS_PER_MULTIPROCESSOR;
    }
    return std::nullopt;
}

constexpr int VERSION = CUDART_VERSION;

/// The value that each limit was set to.
struct Limits {
    std::mutex mutex;
    std::size_t values[3] = {1024, 1 << 20, 8 << 20};  // CUDA's defaults
};

Limits limits;

}  // namespace
}  // namespace emulator

cudaError_t cudaGetDeviceCount(int* count) {
    *count = 1;
    return cudaSuccess;
}

cudaError_t cudaGetDevice(int* device) {
    *device = 0;
    return cudaSuccess;
}

cudaError_t cudaSetDevice(int device) {
    if (device == 0) return cudaSuccess;
    return emulator::report(
        cudaErrorInvalidDevice,
        "device " + std::to_string(device) + ": the emulator has only device 0"
    );
}

cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device) {
    if (cudaError_t error = cudaSetDevice(device)) return error;
    std::optional<int> known = emulator::attribute_value(attribute);
    if (!known) {
        return emulator::report(
            cudaErrorInvalidValue, "cudaDeviceGetAttribute: attribute " +
                                       std::to_string(int{attribute}) +
                                       " is not modelled by the emulator"
        );
    }
    *value = *known;
    return cudaSuccess;
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
    using namespace emulator;
    if (cudaError_t error = cudaSetDevice(device)) return error;
    cudaDeviceProp known{};
    std::strcpy(known.name, "NVIDIA H100 (emulated on the CPU)");
    known.totalGlobalMem = GLOBAL_BYTES;
    known.sharedMemPerBlock = SHARED_BYTES_WITHOUT_OPT_IN;
    known.regsPerBlock = REGISTERS_PER_MULTIPROCESSOR;
    known.warpSize = WARP_SIZE;
    known.memPitch = 0x7fffffff;
    known.maxThreadsPerBlock = MAX_THREADS;
    known.maxThreadsDim[0] = MAX_BLOCK_SIZE.x;
    known.maxThreadsDim[1] = MAX_BLOCK_SIZE.y;
    known.maxThreadsDim[2] = MAX_BLOCK_SIZE.z;
    known.maxGridSize[0] = MAX_GRID_SIZE.x;
    known.maxGridSize[1] = MAX_GRID_SIZE.y;
    known.maxGridSize[2] = MAX_GRID_SIZE.z;
    known.clockRate = CLOCK_KHZ;
    known.totalConstMem = 64 * 1024;
    known.major = 9;
    known.minor = 0;
    known.textureAlignment = PITCH_ALIGNMENT;
    known.deviceOverlap = 1;
    known.multiProcessorCount = MULTIPROCESSORS;
    known.canMapHostMemory = 1;
    known.concurrentKernels = 1;
    known.ECCEnabled = 1;
    known.asyncEngineCount = 3;
    known.unifiedAddressing = 1;
    known.memoryClockRate = MEMORY_CLOCK_KHZ;
    known.memoryBusWidth = MEMORY_BUS_BITS;
    known.l2CacheSize = L2_BYTES;
    known.maxThreadsPerMultiProcessor = THREADS_PER_MULTIPROCESSOR;
    known.streamPrioritiesSupported = 1;
    known.globalL1CacheSupported = 1;
    known.localL1CacheSupported = 1;
    known.sharedMemPerMultiprocessor = SHARED_BYTES_PER_MULTIPROCESSOR;
    known.regsPerMultiprocessor = REGISTERS_PER_MULTIPROCESSOR;
    known.managedMemory = 1;
    known.singleToDoublePrecisionPerfRatio = 2;
    known.concurrentManagedAccess = 1;
    known.computePreemptionSupported = 1;
    known.sharedMemPerBlockOptin = MAX_SHARED_BYTES;
    known.maxBlocksPerMultiProcessor = BLOCKS_PER_MULTIPROCESSOR;
    known.reservedSharedMemPerBlock = RESERVED_SHARED_BYTES;
    *properties = known;
    return cudaSuccess;
}

cudaError_t emulator::count_resident_blocks(
    int* blocks, int block_size, std::size_t dynamic_shared_bytes
) {
    constexpr std::size_t SHARED_UNIT = 128;
    if (block_size <= 0) {
        return report(
            cudaErrorInvalidValue, "occupancy: the block size is not positive"
        );
    }
    *blocks = 0;
    if (block_size > static_cast<int>(MAX_THREADS)) return cudaSuccess;
    if (dynamic_shared_bytes > MAX_SHARED_BYTES) return cudaSuccess;
    std::size_t shared_bytes =
        (dynamic_shared_bytes + SHARED_UNIT - 1) / SHARED_UNIT * SHARED_UNIT +
        RESERVED_SHARED_BYTES;
    unsigned warps = (static_cast<unsigned>(block_size) + WARP_SIZE - 1) / WARP_SIZE;
    std::size_t most = BLOCKS_PER_MULTIPROCESSOR;
    most =
        std::min<std::size_t>(most, THREADS_PER_MULTIPROCESSOR / (warps * WARP_SIZE));
    most = std::min(most, SHARED_BYTES_PER_MULTIPROCESSOR / shared_bytes);
    *blocks = static_cast<int>(most);
    return cudaSuccess;
}

cudaError_t cudaDeviceSynchronize() { return emulator::pending_fault(); }

cudaError_t cudaDeviceReset() {
    cudaGetLastError();
    return cudaSuccess;
}

cudaError_t cudaSetDeviceFlags(unsigned) { return cudaSuccess; }

cudaError_t cudaRuntimeGetVersion(int* version) {
    *version = emulator::VERSION;
    return cudaSuccess;
}

cudaError_t cudaDriverGetVersion(int* version) {
    *version = emulator::VERSION;
    return cudaSuccess;
}

cudaError_t cudaDeviceSetLimit(cudaLimit limit, std::size_t value) {
    std::lock_guard lock(emulator::limits.mutex);
    emulator::limits.values[limit] = value;
    return cudaSuccess;
}

cudaError_t cudaDeviceGetLimit(std::size_t* value, cudaLimit limit) {
    std::lock_guard lock(emulator::limits.mutex);
    *value = emulator::limits.values[limit];
    return cudaSuccess;
}

cudaError_t cudaDeviceSetCacheConfig(cudaFuncCache) { return cudaSuccess; }

cudaError_t cudaDeviceSetSharedMemConfig(cudaSharedMemConfig) { return cudaSuccess; }
