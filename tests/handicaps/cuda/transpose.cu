// Transposes tiles of 32 x 32 in shared memory, whose rows are padded by one element.
extern "C" __global__ void transpose(
    float* __restrict__ out_ptr, const float* __restrict__ x_ptr
) {
    __shared__ float tile[32][33];
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    #pragma unroll
    for (int row = warp; row < 32; row += 4) {
        tile[row][lane] = x_ptr[(blockIdx.x * 32 + row) * 32 + lane];
    }
    __syncthreads();
    #pragma unroll
    for (int row = warp; row < 32; row += 4) {
        out_ptr[(blockIdx.x * 32 + row) * 32 + lane] = tile[lane][row];
    }
}
