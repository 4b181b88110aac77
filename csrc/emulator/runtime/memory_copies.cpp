// Copies and fills of memory by the host.

#include <cstring>

#include "../host/memory.h"
#include "../host/symbols.h"
#include "../observer.h"
#include "allocations.h"
#include "errors.h"
#include "text.h"

namespace emulator {
namespace {

/// Refuses bytes that begin in an allocation and end behind it.
cudaError check_extent(const char* function, const void* address, std::size_t bytes) {
    if (bytes == 0) return cudaSuccess;
    if (address == nullptr) {
        return report(cudaErrorInvalidValue, text("%s: a null pointer", function));
    }
    auto place = find_allocation(address);
    if (!place) return cudaSuccess;
    const auto& [allocation, offset] = *place;
    if (bytes <= allocation.bytes - offset) return cudaSuccess;
    return report(
        cudaErrorInvalidValue,
        text(
            "%s: %zu bytes from byte %zu on of memory from %s that has %zu bytes",
            function, bytes, offset, allocation.function, allocation.bytes
        )
    );
}

void note_host_write(const void* address, std::size_t bytes) {
    if (observer != nullptr) observer->host_has_written(address, bytes);
}

std::size_t extent_of_rows(std::size_t pitch, std::size_t width, std::size_t height) {
    return width == 0 || height == 0 ? 0 : (height - 1) * pitch + width;
}

cudaError check_pitch(const char* function, std::size_t pitch, std::size_t width) {
    if (width <= pitch) return cudaSuccess;
    return report(
        cudaErrorInvalidPitchValue,
        text("%s: rows of %zu bytes at a pitch of %zu bytes", function, width, pitch)
    );
}

}  // namespace
}  // namespace emulator

cudaError_t cudaMemcpy(
    void* target, const void* source, std::size_t bytes, cudaMemcpyKind
) {
    using namespace emulator;
    if (cudaError error = check_extent("cudaMemcpy", target, bytes)) return error;
    if (cudaError error = check_extent("cudaMemcpy", source, bytes)) return error;
    if (bytes != 0) std::memmove(target, source, bytes);
    note_host_write(target, bytes);
    return pending_fault();
}

cudaError_t cudaMemcpyAsync(
    void* target, const void* source, std::size_t bytes, cudaMemcpyKind kind,
    cudaStream_t
) {
    return cudaMemcpy(target, source, bytes, kind);
}

cudaError_t cudaMemset(void* pointer, int value, std::size_t bytes) {
    using namespace emulator;
    if (cudaError error = check_extent("cudaMemset", pointer, bytes)) return error;
    if (bytes != 0) std::memset(pointer, value, bytes);
    note_host_write(pointer, bytes);
    return cudaSuccess;
}

cudaError_t cudaMemsetAsync(void* pointer, int value, std::size_t bytes, cudaStream_t) {
    return cudaMemset(pointer, value, bytes);
}

cudaError_t cudaMemcpy2D(
    void* target, std::size_t target_pitch, const void* source,
    std::size_t source_pitch, std::size_t width, std::size_t height, cudaMemcpyKind
) {
    using namespace emulator;
    constexpr const char* NAME = "cudaMemcpy2D";
    if (cudaError error = check_pitch(NAME, target_pitch, width)) return error;
    if (cudaError error = check_pitch(NAME, source_pitch, width)) return error;
    std::size_t target_bytes = extent_of_rows(target_pitch, width, height);
    std::size_t source_bytes = extent_of_rows(source_pitch, width, height);
    if (cudaError error = check_extent(NAME, target, target_bytes)) return error;
    if (cudaError error = check_extent(NAME, source, source_bytes)) return error;
    for (std::size_t row = 0; target_bytes != 0 && row < height; ++row) {
        char* target_row = static_cast<char*>(target) + row * target_pitch;
        const char* source_row = static_cast<const char*>(source) + row * source_pitch;
        std::memmove(target_row, source_row, width);
        note_host_write(target_row, width);
    }
    return pending_fault();
}

cudaError_t cudaMemcpy2DAsync(
    void* target, std::size_t target_pitch, const void* source,
    std::size_t source_pitch, std::size_t width, std::size_t height,
    cudaMemcpyKind kind, cudaStream_t
) {
    return cudaMemcpy2D(
        target, target_pitch, source, source_pitch, width, height, kind
    );
}

cudaError_t cudaMemset2D(
    void* pointer, std::size_t pitch, int value, std::size_t width, std::size_t height
) {
    using namespace emulator;
    if (cudaError error = check_pitch("cudaMemset2D", pitch, width)) return error;
    std::size_t bytes = extent_of_rows(pitch, width, height);
    if (cudaError error = check_extent("cudaMemset2D", pointer, bytes)) return error;
    for (std::size_t row = 0; bytes != 0 && row < height; ++row) {
        char* begin = static_cast<char*>(pointer) + row * pitch;
        std::memset(begin, value, width);
        note_host_write(begin, width);
    }
    return cudaSuccess;
}

cudaError_t cudaMemset2DAsync(
    void* pointer, std::size_t pitch, int value, std::size_t width, std::size_t height,
    cudaStream_t
) {
    return cudaMemset2D(pointer, pitch, value, width, height);
}

cudaError_t emulator::copy_symbol(
    void* target, const void* source, std::size_t bytes, std::size_t offset,
    std::size_t size
) {
    if (offset > size || bytes > size - offset) {
        return report(
            cudaErrorInvalidValue,
            text(
                "copy of a symbol: %zu bytes from byte %zu on of a variable that has "
                "%zu bytes",
                bytes, offset, size
            )
        );
    }
    return cudaMemcpy(target, source, bytes, cudaMemcpyDefault);
}

// ---- Hints -------------------------------------------------------------------------

cudaError_t cudaMemPrefetchAsync(const void*, std::size_t, int, cudaStream_t) {
    return cudaSuccess;
}

cudaError_t cudaMemAdvise(const void*, std::size_t, cudaMemoryAdvise, int) {
    return cudaSuccess;
}
