/*
Softmax forward, a warp per row.

nvcc -O3 --use_fast_math program_softmax.cu -o softmax_forward
./softmax_forward
*/
#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>
#include <cuda_runtime.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

namespace cg = cooperative_groups;

#define cudaCheck(err) (cuda_check(err, __FILE__, __LINE__))

inline void cuda_check(cudaError_t error, const char* file, int line) {
    if (error != cudaSuccess) {
        printf("[CUDA ERROR] at file %s:%d:\n%s\n", file, line, cudaGetErrorString(error));
        exit(EXIT_FAILURE);
    }
}

// CPU code reference
void softmax_forward_cpu(float* out, const float* inp, int N, int C) {
    for (int i = 0; i < N; i++) {
        const float* inp_row = inp + i * C;
        float* out_row = out + i * C;
        float maxval = -INFINITY;
        for (int j = 0; j < C; j++) {
            if (inp_row[j] > maxval) maxval = inp_row[j];
        }
        double sum = 0.0;
        for (int j = 0; j < C; j++) {
            out_row[j] = expf(inp_row[j] - maxval);
            sum += out_row[j];
        }
        for (int j = 0; j < C; j++) out_row[j] /= (float)sum;
    }
}

// GPU kernel
__global__ void softmax_forward_kernel(float* out, const float* inp, int N, int C) {
    // inp is (N, C); each row of C elements is handled by one warp
    cg::thread_block block = cg::this_thread_block();
    cg::thread_block_tile<32> warp = cg::tiled_partition<32>(block);
    int idx = blockIdx.x * warp.meta_group_size() + warp.meta_group_rank();
    if (idx >= N) return;
    const float* x = inp + idx * C;

    float maxval = -INFINITY;
    for (int i = warp.thread_rank(); i < C; i += warp.size()) maxval = fmaxf(maxval, x[i]);
    maxval = cg::reduce(warp, maxval, cg::greater<float>{});

    float sumval = 0.0f;
    for (int i = warp.thread_rank(); i < C; i += warp.size()) sumval += expf(x[i] - maxval);
    sumval = cg::reduce(warp, sumval, cg::plus<float>{});

    for (int i = warp.thread_rank(); i < C; i += warp.size()) {
        out[idx * C + i] = expf(x[i] - maxval) / sumval;
    }
}

void softmax_forward(float* out, const float* inp, int N, int C, const int block_size) {
    const int rows_per_block = block_size / 32;
    const int grid_size = (N + rows_per_block - 1) / rows_per_block;
    softmax_forward_kernel<<<grid_size, block_size>>>(out, inp, N, C);
    cudaCheck(cudaGetLastError());
}

int main() {
    const int N = 37, C = 300;
    srand(0);
    float* out = (float*)malloc(N * C * sizeof(float));
    float* gpu = (float*)malloc(N * C * sizeof(float));
    float* inp = (float*)malloc(N * C * sizeof(float));
    for (int i = 0; i < N * C; i++) inp[i] = rand() / (float)RAND_MAX * 2.0f - 1.0f;
    softmax_forward_cpu(out, inp, N, C);

    float *d_out, *d_inp;
    cudaCheck(cudaMalloc(&d_out, N * C * sizeof(float)));
    cudaCheck(cudaMalloc(&d_inp, N * C * sizeof(float)));
    cudaCheck(cudaMemcpy(d_inp, inp, N * C * sizeof(float), cudaMemcpyHostToDevice));

    int block_sizes[] = {32, 128, 512};
    for (int b = 0; b < 3; b++) {
        softmax_forward(d_out, d_inp, N, C, block_sizes[b]);
        cudaCheck(cudaDeviceSynchronize());
        cudaCheck(cudaMemcpy(gpu, d_out, N * C * sizeof(float), cudaMemcpyDeviceToHost));
        for (int i = 0; i < N * C; i++) {
            if (fabsf(out[i] - gpu[i]) > 1e-5f) {
                printf("Mismatch at %d with block size %d: %f vs %f\n", i, block_sizes[b], out[i], gpu[i]);
                exit(EXIT_FAILURE);
            }
        }
    }
    printf("All results match.\n");

    cudaCheck(cudaFree(d_out));
    cudaCheck(cudaFree(d_inp));
    free(out);
    free(gpu);
    free(inp);
    return 0;
}
