// Where an access stands in the source.
#pragma once

#include <cstdint>
#include <string>

#include "../runtime.h"

namespace emulator {
namespace [[gnu::visibility("hidden")]] checking {

/// An offset in the module's code, or the number of a Site: small, because there are
/// several for every few bytes of memory. Resolved when it is reported.
using Location = std::uint32_t;

/// Where a call returns to.
Location location_of(const void* return_address);
Location location_of(Site site);

/// "softmax.cu:14", as Module::source_line.
std::string source_line(Location location);

}  // namespace checking
}  // namespace emulator
