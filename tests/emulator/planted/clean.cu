// Kernels without a fault, with every pattern that the checker could mistake for one.
#include <cuda_fp16.h>

#include <cstring>

#include "../launch.h"
#include "common/ptx/async_copy.cuh"
#include "common/ptx/mma.cuh"

__global__ void tile_kernel(float* out, const float* x) {
    __shared__ float tile[2][128];
    for (int round = 0; round < 4; ++round) {
        float* buffer = tile[round % 2];  // two buffers, so one barrier is enough
        buffer[threadIdx.x] = x[threadIdx.x];
        __syncthreads();
        out[threadIdx.x] = buffer[127 - threadIdx.x];
    }
}
EXPORT int tile(float* out, float* x) { return launch(tile_kernel, 1, 128, 0, out, x); }

__global__ void warp_barrier_kernel(float* out, const float* x) {
    float* tile = reinterpret_cast<float*>(emulator::dynamic_shared());
    tile[threadIdx.x] = x[threadIdx.x];
    unsigned half = threadIdx.x % 32 < 16 ? 0x0000ffff : 0xffff0000;
    __syncwarp(half);
    float neighbour = tile[threadIdx.x ^ 8];
    __syncwarp();
    // The accesses of thread 1 happen before those of thread 16, by way of thread 0 and
    // the second barrier.
    tile[threadIdx.x] = tile[threadIdx.x] + neighbour;
    __syncwarp();
    out[threadIdx.x] = tile[threadIdx.x ^ 16];
}
EXPORT int warp_barrier(float* out, float* x) {
    return launch(warp_barrier_kernel, 1, 128, 128 * 4, out, x);
}

__global__ void halves_of_a_word_kernel(float* out, const float* x) {
    __shared__ __half tile[128];
    __shared__ unsigned char flags[128];
    tile[threadIdx.x] = __float2half(x[threadIdx.x]);
    flags[threadIdx.x] = threadIdx.x % 2;
    __syncthreads();
    auto pair = reinterpret_cast<const __half2*>(tile)[threadIdx.x / 2];
    out[threadIdx.x] = __half2float(flags[threadIdx.x] ? pair.y : pair.x);
}
EXPORT int halves_of_a_word(float* out, float* x) {
    return launch(halves_of_a_word_kernel, 1, 128, 0, out, x);
}

__global__ void histogram_kernel(float* out, const float* x) {
    __shared__ unsigned counts[8];
    if (threadIdx.x < 8) counts[threadIdx.x] = 0;
    __syncthreads();
    atomicAdd(&counts[threadIdx.x % 8], 1u);
    __syncthreads();
    out[threadIdx.x] = x[threadIdx.x] + counts[threadIdx.x % 8];
}
EXPORT int histogram(float* out, float* x) {
    return launch(histogram_kernel, 1, 128, 0, out, x);
}

__device__ unsigned blocks_done;

// The block that finishes last reads what all the others have written.
__global__ void last_block_kernel(float* out, const float* x) {
    __shared__ bool is_last;
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    out[i] = x[i];
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) {
        is_last = atomicInc(&blocks_done, gridDim.x - 1) == gridDim.x - 1;
    }
    __syncthreads();
    if (is_last) out[threadIdx.x] = out[64 + threadIdx.x];
}
EXPORT int last_block(float* out, float* x) {
    return launch(last_block_kernel, 4, 32, 0, out, x);
}

// Threads that have returned count as arrived.
__global__ void rows_kernel(float* out, const float* x) {
    struct Row {
        float values[8];
    };
    Row row;
    memcpy(&row, x + 8 * (threadIdx.x % 16), sizeof(row));
    float sum = 0;
    for (int i = 0; i < 8; ++i) sum += row.values[(i + threadIdx.x) % 8];
    out[threadIdx.x] = sum;
}
EXPORT int rows(float* out, float* x) { return launch(rows_kernel, 1, 128, 0, out, x); }

// Two stages: one is copied while the other is used.
__global__ void pipeline_kernel(float* out, const float* x) {
    __shared__ float tile[2][128];
    float sum = 0;
    ptx::cp_async<4>(&tile[0][threadIdx.x], x + threadIdx.x);
    ptx::cp_async_commit_group();
    for (int stage = 0; stage < 6; ++stage) {
        ptx::cp_async<4>(&tile[(stage + 1) % 2][threadIdx.x], x + threadIdx.x);
        ptx::cp_async_commit_group();
        ptx::cp_async_wait_group<1>();
        __syncthreads();
        sum += tile[stage % 2][127 - threadIdx.x];
        __syncthreads();
    }
    out[threadIdx.x] = sum;
}
EXPORT int pipeline(float* out, float* x) {
    return launch(pipeline_kernel, 1, 128, 0, out, x);
}

__global__ void matrix_kernel(float* out, const float* x) {
    __shared__ __align__(16) float tile[4][32];
    const unsigned warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    tile[warp][lane] = x[threadIdx.x];
    __syncwarp();
    unsigned fragment[4];
    ptx::ldmatrix(fragment, tile[warp] + lane % 8 * 4);
    out[threadIdx.x] = __uint_as_float(fragment[0]);
}
EXPORT int matrix(float* out, float* x) {
    return launch(matrix_kernel, 1, 128, 0, out, x);
}

// Half of the threads return before the barrier of the others.
__global__ void early_exit_kernel(float* out, const float* x) {
    __shared__ float tile[128];
    tile[threadIdx.x] = x[threadIdx.x];
    out[threadIdx.x] = 0;
    if (threadIdx.x >= 64) return;
    __syncthreads();
    out[threadIdx.x] = tile[127 - threadIdx.x];
}
EXPORT int early_exit(float* out, float* x) {
    return launch(early_exit_kernel, 1, 128, 0, out, x);
}

struct Parameters {
    float factors[40];
    float* out;
    const float* x;
};

// A parameter too large for registers, and constants in memory.
__global__ void parameters_kernel(Parameters parameters) {
    static const float table[] = {1, 2, 4, 8, 16, 32, 64, 128};
    unsigned i = threadIdx.x;
    parameters.out[i] = parameters.x[i] * parameters.factors[i % 40] * table[i % 8];
}
EXPORT int parameters(float* out, float* x) {
    Parameters all{{}, out, x};
    all.factors[3] = 2;
    return launch(parameters_kernel, 1, 128, 0, all);
}

__global__ void reduction_kernel(float* out, const float* x) {
    float value = x[threadIdx.x];
    for (int offset = 16; offset > 0; offset /= 2) {
        value += __shfl_xor_sync(0xffffffff, value, offset);
    }
    unsigned votes = __ballot_sync(0xffffffff, value > 0);
    out[threadIdx.x] = value + __popc(votes) + __reduce_add_sync(0xffffffff, 1);
}
EXPORT int reduction(float* out, float* x) {
    return launch(reduction_kernel, 1, 128, 0, out, x);
}

__global__ void vectors_kernel(float* out, const float* x) {
    __shared__ __align__(16) float tile[128];
    auto* vectors = reinterpret_cast<float4*>(tile);
    if (threadIdx.x < 32) {
        vectors[threadIdx.x] = __ldg(reinterpret_cast<const float4*>(x) + threadIdx.x);
    }
    __syncthreads();
    if (threadIdx.x < 64) {
        auto pair = reinterpret_cast<const float2*>(tile)[63 - threadIdx.x];
        __stcs(reinterpret_cast<float2*>(out) + threadIdx.x, pair);
    }
}
EXPORT int vectors(float* out, float* x) {
    return launch(vectors_kernel, 1, 128, 0, out, x);
}

__device__ unsigned blocks_begun;

// The order in which blocks began: block_order[i] was the i-th.
__global__ void block_order_kernel(float* out, const float*) {
    if (threadIdx.x == 0) out[atomicInc(&blocks_begun, gridDim.x - 1)] = blockIdx.x;
}
EXPORT int block_order(float* out, float* x) {
    return launch(block_order_kernel, 128, 2, 0, out, x);
}
