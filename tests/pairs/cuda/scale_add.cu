#include <cuda_runtime.h>

__global__ void scale_add_kernel(float* out, const float* x, const float* y, float alpha, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        out[i] = alpha * x[i] + y[i];
    }
}

void launch_scale_add(float* out, const float* x, const float* y, float alpha, int n, cudaStream_t stream) {
    const int threads = 256;
    const int blocks = (n + threads - 1) / threads;
    scale_add_kernel<<<blocks, threads, 0, stream>>>(out, x, y, alpha, n);
}
