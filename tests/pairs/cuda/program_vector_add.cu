// Exercise 1: vector addition
// nvcc -O2 program_vector_add.cu -o vadd && ./vadd
#include <cuda_runtime.h>
#include <stdio.h>
#include <stdlib.h>
#include <math.h>

__global__ void vecAdd(float *a, float *b, float *c, int n)
{
	int id = blockIdx.x * blockDim.x + threadIdx.x;

	// make sure we do not go out of bounds
	if (id < n)
		c[id] = a[id] + b[id];
}

int main(int argc, char *argv[])
{
	int n = argc > 1 ? atoi(argv[1]) : 10007;
	size_t bytes = n * sizeof(float);

	float *h_a = (float *)malloc(bytes);
	float *h_b = (float *)malloc(bytes);
	float *h_c = (float *)malloc(bytes);
	for (int i = 0; i < n; i++) {
		h_a[i] = sinf(i) * sinf(i);
		h_b[i] = cosf(i) * cosf(i);
	}

	float *d_a, *d_b, *d_c;
	cudaMalloc(&d_a, bytes);
	cudaMalloc(&d_b, bytes);
	cudaMalloc(&d_c, bytes);
	cudaMemcpy(d_a, h_a, bytes, cudaMemcpyHostToDevice);
	cudaMemcpy(d_b, h_b, bytes, cudaMemcpyHostToDevice);

	cudaEvent_t start, stop;
	cudaEventCreate(&start);
	cudaEventCreate(&stop);

	int blockSize = 256;
	int gridSize = (int)ceil((float)n / blockSize);
	cudaEventRecord(start);
	vecAdd<<<gridSize, blockSize>>>(d_a, d_b, d_c, n);
	cudaEventRecord(stop);
	cudaEventSynchronize(stop);

	float milliseconds = 0;
	cudaEventElapsedTime(&milliseconds, start, stop);
	cudaMemcpy(h_c, d_c, bytes, cudaMemcpyDeviceToHost);

	double sum = 0;
	for (int i = 0; i < n; i++)
		sum += h_c[i];
	printf("time: %f ms, final result: %f\n", milliseconds, sum / n);
	int ok = fabs(sum / n - 1.0) < 1e-5;
	puts(ok ? "PASSED" : "FAILED");

	cudaEventDestroy(start);
	cudaEventDestroy(stop);
	cudaFree(d_a);
	cudaFree(d_b);
	cudaFree(d_c);
	free(h_a);
	free(h_b);
	free(h_c);
	return ok ? 0 : 1;
}
