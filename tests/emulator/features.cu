// Kernels that use one feature of CUDA each; test_emulator.py checks what they compute.
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cfenv>

#include "launch.h"

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

// ---- Indices ------------------------------------------------------------------------

__global__ void indices_kernel(unsigned* out) {
    unsigned thread =
        threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
    unsigned block = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
    unsigned* row = out + 6 * (block * blockDim.x * blockDim.y * blockDim.z + thread);
    row[0] = threadIdx.x;
    row[1] = threadIdx.y;
    row[2] = threadIdx.z;
    row[3] = blockIdx.x;
    row[4] = blockIdx.y;
    row[5] = blockIdx.z;
}

EXPORT int indices(unsigned* out, const unsigned* grid, const unsigned* block) {
    return launch(
        indices_kernel, dim3(grid[0], grid[1], grid[2]),
        dim3(block[0], block[1], block[2]), 0, out
    );
}

// ---- Shared memory and barriers -----------------------------------------------------

template <int NUM_THREADS>
__global__ void reverse_kernel(float* out, const float* x) {
    __shared__ float fixed[NUM_THREADS];
    unsigned char* bytes = emulator::dynamic_shared();
    auto* dynamic = reinterpret_cast<float*>(bytes);
    unsigned i = threadIdx.x;
    unsigned first = blockIdx.x * NUM_THREADS;
    fixed[i] = x[first + i];
    __syncthreads();
    dynamic[i] = fixed[NUM_THREADS - 1 - i];
    __syncthreads();
    // Reversed twice and rotated once.
    out[first + i] = dynamic[NUM_THREADS - 1 - (i + 1) % NUM_THREADS];
}

EXPORT int reverse(float* out, const float* x, int64_t blocks) {
    return launch(reverse_kernel<96>, blocks, 96, 96 * sizeof(float), out, x);
}

__global__ void barrier_votes_kernel(int* out, const int* x) {
    unsigned i = threadIdx.x;
    out[3 * i] = __syncthreads_count(x[i]);
    out[3 * i + 1] = __syncthreads_and(x[i]);
    out[3 * i + 2] = __syncthreads_or(x[i]);
}

EXPORT int barrier_votes(int* out, const int* x, int64_t threads) {
    return launch(barrier_votes_kernel, 1, threads, 0, out, x);
}

// Threads that have returned count as arrived, a whole warp or part of one.
__global__ void early_exit_kernel(int* out, const int* leaves) {
    const unsigned i = threadIdx.x;
    if (leaves[i] == 1) return;
    __syncthreads();
    if (leaves[i] == 2) return;
    out[2 * i] = __syncthreads_count(i % 2);
    out[2 * i + 1] = __syncthreads_and(1);
}

EXPORT int early_exit(int* out, const int* leaves, int64_t threads) {
    return launch(early_exit_kernel, 2, threads, 0, out, leaves);
}

__global__ void shared_bytes_kernel(unsigned char* out, unsigned bytes) {
    unsigned char* memory = emulator::dynamic_shared();
    if (reinterpret_cast<std::uintptr_t>(memory) % 1024 != 0) return;
    for (unsigned i = 0; i < bytes; ++i) memory[i] = static_cast<unsigned char>(i);
    for (unsigned i = 0; i < bytes; ++i) out[i] = memory[i];
}

EXPORT int shared_bytes(unsigned char* out, int64_t bytes, int64_t opt_in) {
    if (opt_in >= 0) {
        cudaError_t error = cudaFuncSetAttribute(
            shared_bytes_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
            static_cast<int>(opt_in)
        );
        if (error != cudaSuccess) return error;
    }
    return launch(shared_bytes_kernel, 1, 1, bytes, out, bytes);
}

// ---- Warp operations ----------------------------------------------------------------

template <typename T>
__global__ void shuffle_kernel(T* out, const T* x, const int* operand, int width) {
    unsigned lane = threadIdx.x;
    out[lane] = __shfl_sync(0xffffffff, x[lane], operand[lane], width);
    out[lane + 32] = __shfl_up_sync(0xffffffff, x[lane], operand[0], width);
    out[lane + 64] = __shfl_down_sync(0xffffffff, x[lane], operand[0], width);
    out[lane + 96] = __shfl_xor_sync(0xffffffff, x[lane], operand[0], width);
}

template <typename T>
int shuffle(void* out, const void* x, const int* operand, int64_t width) {
    auto* typed_out = static_cast<T*>(out);
    return launch(
        shuffle_kernel<T>, 1, 32, 0, typed_out, static_cast<const T*>(x), operand, width
    );
}

EXPORT int shuffle_float(void* out, const void* x, const int* operand, int64_t width) {
    return shuffle<float>(out, x, operand, width);
}
EXPORT int shuffle_int64(void* out, const void* x, const int* operand, int64_t width) {
    return shuffle<long long>(out, x, operand, width);
}
EXPORT int shuffle_half(void* out, const void* x, const int* operand, int64_t width) {
    return shuffle<__half>(out, x, operand, width);
}
EXPORT int shuffle_bf162(void* out, const void* x, const int* operand, int64_t width) {
    return shuffle<__nv_bfloat162>(out, x, operand, width);
}

__global__ void warp_kernel(int* out, const int* x) {
    unsigned lane = threadIdx.x;
    int value = x[lane];
    auto bits = static_cast<unsigned>(value);
    int* row = out + 12 * lane;
    row[0] = static_cast<int>(__ballot_sync(0xffffffff, value > 0));
    row[1] = __any_sync(0xffffffff, value > 6);
    row[2] = __all_sync(0xffffffff, value > -8);
    row[3] = __reduce_add_sync(0xffffffff, value);
    row[4] = __reduce_min_sync(0xffffffff, value);
    row[5] = __reduce_max_sync(0xffffffff, value);
    row[6] = static_cast<int>(__reduce_max_sync(0xffffffff, bits));
    row[7] = static_cast<int>(__reduce_xor_sync(0xffffffff, bits));
    row[8] = static_cast<int>(__match_any_sync(0xffffffff, value));
    int all_equal = 0;
    row[9] = static_cast<int>(__match_all_sync(0xffffffff, value, &all_equal));
    // Only the lanes of a branch are converged in it.
    if (lane % 3 == 0) {
        row[10] = static_cast<int>(__activemask());
    } else {
        row[10] = static_cast<int>(__activemask());
    }
    // Two groups of lanes, each with a mask of its own, at the same place.
    unsigned own_group = lane < 16 ? 0x0000ffff : 0xffff0000;
    __syncwarp(own_group);
    row[11] = __reduce_add_sync(own_group, value);
}

EXPORT int warp(int* out, const int* x) {
    return launch(warp_kernel, 1, 32, 0, out, x);
}

// The last warp has 8 lanes; CUDA code names all 32 in the mask nevertheless.
__global__ void partial_warp_kernel(int* out) {
    unsigned i = threadIdx.x;
    out[i] = __reduce_add_sync(0xffffffff, int{1});
}

EXPORT int partial_warp(int* out) { return launch(partial_warp_kernel, 1, 40, 0, out); }

// ---- Atomics ------------------------------------------------------------------------

__global__ void histogram_kernel(unsigned* bins, const unsigned char* x, int64_t n) {
    __shared__ unsigned local[256];
    local[threadIdx.x] = 0;
    __syncthreads();
    int64_t stride = int64_t{gridDim.x} * blockDim.x;
    for (int64_t i = blockIdx.x * int64_t{blockDim.x} + threadIdx.x; i < n;
         i += stride) {
        atomicAdd(&local[x[i]], 1);
    }
    __syncthreads();
    atomicAdd(&bins[threadIdx.x], local[threadIdx.x]);
}

EXPORT int histogram(unsigned* bins, const unsigned char* x, int64_t n) {
    return launch(histogram_kernel, 16, 256, 0, bins, x, n);
}

struct Sums {
    float f;
    double d;
    int i;
    unsigned long long u;
    __half h;
    __nv_bfloat16 b;
    __half2 h2;
    __nv_bfloat162 b2;
    float2 f2;
    float4 f4;
};

__global__ void sums_kernel(Sums* sums) {
    atomicAdd(&sums->f, 0.5f);
    atomicAdd(&sums->d, 0.25);
    atomicSub(&sums->i, 3);
    atomicAdd(&sums->u, 1ull << 33);
    if (blockIdx.x == 0) {
        atomicAdd(&sums->h, __half(2.0f));
        atomicAdd(&sums->b, __nv_bfloat16(1.0f));
        atomicAdd(&sums->b2, __nv_bfloat162(0.5f, 2.0f));
        // Through shared memory.
        __shared__ __half2 in_shared;
        if (threadIdx.x == 0) in_shared = __half2(0.0f, 0.0f);
        __syncthreads();
        atomicAdd(&in_shared, __half2(1.0f, -1.0f));
        __syncthreads();
        if (threadIdx.x == 0) atomicAdd(&sums->h2, in_shared);
    }
    atomicAdd(&sums->f2, make_float2(1.0f, 2.0f));
    atomicAdd(&sums->f4, make_float4(1.0f, 2.0f, 3.0f, 4.0f));
}

EXPORT int sums(double* out) {
    Sums sums{};
    int error = launch(sums_kernel, 8, 128, 0, &sums);
    out[0] = sums.f;
    out[1] = sums.d;
    out[2] = sums.i;
    out[3] = static_cast<double>(sums.u);
    out[4] = float{sums.h};
    out[5] = float{sums.b};
    out[6] = float{sums.h2.x};
    out[7] = float{sums.h2.y};
    out[8] = float{sums.b2.x};
    out[9] = float{sums.b2.y};
    out[10] = sums.f2.x + 1e5 * sums.f2.y;
    out[11] = sums.f4.x + 1e5 * sums.f4.w;
    return error;
}

__global__ void extremes_kernel(int* out, unsigned* tickets, unsigned* counters) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    int value = static_cast<int>(i * 7919 % 1024) - 300;
    atomicMax(&out[0], value);
    atomicMin(&out[1], value);
    atomicOr(&out[2], 1 << (i % 31));
    atomicAnd(&out[3], ~(1 << (i % 5)));
    atomicXor(&out[4], static_cast<int>(i));
    tickets[i] = atomicAdd(&counters[0], 1);
    atomicInc(&counters[1], 99);
    atomicDec(&counters[2], 99);
    atomicExch(&counters[3], 42);
}

EXPORT int extremes(int* out, unsigned* tickets, unsigned* counters) {
    return launch(extremes_kernel, 8, 128, 0, out, tickets, counters);
}

// A lock taken in turn by every thread: each of them polls.
__global__ void lock_kernel(int* lock, int64_t* counter) {
    while (atomicCAS(lock, 0, 1) != 0) {
    }
    *counter = *counter + 1;
    __threadfence();
    atomicExch(lock, 0);
}

EXPORT int lock(int* lock, int64_t* counter) {
    return launch(lock_kernel, 8, 64, 0, lock, counter);
}

// ---- Waiting for another thread or block --------------------------------------------

__global__ void handshake_kernel(int* flags, int* out) {
    // Every thread but the last waits for its neighbour: in any order, most of them
    // have to let others run.
    unsigned i = threadIdx.x;
    if (i + 1 < blockDim.x) {
        while (atomicAdd(&flags[i + 1], 0) == 0) __nanosleep(100);
    }
    out[i] = 1;
    atomicExch(&flags[i], 1);
}

EXPORT int handshake(int* flags, int* out) {
    return launch(handshake_kernel, 1, 64, 0, flags, out);
}

__global__ void volatile_handshake_kernel(volatile int* flags) {
    unsigned i = threadIdx.x;
    if (i + 1 < blockDim.x) {
        while (flags[i + 1] == 0) {
        }
    }
    flags[i] = 1;
}

EXPORT int volatile_handshake(int* flags) {
    return launch(volatile_handshake_kernel, 1, 4, 0, flags);
}

// All blocks must be resident at once.
__global__ void grid_barrier_kernel(unsigned* arrived, unsigned* out) {
    __syncthreads();
    if (threadIdx.x == 0) {
        atomicAdd(arrived, 1);
        while (atomicAdd(arrived, 0) < gridDim.x) __nanosleep(20);
    }
    __syncthreads();
    if (threadIdx.x == 0) out[blockIdx.x] = atomicAdd(arrived, 0);
}

EXPORT int grid_barrier(unsigned* arrived, unsigned* out, int64_t blocks) {
    return launch(grid_barrier_kernel, blocks, 32, 0, arrived, out);
}

// The last block to finish adds up the results of all.
__global__ void last_block_kernel(unsigned* finished, float* partial, float* out) {
    __shared__ bool is_last;
    if (threadIdx.x == 0) {
        partial[blockIdx.x] = static_cast<float>(blockIdx.x);
        __threadfence();
        is_last = atomicAdd(finished, 1) == gridDim.x - 1;
    }
    __syncthreads();
    if (is_last && threadIdx.x == 0) {
        float sum = 0;
        for (unsigned i = 0; i < gridDim.x; ++i) sum += partial[i];
        *out = sum;
    }
}

EXPORT int last_block(unsigned* finished, float* partial, float* out, int64_t blocks) {
    return launch(last_block_kernel, blocks, 32, 0, finished, partial, out);
}

// ---- Orders -------------------------------------------------------------------------

__global__ void order_kernel(unsigned* ticket, unsigned* out) {
    out[atomicAdd(ticket, 1)] = blockIdx.x * blockDim.x + threadIdx.x;
    __syncthreads();
    out[atomicAdd(ticket, 1)] = blockIdx.x * blockDim.x + threadIdx.x;
}

EXPORT int order(unsigned* ticket, unsigned* out, int64_t blocks) {
    return launch(order_kernel, blocks, 16, 0, ticket, out);
}

// ---- Environment --------------------------------------------------------------------

__global__ void halve_kernel(float* x) { *x *= 0.5f; }

// Launches while the program flushes denormal numbers to zero; *flushes tells whether
// it still does afterwards.
EXPORT int halve_while_flushing(float* x, int* flushes) {
#if defined(__x86_64__)
    constexpr unsigned FLUSH = 0x8040;
    unsigned before = _mm_getcsr();
    _mm_setcsr(before | FLUSH);
    int error = launch(halve_kernel, 1, 1, 0, x);
    *flushes = (_mm_getcsr() & FLUSH) == FLUSH;
    _mm_setcsr(before);
    return error;
#else
    *flushes = 1;
    return launch(halve_kernel, 1, 1, 0, x);
#endif
}

// The exit code of a child process that launches: 0 if the launch succeeds.
EXPORT int launch_in_child(unsigned* arrived, unsigned* out) {
    int error = grid_barrier(arrived, out, 4);
    pid_t child = fork();
    if (child == 0) {
        *arrived = 0;
        _exit(error != 0 || grid_barrier(arrived, out, 4) != 0 || out[3] != 4);
    }
    int status = 0;
    waitpid(child, &status, 0);
    return status;
}

EXPORT int last_error() { return cudaGetLastError(); }
