// Inclusive prefix sums of the rows of a matrix (Hillis and Steele, two buffers).
#include <cuda_runtime.h>

namespace {

constexpr int BLOCK = 128;

__global__ void row_scan_kernel(float* __restrict__ out, const float* __restrict__ x, int cols) {
  __shared__ float buffer[2][BLOCK];
  const int tid = threadIdx.x;
  const size_t base = size_t(blockIdx.x) * cols;
  float carry = 0.0f;
  for (int start = 0; start < cols; start += BLOCK) {
    const int col = start + tid;
    int now = 0;
    buffer[now][tid] = col < cols ? x[base + col] : 0.0f;
    __syncthreads();
    for (int distance = 1; distance < BLOCK; distance *= 2) {
      float value = buffer[now][tid];
      if (tid >= distance) value += buffer[now][tid - distance];
      now = 1 - now;
      buffer[now][tid] = value;
      __syncthreads();
    }
    if (col < cols) out[base + col] = carry + buffer[now][tid];
    carry += buffer[now][BLOCK - 1];
    __syncthreads();
  }
}

}  // namespace

void launch_row_scan(float* out, const float* x, int rows, int cols, cudaStream_t stream) {
  row_scan_kernel<<<rows, BLOCK, 0, stream>>>(out, x, cols);
}
