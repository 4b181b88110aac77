// Inline PTX: sums in global memory to which many threads add, since Hopper in vectors, and
// counts by which they do so in an order.
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

// Reads a count, and from then on sees what came before the additions to it.
__device__ __forceinline__ int load_acquire(const int* count) {
    int value;
    asm volatile("ld.acquire.gpu.global.s32 %0, [%1];"
                 : "=r"(value)
                 : "l"(count)
                 : "memory");
    return value;
}

// Adds to a count, behind all that the thread has written, and all that others had written when
// it waited for them.
__device__ __forceinline__ void add_release(int* count, int value) {
    asm volatile("red.release.gpu.global.add.s32 [%0], %1;" ::"l"(count), "r"(value)
                 : "memory");
}

}  // namespace ptx

#endif  // TWIN_EMULATOR
