// Stands in for torch's header of this name: memory of tensors is memory of the process.
#pragma once

#include <c10/core/Allocator.h>
#include <c10/cuda/CUDAStream.h>

namespace c10::cuda::CUDACachingAllocator {

inline Allocator* get() { return GetAllocator(DeviceType::CPU); }
inline void* raw_alloc(std::size_t bytes) { return get()->raw_allocate(bytes); }
inline void raw_delete(void* pointer) { get()->raw_deallocate(pointer); }
inline void emptyCache() {}
inline void recordStream(const DataPtr&, CUDAStream) {}

}  // namespace c10::cuda::CUDACachingAllocator
