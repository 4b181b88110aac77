// Kernels with one fault each, in the line marked by the name of its test.
#undef NDEBUG
#include <cassert>

#include <cooperative_groups.h>
#include <cuda_pipeline.h>

#include "common/ptx/async_copy.cuh"
#include "common/ptx/mma.cuh"
#include "launch.h"

// ---- Barriers -----------------------------------------------------------------------

__global__ void two_barriers_kernel() {
    if (threadIdx.x % 2 == 0) {
        __syncthreads();  // two_barriers
    } else {
        __syncthreads();  // two_barriers
    }
}
EXPORT int two_barriers() { return launch(two_barriers_kernel, 1, 64, 0); }

template <typename T, int N>
__global__ void deadlock_kernel(T* out) {
    if (threadIdx.x < 16) {
        *out = __shfl_xor_sync(0xffffffff, T{N}, 1);  // deadlock
    } else {
        __syncthreads();  // deadlock
    }
}
EXPORT int deadlock(float* out) {
    return launch(deadlock_kernel<float, 3>, 1, 64, 0, out);
}

// ---- Warp operations ----------------------------------------------------------------

__global__ void mask_without_caller_kernel(int* out) {
    *out = __shfl_sync(0x0000ffff, *out, 0);  // mask_without_caller
}
EXPORT int mask_without_caller(int* out) {
    return launch(mask_without_caller_kernel, 1, 32, 0, out);
}

__global__ void mask_names_returned_kernel(int* out) {
    if (threadIdx.x >= 20) return;
    *out = __reduce_add_sync(0xffffffff, 1);  // mask_names_returned
}
EXPORT int mask_names_returned(int* out) {
    return launch(mask_names_returned_kernel, 1, 32, 0, out);
}

__global__ void different_operations_kernel(int* out) {
    if (threadIdx.x < 16) {
        *out = __any_sync(0xffffffff, 1);  // different_operations
    } else {
        *out = __all_sync(0xffffffff, 1);  // different_operations
    }
}
EXPORT int different_operations(int* out) {
    return launch(different_operations_kernel, 1, 32, 0, out);
}

__global__ void different_masks_kernel() {
    unsigned mask = threadIdx.x == 3 ? 0xffffffff : 0x7fffffff;
    if (threadIdx.x < 31) {
        __syncwarp(mask);  // different_masks
    } else {
        __syncthreads();
    }
}
EXPORT int different_masks() { return launch(different_masks_kernel, 1, 32, 0); }

__global__ void wrong_width_kernel(int* out) {
    *out = __shfl_down_sync(0xffffffff, *out, 1, 24);  // wrong_width
}
EXPORT int wrong_width(int* out) { return launch(wrong_width_kernel, 1, 32, 0, out); }

// ---- Endless waits ------------------------------------------------------------------

__global__ void endless_atomic_kernel(int* flag) {
    while (atomicAdd(flag, 0) == 0) {  // endless_atomic
    }
}
EXPORT int endless_atomic(int* flag) {
    return launch(endless_atomic_kernel, 4, 32, 0, flag);
}

__global__ void endless_sleep_kernel(volatile int* flag) {
    while (*flag == 0) __nanosleep(100);  // endless_sleep
}
EXPORT int endless_sleep(int* flag) {
    return launch(endless_sleep_kernel, 4, 32, 0, flag);
}

__global__ void endless_barrier_kernel(volatile int* flag) {
    while (!__syncthreads_or(*flag)) {  // endless_barrier
    }
}
EXPORT int endless_barrier(int* flag) {
    return launch(endless_barrier_kernel, 1, 32, 0, flag);
}

__global__ void endless_loop_kernel(volatile int* flag) {
    while (*flag == 0) {
    }
}
EXPORT int endless_loop(int* flag) {
    return launch(endless_loop_kernel, 2, 4, 0, flag);
}

// ---- Traps and assertions -----------------------------------------------------------

__global__ void trap_kernel() {
    if (threadIdx.y == 2) __trap();  // trap
}
EXPORT int trap() { return launch(trap_kernel, 1, dim3(8, 4), 0); }

// The other blocks wait for the one that fails; its failure must end their wait.
__global__ void trap_awaited_kernel(int* flag) {
    if (blockIdx.x == 3) __trap();  // trap_awaited
    while (atomicAdd(flag, 0) == 0) {
    }
}
EXPORT int trap_awaited(int* flag) {
    return launch(trap_awaited_kernel, 4, 1, 0, flag);
}

__global__ void failed_assertion_kernel(int n) {
    assert(n > 3 && "too small");  // failed_assertion
}
EXPORT int failed_assertion() { return launch(failed_assertion_kernel, 1, 1, 0, 3); }

// As macros of libraries do.
__global__ void failed_assertion_by_name_kernel(int n) {
    if (n > 3) return;
    __assert_fail("n > 3", __FILE__, __LINE__, __func__);  // failed_assertion_by_name
}
EXPORT int failed_assertion_by_name() {
    return launch(failed_assertion_by_name_kernel, 1, 1, 0, 3);
}

__global__ void misaligned_kernel(float4* out, const float* x) {
    *out = __ldcs(reinterpret_cast<const float4*>(x + 1));  // misaligned
}
EXPORT int misaligned() {
    alignas(16) float x[8] = {};
    float4 out;
    return launch(misaligned_kernel, 1, 1, 0, &out, x);
}

// ---- Asynchronous copies ------------------------------------------------------------

__global__ void misaligned_copy_kernel(const int* x) {
    __shared__ __align__(16) int slots[8];
    ptx::cp_async<16>(slots, x + threadIdx.x);  // misaligned_copy
}
EXPORT int misaligned_copy() {
    alignas(16) const int x[8] = {};
    return launch(misaligned_copy_kernel, 1, 2, 0, x);
}

__global__ void copy_size_kernel(const int* x) {
    __shared__ __align__(16) int slots[8];
    __pipeline_memcpy_async(slots, x, 12);  // copy_size
}
EXPORT int copy_size() {
    alignas(16) const int x[8] = {};
    return launch(copy_size_kernel, 1, 1, 0, x);
}

__global__ void zero_filled_kernel(const int* x) {
    __shared__ __align__(16) int slots[8];
    ptx::cp_async<8>(slots, x, 12);  // zero_filled
}
EXPORT int zero_filled() {
    alignas(16) const int x[8] = {};
    return launch(zero_filled_kernel, 1, 1, 0, x);
}

// ---- Matrix instructions ------------------------------------------------------------

__global__ void misaligned_row_kernel(uint32_t* out) {
    __shared__ __align__(16) uint16_t matrix[8][12];
    uint32_t fragment[4];
    ptx::ldmatrix(fragment, matrix[threadIdx.x % 8]);  // misaligned_row
    out[0] = fragment[0];
}
EXPORT int misaligned_row(uint32_t* out) {
    return launch(misaligned_row_kernel, 1, 32, 0, out);
}

__global__ void partial_matrix_warp_kernel(float* out) {
    float d[4] = {};
    const uint32_t a[4] = {}, b[2] = {};
    ptx::mma_m16n8k16<__half>(d, a, b, d);  // partial_matrix_warp
    out[0] = d[0];
}
EXPORT int partial_matrix_warp(float* out) {
    return launch(partial_matrix_warp_kernel, 1, dim3(4, 10), 0, out);
}

__global__ void divergent_mma_kernel(float* out) {
    float d[4] = {};
    const uint32_t a[4] = {}, b[2] = {};
    if (threadIdx.x < 16) {
        ptx::mma_m16n8k16<__half>(d, a, b, d);  // divergent_mma
    } else {
        ptx::mma_m16n8k16<__nv_bfloat16>(d, a, b, d);  // divergent_mma
    }
    out[0] = d[0];
}
EXPORT int divergent_mma(float* out) {
    return launch(divergent_mma_kernel, 1, 32, 0, out);
}

// ---- Cooperative groups -------------------------------------------------------------

__global__ void incomplete_tile_kernel(int* out) {
    const auto block = cooperative_groups::this_thread_block();
    const auto tile = cooperative_groups::tiled_partition<8>(block);
    if (tile.thread_rank() != 5) {
        out[0] = tile.shfl(*out, 5);  // incomplete_tile
    }
    block.sync();  // incomplete_tile
}
EXPORT int incomplete_tile(int* out) {
    return launch(incomplete_tile_kernel, 1, 32, 0, out);
}

// ---- Launches -----------------------------------------------------------------------

__global__ void nothing_kernel() {}

EXPORT int launch_nothing(const unsigned* grid, const unsigned* block, int64_t shared) {
    return launch(
        nothing_kernel, dim3(grid[0], grid[1], grid[2]),
        dim3(block[0], block[1], block[2]), shared
    );
}

__global__ void nested_kernel(int* error) { *error = launch(nothing_kernel, 1, 1, 0); }
EXPORT int nested(int* error) { return launch(nested_kernel, 1, 1, 0, error); }

EXPORT int cooperative() {
    cudaLaunchAttribute attribute{};
    attribute.id = cudaLaunchAttributeCooperative;
    attribute.val.cooperative = 1;
    cudaLaunchConfig_t config{};
    config.gridDim = 2;
    config.blockDim = 32;
    config.attrs = &attribute;
    config.numAttrs = 1;
    return cudaLaunchKernelEx(&config, nothing_kernel);
}
