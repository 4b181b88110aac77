// Lab 4 - Summenreduktion: jeder Block liefert eine Teilsumme, der Rest geschieht auf der CPU.
#include <cmath>
#include <cstdlib>
#include <iostream>
#include <vector>

#include <cuda_runtime.h>

#define BLOCKSIZE 128

#define CUDA_CALL(call)                                                       \
  do {                                                                        \
    cudaError_t status = (call);                                              \
    if (status != cudaSuccess) {                                              \
      std::cerr << #call << ": " << cudaGetErrorString(status) << std::endl;  \
      std::exit(1);                                                           \
    }                                                                         \
  } while (0)

__global__ void reduceSum(const float *g_idata, float *g_odata, unsigned int n)
{
  __shared__ float sdata[BLOCKSIZE];

  unsigned int tid = threadIdx.x;
  float sum = 0.0f;
  for (unsigned int i = blockIdx.x * blockDim.x + tid; i < n; i += blockDim.x * gridDim.x)
    sum += g_idata[i];
  sdata[tid] = sum;
  __syncthreads();

  // Baumförmig aufsummieren
  for (unsigned int s = blockDim.x / 2; s > 0; s >>= 1) {
    if (tid < s)
      sdata[tid] += sdata[tid + s];
    __syncthreads();
  }

  if (tid == 0)
    g_odata[blockIdx.x] = sdata[0];
}

int main()
{
  const unsigned int n = 20000;
  const unsigned int blocks = 16;
  std::vector<float> x(n);
  double expected = 0;
  for (unsigned int i = 0; i < n; ++i) {
    x[i] = std::sin(0.001f * i);
    expected += x[i];
  }

  float *d_x = nullptr, *d_sums = nullptr;
  CUDA_CALL(cudaMalloc((void **)&d_x, n * sizeof(float)));
  CUDA_CALL(cudaMalloc((void **)&d_sums, blocks * sizeof(float)));
  CUDA_CALL(cudaMemcpy(d_x, x.data(), n * sizeof(float), cudaMemcpyHostToDevice));

  dim3 dimGrid(blocks), dimBlock(BLOCKSIZE);
  cudaEvent_t begin, end;
  CUDA_CALL(cudaEventCreate(&begin));
  CUDA_CALL(cudaEventCreate(&end));
  CUDA_CALL(cudaEventRecord(begin, 0));
  reduceSum<<<dimGrid, dimBlock>>>(d_x, d_sums, n);
  CUDA_CALL(cudaPeekAtLastError());
  CUDA_CALL(cudaEventRecord(end, 0));
  CUDA_CALL(cudaEventSynchronize(end));

  std::vector<float> sums(blocks);
  CUDA_CALL(cudaMemcpy(sums.data(), d_sums, blocks * sizeof(float), cudaMemcpyDeviceToHost));
  double result = 0;
  for (float each : sums) result += each;
  float ms = 0;
  CUDA_CALL(cudaEventElapsedTime(&ms, begin, end));
  std::cout << "GPU: " << result << ", CPU: " << expected << ", " << ms << " ms" << std::endl;

  CUDA_CALL(cudaFree(d_x));
  CUDA_CALL(cudaFree(d_sums));
  return std::fabs(result - expected) < 1e-3 * std::fabs(expected) ? 0 : 1;
}
