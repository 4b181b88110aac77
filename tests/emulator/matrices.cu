// Matrix instructions on fragments that the caller lays out. nvcc compiles this file
// too.
#include "common/ptx/mma.cuh"
#include "launch.h"
#include "ptx.cuh"

// ---- ldmatrix: lane l reads a row at places[l], in elements -------------------------

constexpr int ELEMENTS = 1024;

template <bool TRANSPOSED>
__global__ void load_matrices_kernel(
    uint32_t* out, const uint16_t* x, const int* places
) {
    __shared__ __align__(16) uint16_t shared[ELEMENTS];
    for (int i = threadIdx.x; i < ELEMENTS; i += blockDim.x) shared[i] = x[i];
    __syncthreads();
    uint32_t fragment[4];
    const uint16_t* row = shared + places[threadIdx.x % 32];
    if constexpr (TRANSPOSED) {
        ptx::ldmatrix_transposed(fragment, row);
    } else {
        ptx::ldmatrix(fragment, row);
    }
    for (int i = 0; i < 4; ++i) out[4 * threadIdx.x + i] = fragment[i];
}

EXPORT int load_matrices(
    uint32_t* out, const uint16_t* x, const int* places, int64_t transposed
) {
    return launch(
        transposed ? load_matrices_kernel<true> : load_matrices_kernel<false>, 1, 64, 0,
        out, x, places
    );
}

// ---- mma.sync: one product for every block of 32 threads ----------------------------

template <int COUNT, typename T>
__device__ void read_fragment(T (&fragment)[COUNT], const T* fragments) {
    const int64_t thread = blockIdx.x * int64_t{blockDim.x} + threadIdx.x;
    for (int i = 0; i < COUNT; ++i) fragment[i] = fragments[COUNT * thread + i];
}

template <int COUNT, typename T>
__device__ void write_fragment(T* fragments, const T (&fragment)[COUNT]) {
    const int64_t thread = blockIdx.x * int64_t{blockDim.x} + threadIdx.x;
    for (int i = 0; i < COUNT; ++i) fragments[COUNT * thread + i] = fragment[i];
}

template <typename T, typename Accumulator, int ACCUMULATORS>
__global__ void mma_kernel(
    Accumulator* d_out, const uint32_t* a_in, const uint32_t* b_in,
    const Accumulator* c_in
) {
    uint32_t a[4], b[2];
    Accumulator c[ACCUMULATORS], d[ACCUMULATORS];
    read_fragment(a, a_in);
    read_fragment(b, b_in);
    read_fragment(c, c_in);
    if constexpr (std::is_same_v<T, float>) {
        ptx::mma_m16n8k8_tf32(d, a, b, c);
    } else {
        ptx::mma_m16n8k16<T>(d, a, b, c);
    }
    write_fragment(d_out, d);
}

template <typename T>
int mma(float* d, const uint32_t* a, const uint32_t* b, const float* c, int64_t n) {
    return launch(mma_kernel<T, float, 4>, n, 32, 0, d, a, b, c);
}

EXPORT int mma_half(
    float* d, const uint32_t* a, const uint32_t* b, const float* c, int64_t n
) {
    return mma<__half>(d, a, b, c, n);
}

EXPORT int mma_bfloat16(
    float* d, const uint32_t* a, const uint32_t* b, const float* c, int64_t n
) {
    return mma<__nv_bfloat16>(d, a, b, c, n);
}

EXPORT int mma_tf32(
    float* d, const uint32_t* a, const uint32_t* b, const float* c, int64_t n
) {
    return mma<float>(d, a, b, c, n);
}

EXPORT int mma_half_half(
    uint32_t* d, const uint32_t* a, const uint32_t* b, const uint32_t* c, int64_t n
) {
    return launch(mma_kernel<__half, uint32_t, 2>, n, 32, 0, d, a, b, c);
}
