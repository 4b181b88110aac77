// Kernels with one fault each, in the lines marked by the name of its test, for the
// checker (csrc/emulator/checker). Compiled with its call-outs.
#include <cuda_fp16.h>

#include <cstring>

#include "../launch.h"
#include "common/ptx/async_copy.cuh"
#include "common/ptx/mma.cuh"

// ---- Races in shared memory ---------------------------------------------------------

__global__ void missing_barrier_kernel(float* out, const float* x) {
    __shared__ float tile[128];
    tile[threadIdx.x] = x[threadIdx.x];          // missing_barrier
    out[threadIdx.x] = tile[127 - threadIdx.x];  // missing_barrier
}
EXPORT int missing_barrier(float* out, float* x) {
    return launch(missing_barrier_kernel, 1, 128, 0, out, x);
}

__global__ void write_after_read_kernel(float* out, const float* x) {
    __shared__ float tile[128];
    for (int round = 0; round < 2; ++round) {
        tile[threadIdx.x] = x[threadIdx.x];  // write_after_read
        __syncthreads();
        out[threadIdx.x] = tile[127 - threadIdx.x];  // write_after_read
    }
}
EXPORT int write_after_read(float* out, float* x) {
    return launch(write_after_read_kernel, 1, 128, 0, out, x);
}

__global__ void warps_of_a_tile_kernel(float* out, const float* x) {
    float* tile = reinterpret_cast<float*>(emulator::dynamic_shared());
    tile[threadIdx.x] = x[threadIdx.x];  // warps_of_a_tile
    __syncwarp();
    out[threadIdx.x] = tile[threadIdx.x ^ 32];  // warps_of_a_tile
}
EXPORT int warps_of_a_tile(float* out, float* x) {
    return launch(warps_of_a_tile_kernel, 1, 64, 64 * 4, out, x);
}

__global__ void lanes_without_order_kernel(float* out, const float* x) {
    __shared__ float tile[32];
    tile[threadIdx.x] = x[threadIdx.x];         // lanes_without_order
    __shfl_sync(0xffffffff, 1, 0);              // does not order accesses to memory
    out[threadIdx.x] = tile[31 - threadIdx.x];  // lanes_without_order
}
EXPORT int lanes_without_order(float* out, float* x) {
    return launch(lanes_without_order_kernel, 1, 32, 0, out, x);
}

__global__ void half_of_the_lanes_kernel(float* out, const float* x) {
    __shared__ float tile[32];
    tile[threadIdx.x] = x[threadIdx.x];  // half_of_the_lanes
    __syncwarp(threadIdx.x < 16 ? 0x0000ffff : 0xffff0000);
    out[threadIdx.x] = tile[31 - threadIdx.x];  // half_of_the_lanes
}
EXPORT int half_of_the_lanes(float* out, float* x) {
    return launch(half_of_the_lanes_kernel, 1, 32, 0, out, x);
}

__global__ void lost_update_kernel(float* out, const float* x) {
    __shared__ float sum;
    if (threadIdx.x == 0) sum = 0;
    __syncthreads();
    sum += x[threadIdx.x];  // lost_update
    __syncthreads();
    out[threadIdx.x] = sum;
}
EXPORT int lost_update(float* out, float* x) {
    return launch(lost_update_kernel, 1, 128, 0, out, x);
}

__global__ void halves_kernel(float* out, const float* x) {
    __shared__ __half tile[64];
    tile[threadIdx.x] = __float2half(x[threadIdx.x]);        // halves
    out[threadIdx.x] = __half2float(tile[threadIdx.x ^ 1]);  // halves
}
EXPORT int halves(float* out, float* x) {
    return launch(halves_kernel, 1, 64, 0, out, x);
}

__global__ void atomic_and_plain_kernel(float* out, const float* x) {
    __shared__ float sum;
    if (threadIdx.x == 0) sum = 0;
    __syncthreads();
    atomicAdd(&sum, x[threadIdx.x]);  // atomic_and_plain
    out[threadIdx.x] = sum;           // atomic_and_plain
}
EXPORT int atomic_and_plain(float* out, float* x) {
    return launch(atomic_and_plain_kernel, 1, 128, 0, out, x);
}

// ---- Asynchronous copies ------------------------------------------------------------

__global__ void wrong_wait_kernel(float* out, const float* x) {
    __shared__ float tile[2][128];
    ptx::cp_async<4>(&tile[0][threadIdx.x], x + threadIdx.x);
    ptx::cp_async_commit_group();
    ptx::cp_async<4>(&tile[1][threadIdx.x], x + threadIdx.x);  // wrong_wait
    ptx::cp_async_commit_group();
    ptx::cp_async_wait_group<1>();
    __syncthreads();
    out[threadIdx.x] = tile[0][127 - threadIdx.x];
    out[threadIdx.x] += tile[1][127 - threadIdx.x];  // wrong_wait
}
EXPORT int wrong_wait(float* out, float* x) {
    return launch(wrong_wait_kernel, 1, 128, 0, out, x);
}

__global__ void early_copy_kernel(float* out, const float* x) {
    __shared__ float tile[128];
    tile[threadIdx.x] = x[threadIdx.x];
    __syncthreads();
    out[threadIdx.x] = tile[127 - threadIdx.x];             // early_copy
    ptx::cp_async<4>(&tile[threadIdx.x], x + threadIdx.x);  // early_copy
    ptx::cp_async_wait_all();
}
EXPORT int early_copy(float* out, float* x) {
    return launch(early_copy_kernel, 1, 128, 0, out, x);
}

__global__ void copy_without_barrier_kernel(float* out, const float* x) {
    __shared__ float tile[128];
    ptx::cp_async<4>(&tile[threadIdx.x], x + threadIdx.x);  // copy_without_barrier
    ptx::cp_async_wait_all();
    out[threadIdx.x] = tile[threadIdx.x ^ 32];  // copy_without_barrier
}
EXPORT int copy_without_barrier(float* out, float* x) {
    return launch(copy_without_barrier_kernel, 1, 128, 0, out, x);
}

__global__ void copied_past_the_end_kernel(float* out, const float* x) {
    __shared__ float tile[256];
    const float* source = x + threadIdx.x + 64;
    ptx::cp_async<4>(&tile[threadIdx.x], source);  // copied_past_the_end
    ptx::cp_async_wait_all();
    out[threadIdx.x] = tile[threadIdx.x];
}
EXPORT int copied_past_the_end(float* out, float* x) {
    return launch(copied_past_the_end_kernel, 1, 128, 0, out, x);
}

__global__ void matrix_without_barrier_kernel(float* out, const float* x) {
    __shared__ __align__(16) float tile[2][32];
    const unsigned warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    tile[warp][lane] = x[threadIdx.x];  // matrix_without_barrier
    unsigned fragment[4];
    const float* row = tile[1 - warp] + lane % 8 * 4;
    ptx::ldmatrix(fragment, row);  // matrix_without_barrier
    out[threadIdx.x] = fragment[0];
}
EXPORT int matrix_without_barrier(float* out, float* x) {
    return launch(matrix_without_barrier_kernel, 1, 64, 0, out, x);
}

// ---- Races in global memory ---------------------------------------------------------

__global__ void blocks_kernel(float* out, const float* x) {
    out[threadIdx.x] = x[threadIdx.x];  // blocks
}
EXPORT int blocks(float* out, float* x) {
    return launch(blocks_kernel, 2, 64, 0, out, x);
}

__global__ void threads_kernel(float* out, const float* x) {
    out[threadIdx.x] = x[threadIdx.x];              // threads
    out[64 + threadIdx.x] = out[63 - threadIdx.x];  // threads
}
EXPORT int threads(float* out, float* x) {
    return launch(threads_kernel, 1, 64, 0, out, x);
}

// ---- Bounds -------------------------------------------------------------------------

__global__ void read_past_the_end_kernel(float* out, const float* x) {
    out[threadIdx.x] = x[threadIdx.x + 1];  // read_past_the_end
}
EXPORT int read_past_the_end(float* out, float* x) {
    return launch(read_past_the_end_kernel, 1, 128, 0, out, x);
}

__global__ void write_past_the_end_kernel(float* out, const float* x) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i <= 128) out[i] = x[0];  // write_past_the_end
}
EXPORT int write_past_the_end(float* out, float* x) {
    return launch(write_past_the_end_kernel, 3, 64, 0, out, x);
}

__global__ void read_before_the_start_kernel(float* out, const float* x) {
    out[threadIdx.x] = x[int(threadIdx.x) - 2];  // read_before_the_start
}
EXPORT int read_before_the_start(float* out, float* x) {
    return launch(read_before_the_start_kernel, 1, 128, 0, out, x);
}

__global__ void vector_past_the_end_kernel(float* out, const float* x) {
    auto* vectors = reinterpret_cast<const float4*>(x);
    out[threadIdx.x] = vectors[threadIdx.x].x;  // vector_past_the_end
}
EXPORT int vector_past_the_end(float* out, float* x) {
    return launch(vector_past_the_end_kernel, 1, 128, 0, out, x);
}

__global__ void copy_past_the_end_kernel(float* out, const float* x) {
    if (threadIdx.x == 3) memcpy(out, x, 129 * sizeof(float));  // copy_past_the_end
}
EXPORT int copy_past_the_end(float* out, float* x) {
    return launch(copy_past_the_end_kernel, 1, 128, 0, out, x);
}

__global__ void atomic_past_the_end_kernel(float* out) {
    atomicAdd(out + 2 * threadIdx.x, 1.0f);  // atomic_past_the_end
}
EXPORT int atomic_past_the_end(float* out, float*) {
    return launch(atomic_past_the_end_kernel, 1, 65, 0, out);
}

__global__ void cached_load_past_the_end_kernel(float* out, const float* x) {
    out[threadIdx.x] = __ldg(x + threadIdx.x + 4);  // cached_load_past_the_end
}
EXPORT int cached_load_past_the_end(float* out, float* x) {
    return launch(cached_load_past_the_end_kernel, 1, 128, 0, out, x);
}

__global__ void null_pointer_kernel(float* out, const float* x) {
    out[threadIdx.x] = x[threadIdx.x];  // null_pointer
}
EXPORT int null_pointer(float* out, float*) {
    return launch(null_pointer_kernel, 1, 128, 0, out, nullptr);
}

__global__ void shared_read_kernel(float* out, const float* x) {
    __shared__ float tile[128];
    tile[threadIdx.x] = x[threadIdx.x];
    __syncthreads();
    out[threadIdx.x] = tile[threadIdx.x + 1];  // shared_read
}
EXPORT int shared_read(float* out, float* x) {
    return launch(shared_read_kernel, 1, 128, 0, out, x);
}

__global__ void shared_write_kernel(float* out, const float* x) {
    __shared__ float tile[128];
    tile[threadIdx.x + 1] = x[threadIdx.x];  // shared_write
    __syncthreads();
    out[threadIdx.x] = tile[threadIdx.x];
}
EXPORT int shared_write(float* out, float* x) {
    return launch(shared_write_kernel, 1, 128, 0, out, x);
}

__global__ void shared_column_kernel(float* out, const float* x) {
    __shared__ float tile[4][32];
    tile[0][threadIdx.x] = x[threadIdx.x];  // shared_column
    __syncthreads();
    out[threadIdx.x] = tile[0][threadIdx.x % 32];
}
EXPORT int shared_column(float* out, float* x) {
    return launch(shared_column_kernel, 1, 33, 0, out, x);
}

__global__ void dynamic_shared_kernel(float* out, const float* x) {
    float* tile = reinterpret_cast<float*>(emulator::dynamic_shared());
    tile[threadIdx.x] = x[threadIdx.x];  // dynamic_shared
    __syncthreads();
    out[threadIdx.x] = tile[0];
}
EXPORT int dynamic_shared(float* out, float* x) {
    return launch(dynamic_shared_kernel, 1, 128, 127 * 4, out, x);
}

// ---- Alignment ----------------------------------------------------------------------

__global__ void misaligned_load_kernel(float* out, const float* x) {
    auto vector = *reinterpret_cast<const float4*>(x + threadIdx.x);  // misaligned_load
    out[threadIdx.x] = vector.x + vector.w;
}
EXPORT int misaligned_load(float* out, float* x) {
    return launch(misaligned_load_kernel, 1, 32, 0, out, x);
}

__global__ void misaligned_store_kernel(float* out, const float* x) {
    __shared__ __align__(16) float tile[36];
    auto* vector = reinterpret_cast<float2*>(tile + threadIdx.x);
    *vector = make_float2(x[0], x[1]);  // misaligned_store
    out[threadIdx.x] = tile[threadIdx.x];
}
EXPORT int misaligned_store(float* out, float* x) {
    return launch(misaligned_store_kernel, 1, 32, 0, out, x);
}

// ---- Unwritten memory, and writes to inputs -----------------------------------------

__global__ void uninitialised_kernel(float* out, const float* x) {
    __shared__ float tile[128];
    if (threadIdx.x < 127) tile[threadIdx.x] = x[threadIdx.x];
    __syncthreads();
    out[threadIdx.x] = tile[127 - threadIdx.x];  // uninitialised
}
EXPORT int uninitialised(float* out, float* x) {
    return launch(uninitialised_kernel, 1, 128, 0, out, x);
}

__global__ void unwritten_kernel(float* out, const float* x) {  // unwritten
    if (threadIdx.x != 5) out[threadIdx.x] = x[threadIdx.x];
}
EXPORT int unwritten(float* out, float* x) {
    return launch(unwritten_kernel, 1, 128, 0, out, x);
}

__global__ void input_kernel(float* out, const float* x) {
    out[threadIdx.x] = x[threadIdx.x];
    const_cast<float*>(x)[threadIdx.x] = 0;  // input
}
EXPORT int input(float* out, float* x) {
    return launch(input_kernel, 1, 128, 0, out, x);
}

// ---- Faults that the emulator reports without the checker, too ----------------------

__global__ void divergent_barrier_kernel(float* out, const float* x) {
    __shared__ float tile[128];
    tile[threadIdx.x] = x[threadIdx.x];
    if (threadIdx.x < 64) __syncthreads();  // divergent_barrier
    tile[threadIdx.x] += x[0];
    __syncthreads();  // divergent_barrier
    out[threadIdx.x] = tile[127 - threadIdx.x];
}
EXPORT int divergent_barrier(float* out, float* x) {
    return launch(divergent_barrier_kernel, 1, 128, 0, out, x);
}

__global__ void two_barriers_kernel(float* out, const float* x) {
    if (threadIdx.x % 2 == 0) {
        out[threadIdx.x] = x[threadIdx.x];
        __syncthreads();  // two_barriers
    } else {
        __syncthreads();  // two_barriers
    }
}
EXPORT int two_barriers(float* out, float* x) {
    return launch(two_barriers_kernel, 1, 128, 0, out, x);
}

__global__ void wrong_mask_kernel(float* out, const float* x) {
    if (threadIdx.x >= 16) return;
    out[threadIdx.x] = __shfl_xor_sync(0xffffffff, x[threadIdx.x], 1);  // wrong_mask
}
EXPORT int wrong_mask(float* out, float* x) {
    return launch(wrong_mask_kernel, 1, 32, 0, out, x);
}

__global__ void deadlock_kernel(float* out, const float* x) {
    if (threadIdx.x < 16) {
        out[threadIdx.x] = __shfl_xor_sync(0xffffffff, x[0], 1);  // deadlock
    } else {
        __syncthreads();  // deadlock
    }
}
EXPORT int deadlock(float* out, float* x) {
    return launch(deadlock_kernel, 1, 64, 0, out, x);
}

__global__ void endless_polling_kernel(float* out) {
    auto* flag = reinterpret_cast<unsigned*>(out);
    while (atomicAdd(flag, 0u) != 1) {  // endless_polling
    }
}
EXPORT int endless_polling(float* out, float*) {
    return launch(endless_polling_kernel, 1, 32, 0, out);
}
