// The words CUDA adds to C++: qualifiers and the built-in variables.
#pragma once

#include "../runtime.h"

#define TWIN_EMULATOR 1

#define __host__
#define __device__
#define __constant__
#define __managed__
#define __grid_constant__
#define __launch_bounds__(...)
// Under the checker (checker/) a call would hide the kernel's line. Elsewhere the hundreds
// of instances of a kernel share what they call, which saves half the time to compile them.
#ifdef __SANITIZE_THREAD__
#define __forceinline__ __inline__ __attribute__((always_inline))
#else
#define __forceinline__ __inline__
#endif
#define __align__(n) __attribute__((aligned(n)))

// Visible even under -fvisibility=hidden: the runtime asks the dynamic linker for the
// kernel's name when it reports a fault.
#define __global__ __attribute__((visibility("default")))

// A block runs on one thread of the operating system, so a thread_local variable is
// exactly one copy per running block. At block scope thread_local implies static.
#define __shared__ thread_local

// __noinline__ is missing on purpose: libstdc++ uses that word in its own attributes.

#define threadIdx (::emulator::this_thread().thread_index)
#define blockIdx (::emulator::this_thread().block_index)

// No macros: these are names of members of cudaLaunchConfig_t, and of local variables
// in many launchers. Equal in all blocks of a launch, they can be thread_local.
extern constinit thread_local dim3 blockDim;
extern constinit thread_local dim3 gridDim;

constexpr int warpSize = 32;
