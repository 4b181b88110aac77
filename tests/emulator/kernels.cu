// The usual kinds of kernels, each in the way it is usually written: much of what the
// emulator models, in combination. nvcc compiles this file too.
#include <cuda_bf16.h>

#include "common/launch.cuh"
#include "common/ptx/async_copy.cuh"
#include "common/ptx/mma.cuh"
#include "launch.h"

// ---- Elementwise, four at a time ----------------------------------------------------

__global__ void add_kernel(float4* out, const float4* x, const float4* y, int64_t n) {
    const int64_t i = blockIdx.x * int64_t{blockDim.x} + threadIdx.x;
    if (i >= n) return;
    const float4 a = x[i], b = y[i];
    out[i] = make_float4(a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w);
}

EXPORT int add(float* out, const float* x, const float* y, int64_t n) {
    return launch(
        add_kernel, ceil_div(n / 4, 256), 256, 0, reinterpret_cast<float4*>(out),
        reinterpret_cast<const float4*>(x), reinterpret_cast<const float4*>(y), n / 4
    );
}

__global__ void gelu_kernel(float* out, const float* x, int64_t n) {
    const int64_t stride = int64_t{gridDim.x} * blockDim.x;
    for (int64_t i = blockIdx.x * int64_t{blockDim.x} + threadIdx.x; i < n;
         i += stride) {
        out[i] = 0.5f * x[i] * (1.0f + erff(x[i] * 0.70710678f));
    }
}

EXPORT int gelu(float* out, const float* x, int64_t n) {
    return launch(gelu_kernel, 8, 128, 0, out, x, n);
}

// ---- Softmax: a block for every row -------------------------------------------------

template <typename Combine>
__device__ float reduce_block(float value, float identity, Combine combine) {
    __shared__ float partials[32];
    for (int distance = 16; distance > 0; distance /= 2) {
        value = combine(value, __shfl_xor_sync(0xffffffff, value, distance));
    }
    const unsigned lane = threadIdx.x % 32;
    if (lane == 0) partials[threadIdx.x / 32] = value;
    __syncthreads();
    value = lane < blockDim.x / 32 ? partials[lane] : identity;
    for (int distance = 16; distance > 0; distance /= 2) {
        value = combine(value, __shfl_xor_sync(0xffffffff, value, distance));
    }
    __syncthreads();
    return value;
}

__global__ void softmax_kernel(float* out, const float* x, int n_cols) {
    const float* row = x + int64_t{blockIdx.x} * n_cols;
    float thread_max = -INFINITY;
    for (int col = threadIdx.x; col < n_cols; col += blockDim.x) {
        thread_max = fmaxf(thread_max, row[col]);
    }
    const float row_max = reduce_block(thread_max, -INFINITY, [](float a, float b) {
        return fmaxf(a, b);
    });
    float thread_sum = 0.0f;
    for (int col = threadIdx.x; col < n_cols; col += blockDim.x) {
        thread_sum += expf(row[col] - row_max);
    }
    const float row_sum =
        reduce_block(thread_sum, 0.0f, [](float a, float b) { return a + b; });
    for (int col = threadIdx.x; col < n_cols; col += blockDim.x) {
        out[int64_t{blockIdx.x} * n_cols + col] = expf(row[col] - row_max) / row_sum;
    }
}

EXPORT int softmax(float* out, const float* x, int64_t n_rows, int64_t n_cols) {
    return launch(softmax_kernel, n_rows, 256, 0, out, x, n_cols);
}

// ---- Matrix product in float32: a tile of 64 x 64 for every block -------------------

constexpr int TILE = 64;
constexpr int TILE_K = 16;
constexpr int OUTPUTS = 4;  // of every thread along each side

__global__ void matmul_kernel(
    float* out, const float* a, const float* b, int m, int n, int k
) {
    __shared__ float a_tile[TILE_K][TILE];
    __shared__ float b_tile[TILE_K][TILE];
    const int first_row = blockIdx.y * TILE, first_col = blockIdx.x * TILE;
    const int thread_row = threadIdx.y * OUTPUTS, thread_col = threadIdx.x * OUTPUTS;
    const int thread = threadIdx.y * blockDim.x + threadIdx.x;
    const int threads = blockDim.x * blockDim.y;

    float sums[OUTPUTS][OUTPUTS] = {};
    for (int first_k = 0; first_k < k; first_k += TILE_K) {
        for (int i = thread; i < TILE * TILE_K; i += threads) {
            const int row = first_row + i / TILE_K, inner = first_k + i % TILE_K;
            a_tile[i % TILE_K][i / TILE_K] =
                row < m && inner < k ? a[int64_t{row} * k + inner] : 0.0f;
        }
        for (int i = thread; i < TILE * TILE_K; i += threads) {
            const int inner = first_k + i / TILE, col = first_col + i % TILE;
            b_tile[i / TILE][i % TILE] =
                inner < k && col < n ? b[int64_t{inner} * n + col] : 0.0f;
        }
        __syncthreads();
        for (int inner = 0; inner < TILE_K; ++inner) {
            for (int i = 0; i < OUTPUTS; ++i) {
                for (int j = 0; j < OUTPUTS; ++j) {
                    sums[i][j] +=
                        a_tile[inner][thread_row + i] * b_tile[inner][thread_col + j];
                }
            }
        }
        __syncthreads();
    }
    for (int i = 0; i < OUTPUTS; ++i) {
        for (int j = 0; j < OUTPUTS; ++j) {
            const int row = first_row + thread_row + i;
            const int col = first_col + thread_col + j;
            if (row < m && col < n) out[int64_t{row} * n + col] = sums[i][j];
        }
    }
}

EXPORT int matmul(
    float* out, const float* a, const float* b, int64_t m, int64_t n, int64_t k
) {
    const dim3 grid(ceil_div(n, TILE), ceil_div(m, TILE));
    const dim3 block(TILE / OUTPUTS, TILE / OUTPUTS);
    return launch(matmul_kernel, grid, block, 0, out, a, b, m, n, k);
}

// ---- Matrix product in bfloat16 on the tensor cores ---------------------------------

// A block of 2 x 2 warps makes a tile of 64 x 64, each warp 32 x 32 of it, in steps of
// 32 along k. While one step is computed, the next one is copied.
constexpr int STAGES = 2;
constexpr int STEP_K = 32;
constexpr int VEC = 8;  // elements that one copy of 16 bytes moves

// Every row has a padding of 16 bytes, so that the rows that one ldmatrix reads lie in
// different banks.
constexpr int A_ROW = STEP_K + VEC;
constexpr int B_ROW = TILE + VEC;

struct Stage {
    __nv_bfloat16 a[TILE][A_ROW];
    __nv_bfloat16 b[STEP_K][B_ROW];
};

// Starts to copy ROWS x COLS elements from (first_row, first_col) of a matrix; elements
// outside of the matrix become 0.
template <int ROWS, int COLS, int TARGET_ROW>
__device__ void start_tile_copy(
    __nv_bfloat16 (*target)[TARGET_ROW], const __nv_bfloat16* matrix, int n_rows,
    int n_cols, int first_row, int first_col
) {
    constexpr int VECS = COLS / VEC;
    for (int i = threadIdx.x; i < ROWS * VECS; i += blockDim.x) {
        const int row = first_row + i / VECS, col = first_col + i % VECS * VEC;
        const bool is_inside = row < n_rows && col < n_cols;
        const __nv_bfloat16* source =
            is_inside ? matrix + int64_t{row} * n_cols + col : matrix;
        ptx::cp_async<16>(
            &target[i / VECS][i % VECS * VEC], source, is_inside ? 16 : 0
        );
    }
}

// n and k are multiples of 8. WAIT_FOR is 1 in a correct kernel, which waits for all
// groups of copies but the newest.
template <int WAIT_FOR>
__global__ void __launch_bounds__(128) mma_matmul_kernel(
    float* out, const __nv_bfloat16* a, const __nv_bfloat16* b, int m, int n, int k
) {
    DYNAMIC_SHARED(shared, 16);
    Stage* stages = reinterpret_cast<Stage*>(shared);
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const int block_row = blockIdx.y * TILE, block_col = blockIdx.x * TILE;
    const int warp_row = warp / 2 * 32, warp_col = warp % 2 * 32;

    const auto start_stage = [&](int step) {
        Stage& stage = stages[step % STAGES];
        start_tile_copy<TILE, STEP_K>(stage.a, a, m, k, block_row, step * STEP_K);
        start_tile_copy<STEP_K, TILE>(stage.b, b, k, n, step * STEP_K, block_col);
    };

    float sums[2][4][4] = {};  // 2 x 4 products of 16 x 8
    const int n_steps = (k + STEP_K - 1) / STEP_K;
    start_stage(0);
    ptx::cp_async_commit_group();
    for (int step = 0; step < n_steps; ++step) {
        // After the last step the group is empty, so that one wait serves all steps.
        if (step + 1 < n_steps) start_stage(step + 1);
        ptx::cp_async_commit_group();
        ptx::cp_async_wait_group<WAIT_FOR>();
        __syncthreads();
        const Stage& stage = stages[step % STAGES];
        for (int inner = 0; inner < STEP_K; inner += 16) {
            uint32_t a_fragments[2][4], b_fragments[2][4];
            for (int i = 0; i < 2; ++i) {
                const int row = warp_row + 16 * i + lane % 16;
                ptx::ldmatrix(a_fragments[i], &stage.a[row][inner + lane / 16 * 8]);
            }
            for (int j = 0; j < 2; ++j) {
                const int row = inner + lane % 16;
                const int col = warp_col + 16 * j + lane / 16 * 8;
                ptx::ldmatrix_transposed(b_fragments[j], &stage.b[row][col]);
            }
            for (int i = 0; i < 2; ++i) {
                for (int j = 0; j < 4; ++j) {
                    const uint32_t* two = &b_fragments[j / 2][j % 2 * 2];
                    const uint32_t b_fragment[2] = {two[0], two[1]};
                    ptx::mma_m16n8k16<__nv_bfloat16>(
                        sums[i][j], a_fragments[i], b_fragment, sums[i][j]
                    );
                }
            }
        }
        __syncthreads();
    }
    for (int i = 0; i < 2; ++i) {
        for (int j = 0; j < 4; ++j) {
            const int col = block_col + warp_col + 8 * j + lane % 4 * 2;
            for (int upper = 0; upper < 2; ++upper) {
                const int row = block_row + warp_row + 16 * i + 8 * upper + lane / 4;
                if (row >= m || col >= n) continue;
                out[int64_t{row} * n + col] = sums[i][j][2 * upper];
                out[int64_t{row} * n + col + 1] = sums[i][j][2 * upper + 1];
            }
        }
    }
}

template <int WAIT_FOR>
int mma_matmul(
    float* out, const __nv_bfloat16* a, const __nv_bfloat16* b, int64_t m, int64_t n,
    int64_t k
) {
    const dim3 grid(ceil_div(n, TILE), ceil_div(m, TILE));
    const size_t bytes = STAGES * sizeof(Stage);
    return launch(mma_matmul_kernel<WAIT_FOR>, grid, 128, bytes, out, a, b, m, n, k);
}

EXPORT int matmul_bf16(
    float* out, const __nv_bfloat16* a, const __nv_bfloat16* b, int64_t m, int64_t n,
    int64_t k
) {
    return mma_matmul<1>(out, a, b, m, n, k);
}

// Waits for too few copies.
EXPORT int matmul_bf16_weak_wait(
    float* out, const __nv_bfloat16* a, const __nv_bfloat16* b, int64_t m, int64_t n,
    int64_t k
) {
    return mma_matmul<2>(out, a, b, m, n, k);
}

// ---- Environment --------------------------------------------------------------------

EXPORT int synchronize() { return cudaDeviceSynchronize(); }

EXPORT const char* last_message(int error) {
    return cudaGetErrorString(static_cast<cudaError_t>(error));
}
