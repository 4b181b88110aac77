// CUDA's qualifiers and built-in variables.
#pragma once

#include "../runtime.h"

#define TWIN_EMULATOR 1

#define __host__
#define __device__
#define __constant__
#define __managed__
#define __grid_constant__
#define __launch_bounds__(...)
#define __maxnreg__(...)
// Inlined under the checker (checker/), where a call would hide the kernel's line.
// Elsewhere the hundreds of instances of a kernel share the functions, which halves
// compile time.
#ifdef __SANITIZE_THREAD__
#define __forceinline__ __inline__ __attribute__((always_inline))
#else
#define __forceinline__ __inline__
#endif
#ifndef __clang__
#define __builtin_assume(condition) ((void)0)
#endif
#define __align__(n) __attribute__((aligned(n)))

// Visible even under -fvisibility=hidden: error messages get the kernel's name from the
// dynamic linker.
#define __global__ __attribute__((visibility("default")))

// A thread_local variable exists once per running block, because a block runs on one
// thread of the operating system. At block scope thread_local implies static.
#define __shared__ thread_local

// __noinline__ is missing on purpose: libstdc++ uses that word in its own attributes.

#define threadIdx (::emulator::this_thread().thread_index)
#define blockIdx (::emulator::this_thread().block_index)

// Not macros, because members of cudaLaunchConfig_t and local variables of many
// launchers have these names. They can be thread_local, because all blocks of a launch
// share them.
extern constinit thread_local dim3 blockDim;
extern constinit thread_local dim3 gridDim;

constexpr int warpSize = 32;
