// The source line of an access.
#pragma once

#include <cstdint>
#include <string>

#include "../runtime.h"

namespace emulator {
namespace [[gnu::visibility("hidden")]] checking {

/// An offset in the module's code, or the number of a Site. It has 4 bytes, because the
/// shadow memory holds several for every granule, and is resolved when it is reported.
using Location = std::uint32_t;

Location location_of(const void* return_address);
Location location_of(Site site);

/// "softmax.cu:14": see Module::source_line.
std::string source_line(Location location);

}  // namespace checking
}  // namespace emulator
