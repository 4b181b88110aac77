template <typename T>
__device__ inline T larger(T a, T b) {
    return (a > b || a != a) ? a : b;  // NaN is the largest of all
}

template <typename T, int BLOCK>
__global__ void row_max(T* out, const T* in, int cols) {
    __shared__ T best[BLOCK];
    const T* row = in + blockIdx.x * cols;
    T mine = row[0];
    for (int i = threadIdx.x; i < cols; i += BLOCK) {
        mine = larger(row[i], mine);
    }
    best[threadIdx.x] = mine;
    __syncthreads();
    for (int half = BLOCK / 2; half > 0; half /= 2) {
        if (threadIdx.x < half) {
            best[threadIdx.x] = larger(best[threadIdx.x], best[threadIdx.x + half]);
        }
        __syncthreads();
    }
    if (threadIdx.x == 0) out[blockIdx.x] = best[0];
}
