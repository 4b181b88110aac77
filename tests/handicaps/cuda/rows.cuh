// What the kernels that divide each row by its sum have in common: 128 threads for a
// row of at most 1024 vectors.
#pragma once

constexpr int VECTORS = 8;  // of a thread

__device__ __forceinline__ float sum_of(float4 x) { return x.x + x.y + x.z + x.w; }

__device__ __forceinline__ float4 scaled(float4 x, float factor) {
    return {x.x * factor, x.y * factor, x.z * factor, x.w * factor};
}

// Loads this thread's part of a row, and adds it up.
__device__ __forceinline__ float load_row(
    float4 (&x)[VECTORS], const float4* x_ptr, int n_vectors
) {
    float sum = 0.0f;
    #pragma unroll
    for (int i = 0; i < VECTORS; ++i) {
        const int col = i * 128 + threadIdx.x;
        x[i] = {};
        if (col < n_vectors) x[i] = x_ptr[blockIdx.x * n_vectors + col];
        sum += sum_of(x[i]);
    }
    return sum;
}

__device__ __forceinline__ void store_row(
    float4* out_ptr, const float4 (&x)[VECTORS], float sum, int n_vectors
) {
    const float factor = __fdividef(1.0f, sum);
    #pragma unroll
    for (int i = 0; i < VECTORS; ++i) {
        const int col = i * 128 + threadIdx.x;
        if (col < n_vectors)
            out_ptr[blockIdx.x * n_vectors + col] = scaled(x[i], factor);
    }
}

// The sum over the block: by shuffles, then once through shared memory.
__device__ __forceinline__ float block_sum(float sum) {
    __shared__ float sums[4];
    #pragma unroll
    for (int step = 16; step > 0; step /= 2) sum += __shfl_xor_sync(~0u, sum, step);
    if (threadIdx.x % 32 == 0) sums[threadIdx.x / 32] = sum;
    __syncthreads();
    return sums[0] + sums[1] + sums[2] + sums[3];
}
