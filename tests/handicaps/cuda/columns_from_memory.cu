// Reads columns of global memory: every lane of a warp touches a sector of its own.
extern "C" __global__ void columns_from_memory(
    float* __restrict__ out_ptr, const float* __restrict__ x_ptr
) {
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    #pragma unroll
    for (int row = warp; row < 32; row += 4) {
        out_ptr[(blockIdx.x * 32 + row) * 32 + lane] =
            x_ptr[(blockIdx.x * 32 + lane) * 32 + row];
    }
}
