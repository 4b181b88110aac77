// Reductions that need every barrier of common/reduce.cuh and cluster.cuh.
#include "../launch.h"
#include "common/cluster.cuh"
#include "common/math.cuh"
#include "common/reduce.cuh"
#include "norm/partials.cuh"

// Two reductions that share an array in shared memory.
__global__ void reductions_kernel(float* out, const float* x) {
    float sum = block_reduce<128>(x[threadIdx.x], Sum{});
    out[threadIdx.x] = block_reduce<128>(sum * x[threadIdx.x], Sum{});
}
EXPORT int reductions(float* out, float* x) {
    return launch(reductions_kernel, 1, 128, 0, out, x);
}

__global__ void vector_reductions_kernel(float* out, const float* x) {
    Vec<float, 2> sums{x[threadIdx.x], 1.0f};
    sums = block_reduce<128>(sums, Sum{});
    sums = block_reduce<128>(sums, Sum{});
    out[threadIdx.x] = sums[0] + sums[1];
}
EXPORT int vector_reductions(float* out, float* x) {
    return launch(vector_reductions_kernel, 1, 128, 0, out, x);
}

__global__ void group_reduction_kernel(float* out, const float* x) {
    Tile<float, 1, 1> sums{{x[threadIdx.x]}};
    __shared__ float handed_in[1][128];
    add_groups<128, 8>(sums, handed_in);
    out[threadIdx.x] = sums[0][0];
}
EXPORT int group_reduction(float* out, float* x) {
    return launch(group_reduction_kernel, 1, 128, 0, out, x);
}

__global__ void column_reduction_kernel(float* out, const float* x) {
    const int thread = threadIdx.y * blockDim.x + threadIdx.x;
    const Vec<float, 1> sum = column_reduce<128>(Vec<float, 1>{x[thread]}, Sum{});
    if (threadIdx.y > 0) return;
    for (int i = threadIdx.x; i < 128; i += blockDim.x) out[i] = sum[0];
}
EXPORT int column_reduction(float* out, float* x) {
    return launch(column_reduction_kernel, 1, dim3(8, 16), 0, out, x);
}

__global__ void shared_results_kernel(float* out, const float* x) {
    __shared__ WarpResults<1, 4, false> results;
    results.begin();
    results.share({x[threadIdx.x]});
    out[threadIdx.x] = results[(threadIdx.x / WARP_SIZE + 1) % results.size()][0];
}
EXPORT int shared_results(float* out, float* x) {
    return launch(shared_results_kernel, 1, 128, 0, out, x);
}
