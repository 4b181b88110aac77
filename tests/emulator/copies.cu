// Asynchronous copies. nvcc compiles this file too.
#include <cuda_pipeline.h>

#include "common/ptx/async_copy.cuh"
#include "launch.h"

// ---- Sizes: bytes that are not read become 0 ----------------------------------------

// Thread i reads i % (BYTES + 1) of its bytes, over what was there before.
template <int BYTES>
__global__ void copy_sizes_kernel(unsigned char* out, const unsigned char* x) {
    __shared__ __align__(16) unsigned char slots[64][BYTES];
    const unsigned i = threadIdx.x;
    for (int byte = 0; byte < BYTES; ++byte) slots[i][byte] = 0xaa;
    ptx::cp_async<BYTES>(slots[i], x + BYTES * i, i % (BYTES + 1));
    ptx::cp_async_wait_all();
    for (int byte = 0; byte < BYTES; ++byte) out[BYTES * i + byte] = slots[i][byte];

    // The whole, and through CUDA's own function.
    ptx::cp_async<BYTES>(slots[i], x + BYTES * i);
    ptx::cp_async_wait_all();
    unsigned char* second = out + 64 * BYTES;
    for (int byte = 0; byte < BYTES; ++byte) second[BYTES * i + byte] = slots[i][byte];

    for (int byte = 0; byte < BYTES; ++byte) slots[i][byte] = 0xaa;
    __pipeline_memcpy_async(slots[i], x + BYTES * i, BYTES, i % (BYTES + 1));
    __pipeline_commit();
    __pipeline_wait_prior(0);
    unsigned char* third = out + 2 * 64 * BYTES;
    for (int byte = 0; byte < BYTES; ++byte) third[BYTES * i + byte] = slots[i][byte];
}

EXPORT int copy_sizes(unsigned char* out, const unsigned char* x, int64_t bytes) {
    if (bytes == 4) return launch(copy_sizes_kernel<4>, 1, 64, 0, out, x);
    if (bytes == 8) return launch(copy_sizes_kernel<8>, 1, 64, 0, out, x);
    return launch(copy_sizes_kernel<16>, 1, 64, 0, out, x);
}

// ---- Groups -------------------------------------------------------------------------

// Every thread starts copies 0, then 1 and 2, then none, then 3, in a group each, and 4
// in no group. It writes which of them have arrived after a wait.
template <int UNFINISHED>
__global__ void copy_groups_kernel(int* out, const int* x) {
    __shared__ int slots[5][32];
    const unsigned i = threadIdx.x;
    for (int copy = 0; copy < 5; ++copy) slots[copy][i] = 0;
    const auto start = [&](int copy) {
        ptx::cp_async<4>(&slots[copy][i], x + 32 * copy + i);
    };
    start(0);
    ptx::cp_async_commit_group();
    start(1);
    start(2);
    ptx::cp_async_commit_group();
    ptx::cp_async_commit_group();
    start(3);
    ptx::cp_async_commit_group();
    start(4);
    if constexpr (UNFINISHED < 0) {
        ptx::cp_async_wait_all();
    } else {
        ptx::cp_async_wait_group<UNFINISHED>();
    }
    for (int copy = 0; copy < 5; ++copy) out[5 * i + copy] = slots[copy][i];
}

template <int UNFINISHED>
__global__ void pipeline_groups_kernel(int* out, const int* x) {
    __shared__ int slots[5][32];
    const unsigned i = threadIdx.x;
    for (int copy = 0; copy < 5; ++copy) slots[copy][i] = 0;
    const auto start = [&](int copy) {
        __pipeline_memcpy_async(&slots[copy][i], x + 32 * copy + i, sizeof(int));
    };
    start(0);
    __pipeline_commit();
    start(1);
    start(2);
    __pipeline_commit();
    __pipeline_commit();
    start(3);
    __pipeline_commit();
    start(4);
    __pipeline_wait_prior(UNFINISHED);
    for (int copy = 0; copy < 5; ++copy) out[5 * i + copy] = slots[copy][i];
}

// -1: waits for all, whether in a group or not.
EXPORT int copy_groups(int* out, const int* x, int64_t unfinished) {
    if (unfinished < 0) return launch(copy_groups_kernel<-1>, 1, 32, 0, out, x);
    if (unfinished == 0) return launch(copy_groups_kernel<0>, 1, 32, 0, out, x);
    if (unfinished == 1) return launch(copy_groups_kernel<1>, 1, 32, 0, out, x);
    if (unfinished == 2) return launch(copy_groups_kernel<2>, 1, 32, 0, out, x);
    if (unfinished == 3) return launch(copy_groups_kernel<3>, 1, 32, 0, out, x);
    return launch(copy_groups_kernel<4>, 1, 32, 0, out, x);
}

EXPORT int pipeline_groups(int* out, const int* x, int64_t unfinished) {
    if (unfinished == 0) return launch(pipeline_groups_kernel<0>, 1, 32, 0, out, x);
    if (unfinished == 1) return launch(pipeline_groups_kernel<1>, 1, 32, 0, out, x);
    if (unfinished == 2) return launch(pipeline_groups_kernel<2>, 1, 32, 0, out, x);
    if (unfinished == 3) return launch(pipeline_groups_kernel<3>, 1, 32, 0, out, x);
    return launch(pipeline_groups_kernel<4>, 1, 32, 0, out, x);
}

// ---- A thread that returns without a wait -------------------------------------------

// The other threads pass the barrier without it, and may find either value.
__global__ void abandoned_copy_kernel(int* out, const int* x) {
    __shared__ int slot;
    if (threadIdx.x == 0) {
        slot = -1;
        ptx::cp_async<4>(&slot, x);
        return;
    }
    __syncthreads();
    out[blockIdx.x * blockDim.x + threadIdx.x] = slot;
}

EXPORT int abandoned_copy(int* out, const int* x) {
    return launch(abandoned_copy_kernel, 3, 64, 0, out, x);
}
