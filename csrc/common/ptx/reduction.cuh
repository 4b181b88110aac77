// Inline PTX: sums in global memory to which many threads add, since Hopper in vectors.
#pragma once

#include "common/ptx/memory.cuh"

#ifndef TWIN_EMULATOR

namespace ptx {

// Adds to four floats, to each for itself, in any order with what others add. The thread does
// not wait for that.
__device__ __forceinline__ void add_in_memory(float4* sums, float4 values) {
    asm volatile(
        "red.relaxed.gpu.global.add.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(sums),
        "f"(values.x), "f"(values.y), "f"(values.z), "f"(values.w)
        : "memory"
    );
}

}  // namespace ptx

#endif  // TWIN_EMULATOR
