// Kernels with one fault each in the use of Hopper's instructions, in the lines marked
// by the name of its test. They multiply a box of x with itself, or copy one to out.
#include <cuda.h>
#include <cuda_bf16.h>

#include "../launch.h"
#include "../ptx.cuh"
#include "common/ptx/barrier.cuh"
#include "common/ptx/bulk_copy.cuh"
#include "common/ptx/cluster.cuh"
#include "common/ptx/reduction.cuh"
#include "common/ptx/tma.cuh"
#include "common/ptx/wgmma.cuh"
#include "common/ptx/wgmma_tf32.cuh"

// ---- Common parts -------------------------------------------------------------------

constexpr int BOX_BYTES = 64 * 128;  // 64 rows of 64 elements of 16 bits
constexpr int N_BOXES = 3;

struct Shared {
    unsigned char* boxes[N_BOXES];
    uint64_t* full;
    uint64_t* empty;

    explicit Shared(unsigned char* shared) {
        for (int i = 0; i < N_BOXES; ++i) boxes[i] = shared + i * BOX_BYTES;
        full = reinterpret_cast<uint64_t*>(shared + N_BOXES * BOX_BYTES);
        empty = full + N_BOXES;
    }
};
constexpr int SHARED_BYTES = N_BOXES * BOX_BYTES + 2 * N_BOXES * 8;

// x and out as 4 rows of 64 elements; a box is 0 beyond those rows.
static CUtensorMap map_of(const void* data) {
    CUtensorMap map{};
    const cuuint64_t sizes[3] = {64, 4, 1}, strides[2] = {128, 512};
    const cuuint32_t box[3] = {64, 64, 1}, element_strides[3] = {1, 1, 1};
    cuTensorMapEncodeTiled(
        &map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 3, const_cast<void*>(data), sizes,
        strides, box, element_strides, CU_TENSOR_MAP_INTERLEAVE_NONE,
        CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_NONE,
        CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE
    );
    return map;
}

using HopperKernel = void(CUtensorMap, CUtensorMap, float*, const float*);

static int launch_hopper(
    HopperKernel* kernel, unsigned threads, float* out, float* x, unsigned blocks = 1
) {
    return launch_clusters(
        kernel, blocks, blocks, threads, SHARED_BYTES, map_of(x), map_of(out), out, x
    );
}

#define HOPPER_KERNEL(name)                                           \
    __global__ void name##_kernel(                                    \
        [[maybe_unused]] const __grid_constant__ CUtensorMap x_map,   \
        [[maybe_unused]] const __grid_constant__ CUtensorMap out_map, \
        [[maybe_unused]] float* out, [[maybe_unused]] const float* x  \
    )
#define HOPPER_LAUNCH(name, ...)                          \
    EXPORT int name(float* out, float* x) {               \
        return launch_hopper(name##_kernel, __VA_ARGS__); \
    }

static void begin(const Shared& shared, int full_arrivals, int empty_arrivals) {
    if (threadIdx.x == 0) {
        for (int i = 0; i < N_BOXES; ++i) {
            ptx::mbarrier_init(&shared.full[i], full_arrivals);
            ptx::mbarrier_init(&shared.empty[i], empty_arrivals);
        }
        ptx::fence_mbarrier_init();
    }
    ptx::cluster_sync();
}

constexpr auto BY_K = ptx::Major::K;

// d += box * its transpose
static __forceinline__ void multiply(
    float (&d)[32], const unsigned char* box,
    emulator::Site site = emulator::Site::here()
) {
    const uint64_t matrix = ptx::wgmma_descriptor(box, 0, 1024);
    ptx::wgmma_m64k16<__nv_bfloat16, BY_K, BY_K, 64>(d, matrix, matrix, true, site);
}

// The same of tf32, of which it takes the first 32 bytes of each row.
static __forceinline__ void multiply_tf32(
    float (&d)[32], const unsigned char* box,
    emulator::Site site = emulator::Site::here()
) {
    const uint64_t matrix = ptx::wgmma_descriptor(box, 0, 1024);
    ptx::wgmma_m64k8<64>(d, matrix, matrix, true, site);
}

static __forceinline__ void write(float* out, const float (&d)[32]) {
    out[threadIdx.x] = d[0];
}

// ---- No fault -----------------------------------------------------------------------

// A producer warp fills the boxes twice over, a warpgroup multiplies them.
HOPPER_KERNEL(ring) {
    const Shared shared(emulator::dynamic_shared());
    begin(shared, 1, 1);
    if (threadIdx.x >= 128) {
        for (int step = 0; step < 2 * N_BOXES && threadIdx.x == 128; ++step) {
            const int i = step % N_BOXES;
            ptx::mbarrier_wait(&shared.empty[i], step / N_BOXES ^ 1);
            ptx::mbarrier_arrive_expect_bytes(&shared.full[i], BOX_BYTES);
            ptx::tma_load(shared.boxes[i], &x_map, 0, 0, 0, &shared.full[i]);
        }
        return;
    }
    float d[32] = {};
    for (int step = 0; step < 2 * N_BOXES; ++step) {
        const int i = step % N_BOXES;
        ptx::mbarrier_wait(&shared.full[i], step / N_BOXES);
        ptx::wgmma_fence();
        multiply(d, shared.boxes[i]);
        ptx::wgmma_commit_group();
        ptx::wgmma_wait_group<1>();
        if (step > 0 && threadIdx.x == 0) {
            ptx::mbarrier_arrive(&shared.empty[(step - 1) % N_BOXES]);
        }
    }
    ptx::wgmma_wait_group<0>();
    write(out, d);
}
HOPPER_LAUNCH(ring, 160, out, x)

// ---- Multiplications ----------------------------------------------------------------

static void load_first_box(const Shared& shared, const CUtensorMap& x_map) {
    begin(shared, 1, 1);
    if (threadIdx.x == 0) {
        ptx::mbarrier_arrive_expect_bytes(&shared.full[0], BOX_BYTES);
        ptx::tma_load(shared.boxes[0], &x_map, 0, 0, 0, &shared.full[0]);
    }
    ptx::mbarrier_wait(&shared.full[0], 0);
}

HOPPER_KERNEL(missing_wgmma_wait) {
    const Shared shared(emulator::dynamic_shared());
    load_first_box(shared, x_map);
    float d[32] = {};
    ptx::wgmma_fence();
    multiply(d, shared.boxes[0]);  // missing_wgmma_wait
    ptx::wgmma_commit_group();
    write(out, d);
}
HOPPER_LAUNCH(missing_wgmma_wait, 128, out, x)

HOPPER_KERNEL(uncommitted_wgmma) {
    const Shared shared(emulator::dynamic_shared());
    load_first_box(shared, x_map);
    float d[32] = {};
    ptx::wgmma_fence();
    multiply(d, shared.boxes[0]);  // uncommitted_wgmma
    ptx::wgmma_wait_group<0>();
    write(out, d);
}
HOPPER_LAUNCH(uncommitted_wgmma, 128, out, x)

HOPPER_KERNEL(missing_wgmma_fence) {
    const Shared shared(emulator::dynamic_shared());
    load_first_box(shared, x_map);
    float d[32] = {};
    multiply(d, shared.boxes[0]);  // missing_wgmma_fence
    ptx::wgmma_commit_group();
    ptx::wgmma_wait_group<0>();
    write(out, d);
}
HOPPER_LAUNCH(missing_wgmma_fence, 128, out, x)

HOPPER_KERNEL(changed_without_fence) {
    const Shared shared(emulator::dynamic_shared());
    load_first_box(shared, x_map);
    float d[32] = {};
    ptx::wgmma_fence();
    for (int i = 0; i < 2; ++i) {
        multiply(d, shared.boxes[0]);  // changed_without_fence
        ptx::wgmma_commit_group();
        ptx::wgmma_wait_group<0>();
        for (float& sum : d) sum += 1;
    }
    write(out, d);
}
HOPPER_LAUNCH(changed_without_fence, 128, out, x)

HOPPER_KERNEL(changed_in_flight) {
    const Shared shared(emulator::dynamic_shared());
    load_first_box(shared, x_map);
    float d[32] = {};
    ptx::wgmma_fence();
    multiply(d, shared.boxes[0]);
    ptx::wgmma_commit_group();
    d[threadIdx.x % 32] = 0;
    ptx::wgmma_wait_group<0>();  // changed_in_flight
    write(out, d);
}
HOPPER_LAUNCH(changed_in_flight, 128, out, x)

HOPPER_KERNEL(three_warps) {
    const Shared shared(emulator::dynamic_shared());
    load_first_box(shared, x_map);
    float d[32] = {};
    if (threadIdx.x < 96) {
        ptx::wgmma_fence();
        multiply(d, shared.boxes[0]);
        ptx::wgmma_commit_group();
        ptx::wgmma_wait_group<0>();  // three_warps
    }
    write(out, d);
}
HOPPER_LAUNCH(three_warps, 128, out, x)

HOPPER_KERNEL(different_matrices) {
    const Shared shared(emulator::dynamic_shared());
    load_first_box(shared, x_map);
    float d[32] = {};
    ptx::wgmma_fence();
    multiply(d, shared.boxes[threadIdx.x / 32 % 2]);  // different_matrices
    ptx::wgmma_commit_group();
    ptx::wgmma_wait_group<0>();
    write(out, d);
}
HOPPER_LAUNCH(different_matrices, 128, out, x)

HOPPER_KERNEL(matrix_past_the_end) {
    const Shared shared(emulator::dynamic_shared());
    load_first_box(shared, x_map);
    float d[32] = {};
    ptx::wgmma_fence();
    multiply(d, shared.boxes[2] + 1024);  // matrix_past_the_end
    ptx::wgmma_commit_group();
    ptx::wgmma_wait_group<0>();
    write(out, d);
}
HOPPER_LAUNCH(matrix_past_the_end, 128, out, x)

HOPPER_KERNEL(unpublished_matrix) {
    const Shared shared(emulator::dynamic_shared());
    auto* elements = reinterpret_cast<uint16_t*>(shared.boxes[0]);
    for (int i = threadIdx.x; i < BOX_BYTES / 2; i += 128) {
        elements[i] = i;  // unpublished_matrix
    }
    __syncthreads();
    float d[32] = {};
    ptx::wgmma_fence();
    multiply(d, shared.boxes[0]);  // unpublished_matrix
    ptx::wgmma_commit_group();
    ptx::wgmma_wait_group<0>();
    write(out, d);
}
HOPPER_LAUNCH(unpublished_matrix, 128, out, x)

HOPPER_KERNEL(tf32_past_the_end) {
    const Shared shared(emulator::dynamic_shared());
    load_first_box(shared, x_map);
    float d[32] = {};
    ptx::wgmma_fence();
    multiply_tf32(d, shared.boxes[2] + 1024);  // tf32_past_the_end
    ptx::wgmma_commit_group();
    ptx::wgmma_wait_group<0>();
    write(out, d);
}
HOPPER_LAUNCH(tf32_past_the_end, 128, out, x)

// 16 bytes of the row of each of 64 threads, where the swizzle has them.
static __forceinline__ float* chunk_of_row(unsigned char* box, int chunk) {
    const int row = threadIdx.x % 64;
    return reinterpret_cast<float*>(box + 128 * row + 16 * (chunk ^ row % 8));
}

HOPPER_KERNEL(clobbered_tf32) {
    const Shared shared(emulator::dynamic_shared());
    load_first_box(shared, x_map);
    float d[32] = {};
    ptx::wgmma_fence();
    multiply_tf32(d, shared.boxes[0]);  // clobbered_tf32
    ptx::wgmma_commit_group();
    if (threadIdx.x == 63) *chunk_of_row(shared.boxes[0], 1) = 0;  // clobbered_tf32
    ptx::wgmma_wait_group<0>();
    write(out, d);
}
HOPPER_LAUNCH(clobbered_tf32, 128, out, x)

// Without a fault: no multiplication reads what lies behind its 32 bytes.
HOPPER_KERNEL(beside_tf32) {
    const Shared shared(emulator::dynamic_shared());
    load_first_box(shared, x_map);
    float d[32] = {};
    ptx::wgmma_fence();
    multiply_tf32(d, shared.boxes[0]);
    ptx::wgmma_commit_group();
    if (threadIdx.x < 64) *chunk_of_row(shared.boxes[0], 2) = 0;
    ptx::wgmma_wait_group<0>();
    write(out, d);
}
HOPPER_LAUNCH(beside_tf32, 128, out, x)

// ---- The ring -----------------------------------------------------------------------

HOPPER_KERNEL(clobbered_stage) {
    const Shared shared(emulator::dynamic_shared());
    begin(shared, 1, 1);
    if (threadIdx.x >= 128) {
        for (int step = 0; step < 2 && threadIdx.x == 128; ++step) {
            ptx::mbarrier_wait(&shared.empty[0], step ^ 1);
            ptx::mbarrier_arrive_expect_bytes(&shared.full[0], BOX_BYTES);
            const int y = 2 * step;
            unsigned char* to = shared.boxes[0];
            ptx::tma_load(to, &x_map, 0, y, 0, &shared.full[0]);  // clobbered_stage
        }
        return;
    }
    float d[32] = {};
    for (int step = 0; step < 2; ++step) {
        ptx::mbarrier_wait(&shared.full[0], step);
        ptx::wgmma_fence();
        multiply(d, shared.boxes[0]);  // clobbered_stage
        ptx::wgmma_commit_group();
        if (threadIdx.x == 0) ptx::mbarrier_arrive(&shared.empty[0]);  // too early
        ptx::wgmma_wait_group<0>();
    }
    write(out, d);
}
HOPPER_LAUNCH(clobbered_stage, 160, out, x)

HOPPER_KERNEL(phase_off_by_one) {
    const Shared shared(emulator::dynamic_shared());
    begin(shared, 1, 1);
    if (threadIdx.x == 0) {
        ptx::mbarrier_arrive_expect_bytes(&shared.full[0], BOX_BYTES);
        unsigned char* to = shared.boxes[0];
        ptx::tma_load(to, &x_map, 0, 0, 0, &shared.full[0]);  // phase_off_by_one
    }
    __syncthreads();
    ptx::mbarrier_wait(&shared.full[0], 1);  // of the phase before the first
    const auto* numbers = reinterpret_cast<const float*>(shared.boxes[0]);
    out[threadIdx.x] = numbers[threadIdx.x];  // phase_off_by_one
    ptx::mbarrier_wait(&shared.full[0], 0);
}
HOPPER_LAUNCH(phase_off_by_one, 128, out, x)

HOPPER_KERNEL(late_phase) {
    const Shared shared(emulator::dynamic_shared());
    begin(shared, 1, 1);
    if (threadIdx.x == 0) {
        ptx::mbarrier_arrive_expect_bytes(&shared.full[0], BOX_BYTES);
        ptx::tma_load(shared.boxes[0], &x_map, 0, 0, 0, &shared.full[0]);
    }
    ptx::mbarrier_wait(&shared.full[0], 0);
    ptx::mbarrier_wait(&shared.full[0], 1);  // late_phase
    out[threadIdx.x] = 0;
}
HOPPER_LAUNCH(late_phase, 128, out, x)

HOPPER_KERNEL(too_many_bytes) {
    const Shared shared(emulator::dynamic_shared());
    begin(shared, 1, 1);
    if (threadIdx.x == 0) {
        ptx::mbarrier_arrive_expect_bytes(&shared.full[0], BOX_BYTES + 16);
        ptx::tma_load(shared.boxes[0], &x_map, 0, 0, 0, &shared.full[0]);
    }
    ptx::mbarrier_wait(&shared.full[0], 0);  // too_many_bytes
    out[threadIdx.x] = 0;
}
HOPPER_LAUNCH(too_many_bytes, 128, out, x)

HOPPER_KERNEL(too_few_bytes) {
    const Shared shared(emulator::dynamic_shared());
    begin(shared, 1, 1);
    if (threadIdx.x == 0) {
        ptx::mbarrier_arrive_expect_bytes(&shared.full[0], BOX_BYTES - 16);
        ptx::tma_load(shared.boxes[0], &x_map, 0, 0, 0, &shared.full[0]);
    }
    ptx::mbarrier_wait(&shared.full[0], 0);  // too_few_bytes
    out[threadIdx.x] = 0;
}
HOPPER_LAUNCH(too_few_bytes, 128, out, x)

HOPPER_KERNEL(too_many_arrivals) {
    const Shared shared(emulator::dynamic_shared());
    begin(shared, 1, 1);
    if (threadIdx.x == 0) {
        ptx::mbarrier_arrive_expect_bytes(&shared.full[0], BOX_BYTES);
        ptx::mbarrier_arrive(&shared.full[0]);  // too_many_arrivals
    }
}
HOPPER_LAUNCH(too_many_arrivals, 128, out, x)

HOPPER_KERNEL(missing_arrival) {
    const Shared shared(emulator::dynamic_shared());
    begin(shared, 2, 1);
    if (threadIdx.x == 0) {
        ptx::mbarrier_arrive_expect_bytes(&shared.full[0], BOX_BYTES);
        ptx::tma_load(shared.boxes[0], &x_map, 0, 0, 0, &shared.full[0]);
    }
    ptx::mbarrier_wait(&shared.full[0], 0);  // missing_arrival
    out[threadIdx.x] = 0;
}
HOPPER_LAUNCH(missing_arrival, 128, out, x)

HOPPER_KERNEL(uninitialised_mbarrier) {
    const Shared shared(emulator::dynamic_shared());
    ptx::mbarrier_wait(&shared.full[0], 1);  // uninitialised_mbarrier
}
HOPPER_LAUNCH(uninitialised_mbarrier, 128, out, x)

HOPPER_KERNEL(overwritten_mbarrier) {
    const Shared shared(emulator::dynamic_shared());
    begin(shared, 1, 1);
    auto* numbers = reinterpret_cast<float*>(shared.boxes[0]);
    if (threadIdx.x == 0) numbers[N_BOXES * BOX_BYTES / 4] = x[0];
    __syncthreads();
    ptx::mbarrier_wait(&shared.full[0], 1);  // overwritten_mbarrier
}
HOPPER_LAUNCH(overwritten_mbarrier, 128, out, x)

HOPPER_KERNEL(unpublished_mbarrier) {
    const Shared shared(emulator::dynamic_shared());
    if (threadIdx.x == 0) {
        ptx::mbarrier_init(&shared.full[0], 1);
        ptx::mbarrier_arrive_expect_bytes(&shared.full[0], BOX_BYTES);
        unsigned char* to = shared.boxes[0];
        ptx::tma_load(to, &x_map, 0, 0, 0, &shared.full[0]);  // unpublished_mbarrier
    }
}
HOPPER_LAUNCH(unpublished_mbarrier, 128, out, x)

HOPPER_KERNEL(overrun_mbarrier) {
    const Shared shared(emulator::dynamic_shared());
    begin(shared, 1, 1);
    if (threadIdx.x < 32) {
        ptx::mbarrier_wait(&shared.full[0], 0);
    } else if (threadIdx.x == 32) {
        __nanosleep(100);
        ptx::mbarrier_arrive(&shared.full[0]);
        ptx::mbarrier_arrive(&shared.full[0]);  // the end of the last phase is unseen
    }
}
HOPPER_LAUNCH(overrun_mbarrier, 64, out, x)

HOPPER_KERNEL(abandoned_load) {
    const Shared shared(emulator::dynamic_shared());
    begin(shared, 1, 1);
    if (threadIdx.x == 0) {
        ptx::mbarrier_arrive_expect_bytes(&shared.full[0], BOX_BYTES);
        unsigned char* to = shared.boxes[0];
        ptx::tma_load(to, &x_map, 0, 0, 0, &shared.full[0]);  // abandoned_load
    }
    out[threadIdx.x] = 0;
}
HOPPER_LAUNCH(abandoned_load, 128, out, x)

HOPPER_KERNEL(two_loads_in_one_place) {
    const Shared shared(emulator::dynamic_shared());
    begin(shared, 1, 1);
    if (threadIdx.x == 0) {
        ptx::mbarrier_arrive_expect_bytes(&shared.full[0], 2 * BOX_BYTES);
        unsigned char* to = shared.boxes[0];
        ptx::tma_load(to, &x_map, 0, 0, 0, &shared.full[0]);  // two_loads_in_one_place
        ptx::tma_load(to, &x_map, 0, 2, 0, &shared.full[0]);  // two_loads_in_one_place
    }
    ptx::mbarrier_wait(&shared.full[0], 0);
    out[threadIdx.x] = 0;
}
HOPPER_LAUNCH(two_loads_in_one_place, 128, out, x)

HOPPER_KERNEL(bulk_past_the_end) {
    const Shared shared(emulator::dynamic_shared());
    begin(shared, 1, 1);
    if (threadIdx.x == 0) {
        ptx::mbarrier_arrive_expect_bytes(&shared.full[0], 32);
        unsigned char* to = shared.boxes[0];
        ptx::bulk_load(to, x + 124, 32, &shared.full[0]);  // bulk_past_the_end
    }
    ptx::mbarrier_wait(&shared.full[0], 0);
    out[threadIdx.x] = 0;
}
HOPPER_LAUNCH(bulk_past_the_end, 128, out, x)

HOPPER_KERNEL(vector_atomic_past_the_end) {
    auto* const sums = reinterpret_cast<float4*>(out) + threadIdx.x;
    ptx::add_in_memory(sums, {});  // vector_atomic_past_the_end
}
HOPPER_LAUNCH(vector_atomic_past_the_end, 33, out, x)

HOPPER_KERNEL(box_past_the_end) {
    const Shared shared(emulator::dynamic_shared());
    begin(shared, 1, 1);
    if (threadIdx.x == 0) {
        ptx::mbarrier_arrive_expect_bytes(&shared.full[0], BOX_BYTES);
        unsigned char* to = shared.boxes[2] + 1024;
        ptx::tma_load(to, &x_map, 0, 0, 0, &shared.full[0]);  // box_past_the_end
    }
}
HOPPER_LAUNCH(box_past_the_end, 128, out, x)

HOPPER_KERNEL(misaligned_box) {
    const Shared shared(emulator::dynamic_shared());
    begin(shared, 1, 1);
    if (threadIdx.x == 0) {
        ptx::mbarrier_arrive_expect_bytes(&shared.full[0], BOX_BYTES);
        unsigned char* to = shared.boxes[0] + 64;
        ptx::tma_load(to, &x_map, 0, 0, 0, &shared.full[0]);  // misaligned_box
    }
}
HOPPER_LAUNCH(misaligned_box, 128, out, x)

HOPPER_KERNEL(unregistered_tensor) {
    const Shared shared(emulator::dynamic_shared());
    begin(shared, 1, 1);
    if (threadIdx.x == 0) {
        ptx::mbarrier_arrive_expect_bytes(&shared.full[0], BOX_BYTES);
        unsigned char* to = shared.boxes[0];
        ptx::tma_load(to, &x_map, 0, 0, 0, &shared.full[0]);  // unregistered_tensor
    }
    ptx::mbarrier_wait(&shared.full[0], 0);
    out[threadIdx.x] = 0;
}
EXPORT int unregistered_tensor(float* out, float* x) {
    return launch_hopper(unregistered_tensor_kernel, 128, out, x + 64);
}

// ---- Stores -------------------------------------------------------------------------

HOPPER_KERNEL(missing_fence) {
    const Shared shared(emulator::dynamic_shared());
    auto* numbers = reinterpret_cast<float*>(shared.boxes[0]);
    for (int i = threadIdx.x; i < BOX_BYTES / 4; i += 128) {
        numbers[i] = x[i % 128];  // missing_fence
    }
    __syncthreads();
    if (threadIdx.x == 0) {
        ptx::tma_store(&out_map, 0, 0, 0, shared.boxes[0]);  // missing_fence
        ptx::tma_store_commit_group();
        ptx::tma_store_wait_group_read<0>();
    }
}
HOPPER_LAUNCH(missing_fence, 128, out, x)

HOPPER_KERNEL(store_before_barrier) {
    const Shared shared(emulator::dynamic_shared());
    auto* numbers = reinterpret_cast<float*>(shared.boxes[0]);
    for (int i = threadIdx.x; i < BOX_BYTES / 4; i += 128) {
        numbers[i] = x[i % 128];  // store_before_barrier
    }
    ptx::fence_async_proxy();
    if (threadIdx.x == 127) {
        ptx::tma_store(&out_map, 0, 0, 0, shared.boxes[0]);  // store_before_barrier
        ptx::tma_store_commit_group();
        ptx::tma_store_wait_group_read<0>();
    }
}
HOPPER_LAUNCH(store_before_barrier, 128, out, x)

// The wait leaves the newest store unread, which suits two buffers; there is only one.
HOPPER_KERNEL(reused_buffer) {
    const Shared shared(emulator::dynamic_shared());
    for (int step = 0; step < 2; ++step) {
        if (threadIdx.x == 0) ptx::tma_store_wait_group_read<1>();
        ptx::named_barrier_sync(1, 128);
        auto* numbers = reinterpret_cast<float*>(shared.boxes[0]);
        for (int i = threadIdx.x; i < BOX_BYTES / 4; i += 128) {
            numbers[i] = x[i % 128] + step;  // reused_buffer
        }
        ptx::fence_async_proxy();
        ptx::named_barrier_sync(1, 128);
        if (threadIdx.x == 0) {
            ptx::tma_store(&out_map, 0, 0, 0, shared.boxes[0]);  // reused_buffer
            ptx::tma_store_commit_group();
        }
    }
    if (threadIdx.x == 0) ptx::tma_store_wait_group_read<0>();
}
HOPPER_LAUNCH(reused_buffer, 128, out, x)

HOPPER_KERNEL(abandoned_store) {
    const Shared shared(emulator::dynamic_shared());
    auto* numbers = reinterpret_cast<float*>(shared.boxes[0]);
    for (int i = threadIdx.x; i < BOX_BYTES / 4; i += 128) numbers[i] = x[i % 128];
    ptx::fence_async_proxy();
    __syncthreads();
    if (threadIdx.x == 0) {
        ptx::tma_store(&out_map, 0, 0, 0, shared.boxes[0]);  // abandoned_store
        ptx::tma_store_commit_group();
    }
}
HOPPER_LAUNCH(abandoned_store, 128, out, x)

HOPPER_KERNEL(store_to_an_input) {
    const Shared shared(emulator::dynamic_shared());
    auto* numbers = reinterpret_cast<float*>(shared.boxes[0]);
    for (int i = threadIdx.x; i < BOX_BYTES / 4; i += 128) numbers[i] = x[i % 128];
    ptx::fence_async_proxy();
    __syncthreads();
    if (threadIdx.x == 0) {
        ptx::tma_store(&x_map, 0, 0, 0, shared.boxes[0]);  // store_to_an_input
        ptx::tma_store_commit_group();
        ptx::tma_store_wait_group_read<0>();
    }
}
HOPPER_LAUNCH(store_to_an_input, 128, out, x)

// ---- Named barriers -----------------------------------------------------------------

HOPPER_KERNEL(named_barrier_of_one_warp) {
    const Shared shared(emulator::dynamic_shared());
    auto* numbers = reinterpret_cast<float*>(shared.boxes[0]);
    numbers[threadIdx.x] = x[threadIdx.x];  // named_barrier_of_one_warp
    ptx::named_barrier_sync(1 + threadIdx.x / 32, 32);
    out[threadIdx.x] = numbers[threadIdx.x ^ 32];  // named_barrier_of_one_warp
}
HOPPER_LAUNCH(named_barrier_of_one_warp, 128, out, x)

HOPPER_KERNEL(named_barrier_too_large) {
    if (threadIdx.x < 64) ptx::named_barrier_sync(1, 96);  // named_barrier_too_large
    out[threadIdx.x] = x[threadIdx.x];
}
HOPPER_LAUNCH(named_barrier_too_large, 128, out, x)

HOPPER_KERNEL(named_barrier_of_two_sizes) {
    if (threadIdx.x < 64) {
        ptx::named_barrier_sync(1, 96);  // named_barrier_of_two_sizes
    } else {
        ptx::named_barrier_sync(1, 128);  // named_barrier_of_two_sizes
    }
    out[threadIdx.x] = x[threadIdx.x];
}
HOPPER_LAUNCH(named_barrier_of_two_sizes, 128, out, x)

// ---- Clusters of two blocks ---------------------------------------------------------

HOPPER_KERNEL(missing_remote_arrival) {
    const Shared shared(emulator::dynamic_shared());
    begin(shared, 2, 1);
    if (threadIdx.x == 0) ptx::mbarrier_arrive_remote(&shared.full[0], 0);
    ptx::mbarrier_wait(&shared.full[0], 0);  // missing_remote_arrival
    ptx::cluster_sync();                     // missing_remote_arrival
    out[threadIdx.x] = x[threadIdx.x];
}
HOPPER_LAUNCH(missing_remote_arrival, 64, out, x, 2)

HOPPER_KERNEL(missing_cluster_sync) {
    const Shared shared(emulator::dynamic_shared());
    auto* numbers = reinterpret_cast<float*>(shared.boxes[0]);
    const int rank = ptx::cluster_rank();
    ptx::cluster_sync();
    numbers[threadIdx.x] = x[threadIdx.x];  // missing_cluster_sync
    __syncthreads();
    const float* remote = ptx::map_shared(numbers, rank ^ 1);
    out[64 * rank + threadIdx.x] = remote[threadIdx.x];  // missing_cluster_sync
    ptx::cluster_sync();
}
HOPPER_LAUNCH(missing_cluster_sync, 64, out, x, 2)

HOPPER_KERNEL(block_has_returned) {
    const Shared shared(emulator::dynamic_shared());
    begin(shared, 1, 1);
    if (ptx::cluster_rank() == 1) return;
    ptx::cluster_sync();
    ptx::mbarrier_arrive_remote(&shared.full[0], 1);  // block_has_returned
}
HOPPER_LAUNCH(block_has_returned, 64, out, x, 2)

HOPPER_KERNEL(rank_past_the_end) {
    const Shared shared(emulator::dynamic_shared());
    begin(shared, 1, 1);
    if (threadIdx.x == 0) {
        ptx::mbarrier_arrive_remote(&shared.full[0], 2);  // rank_past_the_end
    }
}
HOPPER_LAUNCH(rank_past_the_end, 64, out, x, 2)

HOPPER_KERNEL(static_in_cluster) {
    __shared__ float numbers[64];
    numbers[threadIdx.x] = x[threadIdx.x];  // static_in_cluster
    __syncthreads();
    out[64 * ptx::cluster_rank() + threadIdx.x] = numbers[63 - threadIdx.x];
}
HOPPER_LAUNCH(static_in_cluster, 64, out, x, 2)

// One block loads into both, before the other has signalled that its buffer is free.
HOPPER_KERNEL(clobbered_by_load) {
    const Shared shared(emulator::dynamic_shared());
    begin(shared, 1, 1);
    const int rank = ptx::cluster_rank();
    const auto* numbers = reinterpret_cast<const float*>(shared.boxes[0]);
    unsigned char* const to = shared.boxes[0];
    uint64_t* const full = &shared.full[0];
    for (int step = 0; step < 2; ++step) {
        if (threadIdx.x == 0) ptx::mbarrier_arrive_expect_bytes(full, BOX_BYTES);
        if (threadIdx.x == 0 && rank == 0) {
            ptx::tma_load_multicast(to, &x_map, 0, 0, 0, full, 3);  // clobbered_by_load
        }
        ptx::mbarrier_wait(full, step);
        const float number = numbers[threadIdx.x];  // clobbered_by_load
        out[64 * rank + threadIdx.x] = number;
        __syncthreads();
    }
    ptx::cluster_sync();
}
HOPPER_LAUNCH(clobbered_by_load, 64, out, x, 2)

// One block loads into both, of which the other one does not wait for that.
HOPPER_KERNEL(abandoned_multicast) {
    const Shared shared(emulator::dynamic_shared());
    begin(shared, 1, 1);
    const int rank = ptx::cluster_rank();
    unsigned char* const to = shared.boxes[0];
    uint64_t* const full = &shared.full[0];
    if (threadIdx.x == 0) ptx::mbarrier_arrive_expect_bytes(full, BOX_BYTES);
    if (threadIdx.x == 0 && rank == 1) {
        ptx::tma_load_multicast(to, &x_map, 0, 0, 0, full, 3);  // abandoned_multicast
    }
    if (rank == 1) ptx::mbarrier_wait(full, 0);
    out[threadIdx.x] = x[threadIdx.x];
}
HOPPER_LAUNCH(abandoned_multicast, 64, out, x, 2)
