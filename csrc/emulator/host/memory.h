// Memory: allocation, copies, and what is known about a pointer. Device, managed and
// host memory are all memory of the process.
//
// A copy or fill that leaves an allocation of these functions is refused with
// cudaErrorInvalidValue.
#pragma once

#include <cstddef>

#include "errors.h"
#include "streams.h"

enum cudaMemcpyKind : int {
    cudaMemcpyHostToHost = 0,
    cudaMemcpyHostToDevice = 1,
    cudaMemcpyDeviceToHost = 2,
    cudaMemcpyDeviceToDevice = 3,
    cudaMemcpyDefault = 4,
};

// ---- Allocation ---------------------------------------------------------------------

/// All fill the memory with the byte 0xFF: floats of every width then read as NaN,
/// which exposes a kernel that relies on unwritten memory.
cudaError_t cudaMalloc(void** pointer, std::size_t bytes);
cudaError_t cudaMallocAsync(void** pointer, std::size_t bytes, cudaStream_t stream);
/// Rows begin `*pitch` bytes apart, a multiple of 512.
cudaError_t cudaMallocPitch(
    void** pointer, std::size_t* pitch, std::size_t width, std::size_t height
);
cudaError_t cudaFree(void* pointer);
cudaError_t cudaFreeAsync(void* pointer, cudaStream_t stream);

constexpr unsigned cudaMemAttachGlobal = 1;
constexpr unsigned cudaMemAttachHost = 2;
cudaError_t cudaMallocManaged(
    void** pointer, std::size_t bytes, unsigned flags = cudaMemAttachGlobal
);

constexpr unsigned cudaHostAllocDefault = 0;
constexpr unsigned cudaHostAllocPortable = 1;
constexpr unsigned cudaHostAllocMapped = 2;
constexpr unsigned cudaHostAllocWriteCombined = 4;
cudaError_t cudaHostAlloc(void** pointer, std::size_t bytes, unsigned flags);
cudaError_t cudaMallocHost(void** pointer, std::size_t bytes, unsigned flags = 0);
cudaError_t cudaFreeHost(void* pointer);
cudaError_t cudaHostGetDevicePointer(void** device, void* host, unsigned flags);

/// Of 80 GiB, less what is allocated.
cudaError_t cudaMemGetInfo(std::size_t* free, std::size_t* total);

template <typename T>
cudaError_t cudaMalloc(T** pointer, std::size_t bytes) {
    return cudaMalloc(reinterpret_cast<void**>(pointer), bytes);
}
template <typename T>
cudaError_t cudaMallocAsync(T** pointer, std::size_t bytes, cudaStream_t stream) {
    return cudaMallocAsync(reinterpret_cast<void**>(pointer), bytes, stream);
}
template <typename T>
cudaError_t cudaMallocPitch(
    T** pointer, std::size_t* pitch, std::size_t width, std::size_t height
) {
    return cudaMallocPitch(reinterpret_cast<void**>(pointer), pitch, width, height);
}
template <typename T>
cudaError_t cudaMallocManaged(
    T** pointer, std::size_t bytes, unsigned flags = cudaMemAttachGlobal
) {
    return cudaMallocManaged(reinterpret_cast<void**>(pointer), bytes, flags);
}
template <typename T>
cudaError_t cudaHostAlloc(T** pointer, std::size_t bytes, unsigned flags) {
    return cudaHostAlloc(reinterpret_cast<void**>(pointer), bytes, flags);
}
template <typename T>
cudaError_t cudaMallocHost(T** pointer, std::size_t bytes, unsigned flags = 0) {
    return cudaMallocHost(reinterpret_cast<void**>(pointer), bytes, flags);
}
template <typename T>
cudaError_t cudaHostGetDevicePointer(T** device, void* host, unsigned flags) {
    return cudaHostGetDevicePointer(reinterpret_cast<void**>(device), host, flags);
}

// ---- Copies and fills ---------------------------------------------------------------

cudaError_t cudaMemcpy(
    void* target, const void* source, std::size_t bytes, cudaMemcpyKind kind
);
cudaError_t cudaMemcpyAsync(
    void* target, const void* source, std::size_t bytes, cudaMemcpyKind kind,
    cudaStream_t stream = nullptr
);
cudaError_t cudaMemset(void* pointer, int value, std::size_t bytes);
cudaError_t cudaMemsetAsync(
    void* pointer, int value, std::size_t bytes, cudaStream_t stream = nullptr
);

/// Rows of `width` bytes, which begin a pitch apart.
cudaError_t cudaMemcpy2D(
    void* target, std::size_t target_pitch, const void* source,
    std::size_t source_pitch, std::size_t width, std::size_t height, cudaMemcpyKind kind
);
cudaError_t cudaMemcpy2DAsync(
    void* target, std::size_t target_pitch, const void* source,
    std::size_t source_pitch, std::size_t width, std::size_t height,
    cudaMemcpyKind kind, cudaStream_t stream = nullptr
);
cudaError_t cudaMemset2D(
    void* pointer, std::size_t pitch, int value, std::size_t width, std::size_t height
);
cudaError_t cudaMemset2DAsync(
    void* pointer, std::size_t pitch, int value, std::size_t width, std::size_t height,
    cudaStream_t stream = nullptr
);

// ---- Hints for managed memory, without effect ---------------------------------------

constexpr int cudaCpuDeviceId = -1;

enum cudaMemoryAdvise : int {
    cudaMemAdviseSetReadMostly = 1,
    cudaMemAdviseUnsetReadMostly = 2,
    cudaMemAdviseSetPreferredLocation = 3,
    cudaMemAdviseUnsetPreferredLocation = 4,
    cudaMemAdviseSetAccessedBy = 5,
    cudaMemAdviseUnsetAccessedBy = 6,
};

cudaError_t cudaMemPrefetchAsync(
    const void* pointer, std::size_t bytes, int device, cudaStream_t stream = nullptr
);
cudaError_t cudaMemAdvise(
    const void* pointer, std::size_t bytes, cudaMemoryAdvise advice, int device
);

// ---- Pointers -----------------------------------------------------------------------

enum cudaMemoryType : int {
    cudaMemoryTypeUnregistered = 0,
    cudaMemoryTypeHost = 1,
    cudaMemoryTypeDevice = 2,
    cudaMemoryTypeManaged = 3,
};

struct cudaPointerAttributes {
    cudaMemoryType type;
    int device;
    void* devicePointer;
    void* hostPointer;
};

/// Memory that none of the functions above has allocated counts as device memory: a
/// program's tensors lie there.
cudaError_t cudaPointerGetAttributes(
    cudaPointerAttributes* attributes, const void* pointer
);
