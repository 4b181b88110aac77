// What attention needs of Hopper beyond matrix products: a left matrix in registers, boxes
// of tensors with four dimensions, copies of neighbouring bytes, sums in memory, and arrivals
// at named barriers. nvcc compiles this file too; on a GPU, the kernels run on sm_90a only.
#include <cuda.h>

#include "common/launch.cuh"
#include "common/ptx/bulk_copy.cuh"
#include "common/ptx/named_barrier.cuh"
#include "common/ptx/reduction.cuh"
#include "common/ptx/tma_4d.cuh"
#include "common/ptx/wgmma_registers.cuh"
#include "common/ptx/wgmma_shapes.cuh"
#include "common/tensor_map_4d.cuh"
#include "launch.h"

#if defined(TWIN_EMULATOR) || defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define HAS_HOPPER 1
#endif

// ---- Products of a matrix in registers, and of other widths -------------------------

enum class Fault : int64_t { none, fence, operand };

// The place of d[i], or of a's element i, in a lane's fragment of 64 rows.
struct Place {
    int row, column;
};

__device__ inline Place place_of(int i) {
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    return {16 * warp + lane / 4 + (i & 2) * 4, i / 4 * 8 + lane % 4 * 2 + (i & 1)};
}

// out (64 x N) = a (64 x 64) * b (64 x N), twice over where `fault` is none. With a fault,
// registers are written to without a fence, or before the wait.
template <typename T, int N>
__global__ void left_registers_kernel(
    float* out, const uint16_t* a, const __grid_constant__ TensorMap4D b_map,
    int64_t head, int64_t batch, Fault fault
) {
#ifdef HAS_HOPPER
    constexpr int BOX_BYTES = 64 * 128, BOXES = (N + 63) / 64;
    DYNAMIC_SHARED(shared, 1024);
    auto* const full = reinterpret_cast<uint64_t*>(shared + BOXES * BOX_BYTES);
    if (threadIdx.x == 0) {
        ptx::mbarrier_init(full, 1);
        ptx::fence_mbarrier_init();
        ptx::mbarrier_arrive_expect_bytes(full, BOXES * BOX_BYTES);
        for (int i = 0; i < BOXES; ++i) {
            ptx::tma_load(
                shared + i * BOX_BYTES, &b_map.map, 64 * i, 0, head, batch, full
            );
        }
    }
    __syncthreads();
    ptx::mbarrier_wait(full, 0);

    uint32_t left[4][4];
    for (int k = 0; k < 4; ++k) {
        for (int i = 0; i < 4; ++i) {
            const auto [row, column] = place_of(2 * i);
            const uint16_t* pair = a + 64 * row + 16 * k + column;
            left[k][i] = pair[0] | uint32_t{pair[1]} << 16;
        }
    }
    float d[N / 2] = {};
    for (int time = 0; time < (fault == Fault::operand ? 1 : 2); ++time) {
        if (time == 0 || fault != Fault::fence) ptx::wgmma_fence();
        for (int k = 0; k < 4; ++k) {
            const uint64_t b =
                ptx::wgmma_descriptor(shared + 16 * 128 * k, BOX_BYTES, 1024);
            ptx::wgmma_m64k16<T, ptx::Major::MN, N>(d, left[k], b, true);
        }
        ptx::wgmma_commit_group();
        if (fault == Fault::operand) left[3][3] = 0;
        ptx::wgmma_wait_group<0>();
    }
    for (int i = 0; i < N / 2; ++i) {
        const auto [row, column] = place_of(i);
        out[N * row + column] = d[i] + 0.0f * left[3][3];
    }
#endif
}

// out (64 x 80) = a (64 x 64) * b (80 x 64) transposed, both of which a map has.
template <typename T>
__global__ void narrow_product_kernel(
    float* out, const __grid_constant__ TensorMap4D a_map,
    const __grid_constant__ TensorMap4D b_map
) {
#ifdef HAS_HOPPER
    DYNAMIC_SHARED(shared, 1024);
    unsigned char* const b_box = shared + 64 * 128;
    auto* const full = reinterpret_cast<uint64_t*>(b_box + 80 * 128);
    if (threadIdx.x == 0) {
        ptx::mbarrier_init(full, 1);
        ptx::fence_mbarrier_init();
        ptx::mbarrier_arrive_expect_bytes(full, (64 + 80) * 128);
        ptx::tma_load(shared, &a_map.map, 0, 0, 0, 0, full);
        ptx::tma_load(b_box, &b_map.map, 0, 0, 0, 0, full);
    }
    __syncthreads();
    ptx::mbarrier_wait(full, 0);
    float d[40];
    ptx::wgmma_fence();
    for (int k = 0; k < 64; k += 16) {
        ptx::wgmma_m64k16<T, ptx::Major::K, ptx::Major::K, 80>(
            d, ptx::wgmma_descriptor(shared + 2 * k, 0, 1024),
            ptx::wgmma_descriptor(b_box + 2 * k, 0, 1024), k > 0
        );
    }
    ptx::wgmma_commit_group();
    ptx::wgmma_wait_group<0>();
    for (int i = 0; i < 40; ++i) {
        const auto [row, column] = place_of(i);
        out[80 * row + column] = d[i];
    }
#endif
}

template <typename T>
int left_registers(
    float* out, uint16_t* a, uint16_t* b, int64_t n, int64_t n_rows, int64_t n_heads,
    int64_t heads_first, int64_t head, int64_t batch, int64_t fault
) {
    // (2, n_rows, n_heads, n), in memory with rows or with heads outside.
    const HeadRows rows{
        b,
        2,
        n_rows,
        n_heads,
        n,
        n * n_rows * n_heads,
        heads_first ? n : n * n_heads,
        heads_first ? n * n_rows : n
    };
    if (!rows.have_tensor_map()) return 1;
    TensorMap4D map = make_tensor_map<T>(rows, 64);
    if (encode_tensor_map<T>(&map) != cudaSuccess) return 1;
    const auto start = [&](auto kernel) {
        const int bytes = 4 * 64 * 128 + 8;
        cudaFuncSetAttribute(
            kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes
        );
        return launch(kernel, 1, 128, bytes, out, a, map, head, batch, Fault{fault});
    };
    return n == 64    ? start(left_registers_kernel<T, 64>)
           : n == 96  ? start(left_registers_kernel<T, 96>)
           : n == 128 ? start(left_registers_kernel<T, 128>)
           : n == 192 ? start(left_registers_kernel<T, 192>)
                      : start(left_registers_kernel<T, 256>);
}

EXPORT int left_registers_bf16(
    float* out, uint16_t* a, uint16_t* b, int64_t n, int64_t n_rows, int64_t n_heads,
    int64_t heads_first, int64_t head, int64_t batch, int64_t fault
) {
    return left_registers<__nv_bfloat16>(
        out, a, b, n, n_rows, n_heads, heads_first, head, batch, fault
    );
}

EXPORT int left_registers_half(
    float* out, uint16_t* a, uint16_t* b, int64_t n, int64_t n_rows, int64_t n_heads,
    int64_t heads_first, int64_t head, int64_t batch, int64_t fault
) {
    return left_registers<__half>(
        out, a, b, n, n_rows, n_heads, heads_first, head, batch, fault
    );
}

EXPORT int narrow_product(float* out, uint16_t* a, uint16_t* b, int64_t is_half) {
    const auto start = [&]<typename T>() {
        TensorMap4D a_map = make_tensor_map<T>({a, 1, 64, 1, 64, 0, 64, 0}, 64);
        TensorMap4D b_map = make_tensor_map<T>({b, 1, 80, 1, 64, 0, 64, 0}, 80);
        for (TensorMap4D* map : {&a_map, &b_map}) {
            if (encode_tensor_map<T>(map) != cudaSuccess) return 1;
        }
        return launch(
            narrow_product_kernel<T>, 1, 128, (64 + 80) * 128 + 8, out, a_map, b_map
        );
    };
    return is_half ? start.template operator()<__half>()
                   : start.template operator()<__nv_bfloat16>();
}

// ---- Boxes of tensors with four dimensions, there and back --------------------------

// Copies rows of one head to another place of out, clipped at both ends.
__global__ void head_rows_kernel(
    const __grid_constant__ TensorMap4D out_map,
    const __grid_constant__ TensorMap4D x_map, int64_t row, int64_t head, int64_t batch,
    int64_t to_row
) {
#ifdef HAS_HOPPER
    constexpr int BOX_BYTES = 8 * 128;
    DYNAMIC_SHARED(shared, 1024);
    auto* const full = reinterpret_cast<uint64_t*>(shared + BOX_BYTES);
    if (threadIdx.x != 0) return;
    ptx::mbarrier_init(full, 1);
    ptx::fence_mbarrier_init();
    ptx::mbarrier_arrive_expect_bytes(full, BOX_BYTES);
    ptx::tma_load(shared, &x_map.map, 0, row, head, batch, full);
    ptx::mbarrier_wait(full, 0);
    ptx::tma_store(&out_map.map, 0, to_row, head, batch, shared);
    ptx::tma_store_commit_group();
    ptx::tma_store_wait_group_read<0>();
#endif
}

// x and out: (n_batches, n_rows, n_heads, n_cols); one box of 8 rows is copied.
EXPORT int head_rows(
    uint16_t* out, uint16_t* x, int64_t n_batches, int64_t n_rows, int64_t n_heads,
    int64_t n_cols, int64_t row, int64_t head, int64_t batch, int64_t to_row
) {
    HeadRows rows{out,
                  n_batches,
                  n_rows,
                  n_heads,
                  n_cols,
                  n_rows * n_heads * n_cols,
                  n_heads * n_cols,
                  n_cols};
    TensorMap4D out_map = make_tensor_map<__half>(rows, 8);
    rows.data = x;
    TensorMap4D x_map = make_tensor_map<__half>(rows, 8);
    for (TensorMap4D* map : {&out_map, &x_map}) {
        if (encode_tensor_map<__half>(map) != cudaSuccess) return 1;
    }
    return launch(
        head_rows_kernel, 1, 32, 8 * 128 + 8, out_map, x_map, row, head, batch, to_row
    );
}

// ---- Copies of neighbouring bytes, and sums in memory -------------------------------

// Copies bytes from a place in x to a place in shared memory, and 512 of those to out.
__global__ void bulk_copy_kernel(
    uint32_t* out, const uint32_t* x, int64_t from, int64_t to, int64_t bytes
) {
#ifdef HAS_HOPPER
    DYNAMIC_SHARED(shared, 1024);
    auto* const full = reinterpret_cast<uint64_t*>(shared + 512);
    auto* const words = reinterpret_cast<uint32_t*>(shared);
    words[threadIdx.x] = 0;
    ptx::fence_async_proxy();
    __syncthreads();
    if (threadIdx.x == 0) {
        ptx::mbarrier_init(full, 1);
        ptx::fence_mbarrier_init();
        ptx::mbarrier_arrive_expect_bytes(full, bytes);
        ptx::bulk_load(shared + to, x + from / 4, bytes, full);
    }
    __syncthreads();
    ptx::mbarrier_wait(full, 0);
    out[threadIdx.x] = words[threadIdx.x];
#endif
}

EXPORT int bulk_copy(
    uint32_t* out, uint32_t* x, int64_t from, int64_t to, int64_t bytes
) {
    return launch(bulk_copy_kernel, 1, 128, 512 + 8, out, x, from, to, bytes);
}

// Each thread adds four numbers to every 8th four, which begin somewhere in sums.
__global__ void vector_sums_kernel(float* sums, const float* x, int64_t begin) {
#ifdef HAS_HOPPER
    const int i = 4 * (blockIdx.x * blockDim.x + threadIdx.x);
    ptx::add_in_memory(
        reinterpret_cast<float4*>(sums + begin) + threadIdx.x % 8,
        {x[i], x[i + 1], x[i + 2], x[i + 3]}
    );
#endif
}

EXPORT int vector_sums(float* sums, float* x, int64_t begin) {
    return launch(vector_sums_kernel, 4, 64, 0, sums, x, begin);
}

// ---- Turns by named barriers --------------------------------------------------------

// Two warps take turns at writing to a line of numbers: each waits at its own barrier and
// arrives at the other's. The first turn is the first warp's; a `skipped` arrival, or one
// that is made `twice`, has to show.
__global__ void turns_kernel(
    int* out, int64_t n_turns, int64_t skipped, int64_t twice
) {
    __shared__ int n_written;
    if (threadIdx.x == 0) n_written = 0;
    __syncthreads();
    const int warp = threadIdx.x / 32;
    const auto pass_on = [](int to) { ptx::named_barrier_arrive(1 + to, 64); };
    if (warp == 1) pass_on(0);
    for (int turn = 0; turn < n_turns; ++turn) {
        ptx::named_barrier_sync(1 + warp, 64);
        if (threadIdx.x % 32 == 0) out[n_written++] = 2 * turn + warp;
        __syncwarp();
        if (2 * turn + warp != skipped) pass_on(1 - warp);
        if (2 * turn + warp == twice) pass_on(1 - warp);
    }
}

EXPORT int turns(int* out, int64_t n_turns, int64_t skipped, int64_t twice) {
    return launch(turns_kernel, 1, 64, 0, out, n_turns, skipped, twice);
}
