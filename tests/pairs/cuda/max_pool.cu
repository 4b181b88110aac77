#include <cuda_runtime.h>
#include <math.h>

// 2 x 2 maxima of images; a NaN wins, as in PyTorch
__global__ void max_pool_2x2(const float* __restrict__ in, float* __restrict__ out,
                             int height, int width, int out_height, int out_width)
{
    int ox = threadIdx.x + blockIdx.x * blockDim.x;
    int oy = threadIdx.y + blockIdx.y * blockDim.y;
    int image = blockIdx.z;
    if (ox >= out_width || oy >= out_height) return;

    float best = -INFINITY;
    for (int dy = 0; dy < 2; dy++) {
        for (int dx = 0; dx < 2; dx++) {
            float value = in[(image * height + 2 * oy + dy) * width + 2 * ox + dx];
            if (value > best || isnan(value)) best = value;
        }
    }
    out[(image * out_height + oy) * out_width + ox] = best;
}

extern "C" void launch_max_pool(float* out, const float* in, int images, int height, int width, cudaStream_t stream)
{
    int out_height = height / 2, out_width = width / 2;
    dim3 block(16, 8);
    dim3 grid((out_width + block.x - 1) / block.x, (out_height + block.y - 1) / block.y, images);
    max_pool_2x2<<<grid, block, 0, stream>>>(in, out, height, width, out_height, out_width);
}
