// The checker: decides whether a kernel may make an access, and whether the access
// races with an earlier one.
#pragma once

#include <cstddef>
#include <string>

#include "../observer.h"

namespace emulator {
namespace [[gnu::visibility("hidden")]] checking {

/// Called by the compiler's call-outs (callouts.cpp) in the middle of a kernel.
void check_access(
    const void* address, std::size_t bytes, Access kind, const void* code_address
);

/// Checks a volatile access. In global memory it may communicate with another block, so
/// it does not count as a race.
void check_volatile_access(
    const void* address, std::size_t bytes, Access kind, const void* code_address
);

/// A fence was executed: blocks of the launch may communicate.
void note_memory_fence();

void report_bad_index(
    const std::string& index, const char* array_type, const void* code_address
);

void report_misalignment(
    const void* address, std::size_t alignment, const char* type, const char* action,
    const void* code_address
);

}  // namespace checking
}  // namespace emulator
