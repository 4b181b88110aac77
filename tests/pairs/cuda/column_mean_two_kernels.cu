// The mean of each column: partial sums of some rows into a workspace, then their sum.
#include <torch/extension.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAStream.h>

constexpr int COLS_PER_BLOCK = 64;
constexpr int ROWS_PER_BLOCK = 8;

__global__ void partial_sums(float* __restrict__ workspace, const float* __restrict__ x, int rows, int cols) {
  const int col = blockIdx.x * COLS_PER_BLOCK + threadIdx.x;
  if (col >= cols) return;
  const int first = blockIdx.y * ROWS_PER_BLOCK;
  const int last = min(first + ROWS_PER_BLOCK, rows);
  float sum = 0.f;
  for (int row = first; row < last; ++row) sum += x[row * cols + col];
  workspace[blockIdx.y * cols + col] = sum;
}

__global__ void finish_mean(float* __restrict__ out, const float* __restrict__ workspace, int parts, int rows, int cols) {
  const int col = blockIdx.x * COLS_PER_BLOCK + threadIdx.x;
  if (col >= cols) return;
  float sum = 0.f;
  for (int part = 0; part < parts; ++part) sum += workspace[part * cols + col];
  out[col] = sum / rows;
}

torch::Tensor column_mean(torch::Tensor x) {
  x = x.contiguous();
  const int rows = x.size(0), cols = x.size(1);
  const int parts = (rows + ROWS_PER_BLOCK - 1) / ROWS_PER_BLOCK;
  auto workspace = torch::empty({parts, cols}, x.options());
  auto out = torch::empty({cols}, x.options());

  const auto stream = c10::cuda::getCurrentCUDAStream();
  const dim3 grid((cols + COLS_PER_BLOCK - 1) / COLS_PER_BLOCK, parts);
  partial_sums<<<grid, COLS_PER_BLOCK, 0, stream>>>(workspace.data_ptr<float>(), x.data_ptr<float>(), rows, cols);
  C10_CUDA_KERNEL_LAUNCH_CHECK();
  finish_mean<<<grid.x, COLS_PER_BLOCK, 0, stream>>>(
      out.data_ptr<float>(), workspace.data_ptr<float>(), parts, rows, cols);
  C10_CUDA_KERNEL_LAUNCH_CHECK();
  return out;
}

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
  m.def("column_mean", &column_mean, "mean of the columns");
}
