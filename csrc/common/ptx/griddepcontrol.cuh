// Inline PTX: a launch that begins while the one before it in the stream ends (programmatic
// dependent launch, from Hopper on), so that nobody waits for its blocks to be started.
#pragma once

#include "common/ptx/memory.cuh"

#ifndef TWIN_EMULATOR

namespace ptx {

// Lets the next launch begin, if it is a dependent one, once all blocks have come here or
// ended. It gets what room they leave.
__device__ __forceinline__ void griddepcontrol_launch_dependents() {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

// Waits until the launch before has ended, and what it wrote is there. Any other launch than
// a dependent one has waited already.
__device__ __forceinline__ void griddepcontrol_wait() {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

}  // namespace ptx

#endif  // TWIN_EMULATOR
