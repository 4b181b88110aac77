// Gradients of queries that blocks add up in memory: the kernels before and after
// attention_backward_kernel, in backward_twin.cuh.
#pragma once

#include "attention/backward_rings.cuh"
#include "common/reduce.cuh"

namespace twin {

constexpr int BEGIN_NUM_THREADS = 512;

// What a block of keys needs of 64 queries; a query behind the last one has inf and 0.
struct QueryStatistics {
    float lse[BOX_SIZE];  // in units of log 2
    float delta[BOX_SIZE];
};

// 64 queries of a head: statistics, and what is added up, in boxes of 64 columns. A box has
// the order in which a warpgroup holds 64 x 64 sums: four of each thread, then four more of
// each. So an instruction of a warp adds to 512 neighbouring bytes, four lines of the L2.
template <int HEAD_DIM>
struct alignas(128) QuerySums {
    float4 boxes[HEAD_DIM / BOX_SIZE][BOX_SIZE / 8][WARPGROUP_SIZE];
    QueryStatistics statistics;
    int n_added;  // blocks that have added their parts, where they take turns
};

// How many of them a head has, if a block of keys takes BLOCK_M queries at a time.
template <int BLOCK_M>
__host__ __device__ constexpr int64_t count_sums(int64_t n_queries) {
    return (n_queries + BLOCK_M - 1) / BLOCK_M * (BLOCK_M / BOX_SIZE);
}

}  // namespace twin

// Before: statistics, of which attention_delta_kernel has the formula, and sums of 0, to which
// nobody has added.
template <typename T, int HEAD_DIM>
__global__ void __launch_bounds__(twin::BEGIN_NUM_THREADS) attention_begin_sums_kernel(
    twin::QuerySums<HEAD_DIM>* __restrict__ sums_ptr,  // (n_batches, n_heads, n_sums)
    const T* __restrict__ grad_ptr,  // (n_batches, n_queries, n_heads, head_dim)
    const T* __restrict__ out_ptr,   // (n_batches, n_queries, n_heads, head_dim)
    const float* __restrict__ grad_lse_ptr,  // (n_batches, n_heads, n_queries), or null
    const float* __restrict__ lse_ptr,       // (n_batches, n_heads, n_queries)
    int n_sums, int n_heads, int n_queries, int head_dim, int64_t grad_stride_batch,
    int64_t grad_stride_row, int64_t grad_stride_head, int64_t out_stride_batch,
    int64_t out_stride_row, int64_t out_stride_head
) {
    using namespace twin;
    // -- tile: a block owns 64 queries of a head, and so many lanes one of them
    constexpr int VEC_SIZE = VEC_BYTES / sizeof(T);
    constexpr int LANES = BEGIN_NUM_THREADS / BOX_SIZE;
    const int lane = threadIdx.x % LANES, row = threadIdx.x / LANES;
    const int query = blockIdx.x % n_sums * BOX_SIZE + row;
    const int head = blockIdx.x / n_sums % n_heads;
    const int batch = blockIdx.x / n_sums / n_heads;
    const int64_t statistic = (int64_t{batch} * n_heads + head) * n_queries + query;
    const bool is_query = query < n_queries;
    grad_ptr +=
        batch * grad_stride_batch + query * grad_stride_row + head * grad_stride_head;
    out_ptr +=
        batch * out_stride_batch + query * out_stride_row + head * out_stride_head;

    const bool is_aligned = reinterpret_cast<uintptr_t>(out_ptr) % VEC_BYTES == 0;

    // -- compute: in float32
    float delta = 0.0f;
    #pragma unroll
    for (int d = lane * VEC_SIZE; d < HEAD_DIM; d += LANES * VEC_SIZE) {
        const int64_t n_valid = is_query ? head_dim - d : 0;
        const auto grad = load<VEC_SIZE>(grad_ptr + d, n_valid, T{});
        const auto out = load<VEC_SIZE>(out_ptr + d, n_valid, T{}, is_aligned);
        for (int i = 0; i < VEC_SIZE; ++i) {
            delta += to_float(grad[i]) * to_float(out[i]);
        }
    }
    delta = warp_reduce<LANES>(delta, Sum{});

    // -- store: in float32
    QuerySums<HEAD_DIM>& sums = sums_ptr[blockIdx.x];
    if (lane == 0) {
        if (grad_lse_ptr && is_query) delta -= grad_lse_ptr[statistic];
        sums.statistics.delta[row] = delta;
        sums.statistics.lse[row] =
            lse_to_log2(is_query ? lse_ptr[statistic] : -INFINITY);
    }
    if (threadIdx.x == 0) sums.n_added = 0;
    constexpr int NUM_VECTORS = sizeof(sums.boxes) / sizeof(float4);
    float4* boxes = &sums.boxes[0][0][0];
    #pragma unroll
    for (int i = 0; i < NUM_VECTORS; i += BEGIN_NUM_THREADS) {
        boxes[i + threadIdx.x] = {};
    }
}

// After: the sums, times a factor and rounded.
template <typename T, int HEAD_DIM>
__global__ void __launch_bounds__(twin::WARPGROUP_SIZE) attention_end_sums_kernel(
    // (n_batches, n_queries, n_heads, head_dim)
    const __grid_constant__ TensorMap4D grad_q_map,
    // (n_batches, n_heads, n_sums)
    const twin::QuerySums<HEAD_DIM>* __restrict__ sums_ptr, int n_sums, int n_heads,
    float scale
) {
#if defined(TWIN_EMULATOR) || defined(__CUDA_ARCH_FEAT_SM90_ALL)
    using namespace twin;
    // -- tile: a block owns 64 queries of a head, and 64 columns
    constexpr int COL_BOXES = HEAD_DIM / BOX_SIZE;
    DYNAMIC_SHARED(shared_bytes, 1024);
    Box& rows = *reinterpret_cast<Box*>(shared_bytes);
    const int col_box = blockIdx.x % COL_BOXES, index = blockIdx.x / COL_BOXES;
    const int head = index / n_sums % n_heads, batch = index / n_sums / n_heads;

    // -- load: a warpgroup's sums
    float sums[BOX_SIZE / 8][2][2];
    #pragma unroll
    for (int i = 0; i < BOX_SIZE / 8; ++i) {
        const float4 four = sums_ptr[index].boxes[col_box][i][threadIdx.x];
        sums[i][0][0] = four.x, sums[i][0][1] = four.y;
        sums[i][1][0] = four.z, sums[i][1][1] = four.w;
    }

    // -- store: by way of shared memory, rounded once
    store_rows<T, BOX_SIZE>(&rows, sums, {scale, scale}, threadIdx.x);
    ptx::fence_async_proxy();
    __syncthreads();
    if (threadIdx.x == 0) {
        ptx::tma_store(
            &grad_q_map.map, col_box * BOX_SIZE, index % n_sums * BOX_SIZE, head, batch,
            &rows
        );
        ptx::tma_store_commit_group();
        ptx::tma_store_wait_group_read<0>();
    }
#endif
}
