// Softmax over the last dimension, one block per row.
#include <torch/extension.h>

#include <cuda.h>
#include <cuda_runtime.h>

#define CHECK_CUDA(x) TORCH_CHECK(x.device().is_cuda(), #x " must be a CUDA tensor")
#define CHECK_CONTIGUOUS(x) TORCH_CHECK(x.is_contiguous(), #x " must be contiguous")
#define CHECK_INPUT(x) \
  CHECK_CUDA(x);       \
  CHECK_CONTIGUOUS(x)

__device__ __forceinline__ float warp_max(float v) {
#pragma unroll
  for (int offset = 16; offset > 0; offset >>= 1) {
    v = fmaxf(v, __shfl_xor_sync(0xffffffff, v, offset));
  }
  return v;
}

__device__ __forceinline__ float warp_sum(float v) {
#pragma unroll
  for (int offset = 16; offset > 0; offset >>= 1) {
    v += __shfl_xor_sync(0xffffffff, v, offset);
  }
  return v;
}

__global__ void softmax_kernel(const float* __restrict__ input, float* __restrict__ output,
                               int cols) {
  extern __shared__ float shared[];  // one value per warp
  const int tid = threadIdx.x;
  const int lane = tid % 32;
  const int warp = tid / 32;
  const int warps = blockDim.x / 32;
  const float* x = input + static_cast<size_t>(blockIdx.x) * cols;
  float* y = output + static_cast<size_t>(blockIdx.x) * cols;

  // 1. maximum of the row
  float m = -INFINITY;
  for (int i = tid; i < cols; i += blockDim.x) m = fmaxf(m, x[i]);
  m = warp_max(m);
  if (lane == 0) shared[warp] = m;
  __syncthreads();
  if (warp == 0) {
    m = lane < warps ? shared[lane] : -INFINITY;
    m = warp_max(m);
    if (lane == 0) shared[0] = m;
  }
  __syncthreads();
  m = shared[0];
  __syncthreads();  // shared is used again for the sum

  // 2. sum of exponentials
  float s = 0.f;
  for (int i = tid; i < cols; i += blockDim.x) s += expf(x[i] - m);
  s = warp_sum(s);
  if (lane == 0) shared[warp] = s;
  __syncthreads();
  if (warp == 0) {
    s = lane < warps ? shared[lane] : 0.f;
    s = warp_sum(s);
    if (lane == 0) shared[0] = s;
  }
  __syncthreads();
  s = shared[0];

  // 3. normalise
  for (int i = tid; i < cols; i += blockDim.x) y[i] = expf(x[i] - m) / s;
}

torch::Tensor softmax_forward(torch::Tensor input) {
  CHECK_INPUT(input);
  TORCH_CHECK(input.dim() == 2, "expected a matrix, got ", input.dim(), " dimensions");
  const int rows = input.size(0);
  const int cols = input.size(1);
  auto output = torch::empty_like(input);

  const int threads = 128;
  const size_t shared_bytes = threads / 32 * sizeof(float);
  softmax_kernel<<<rows, threads, shared_bytes>>>(input.data_ptr<float>(),
                                                  output.data_ptr<float>(), cols);
  return output;
}

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
  m.def("softmax_forward", &softmax_forward, "softmax forward (CUDA)");
}
