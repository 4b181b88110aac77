// Text of messages: printf to a string, and the notation of kernels, places and sizes.
#pragma once

#include <string>

#include "../runtime.h"

// All headers of this folder hide their symbols from other libraries: calls are then
// direct, and several libraries with an emulator in one process do not mix.
namespace [[gnu::visibility("hidden")]] emulator {

std::string text(const char* format, ...) __attribute__((format(printf, 1, 2)));

/// "(3, 0, 0)"
std::string index_text(uint3 index);

/// "softmax.cu:31"
std::string site_text(Site site);

/// "softmax_kernel<float, 4>": the demangled symbol without return type and parameters.
std::string kernel_name(const void* kernel);

}  // namespace emulator
