#define RADIUS 3

// Sum of the 2 * RADIUS + 1 neighbours of each element; zeros beyond the ends.
extern "C" __global__ void stencil_1d(const float *in, float *out, int n)
{
    extern __shared__ float temp[];  // blockDim.x + 2 * RADIUS
    int gindex = threadIdx.x + blockIdx.x * blockDim.x;
    int lindex = threadIdx.x + RADIUS;

    temp[lindex] = gindex < n ? in[gindex] : 0.0f;
    if (threadIdx.x < RADIUS) {
        int before = gindex - RADIUS;
        int after = gindex + blockDim.x;
        temp[lindex - RADIUS] = before >= 0 ? in[before] : 0.0f;
        temp[lindex + blockDim.x] = after < n ? in[after] : 0.0f;
    }
    __syncthreads();

    float result = 0.0f;
    for (int offset = -RADIUS; offset <= RADIUS; offset++)
        result += temp[lindex + offset];
    if (gindex < n)
        out[gindex] = result;
}
