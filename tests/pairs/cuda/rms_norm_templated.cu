#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAGuard.h>
#include <torch/extension.h>

#include "reduce.cuh"

template <int BLOCK_SIZE>
__global__ void rms_norm_kernel(
    float* __restrict__ out,           // [rows, hidden_size]
    const float* __restrict__ input,   // [rows, hidden_size]
    const float* __restrict__ weight,  // [hidden_size]
    const float epsilon,
    const int hidden_size) {
  const int64_t base = int64_t(blockIdx.x) * hidden_size;
  float variance = 0.0f;
  for (int idx = threadIdx.x; idx < hidden_size; idx += BLOCK_SIZE) {
    const float x = input[base + idx];
    variance += x * x;
  }
  variance = block_sum<BLOCK_SIZE>(variance);
  const float s_variance = rsqrtf(variance / hidden_size + epsilon);
  for (int idx = threadIdx.x; idx < hidden_size; idx += BLOCK_SIZE) {
    out[base + idx] = input[base + idx] * s_variance * weight[idx];
  }
}

#define LAUNCH_RMS_NORM(BLOCK_SIZE)                                         \
  rms_norm_kernel<BLOCK_SIZE><<<rows, BLOCK_SIZE, 0, stream>>>(             \
      out.data_ptr<float>(), input.data_ptr<float>(),                       \
      weight.data_ptr<float>(), static_cast<float>(epsilon), hidden_size)

torch::Tensor rms_norm(torch::Tensor input, torch::Tensor weight, double epsilon) {
  TORCH_CHECK(input.is_contiguous(), "input must be contiguous");
  TORCH_CHECK(weight.is_contiguous(), "weight must be contiguous");
  const int hidden_size = input.size(-1);
  const int rows = input.numel() / hidden_size;
  auto out = torch::empty_like(input);
  const at::cuda::OptionalCUDAGuard device_guard(device_of(input));
  const cudaStream_t stream = at::cuda::getCurrentCUDAStream();
  switch (hidden_size <= 64 ? 0 : hidden_size <= 512 ? 1 : 2) {
    case 0:
      LAUNCH_RMS_NORM(32);
      break;
    case 1:
      LAUNCH_RMS_NORM(128);
      break;
    default:
      LAUNCH_RMS_NORM(256);
  }
  C10_CUDA_KERNEL_LAUNCH_CHECK();
  return out;
}

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
  m.def("rms_norm", &rms_norm, py::arg("input"), py::arg("weight"), py::arg("epsilon") = 1e-6);
}
