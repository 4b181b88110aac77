#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include "reduce.cuh"

constexpr int kBlock = 64;

// Euclidean norm of each row; the sum is kept in float
__global__ void row_norm_kernel(__half* out, const __half* x, int cols) {
  const __half* row = x + (long long)blockIdx.x * cols;
  float sum = 0.0f;
  for (int i = threadIdx.x; i < cols; i += kBlock) {
    const float value = __half2float(row[i]);
    sum += value * value;
  }
  const float total = block_sum<kBlock>(sum);
  if (threadIdx.x == 0) out[blockIdx.x] = __float2half(sqrtf(total));
}

void launch_row_norm(__half* out, const __half* x, int rows, int cols, cudaStream_t stream) {
  row_norm_kernel<<<rows, kBlock, 0, stream>>>(out, x, cols);
}
