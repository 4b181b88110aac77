// Hopper: mbarriers, the tensor memory accelerator, wgmma, clusters. nvcc compiles this
// file too; on a GPU, some kernels run on sm_90a only.
#include "common/launch.cuh"
#include "common/ptx/barrier.cuh"
#include "common/ptx/cluster.cuh"
#include "common/ptx/mma.cuh"
#include "common/ptx/multicast.cuh"
#include "common/ptx/tma.cuh"
#include "common/ptx/wgmma.cuh"
#include "common/ptx/wgmma_tf32.cuh"
#include "launch.h"
#include "maps.h"
#include "multicast.cuh"
#include "ptx.cuh"

// ---- A matrix product: one producer warp, one or more warpgroups of consumers -------

// out (M x N, float32) = a (M x K) * b (K x N), either of which may lie transposed, if it
// is not of tf32. Each consumer warpgroup has 64 rows of the tile.
constexpr int TILE_K_BYTES = 128;
template <typename T>
constexpr int TILE_K = TILE_K_BYTES / sizeof(T);
constexpr int STAGES = 3;

// d (64 x N) = a (64 x k) * b (k x N), plus d if it accumulates, where k has 32 bytes.
template <typename T, ptx::Major A_MAJOR, ptx::Major B_MAJOR, int N>
__device__ void multiply(float (&d)[N / 2], uint64_t a, uint64_t b, bool accumulates) {
#ifdef HAS_HOPPER
    if constexpr (std::is_same_v<T, float>) {
        ptx::wgmma_m64k8<N>(d, a, b, accumulates);
    } else {
        ptx::wgmma_m64k16<T, A_MAJOR, B_MAJOR, N>(d, a, b, accumulates);
    }
#endif
}

template <typename T, ptx::Major A_MAJOR, ptx::Major B_MAJOR, int TILE_N, int GROUPS>
__global__ void __launch_bounds__(128 * (GROUPS + 1), 1) hopper_matmul_kernel(
    const __grid_constant__ CUtensorMap a_map,
    const __grid_constant__ CUtensorMap b_map, float* out, int64_t M, int64_t N,
    int64_t K
) {
#ifdef HAS_HOPPER
    constexpr int TILE_M = 64 * GROUPS;
    constexpr int A_BYTES = TILE_M * TILE_K_BYTES, B_BYTES = TILE_N * TILE_K_BYTES;
    constexpr int BOX_BYTES = 64 * TILE_K_BYTES;
    DYNAMIC_SHARED(shared, 1024);
    unsigned char* const a_stages = shared;
    unsigned char* const b_stages = shared + STAGES * A_BYTES;
    auto* const full = reinterpret_cast<uint64_t*>(b_stages + STAGES * B_BYTES);
    uint64_t* const empty = full + STAGES;
    const int row = blockIdx.y * TILE_M, column = blockIdx.x * TILE_N;
    const int n_steps = (K - 1) / TILE_K<T> + 1;

    if (threadIdx.x == 0) {
        for (int i = 0; i < STAGES; ++i) {
            ptx::mbarrier_init(&full[i], 1);
            ptx::mbarrier_init(&empty[i], GROUPS);
        }
        ptx::fence_mbarrier_init();
    }
    __syncthreads();

    const int group = threadIdx.x / 128;
    if (group == GROUPS) {
        ptx::setmaxnreg_dec<GROUPS == 1 ? 24 : 40>();
        if (threadIdx.x % 128 != 0) return;
        ptx::prefetch_tensor_map(&a_map);
        for (int step = 0; step < n_steps; ++step) {
            const int stage = step % STAGES, parity = step / STAGES % 2;
            ptx::mbarrier_wait(&empty[stage], parity ^ 1);
            ptx::mbarrier_arrive_expect_bytes(&full[stage], A_BYTES + B_BYTES);
            const int k = step * TILE_K<T>;
            for (int i = 0; i < TILE_M / 64; ++i) {
                unsigned char* to = a_stages + stage * A_BYTES + i * BOX_BYTES;
                if (A_MAJOR == ptx::Major::K) {
                    ptx::tma_load(to, &a_map, k, row + 64 * i, 0, &full[stage]);
                } else {
                    ptx::tma_load(to, &a_map, row + 64 * i, k, 0, &full[stage]);
                }
            }
            for (int i = 0; i < TILE_N / 64; ++i) {
                unsigned char* to = b_stages + stage * B_BYTES + i * BOX_BYTES;
                if (B_MAJOR == ptx::Major::K) {
                    ptx::tma_load(to, &b_map, k, column + 64 * i, 0, &full[stage]);
                } else {
                    ptx::tma_load(to, &b_map, column + 64 * i, k, 0, &full[stage]);
                }
            }
        }
        return;
    }

    ptx::setmaxnreg_inc<GROUPS == 1 ? 152 : 232>();
    float d[TILE_N / 2];
    for (int i = 0; i < TILE_N / 2; ++i) d[i] = 0;
    for (int step = 0; step < n_steps; ++step) {
        const int stage = step % STAGES, parity = step / STAGES % 2;
        ptx::mbarrier_wait(&full[stage], parity);
        ptx::wgmma_fence();
        for (int i = 0; i < TILE_K_BYTES / 32; ++i) {
            // Along k: 32 bytes of a row, or 16 rows of 128 bytes.
            const unsigned char* a = a_stages + stage * A_BYTES + group * BOX_BYTES +
                                     (A_MAJOR == ptx::Major::K ? 32 * i : 16 * 128 * i);
            const unsigned char* b = b_stages + stage * B_BYTES +
                                     (B_MAJOR == ptx::Major::K ? 32 * i : 16 * 128 * i);
            multiply<T, A_MAJOR, B_MAJOR, TILE_N>(
                d, ptx::wgmma_descriptor(a, BOX_BYTES, 1024),
                ptx::wgmma_descriptor(b, BOX_BYTES, 1024), step > 0 || i > 0
            );
        }
        ptx::wgmma_commit_group();
        // The multiplication before is finished, so its stage can be refilled.
        ptx::wgmma_wait_group<1>();
        if (step > 0 && threadIdx.x % 128 == 0) {
            ptx::mbarrier_arrive(&empty[(step - 1) % STAGES]);
        }
    }
    ptx::wgmma_wait_group<0>();

    const int lane = threadIdx.x % 32, warp = threadIdx.x % 128 / 32;
    for (int i = 0; i < TILE_N / 2; ++i) {
        const int64_t m = row + 64 * group + 16 * warp + lane / 4 + (i & 2) * 4;
        const int64_t n = column + i / 4 * 8 + lane % 4 * 2 + (i & 1);
        if (m < M && n < N) out[m * N + n] = d[i];
    }
#endif
}

template <typename T, ptx::Major A_MAJOR, ptx::Major B_MAJOR, int TILE_N, int GROUPS>
int hopper_matmul(
    float* out, T* a, T* b, int64_t M, int64_t N, int64_t K, CUtensorMapDataType type
) {
    constexpr bool A_IS_K = A_MAJOR == ptx::Major::K, B_IS_K = B_MAJOR == ptx::Major::K;
    CUtensorMap a_map{}, b_map{};
    const int box[2] = {TILE_K<T>, 64};
    const int64_t a_sizes[3] = {A_IS_K ? K : M, A_IS_K ? M : K, 1};
    const int64_t b_sizes[3] = {B_IS_K ? K : N, B_IS_K ? N : K, 1};
    const int64_t a_strides[2] = {a_sizes[0], M * K},
                  b_strides[2] = {b_sizes[0], N * K};
    if (!make_map(&a_map, a, a_sizes, a_strides, box, type)) return 1;
    if (!make_map(&b_map, b, b_sizes, b_strides, box, type)) return 1;
    const auto kernel = hopper_matmul_kernel<T, A_MAJOR, B_MAJOR, TILE_N, GROUPS>;
    const int shared_bytes =
        STAGES * (64 * GROUPS + TILE_N) * TILE_K_BYTES + 2 * STAGES * 8;
    cudaFuncSetAttribute(
        kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared_bytes
    );
    const dim3 grid(ceil_div(N, TILE_N), ceil_div(M, 64 * GROUPS));
    return launch(
        kernel, grid, 128 * (GROUPS + 1), shared_bytes, a_map, b_map, out, M, N, K
    );
}

constexpr auto BY_K = ptx::Major::K, BY_MN = ptx::Major::MN;

// All four layouts with the smallest tile, and the others.
template <typename T>
int hopper_matmul(
    float* out, T* a, T* b, int64_t M, int64_t N, int64_t K, int64_t a_is_transposed,
    int64_t b_is_transposed, int64_t tile_n
) {
    const auto run = [=](auto* function) {
        constexpr bool IS_BFLOAT16 = std::is_same_v<T, __nv_bfloat16>;
        constexpr auto TYPE = IS_BFLOAT16 ? CU_TENSOR_MAP_DATA_TYPE_BFLOAT16
                                          : CU_TENSOR_MAP_DATA_TYPE_FLOAT16;
        return function(out, a, b, M, N, K, TYPE);
    };
    if (tile_n == 256) return run(hopper_matmul<T, BY_K, BY_MN, 256, 2>);
    if (tile_n == 128) {
        return a_is_transposed ? run(hopper_matmul<T, BY_MN, BY_MN, 128, 2>)
                               : run(hopper_matmul<T, BY_K, BY_K, 128, 2>);
    }
    if (a_is_transposed) {
        return b_is_transposed ? run(hopper_matmul<T, BY_MN, BY_K, 64, 1>)
                               : run(hopper_matmul<T, BY_MN, BY_MN, 64, 1>);
    }
    return b_is_transposed ? run(hopper_matmul<T, BY_K, BY_K, 64, 1>)
                           : run(hopper_matmul<T, BY_K, BY_MN, 64, 1>);
}

#define HOPPER_MATMUL(name, type)                                        \
    EXPORT int name(                                                     \
        float* out, type* a, type* b, int64_t M, int64_t N, int64_t K,   \
        int64_t a_is_transposed, int64_t b_is_transposed, int64_t tile_n \
    ) {                                                                  \
        return hopper_matmul(                                            \
            out, a, b, M, N, K, a_is_transposed, b_is_transposed, tile_n \
        );                                                               \
    }

HOPPER_MATMUL(hopper_matmul_bf16, __nv_bfloat16)
HOPPER_MATMUL(hopper_matmul_half, __half)

// The same of tf32: b alone lies transposed. The copies round, or else the tensor cores
// get float32 as it is.
static int hopper_matmul(
    float* out, float* a, float* b, int64_t M, int64_t N, int64_t K, int64_t tile_n,
    CUtensorMapDataType type
) {
    const auto run = [=](auto* function) { return function(out, a, b, M, N, K, type); };
    if (tile_n == 256) return run(hopper_matmul<float, BY_K, BY_K, 256, 2>);
    if (tile_n == 128) return run(hopper_matmul<float, BY_K, BY_K, 128, 2>);
    return run(hopper_matmul<float, BY_K, BY_K, 64, 1>);
}

#define HOPPER_MATMUL_OF_FLOAT(name, type)                                        \
    EXPORT int name(                                                              \
        float* out, float* a, float* b, int64_t M, int64_t N, int64_t K, int64_t, \
        int64_t, int64_t tile_n                                                   \
    ) {                                                                           \
        return hopper_matmul(out, a, b, M, N, K, tile_n, type);                   \
    }

HOPPER_MATMUL_OF_FLOAT(hopper_matmul_tf32, CU_TENSOR_MAP_DATA_TYPE_TFLOAT32)
HOPPER_MATMUL_OF_FLOAT(hopper_matmul_float, CU_TENSOR_MAP_DATA_TYPE_FLOAT32)

// ---- Copies of boxes, loaded and stored ---------------------------------------------

struct Place {
    int64_t x, y, z;
};

// Boxes of x (16-bit numbers, 64 x 8 of them each), the first at `from` and each 64
// further on, go to shared memory, are increased by one, and go to out, from `to` on.
__global__ void box_copies_kernel(
    const __grid_constant__ CUtensorMap out_map,
    const __grid_constant__ CUtensorMap x_map, Place from, Place to, int64_t n_boxes
) {
#ifdef HAS_HOPPER
    constexpr int BOX_BYTES = 64 * 8 * 2;
    // A box that is loaded, and two that are stored in turns.
    DYNAMIC_SHARED(shared, 1024);
    auto* const barrier = reinterpret_cast<uint64_t*>(shared + 3 * BOX_BYTES);
    if (threadIdx.x == 0) {
        ptx::mbarrier_init(barrier, 1);
        ptx::fence_mbarrier_init();
    }
    __syncthreads();
    for (int i = 0; i < n_boxes; ++i) {
        const int step = 64 * i;
        if (threadIdx.x == 0) {
            ptx::mbarrier_arrive_expect_bytes(barrier, BOX_BYTES);
            ptx::tma_load(shared, &x_map, from.x + step, from.y, from.z, barrier);
            ptx::tma_store_wait_group_read<1>();
        }
        ptx::mbarrier_wait(barrier, i % 2);
        ptx::named_barrier_sync(1, 64);
        unsigned char* stored = shared + (1 + i % 2) * BOX_BYTES;
        for (int j = threadIdx.x; j < BOX_BYTES / 2; j += blockDim.x) {
            const auto* loaded = reinterpret_cast<const uint16_t*>(shared);
            reinterpret_cast<uint16_t*>(stored)[j] = loaded[j] + 1;
        }
        ptx::fence_async_proxy();
        ptx::named_barrier_sync(2, 64);
        if (threadIdx.x == 0) {
            ptx::tma_store(&out_map, to.x + step, to.y, to.z, stored);
            ptx::tma_store_commit_group();
        }
    }
    if (threadIdx.x == 0) ptx::tma_store_wait_group_read<0>();
#endif
}

// x and out: (depth, height, width) with rows of stride_y elements.
EXPORT int box_copies(
    uint16_t* out, uint16_t* x, int64_t width, int64_t height, int64_t depth,
    int64_t stride_y, int64_t from_x, int64_t from_y, int64_t from_z, int64_t to_x,
    int64_t to_y, int64_t to_z, int64_t n_boxes, int64_t swizzle
) {
    CUtensorMap out_map{}, x_map{};
    const int64_t sizes[3] = {width, height, depth};
    const int64_t strides[2] = {stride_y, stride_y * height};
    const int box[2] = {64, 8};
    const auto kind = static_cast<CUtensorMapSwizzle>(swizzle);
    constexpr auto TYPE = CU_TENSOR_MAP_DATA_TYPE_BFLOAT16;
    if (!make_map(&out_map, out, sizes, strides, box, TYPE, kind)) return 1;
    if (!make_map(&x_map, x, sizes, strides, box, TYPE, kind)) return 1;
    const int bytes = 3 * 64 * 8 * 2 + 8;
    const Place from{from_x, from_y, from_z}, to{to_x, to_y, to_z};
    return launch(box_copies_kernel, 1, 64, bytes, out_map, x_map, from, to, n_boxes);
}

// The order in shared memory of a box of a map.
__global__ void loaded_box_kernel(
    uint16_t* out, const __grid_constant__ CUtensorMap x_map, int64_t n_elements
) {
#ifdef HAS_HOPPER
    DYNAMIC_SHARED(shared, 1024);
    auto* const barrier = reinterpret_cast<uint64_t*>(shared + 2 * n_elements);
    if (threadIdx.x == 0) {
        ptx::mbarrier_init(barrier, 1);
        ptx::fence_mbarrier_init();
        ptx::mbarrier_arrive_expect_bytes(barrier, 2 * n_elements);
        ptx::tma_load(shared, &x_map, 0, 0, 0, barrier);
    }
    __syncthreads();
    ptx::mbarrier_wait(barrier, 0);
    for (int i = threadIdx.x; i < n_elements; i += blockDim.x) {
        out[i] = reinterpret_cast<const uint16_t*>(shared)[i];
    }
#endif
}

EXPORT int loaded_box(
    uint16_t* out, uint16_t* x, int64_t width, int64_t height, int64_t swizzle
) {
    CUtensorMap x_map{};
    const int64_t sizes[3] = {width, height, 1}, strides[2] = {width, width * height};
    const int box[2] = {int(width), int(height)};
    const auto kind = static_cast<CUtensorMapSwizzle>(swizzle);
    constexpr auto TYPE = CU_TENSOR_MAP_DATA_TYPE_BFLOAT16;
    if (!make_map(&x_map, x, sizes, strides, box, TYPE, kind)) return 1;
    const int64_t n_elements = width * height;
    return launch(loaded_box_kernel, 1, 32, 2 * n_elements + 8, out, x_map, n_elements);
}

// 64 rows of 8 numbers of x go to shared memory by a map of tf32, and from there to out,
// by the same map if it `is_stored` so, else as they are.
__global__ void rounding_box_kernel(
    float* out, const __grid_constant__ CUtensorMap out_map,
    const __grid_constant__ CUtensorMap x_map, bool is_stored
) {
#ifdef HAS_HOPPER
    constexpr int N = 64 * 8;
    DYNAMIC_SHARED(shared, 1024);
    auto* const barrier = reinterpret_cast<uint64_t*>(shared + 4 * N);
    if (threadIdx.x == 0) {
        ptx::mbarrier_init(barrier, 1);
        ptx::fence_mbarrier_init();
        ptx::mbarrier_arrive_expect_bytes(barrier, 4 * N);
        ptx::tma_load(shared, &x_map, 0, 0, 0, barrier);
    }
    __syncthreads();
    ptx::mbarrier_wait(barrier, 0);
    if (is_stored) {
        if (threadIdx.x != 0) return;
        ptx::tma_store(&out_map, 0, 0, 0, shared);
        ptx::tma_store_commit_group();
        ptx::tma_store_wait_group_read<0>();
        return;
    }
    for (int i = threadIdx.x; i < N; i += blockDim.x) {
        out[i] = reinterpret_cast<const float*>(shared)[i];
    }
#endif
}

EXPORT int rounding_box(float* out, float* x, int64_t n_rows, int64_t is_stored) {
    CUtensorMap out_map{}, x_map{};
    const int64_t sizes[3] = {8, n_rows, 1}, strides[2] = {8, 8 * n_rows};
    const int box[2] = {8, 64};
    constexpr auto TYPE = CU_TENSOR_MAP_DATA_TYPE_TFLOAT32;
    constexpr auto KIND = CU_TENSOR_MAP_SWIZZLE_NONE;
    if (!make_map(&out_map, out, sizes, strides, box, TYPE, KIND)) return 1;
    if (!make_map(&x_map, x, sizes, strides, box, TYPE, KIND)) return 1;
    return launch(
        rounding_box_kernel, 1, 32, 64 * 8 * 4 + 8, out, out_map, x_map, is_stored != 0
    );
}

// Maps with one fault each, for which they are refused; number 0 has none.
EXPORT int map_with_fault(uint16_t* x, int64_t fault) {
    CUtensorMap map{};
    const int64_t sizes[3] = {fault == 1 ? 0 : 64, 64, 1};
    const int64_t strides[2] = {fault == 2 ? 68 : 64, fault == 3 ? 1 : 64 * 64};
    const int box[2] = {fault == 4 ? 72 : fault == 5 ? 4 : 64, fault == 6 ? 257 : 8};
    return make_map(&map, x + (fault == 7), sizes, strides, box)
               ? cudaSuccess
               : cudaErrorInvalidValue;
}

// ---- stmatrix: lane l passes the place of a row, in elements ------------------------

__global__ void store_matrices_kernel(
    uint16_t* out, const uint32_t* fragments, const int* places
) {
#if defined(TWIN_EMULATOR) || __CUDA_ARCH__ >= 900
    __shared__ __align__(16) uint16_t shared[256];
    uint32_t fragment[4];
    for (int i = 0; i < 4; ++i) fragment[i] = fragments[4 * threadIdx.x + i];
    ptx::stmatrix(shared + places[threadIdx.x], fragment);
    __syncwarp();
    for (int i = threadIdx.x; i < 256; i += 32) out[i] = shared[i];
#endif
}

EXPORT int store_matrices(uint16_t* out, uint32_t* fragments, int* places) {
    return launch(store_matrices_kernel, 1, 32, 0, out, fragments, places);
}

// ---- Clusters -----------------------------------------------------------------------

// Each thread adds up the numbers of the same thread in all blocks of the cluster.
__global__ void cluster_sums_kernel(int* out, const int* x, int64_t n_blocks) {
#ifdef HAS_HOPPER
    DYNAMIC_SHARED(shared, 1024);
    int* const own = reinterpret_cast<int*>(shared);
    const int64_t block =
        blockIdx.x + int64_t{gridDim.x} * (blockIdx.y + gridDim.y * blockIdx.z);
    own[threadIdx.x] = x[block * blockDim.x + threadIdx.x];
    ptx::cluster_sync();
    int sum = 0;
    for (int i = 0; i < n_blocks; ++i) sum += ptx::map_shared(own, i)[threadIdx.x];
    ptx::cluster_sync();  // a block must not return while its memory is read
    out[2 * (block * blockDim.x + threadIdx.x)] = sum;
    out[2 * (block * blockDim.x + threadIdx.x) + 1] = ptx::cluster_rank();
#endif
}

EXPORT int cluster_sums(
    int* out, int* x, int64_t cluster_x, int64_t cluster_y, int64_t cluster_z,
    int64_t grid_x, int64_t grid_y, int64_t grid_z
) {
    const dim3 cluster(cluster_x, cluster_y, cluster_z), grid(grid_x, grid_y, grid_z);
    const int64_t n_blocks = cluster_x * cluster_y * cluster_z;
    return launch_clusters(
        cluster_sums_kernel, cluster, grid, 64, 64 * 4, out, x, n_blocks
    );
}

struct Pair {
    float x, y;
};

// The threads of two blocks send their numbers to all, one row after another.
__global__ void remote_stores_kernel(float* out, const float* x, int64_t n_rows) {
#ifdef HAS_HOPPER
    DYNAMIC_SHARED(shared, 1024);
    constexpr int N = 64;
    auto* const pairs = reinterpret_cast<Pair*>(shared);            // (2, 2, N)
    auto* const singles = reinterpret_cast<float*>(pairs + 4 * N);  // (2, 2, N)
    auto* const barriers = reinterpret_cast<uint64_t*>(singles + 4 * N);
    const int thread = threadIdx.x, rank = ptx::cluster_rank();
    if (thread == 0) {
        for (int i = 0; i < 2; ++i) ptx::mbarrier_init(&barriers[i], 1);
        ptx::fence_mbarrier_init();
    }
    ptx::cluster_arrive();
    ptx::cluster_wait();
    for (int row = 0; row < n_rows; ++row) {
        const int turn = row % 2;
        uint64_t* const barrier = &barriers[turn];
        const float value = x[(row * 2 + rank) * N + thread];
        if (thread == 0) ptx::mbarrier_arrive_expect_bytes(barrier, 2 * N * 12);
        const int place = (turn * 2 + rank) * N + thread;
        for (int i = 0; i < 2; ++i) {
            const Pair pair{value, 2.0f * value};
            ptx::store_remote(&pairs[place], pair, barrier, i);
            ptx::store_remote(&singles[place], 3.0f * value, barrier, i);
        }
        ptx::mbarrier_wait(barrier, row / 2 % 2);
        // The sum over all threads, so that none gets two rows ahead of another.
        float sum = 0.0f;
        for (int i = turn * 2 * N; i < (turn + 1) * 2 * N; ++i) {
            sum += pairs[i].x + pairs[i].y + singles[i];
        }
        out[(row * 2 + rank) * N + thread] = sum;
    }
#endif
}

EXPORT int remote_stores(float* out, float* x, int64_t n_rows) {
    constexpr int SHARED_BYTES = 4 * 64 * 12 + 16;
    return launch_clusters(
        remote_stores_kernel, 2, 2, 64, SHARED_BYTES, out, x, n_rows
    );
}

__global__ void cluster_waits_kernel(volatile int* flag) {
    while (*flag == 0) {
    }
}

EXPORT int cluster_waits(int* flag) {
    return launch_clusters(cluster_waits_kernel, 8, 8, 32, 0, flag);
}

// Two blocks with one row of tiles each share the tiles of b: each loads one half of
// them for both. A stage is empty when the consumers of both blocks have done with it.
template <typename T>
__global__ void __launch_bounds__(256) cluster_matmul_kernel(
    const __grid_constant__ CUtensorMap a_map,
    const __grid_constant__ CUtensorMap b_map, float* out, int64_t M, int64_t N,
    int64_t K
) {
#ifdef HAS_HOPPER
    constexpr int TILE = 64, TILE_N = 128, BOX_BYTES = TILE * TILE_K_BYTES;
    DYNAMIC_SHARED(shared, 1024);
    unsigned char* const a_stages = shared;
    unsigned char* const b_stages = shared + STAGES * BOX_BYTES;
    auto* const full = reinterpret_cast<uint64_t*>(b_stages + STAGES * 2 * BOX_BYTES);
    uint64_t* const empty = full + STAGES;
    const int row = blockIdx.x * TILE, column = blockIdx.y * TILE_N;
    const int rank = ptx::cluster_rank();
    const int n_steps = (K - 1) / TILE_K<T> + 1;

    if (threadIdx.x == 0) {
        for (int i = 0; i < STAGES; ++i) {
            ptx::mbarrier_init(&full[i], 1);
            ptx::mbarrier_init(&empty[i], 2);
        }
        ptx::fence_mbarrier_init();
    }
    ptx::cluster_sync();

    if (threadIdx.x >= 128) {
        for (int step = 0; step < n_steps && threadIdx.x == 128; ++step) {
            const int stage = step % STAGES, parity = step / STAGES % 2;
            const int k = step * TILE_K<T>;
            unsigned char* const b = b_stages + (2 * stage + rank) * BOX_BYTES;
            ptx::mbarrier_wait(&empty[stage], parity ^ 1);
            ptx::mbarrier_arrive_expect_bytes(&full[stage], 3 * BOX_BYTES);
            ptx::tma_load(
                a_stages + stage * BOX_BYTES, &a_map, k, row, 0, &full[stage]
            );
            ptx::tma_load_multicast(
                b, &b_map, k, column + TILE * rank, 0, &full[stage], 3
            );
        }
    } else {
        float d[TILE_N / 2];
        for (int step = 0; step < n_steps; ++step) {
            const int stage = step % STAGES, parity = step / STAGES % 2;
            ptx::mbarrier_wait(&full[stage], parity);
            ptx::wgmma_fence();
            for (int k = 0; k < TILE_K<T>; k += 16) {
                const unsigned char* a = a_stages + stage * BOX_BYTES + 2 * k;
                const unsigned char* b = b_stages + 2 * stage * BOX_BYTES + 2 * k;
                ptx::wgmma_m64k16<T, BY_K, BY_K, TILE_N>(
                    d, ptx::wgmma_descriptor(a, BOX_BYTES, 1024),
                    ptx::wgmma_descriptor(b, BOX_BYTES, 1024), step > 0 || k > 0
                );
            }
            ptx::wgmma_commit_group();
            ptx::wgmma_wait_group<0>();
            if (threadIdx.x < 2) {
                ptx::mbarrier_arrive_remote(&empty[stage], threadIdx.x);
            }
        }
        const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
        for (int i = 0; i < TILE_N / 2; ++i) {
            const int64_t m = row + 16 * warp + lane / 4 + (i & 2) * 4;
            const int64_t n = column + i / 4 * 8 + lane % 4 * 2 + (i & 1);
            if (m < M && n < N) out[m * N + n] = d[i];
        }
    }
    ptx::cluster_sync();  // a block must not return while others may send to it
#endif
}

EXPORT int cluster_matmul(
    float* out, __nv_bfloat16* a, __nv_bfloat16* b, int64_t M, int64_t N, int64_t K
) {
    CUtensorMap a_map{}, b_map{};
    const int box[2] = {64, 64};
    const int64_t a_sizes[3] = {K, M, 1}, b_sizes[3] = {K, N, 1};
    const int64_t a_strides[2] = {K, M * K}, b_strides[2] = {K, N * K};
    if (!make_map(&a_map, a, a_sizes, a_strides, box)) return 1;
    if (!make_map(&b_map, b, b_sizes, b_strides, box)) return 1;
    const auto kernel = cluster_matmul_kernel<__nv_bfloat16>;
    const int shared_bytes = STAGES * 3 * 64 * TILE_K_BYTES + 2 * STAGES * 8;
    cudaFuncSetAttribute(
        kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared_bytes
    );
    const dim3 grid(2 * ceil_div(M, 128), ceil_div(N, 128));
    return launch_clusters(
        kernel, dim3(2), grid, 256, shared_bytes, a_map, b_map, out, M, N, K
    );
}

EXPORT int multicast_sums(
    float* out, float* x, int64_t n_tiles, int64_t n_clusters, int64_t n_blocks
) {
    const auto run = n_blocks == 2 ? multicast::run<2> : multicast::run<4>;
    return run(out, x, n_tiles, n_clusters);
}

// ---- Waits that are too weak, which must show in the emulator -----------------------

enum class Weakness : int64_t { none, sums, stage, buffer };

// out += box 0 of x times its transpose, then box 1, each of 64 x 64 numbers of 16
// bits. `sums` are read or the `stage` is refilled before the wait for the
// multiplication, or the `buffer` is overwritten before its store has been read.
__global__ void weak_waits_kernel(
    const __grid_constant__ CUtensorMap out_map,
    const __grid_constant__ CUtensorMap x_map, float* sums, Weakness weakness
) {
#ifdef HAS_HOPPER
    constexpr int BOX_BYTES = 64 * 64 * 2;
    DYNAMIC_SHARED(shared, 1024);
    unsigned char* const stage = shared;
    unsigned char* const buffer = shared + BOX_BYTES;
    auto* const full = reinterpret_cast<uint64_t*>(shared + 2 * BOX_BYTES);
    uint64_t* const empty = full + 1;
    if (threadIdx.x == 0) {
        ptx::mbarrier_init(full, 1);
        ptx::mbarrier_init(empty, 1);
        ptx::fence_mbarrier_init();
    }
    __syncthreads();
    if (threadIdx.x >= 128) {
        for (int step = 0; step < 2 && threadIdx.x == 128; ++step) {
            ptx::mbarrier_wait(empty, step ^ 1);
            ptx::mbarrier_arrive_expect_bytes(full, BOX_BYTES);
            ptx::tma_load(stage, &x_map, 0, 0, step, full);
        }
        return;
    }
    float d[32] = {};
    for (int step = 0; step < 2; ++step) {
        ptx::mbarrier_wait(full, step);

        // The box goes to out, too.
        if (threadIdx.x == 0 && weakness != Weakness::buffer) {
            ptx::tma_store_wait_group_read<0>();
        }
        ptx::named_barrier_sync(1, 128);
        for (int i = threadIdx.x; i < BOX_BYTES / 16; i += 128) {
            reinterpret_cast<uint4*>(buffer)[i] =
                reinterpret_cast<const uint4*>(stage)[i];
        }
        ptx::fence_async_proxy();
        ptx::named_barrier_sync(1, 128);
        if (threadIdx.x == 0) {
            ptx::tma_store(&out_map, 0, 0, step, buffer);
            ptx::tma_store_commit_group();
        }

        ptx::wgmma_fence();
        for (int k = 0; k < 64; k += 16) {
            const uint64_t matrix = ptx::wgmma_descriptor(stage + 2 * k, 0, 1024);
            ptx::wgmma_m64k16<__nv_bfloat16, BY_K, BY_K, 64>(d, matrix, matrix, true);
        }
        ptx::wgmma_commit_group();
        if (weakness == Weakness::stage && threadIdx.x == 0) {
            ptx::mbarrier_arrive(empty);
        }
        if (weakness == Weakness::sums && step == 1) break;
        ptx::wgmma_wait_group<0>();
        if (weakness != Weakness::stage && threadIdx.x == 0) {
            ptx::mbarrier_arrive(empty);
        }
    }
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    for (int i = 0; i < 32; ++i) {
        const int row = 16 * warp + lane / 4 + (i & 2) * 4;
        sums[64 * row + i / 4 * 8 + lane % 4 * 2 + (i & 1)] = d[i];
    }
    ptx::wgmma_wait_group<0>();
    if (threadIdx.x == 0) ptx::tma_store_wait_group_read<0>();
#endif
}

EXPORT int weak_waits(float* sums, uint16_t* out, uint16_t* x, int64_t weakness) {
    CUtensorMap out_map{}, x_map{};
    const int64_t sizes[3] = {64, 64, 2}, strides[2] = {64, 64 * 64};
    const int box[2] = {64, 64};
    if (!make_map(&out_map, out, sizes, strides, box)) return 1;
    if (!make_map(&x_map, x, sizes, strides, box)) return 1;
    const auto kind = static_cast<Weakness>(weakness);
    return launch(
        weak_waits_kernel, 1, 160, 2 * 64 * 64 * 2 + 16, out_map, x_map, sums, kind
    );
}
