// The memory that the host allocates: device, managed and host memory are all memory of
// the process.

#include "allocations.h"

#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>

#include "../observer.h"
#include "errors.h"
#include "h100.h"
#include "text.h"

namespace emulator {
namespace {

/// All memory from the functions of this file.
class Allocations {
  public:
    void add(const void* address, Allocation allocation) {
        std::lock_guard lock(mutex_);
        all_[reinterpret_cast<std::uintptr_t>(address)] = allocation;
        bytes_ += allocation.bytes;
    }

    /// Whether the address was the beginning of an allocation, for the host or not.
    bool remove(const void* address, bool of_host) {
        std::lock_guard lock(mutex_);
        auto found = all_.find(reinterpret_cast<std::uintptr_t>(address));
        if (found == all_.end()) return false;
        if ((found->second.type == cudaMemoryTypeHost) != of_host) return false;
        bytes_ -= found->second.bytes;
        all_.erase(found);
        return true;
    }

    std::optional<PlaceInMemory> find(const void* address) {
        std::lock_guard lock(mutex_);
        auto wanted = reinterpret_cast<std::uintptr_t>(address);
        auto behind = all_.upper_bound(wanted);
        if (behind == all_.begin()) return std::nullopt;
        const auto& [begin, allocation] = *--behind;
        std::size_t offset = wanted - begin;
        if (offset >= allocation.bytes) return std::nullopt;
        return PlaceInMemory{allocation, offset};
    }

    std::size_t bytes() {
        std::lock_guard lock(mutex_);
        return bytes_;
    }

  private:
    std::mutex mutex_;
    std::map<std::uintptr_t, Allocation> all_;
    std::size_t bytes_ = 0;
};

/// Never destroyed, because a program's own destructors may free memory.
Allocations& allocations() {
    static auto* all = new Allocations;
    return *all;
}

cudaError allocate(void** pointer, Allocation wanted) {
    constexpr std::size_t ALIGNMENT = 256;  // as on the GPU
    *pointer = nullptr;
    if (wanted.bytes == 0) return cudaSuccess;
    if (wanted.bytes <= GLOBAL_BYTES) {
        std::size_t rounded = (wanted.bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
        *pointer = std::aligned_alloc(ALIGNMENT, rounded);
        if (*pointer != nullptr) std::memset(*pointer, 0xFF, rounded);
    }
    if (*pointer == nullptr) {
        return report(
            cudaErrorMemoryAllocation,
            text("%s: out of memory: %zu bytes", wanted.function, wanted.bytes)
        );
    }
    allocations().add(*pointer, wanted);
    if (observer != nullptr) {
        observer->memory_allocated(wanted.function, *pointer, wanted.bytes);
    }
    return cudaSuccess;
}

cudaError release(const char* function, void* pointer, bool of_host) {
    if (pointer == nullptr) return cudaSuccess;
    if (!allocations().remove(pointer, of_host)) {
        return report(
            cudaErrorInvalidValue,
            text(
                "%s: %p is not the beginning of %s memory, or is free already",
                function, pointer, of_host ? "page-locked host" : "device"
            )
        );
    }
    if (observer != nullptr) observer->memory_freed(pointer);
    std::free(pointer);
    return cudaSuccess;
}

}  // namespace

std::optional<PlaceInMemory> find_allocation(const void* address) {
    return allocations().find(address);
}

}  // namespace emulator

cudaError_t cudaMalloc(void** pointer, std::size_t bytes) {
    return emulator::allocate(pointer, {"cudaMalloc", bytes, cudaMemoryTypeDevice});
}

cudaError_t cudaMallocAsync(void** pointer, std::size_t bytes, cudaStream_t) {
    return emulator::allocate(
        pointer, {"cudaMallocAsync", bytes, cudaMemoryTypeDevice}
    );
}

cudaError_t cudaMallocPitch(
    void** pointer, std::size_t* pitch, std::size_t width, std::size_t height
) {
    constexpr std::size_t UNIT = emulator::PITCH_ALIGNMENT;
    *pitch = (width + UNIT - 1) / UNIT * UNIT;
    return emulator::allocate(
        pointer, {"cudaMallocPitch", *pitch * height, cudaMemoryTypeDevice}
    );
}

cudaError_t cudaMallocManaged(void** pointer, std::size_t bytes, unsigned) {
    return emulator::allocate(
        pointer, {"cudaMallocManaged", bytes, cudaMemoryTypeManaged}
    );
}

cudaError_t cudaHostAlloc(void** pointer, std::size_t bytes, unsigned) {
    return emulator::allocate(pointer, {"cudaHostAlloc", bytes, cudaMemoryTypeHost});
}

cudaError_t cudaMallocHost(void** pointer, std::size_t bytes, unsigned) {
    return emulator::allocate(pointer, {"cudaMallocHost", bytes, cudaMemoryTypeHost});
}

cudaError_t cudaFree(void* pointer) {
    return emulator::release("cudaFree", pointer, false);
}

cudaError_t cudaFreeAsync(void* pointer, cudaStream_t) {
    return emulator::release("cudaFreeAsync", pointer, false);
}

cudaError_t cudaFreeHost(void* pointer) {
    return emulator::release("cudaFreeHost", pointer, true);
}

cudaError_t cudaHostGetDevicePointer(void** device, void* host, unsigned) {
    *device = host;
    return cudaSuccess;
}

cudaError_t cudaMemGetInfo(std::size_t* free, std::size_t* total) {
    *total = emulator::GLOBAL_BYTES;
    std::size_t used = emulator::allocations().bytes();
    *free = used < *total ? *total - used : 0;
    return cudaSuccess;
}

cudaError_t cudaPointerGetAttributes(
    cudaPointerAttributes* attributes, const void* pointer
) {
    auto place = emulator::find_allocation(pointer);
    void* address = const_cast<void*>(pointer);
    attributes->type = place ? place->allocation.type : cudaMemoryTypeDevice;
    attributes->device = 0;
    attributes->devicePointer = address;
    attributes->hostPointer =
        attributes->type == cudaMemoryTypeDevice ? nullptr : address;
    return cudaSuccess;
}
