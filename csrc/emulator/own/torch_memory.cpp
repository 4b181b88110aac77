// Memory that torch allocates: each piece is known to the checker, and holds NaN.

#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>

#include <atomic>
#include <cstdlib>
#include <cwchar>
#include <new>

#include "records.h"

namespace own {
namespace {

std::atomic<bool> is_watching{false};

void release(void* address) {
    if (address == nullptr) return;
    note_release(address);
    std::free(address);
}

class WatchedAllocator final : public c10::Allocator {
  public:
    c10::DataPtr allocate(std::size_t bytes) override {
        constexpr std::size_t ALIGNMENT = 512;  // as on a GPU
        const c10::Device device(c10::DeviceType::CPU);
        if (bytes == 0) return {nullptr, nullptr, &release, device};
        const std::size_t rounded = (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
        void* const address = std::aligned_alloc(ALIGNMENT, rounded);
        if (address == nullptr) throw std::bad_alloc();
        if (is_watching) {
            fill(address, rounded);
            note_allocation(address, bytes);
        }
        return {address, address, &release, device};
    }

    c10::DeleterFnPtr raw_deleter() const override { return &release; }

    void copy_data(void* target, const void* source, std::size_t bytes) const override {
        default_copy_data(target, source, bytes);
    }

  private:
    // A NaN in every float format, which no arithmetic gives.
    static void fill(void* address, std::size_t bytes) {
        constexpr wchar_t PATTERN = 0x7FA57FA5;
        static_assert(sizeof(PATTERN) == 4);
        // Not a loop: this file is compiled as users' host code is, without optimization.
        std::wmemset(static_cast<wchar_t*>(address), PATTERN, bytes / sizeof(PATTERN));
    }
};

WatchedAllocator allocator;

}  // namespace
}  // namespace own

// Memory that is allocated from now on is the host function's; or no longer is.
extern "C" void own_watch_memory(int watch) {
    own::is_watching = watch != 0;
    if (c10::GetCPUAllocator() != &own::allocator) {
        c10::SetCPUAllocator(&own::allocator, /*priority=*/100);
    }
}
