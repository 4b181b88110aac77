// The checks of a launch before any thread runs: sizes beyond the device, and
// attributes that would change what the kernel means, are refused.

#include <mutex>
#include <string>
#include <unordered_map>

#include "../host/launch.h"
#include "errors.h"
#include "h100.h"
#include "launch.h"
#include "text.h"

namespace emulator {
namespace {

/// The limit of each kernel on dynamic shared memory: 48 KiB unless it opts in to more.
class SharedMemoryLimits {
  public:
    void set(const void* kernel, std::size_t bytes) {
        std::lock_guard lock(mutex_);
        limits_[kernel] = bytes;
    }
    std::size_t get(const void* kernel) {
        std::lock_guard lock(mutex_);
        auto limit = limits_.find(kernel);
        return limit == limits_.end() ? SHARED_BYTES_WITHOUT_OPT_IN : limit->second;
    }

  private:
    std::mutex mutex_;
    std::unordered_map<const void*, std::size_t> limits_;
};

SharedMemoryLimits shared_memory_limits;

bool exceeds(dim3 size, dim3 limit) {
    return size.x == 0 || size.y == 0 || size.z == 0 || size.x > limit.x ||
           size.y > limit.y || size.z > limit.z;
}

}  // namespace

cudaError check_size(const LaunchRequest& request) {
    dim3 grid = request.grid_size;
    dim3 block = request.block_size;
    if (exceeds(grid, MAX_GRID_SIZE)) {
        return report(
            request.kernel, cudaErrorInvalidConfiguration,
            text(
                "impossible launch: grid %s; each size must be from 1 to %s",
                index_text(grid).c_str(), index_text(MAX_GRID_SIZE).c_str()
            )
        );
    }
    if (exceeds(block, MAX_BLOCK_SIZE) ||
        std::uint64_t{block.x} * block.y * block.z > MAX_THREADS) {
        return report(
            request.kernel, cudaErrorInvalidConfiguration,
            text(
                "impossible launch: block size %s; each must be from 1 to %s and their "
                "product at most %u",
                index_text(block).c_str(), index_text(MAX_BLOCK_SIZE).c_str(),
                MAX_THREADS
            )
        );
    }
    dim3 cluster = request.cluster_size;
    constexpr dim3 LARGEST_CLUSTER{
        MAX_CLUSTER_SIZE, MAX_CLUSTER_SIZE, MAX_CLUSTER_SIZE
    };
    if (exceeds(cluster, LARGEST_CLUSTER) ||
        cluster.x * cluster.y * cluster.z > MAX_CLUSTER_SIZE ||
        grid.x % cluster.x != 0 || grid.y % cluster.y != 0 || grid.z % cluster.z != 0) {
        return report(
            request.kernel, cudaErrorInvalidClusterSize,
            text(
                "impossible launch: clusters of %s blocks in a grid of %s; a cluster "
                "has at most %u blocks, and each of its sizes must divide the grid's",
                index_text(cluster).c_str(), index_text(grid).c_str(), MAX_CLUSTER_SIZE
            )
        );
    }
    std::size_t limit = shared_memory_limits.get(request.kernel);
    if (request.shared_bytes > limit) {
        return report(
            request.kernel, cudaErrorInvalidValue,
            text(
                "impossible launch: %zu bytes of dynamic shared memory; the limit of "
                "this kernel is %zu (cudaFuncSetAttribute raises it to at most %zu)",
                request.shared_bytes, limit, MAX_SHARED_BYTES
            )
        );
    }
    return cudaSuccess;
}

cudaError check_attributes(const void* kernel, const cudaLaunchConfig_t& config) {
    for (unsigned i = 0; i < config.numAttrs; ++i) {
        const cudaLaunchAttribute& attribute = config.attrs[i];
        const char* unsupported = nullptr;
        if (attribute.id == cudaLaunchAttributeCooperative) {
            if (attribute.val.cooperative) unsupported = "cooperative launches";
        } else if (
            // Programmatic serialisation permits overlap with the previous kernel but
            // does not require it.
            attribute.id != cudaLaunchAttributeIgnore &&
            attribute.id != cudaLaunchAttributeClusterDimension &&
            attribute.id != cudaLaunchAttributeProgrammaticStreamSerialization
        ) {
            unsupported = "this launch attribute";
        }
        if (unsupported == nullptr) continue;
        return report(
            kernel, cudaErrorNotSupported,
            text("the emulator does not model %s", unsupported)
        );
    }
    return cudaSuccess;
}

dim3 cluster_size(const cudaLaunchConfig_t& config) {
    dim3 result;
    for (unsigned i = 0; i < config.numAttrs; ++i) {
        const cudaLaunchAttribute& attribute = config.attrs[i];
        if (attribute.id == cudaLaunchAttributeClusterDimension) {
            result = attribute.val.clusterDim;
        }
    }
    return result;
}

}  // namespace emulator

cudaError_t cudaFuncSetAttribute(
    const void* kernel, cudaFuncAttribute attribute, int value
) {
    using namespace emulator;
    if (attribute == cudaFuncAttributePreferredSharedMemoryCarveout) return cudaSuccess;
    if (attribute != cudaFuncAttributeMaxDynamicSharedMemorySize) {
        return report(
            cudaErrorInvalidValue,
            text(
                "cudaFuncSetAttribute: attribute %d is not modelled by the emulator",
                int{attribute}
            )
        );
    }
    if (value < 0 || static_cast<std::size_t>(value) > MAX_SHARED_BYTES) {
        return report(
            kernel, cudaErrorInvalidValue,
            text(
                "cudaFuncSetAttribute: %d bytes of dynamic shared memory; a block can "
                "have at most %zu",
                value, MAX_SHARED_BYTES
            )
        );
    }
    shared_memory_limits.set(kernel, static_cast<std::size_t>(value));
    return cudaSuccess;
}

cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, const void* kernel) {
    using namespace emulator;
    *attributes = {};
    attributes->maxThreadsPerBlock = MAX_THREADS;
    attributes->ptxVersion = 90;
    attributes->binaryVersion = 90;
    attributes->maxDynamicSharedSizeBytes =
        static_cast<int>(shared_memory_limits.get(kernel));
    attributes->preferredShmemCarveout = cudaSharedmemCarveoutDefault;
    return cudaSuccess;
}

cudaError_t cudaFuncSetCacheConfig(const void*, cudaFuncCache) { return cudaSuccess; }
