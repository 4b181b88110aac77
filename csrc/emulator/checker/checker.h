// The checker: decides of every access of a kernel whether it is one that the kernel may
// make, and whether it races with an earlier one.
#pragma once

#include <cstddef>
#include <string>

#include "../observer.h"

namespace emulator {
namespace [[gnu::visibility("hidden")]] checking {

/// What the compiler's call-outs (callouts.cpp) call in the middle of a kernel.
void check_access(
    const void* address, std::size_t bytes, Access kind, const void* code_address
);

/// The same for a volatile access: in global memory it may be meant for other blocks,
/// which is no race.
void check_volatile_access(
    const void* address, std::size_t bytes, Access kind, const void* code_address
);

/// The kernel has made its writes visible to other blocks.
void note_memory_fence();

/// An index that lies outside of an array.
void report_bad_index(
    const std::string& index, const char* array_type, const void* code_address
);

/// An address that is no multiple of what the type needs.
void report_misalignment(
    const void* address, std::size_t alignment, const char* type, const char* action,
    const void* code_address
);

}  // namespace checking
}  // namespace emulator
