// The calling thread's last error, which CUDA's error functions return.
#pragma once

#include <string>

#include "../host/api.h"

namespace [[gnu::visibility("hidden")]] emulator {

/// Notes an error as the calling thread's last one and returns it.
cudaError report(cudaError error, std::string message);

/// As above, with the kernel's name in front of the message.
cudaError report(const void* kernel, cudaError error, const std::string& message);

/// Sets the text that cudaGetErrorString returns for this error, without noting the
/// error: for the driver's functions, which have error codes of their own.
void describe_error(cudaError error, std::string message);

/// The calling thread's last error if it is a fault of a kernel, which a GPU reports at
/// every call until the end of the process; here, until cudaGetLastError clears it.
cudaError pending_fault();

}  // namespace emulator
