// Words for reports: formatted text, and how kernels, places and sizes are written.
#pragma once

#include <string>

#include "../runtime.h"

// Here and in the other headers of this folder: hidden from other libraries, so that
// calls are direct and several libraries with an emulator do not mix in one process.
namespace [[gnu::visibility("hidden")]] emulator {

std::string text(const char* format, ...) __attribute__((format(printf, 1, 2)));

/// "(3, 0, 0)"
std::string index_text(uint3 index);

/// "softmax.cu:31"
std::string site_text(Site site);

/// "softmax_kernel<float, 4>": the demangled symbol without return type and parameters.
std::string kernel_name(const void* kernel);

}  // namespace emulator
