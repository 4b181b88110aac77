#include <torch/extension.h>
#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAException.h>

#include <vector>

constexpr int kThreads = 128;

__device__ float block_reduce_sum(float value, float* buffer) {
    const int tid = threadIdx.x;
    buffer[tid] = value;
    __syncthreads();
    for (int stride = kThreads / 2; stride > 0; stride >>= 1) {
        if (tid < stride) {
            buffer[tid] += buffer[tid + stride];
        }
        __syncthreads();
    }
    const float total = buffer[0];
    __syncthreads();
    return total;
}

template <typename scalar_t>
__global__ void layer_norm_forward_kernel(
    const scalar_t* __restrict__ x,
    const scalar_t* __restrict__ weight,
    const scalar_t* __restrict__ bias,
    scalar_t* __restrict__ y,
    float* __restrict__ mean,
    float* __restrict__ rstd,
    int cols,
    float eps) {
    __shared__ float buffer[kThreads];
    const int64_t offset = static_cast<int64_t>(blockIdx.x) * cols;

    float sum = 0.0f;
    for (int i = threadIdx.x; i < cols; i += kThreads) {
        sum += static_cast<float>(x[offset + i]);
    }
    const float mu = block_reduce_sum(sum, buffer) / cols;

    float squares = 0.0f;
    for (int i = threadIdx.x; i < cols; i += kThreads) {
        const float d = static_cast<float>(x[offset + i]) - mu;
        squares += d * d;
    }
    const float variance = block_reduce_sum(squares, buffer) / cols;
    const float scale = rsqrtf(variance + eps);

    for (int i = threadIdx.x; i < cols; i += kThreads) {
        const float normalized = (static_cast<float>(x[offset + i]) - mu) * scale;
        y[offset + i] = static_cast<scalar_t>(
            normalized * static_cast<float>(weight[i]) + static_cast<float>(bias[i]));
    }
    if (threadIdx.x == 0) {
        mean[blockIdx.x] = mu;
        rstd[blockIdx.x] = scale;
    }
}

std::vector<torch::Tensor> layer_norm_forward(
    torch::Tensor x, torch::Tensor weight, torch::Tensor bias, double eps) {
    x = x.contiguous();
    weight = weight.contiguous();
    bias = bias.contiguous();
    const auto rows = x.size(0);
    const auto cols = x.size(1);

    auto y = torch::empty_like(x);
    auto statistics = x.options().dtype(torch::kFloat32);
    auto mean = torch::empty({rows}, statistics);
    auto rstd = torch::empty({rows}, statistics);

    auto stream = at::cuda::getCurrentCUDAStream();
    AT_DISPATCH_FLOATING_TYPES_AND_HALF(x.scalar_type(), "layer_norm_forward", ([&] {
        layer_norm_forward_kernel<scalar_t><<<rows, kThreads, 0, stream>>>(
            x.data_ptr<scalar_t>(),
            weight.data_ptr<scalar_t>(),
            bias.data_ptr<scalar_t>(),
            y.data_ptr<scalar_t>(),
            mean.data_ptr<float>(),
            rstd.data_ptr<float>(),
            cols,
            static_cast<float>(eps));
    }));
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return {y, mean, rstd};
}

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
    m.def("forward", &layer_norm_forward, "LayerNorm forward");
}
