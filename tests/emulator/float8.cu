// Sums of 8-bit floats by Hopper's tensor cores. nvcc compiles this file too; on a GPU, its
// kernels run on sm_90a only.
#include "common/launch.cuh"
#include "common/ptx/barrier.cuh"
#include "common/ptx/tma.cuh"
#include "common/ptx/wgmma_float8.cuh"
#include "launch.h"

constexpr int ROWS = 64, COLUMNS = 128;
constexpr int CHUNKS = 8;  // of 16 bytes, in a row of 128
constexpr int SHARED_BYTES = (ROWS + COLUMNS) * CHUNKS * 16;

// d (64 x 128) = a (64 x 32 n) * b (32 n x 128) + c, by n of at most 4 multiplications. Rows of
// a and columns of b are contiguous, and 128 bytes long.
template <ptx::Float8 A_TYPE, ptx::Float8 B_TYPE>
__global__ void __launch_bounds__(128) float8_sums_kernel(
    float* d_out, const uint4* a, const uint4* b, const float* c, int n
) {
#if defined(TWIN_EMULATOR) || defined(__CUDA_ARCH_FEAT_SM90_ALL)
    DYNAMIC_SHARED(shared, 1024);
    auto* const rows = reinterpret_cast<uint4(*)[CHUNKS]>(shared);
    const int thread = threadIdx.x;
    for (int i = thread; i < (ROWS + COLUMNS) * CHUNKS; i += 128) {
        const int row = i / CHUNKS, chunk = i % CHUNKS;
        rows[row][chunk ^ row % 8] = row < ROWS ? a[i] : b[i - ROWS * CHUNKS];
    }
    ptx::fence_async_proxy();
    __syncthreads();

    const auto place = [=](int i) {
        const int row = thread / 32 * 16 + thread % 32 / 4 + i / 2 % 2 * 8;
        return row * COLUMNS + i / 4 * 8 + thread % 4 * 2 + i % 2;
    };
    float d[COLUMNS / 2];
    for (int i = 0; i < COLUMNS / 2; ++i) d[i] = c[place(i)];
    const uint64_t left = ptx::wgmma_descriptor(&rows[0], 0, 1024);
    const uint64_t right = ptx::wgmma_descriptor(&rows[ROWS], 0, 1024);
    ptx::wgmma_fence();
    for (int i = 0; i < n; ++i) {
        ptx::wgmma_m64k32<COLUMNS, A_TYPE, B_TYPE>(
            d, ptx::wgmma_advance(left, 32 * i), ptx::wgmma_advance(right, 32 * i), true
        );
    }
    ptx::wgmma_commit_group();
    ptx::wgmma_wait_group<0>();
    for (int i = 0; i < COLUMNS / 2; ++i) d_out[place(i)] = d[i];
#endif
}

#define FLOAT8_SUMS(A_TYPE, B_TYPE)                                         \
    EXPORT int float8_sums_##A_TYPE##_##B_TYPE(                             \
        float* d, const uint4* a, const uint4* b, const float* c, int64_t n \
    ) {                                                                     \
        constexpr auto KERNEL =                                             \
            float8_sums_kernel<ptx::Float8::A_TYPE, ptx::Float8::B_TYPE>;   \
        return launch(KERNEL, 1, 128, SHARED_BYTES, d, a, b, c, n);         \
    }

FLOAT8_SUMS(e4m3, e4m3)
FLOAT8_SUMS(e4m3, e5m2)
FLOAT8_SUMS(e5m2, e4m3)
FLOAT8_SUMS(e5m2, e5m2)
