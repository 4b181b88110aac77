// All inline PTX of the project: instructions that CUDA C++ has no function for, under
// names that say what they do. The emulator has functions of the same names.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#ifdef TWIN_EMULATOR
#include "emulated_ptx.h"
#else

#include <cstdint>
#include <type_traits>

typedef struct CUtensorMap_st CUtensorMap;  // of <cuda.h>, which few have a use for

namespace ptx {

// ---- Approximate functions ----------------------------------------------------------

// 2^x with a relative error of 2^-22. Results below 2^-126 become 0. The function
// __exp2f spends three more instructions on those.
__device__ __forceinline__ float exp2(float x) {
    float result;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
    return result;
}

// 1 / x with an error of one unit in the last place. Where x or the result lies below
// 2^-126, the result is inf or 0.
__device__ __forceinline__ float reciprocal(float x) {
    float result;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
    return result;
}

// With an error of 2^-11, relative; beyond 9 or so the result is 1.
__device__ __forceinline__ float tanh(float x) {
    float result;
    asm("tanh.approx.f32 %0, %1;" : "=f"(result) : "f"(x));
    return result;
}

// ---- Comparisons --------------------------------------------------------------------

// The larger one, and NaN where one of them is, which fmaxf would leave out.
__device__ __forceinline__ float max_or_nan(float x, float y) {
    float result;
    asm("max.NaN.f32 %0, %1, %2;" : "=f"(result) : "f"(x), "f"(y));
    return result;
}

// ---- Integers -----------------------------------------------------------------------

// All 64 bits of a product. Of the same in C++ the compiler makes an addition more, or
// one multiplication for each half.
__device__ __forceinline__ uint64_t multiply_wide(uint32_t x, uint32_t y) {
    uint64_t result;
    asm("mul.wide.u32 %0, %1, %2;" : "=l"(result) : "r"(x), "r"(y));
    return result;
}

// ---- Loads that tell the caches what comes next --------------------------------------

// Of what will be read again soon: both caches evict it last, and hold on to it while
// others stream through them. Told nothing they would give up first what came first,
// which is just what is wanted next.
__device__ __forceinline__ uint4 load_evict_last(const uint4* ptr) {
    uint64_t policy;
    asm("createpolicy.fractional.L2::evict_last.b64 %0, 1.0;" : "=l"(policy));
    uint4 value;
    asm volatile(
        "ld.global.L1::evict_last.L2::cache_hint.v4.u32 {%0, %1, %2, %3}, [%4], %5;"
        : "=r"(value.x), "=r"(value.y), "=r"(value.z), "=r"(value.w)
        : "l"(ptr), "l"(policy)
    );
    return value;
}

// ---- Asynchronous copies ------------------------------------------------------------

__device__ __forceinline__ uint32_t shared_address(const void* shared) {
    return static_cast<uint32_t>(__cvta_generic_to_shared(shared));
}

// Starts a copy of 4, 8 or 16 bytes, both addresses being multiples of that. 16 bytes
// go past the L1 cache, which has no use for what is read once.
template <int BYTES>
__device__ __forceinline__ void cp_async(void* shared, const void* global) {
    static_assert(BYTES == 4 || BYTES == 8 || BYTES == 16);
    const uint32_t to = shared_address(shared);
    if constexpr (BYTES == 16) {
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(global)
                     : "memory");
    } else {
        asm volatile("cp.async.ca.shared.global [%0], [%1], %2;" ::"r"(to),
                     "l"(global),
                     "n"(BYTES)
                     : "memory");
    }
}

// The same where only the first source_bytes are read, and the rest becomes 0.
template <int BYTES>
__device__ __forceinline__ void cp_async(
    void* shared, const void* global, int source_bytes
) {
    static_assert(BYTES == 4 || BYTES == 8 || BYTES == 16);
    const uint32_t to = shared_address(shared);
    if constexpr (BYTES == 16) {
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to),
                     "l"(global),
                     "r"(source_bytes)
                     : "memory");
    } else {
        asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(to),
                     "l"(global),
                     "n"(BYTES),
                     "r"(source_bytes)
                     : "memory");
    }
}

// Makes one group of the copies that the thread has started since the last group.
__device__ __forceinline__ void cp_async_commit_group() {
    asm volatile("cp.async.commit_group;" ::: "memory");
}

// Waits until only this many of the thread's groups, the newest, are unfinished.
template <int UNFINISHED>
__device__ __forceinline__ void cp_async_wait_group() {
    asm volatile("cp.async.wait_group %0;" ::"n"(UNFINISHED) : "memory");
}

// Waits for all copies of the thread.
__device__ __forceinline__ void cp_async_wait_all() {
    asm volatile("cp.async.wait_all;" ::: "memory");
}

// ---- Matrices, held by a warp in fragments as the PTX ISA lays down -----------------

// COUNT matrices of 8 rows of 16 bytes: lanes 8 i to 8 i + 7 pass where the rows of
// matrix i begin. Lane l gets columns 2 (l % 4) and the next one of row l / 4.
template <int COUNT>
__device__ __forceinline__ void ldmatrix(uint32_t (&fragment)[COUNT], const void* row) {
    static_assert(COUNT == 1 || COUNT == 2 || COUNT == 4);
    const uint32_t address = shared_address(row);
    if constexpr (COUNT == 1) {
        asm volatile("ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%0}, [%1];"
                     : "=r"(fragment[0])
                     : "r"(address)
                     : "memory");
    } else if constexpr (COUNT == 2) {
        asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0, %1}, [%2];"
                     : "=r"(fragment[0]), "=r"(fragment[1])
                     : "r"(address)
                     : "memory");
    } else {
        asm volatile(
            "ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
            : "=r"(fragment[0]), "=r"(fragment[1]), "=r"(fragment[2]), "=r"(fragment[3])
            : "r"(address)
            : "memory"
        );
    }
}

// The same of the transposed matrices: rows 2 (l % 4) and the next one of column l / 4.
template <int COUNT>
__device__ __forceinline__ void ldmatrix_transposed(
    uint32_t (&fragment)[COUNT], const void* row
) {
    static_assert(COUNT == 1 || COUNT == 2 || COUNT == 4);
    const uint32_t address = shared_address(row);
    if constexpr (COUNT == 1) {
        asm volatile("ldmatrix.sync.aligned.m8n8.x1.trans.shared.b16 {%0}, [%1];"
                     : "=r"(fragment[0])
                     : "r"(address)
                     : "memory");
    } else if constexpr (COUNT == 2) {
        asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0, %1}, [%2];"
                     : "=r"(fragment[0]), "=r"(fragment[1])
                     : "r"(address)
                     : "memory");
    } else {
        asm volatile(
            "ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
            : "=r"(fragment[0]), "=r"(fragment[1]), "=r"(fragment[2]), "=r"(fragment[3])
            : "r"(address)
            : "memory"
        );
    }
}

// d (16 x 8) = a (16 x 16) * b (16 x 8) + c (16 x 8); T is the type of a and b, and the
// sums are float32.
template <typename T>
__device__ __forceinline__ void mma_m16n8k16(
    float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2], const float (&c)[4]
) {
    static_assert(std::is_same_v<T, __half> || std::is_same_v<T, __nv_bfloat16>);
    if constexpr (std::is_same_v<T, __half>) {
        asm volatile(
            "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
            "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%10, %11, %12, %13};"
            : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3])
            : "r"(a[0]),
              "r"(a[1]),
              "r"(a[2]),
              "r"(a[3]),
              "r"(b[0]),
              "r"(b[1]),
              "f"(c[0]),
              "f"(c[1]),
              "f"(c[2]),
              "f"(c[3])
        );
    } else {
        asm volatile(
            "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
            "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%10, %11, %12, %13};"
            : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3])
            : "r"(a[0]),
              "r"(a[1]),
              "r"(a[2]),
              "r"(a[3]),
              "r"(b[0]),
              "r"(b[1]),
              "f"(c[0]),
              "f"(c[1]),
              "f"(c[2]),
              "f"(c[3])
        );
    }
}

// The same with sums in half, as pairs.
template <typename T>
__device__ __forceinline__ void mma_m16n8k16(
    uint32_t (&d)[2],
    const uint32_t (&a)[4],
    const uint32_t (&b)[2],
    const uint32_t (&c)[2]
) {
    static_assert(std::is_same_v<T, __half>);
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16 "
        "{%0, %1}, {%2, %3, %4, %5}, {%6, %7}, {%8, %9};"
        : "=r"(d[0]), "=r"(d[1])
        : "r"(a[0]),
          "r"(a[1]),
          "r"(a[2]),
          "r"(a[3]),
          "r"(b[0]),
          "r"(b[1]),
          "r"(c[0]),
          "r"(c[1])
    );
}

// The nearest number of tf32, which has 10 bits of fraction, in the bits of a float; of
// two that are as near the larger one.
__device__ __forceinline__ uint32_t round_to_tf32(float x) {
    uint32_t result;
    asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(result) : "f"(x));
    return result;
}

// d (16 x 8) = a (16 x 8) * b (8 x 8) + c (16 x 8) of float32 numbers, of which a and b
// lose the lowest 13 bits: those are not looked at.
__device__ __forceinline__ void mma_m16n8k8_tf32(
    float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2], const float (&c)[4]
) {
    asm volatile(
        "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 "
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%10, %11, %12, %13};"
        : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3])
        : "r"(a[0]),
          "r"(a[1]),
          "r"(a[2]),
          "r"(a[3]),
          "r"(b[0]),
          "r"(b[1]),
          "f"(c[0]),
          "f"(c[1]),
          "f"(c[2]),
          "f"(c[3])
    );
}

// ---- Hopper: barriers in shared memory ----------------------------------------------
//
// An mbarrier is 8 bytes of shared memory. A phase of it ends when as many threads have
// arrived as it was made for, and as many bytes have come as they expect. Phases are
// even and odd in turn, the first one being even.

__device__ __forceinline__ void mbarrier_init(uint64_t* barrier, int n_arrivals) {
    asm volatile(
        "mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(barrier)),
        "r"(n_arrivals)
        : "memory"
    );
}

// Makes initialised barriers known to the cluster and to the tensor memory accelerator.
__device__ __forceinline__ void fence_mbarrier_init() {
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

__device__ __forceinline__ void mbarrier_arrive(uint64_t* barrier) {
    asm volatile(
        "mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(barrier))
        : "memory"
    );
}

// Arrives, and lets the phase wait for this many bytes more.
__device__ __forceinline__ void mbarrier_arrive_expect_bytes(
    uint64_t* barrier, int bytes
) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(
                     shared_address(barrier)
                 ),
                 "r"(bytes)
                 : "memory");
}

// Arrives at the same barrier of another block of the cluster.
__device__ __forceinline__ void mbarrier_arrive_remote(uint64_t* barrier, int block) {
    asm volatile(
        "{\n"
        ".reg .b32 remote;\n"
        "mapa.shared::cluster.u32 remote, %0, %1;\n"
        "mbarrier.arrive.release.cluster.shared::cluster.b64 _, [remote];\n"
        "}\n" ::"r"(shared_address(barrier)),
        "r"(block)
        : "memory"
    );
}

// Writes 4 or 8 bytes to the same place in the shared memory of another block of the
// cluster, and tells the same barrier of that block of them when they are there. Nothing
// else is waited for, as it would be by cluster_sync.
template <typename T>
__device__ __forceinline__ void store_remote(
    T* shared, T value, uint64_t* barrier, int block
) {
    static_assert(sizeof(T) == 4 || sizeof(T) == 8);
    using Word = std::conditional_t<sizeof(T) == 4, uint32_t, uint64_t>;
    uint32_t remote, remote_barrier;
    asm("mapa.shared::cluster.u32 %0, %1, %2;"
        : "=r"(remote)
        : "r"(shared_address(shared)), "r"(block));
    asm("mapa.shared::cluster.u32 %0, %1, %2;"
        : "=r"(remote_barrier)
        : "r"(shared_address(barrier)), "r"(block));
    const Word word = __builtin_bit_cast(Word, value);
    if constexpr (sizeof(T) == 4) {
        asm volatile(
            "st.async.shared::cluster.mbarrier::complete_tx::bytes.b32 [%0], %1, "
            "[%2];" ::"r"(remote),
            "r"(word),
            "r"(remote_barrier)
            : "memory"
        );
    } else {
        asm volatile(
            "st.async.shared::cluster.mbarrier::complete_tx::bytes.b64 [%0], %1, "
            "[%2];" ::"r"(remote),
            "l"(word),
            "r"(remote_barrier)
            : "memory"
        );
    }
}

// Waits for the end of the running phase if that has this parity; the phase before it,
// which has the other one, is over.
__device__ __forceinline__ void mbarrier_wait(uint64_t* barrier, int parity) {
    asm volatile(
        "{\n"
        ".reg .pred is_over;\n"
        "again:\n"
        "mbarrier.try_wait.parity.shared::cta.b64 is_over, [%0], %1;\n"
        "@!is_over bra again;\n"
        "}\n" ::"r"(shared_address(barrier)),
        "r"(parity)
        : "memory"
    );
}

// ---- Hopper: parts of a block, and clusters of blocks -------------------------------

// Of n_threads threads that name the same barrier, 1 to 15 (0 is that of __syncthreads).
__device__ __forceinline__ void named_barrier_sync(int barrier, int n_threads) {
    asm volatile("barrier.sync %0, %1;" ::"r"(barrier), "r"(n_threads) : "memory");
}

// Gives registers of each thread of a warpgroup back, down to this many.
template <int REGISTERS>
__device__ __forceinline__ void setmaxnreg_dec() {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(REGISTERS));
}

// Waits for registers that others give back, up to this many for each thread.
template <int REGISTERS>
__device__ __forceinline__ void setmaxnreg_inc() {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(REGISTERS));
}

__device__ __forceinline__ int cluster_block_rank() {
    uint32_t rank;
    asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    return static_cast<int>(rank);
}

// All threads of all blocks of the cluster, whose accesses to shared memory it orders.
__device__ __forceinline__ void cluster_sync() {
    asm volatile(
        "barrier.cluster.arrive.release.aligned;\n"
        "barrier.cluster.wait.acquire.aligned;" ::
            : "memory"
    );
}

// The same in two halves, and of no accesses: those who have waited know only that all
// have arrived, and so that all blocks have started, whose shared memory they may use.
__device__ __forceinline__ void cluster_arrive() {
    asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
}

__device__ __forceinline__ void cluster_wait() {
    asm volatile("barrier.cluster.wait.aligned;" ::: "memory");
}

// The same place in the shared memory of another block of the cluster.
template <typename T>
__device__ __forceinline__ T* map_shared(T* shared, int block) {
    uint64_t remote;
    asm volatile("mapa.u64 %0, %1, %2;" : "=l"(remote) : "l"(shared), "r"(block));
    return reinterpret_cast<T*>(remote);
}

// ---- Hopper: the tensor memory accelerator ------------------------------------------
//
// One thread starts the copy of a box of a 3-dimensional tensor, as the tensor map of
// the host describes them; what of the box lies outside of the tensor is read as 0, and
// not written. x counts along the contiguous dimension.

__device__ __forceinline__ void prefetch_tensor_map(const CUtensorMap* map) {
    asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory");
}

// Tells the barrier of the bytes as they come.
__device__ __forceinline__ void tma_load(
    void* shared, const CUtensorMap* map, int x, int y, int z, uint64_t* barrier
) {
    asm volatile(
        "cp.async.bulk.tensor.3d.shared::cluster.global.tile"
        ".mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %5}], [%2];" ::"r"(
            shared_address(shared)
        ),
        "l"(map),
        "r"(shared_address(barrier)),
        "r"(x),
        "r"(y),
        "r"(z)
        : "memory"
    );
}

// The same into several blocks of the cluster, whose ranks are the bits of `blocks`: at
// the same place of their shared memory, and told to the same barrier of each.
__device__ __forceinline__ void tma_load_multicast(
    void* shared,
    const CUtensorMap* map,
    int x,
    int y,
    int z,
    uint64_t* barrier,
    uint16_t blocks
) {
    asm volatile(
        "cp.async.bulk.tensor.3d.shared::cluster.global.tile"
        ".mbarrier::complete_tx::bytes.multicast::cluster "
        "[%0], [%1, {%3, %4, %5}], [%2], %6;" ::"r"(shared_address(shared)),
        "l"(map),
        "r"(shared_address(barrier)),
        "r"(x),
        "r"(y),
        "r"(z),
        "h"(blocks)
        : "memory"
    );
}

// Makes the thread's writes to shared memory visible to the accelerator.
__device__ __forceinline__ void fence_async_proxy() {
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

__device__ __forceinline__ void tma_store(
    const CUtensorMap* map, int x, int y, int z, const void* shared
) {
    asm volatile(
        "cp.async.bulk.tensor.3d.global.shared::cta.tile.bulk_group "
        "[%0, {%2, %3, %4}], [%1];" ::"l"(map),
        "r"(shared_address(shared)),
        "r"(x),
        "r"(y),
        "r"(z)
        : "memory"
    );
}

// Makes one group of the stores that the thread has started since the last group.
__device__ __forceinline__ void tma_store_commit_group() {
    asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}

// Waits until only this many of the thread's groups, the newest, are still to be read
// from shared memory.
template <int UNREAD>
__device__ __forceinline__ void tma_store_wait_group_read() {
    asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(UNREAD) : "memory");
}

// ---- Hopper: matrices, multiplied by a warpgroup from shared memory ------------------

// Of which dimension a matrix in shared memory has neighbours in neighbouring places: of
// k, or of the other one (m of a, n of b).
enum class Major { K = 0, MN = 1 };

// Where a matrix lies in shared memory, in boxes with the swizzle of 128 bytes whose
// first one begins at a multiple of 1024 bytes; `shared` may lie inside of it. Each box
// holds rows of 128 bytes, 8 of which are 1024 bytes; stride_bytes is from those to the
// next 8, leading_bytes from a box to the next one along the contiguous dimension (of
// Major::MN alone).
__device__ __forceinline__ uint64_t
wgmma_descriptor(const void* shared, int leading_bytes, int stride_bytes) {
    constexpr uint64_t SWIZZLE_128_BYTES = uint64_t{1} << 62;
    const auto in_16_bytes = [](uint32_t bytes) {
        return static_cast<uint64_t>((bytes & 0x3ffff) >> 4);
    };
    return SWIZZLE_128_BYTES | in_16_bytes(shared_address(shared)) |
           in_16_bytes(leading_bytes) << 16 | in_16_bytes(stride_bytes) << 32;
}

// The same so many bytes further: an addition, where a descriptor takes eight.
__device__ __forceinline__ uint64_t wgmma_advance(uint64_t descriptor, int bytes) {
    return descriptor + bytes / 16;
}

// Keeps the accumulators, and what was written to registers, from being touched before
// the multiplications that follow have been started.
__device__ __forceinline__ void wgmma_fence() {
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}

// Makes one group of the multiplications that the warpgroup has started since the last.
__device__ __forceinline__ void wgmma_commit_group() {
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}

// Waits until only this many of the groups, the newest, are unfinished.
template <int UNFINISHED>
__device__ __forceinline__ void wgmma_wait_group() {
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(UNFINISHED) : "memory");
}

// The instruction names every register of d, up to 128 of them, and its type, which must
// be a literal: hence macros, for the places in the text and for the registers.
// clang-format off
#define PLACES_0_TO_31 \
    "%0, %1, %2, %3, %4, %5, %6, %7, " \
    "%8, %9, %10, %11, %12, %13, %14, %15, " \
    "%16, %17, %18, %19, %20, %21, %22, %23, " \
    "%24, %25, %26, %27, %28, %29, %30, %31"
#define PLACES_32_TO_63 \
    "%32, %33, %34, %35, %36, %37, %38, %39, " \
    "%40, %41, %42, %43, %44, %45, %46, %47, " \
    "%48, %49, %50, %51, %52, %53, %54, %55, " \
    "%56, %57, %58, %59, %60, %61, %62, %63"
#define PLACES_64_TO_127 \
    "%64, %65, %66, %67, %68, %69, %70, %71, " \
    "%72, %73, %74, %75, %76, %77, %78, %79, " \
    "%80, %81, %82, %83, %84, %85, %86, %87, " \
    "%88, %89, %90, %91, %92, %93, %94, %95, " \
    "%96, %97, %98, %99, %100, %101, %102, %103, " \
    "%104, %105, %106, %107, %108, %109, %110, %111, " \
    "%112, %113, %114, %115, %116, %117, %118, %119, " \
    "%120, %121, %122, %123, %124, %125, %126, %127"
#define REGISTERS_8(d, i)                                           \
    "+f"((d)[i]), "+f"((d)[i + 1]), "+f"((d)[i + 2]), "+f"((d)[i + 3]), \
    "+f"((d)[i + 4]), "+f"((d)[i + 5]), "+f"((d)[i + 6]), "+f"((d)[i + 7])
#define REGISTERS_32(d, i)                        \
    REGISTERS_8(d, i), REGISTERS_8(d, i + 8),     \
    REGISTERS_8(d, i + 16), REGISTERS_8(d, i + 24)
#define WGMMA(N, TYPE, PLACES, A, B, ACCUMULATES, A_IS_MN, B_IS_MN, ...)           \
    asm volatile(                                                                  \
        "{\n"                                                                      \
        ".reg .pred accumulates;\n"                                                \
        "setp.ne.b32 accumulates, " ACCUMULATES ", 0;\n"                           \
        "wgmma.mma_async.sync.aligned.m64n" N "k16.f32." TYPE "." TYPE             \
        " {" PLACES "}, " A ", " B ", accumulates, 1, 1, " A_IS_MN ", " B_IS_MN ";\n" \
        "}\n"                                                                      \
        : __VA_ARGS__                                                              \
        : "l"(a), "l"(b), "r"(static_cast<int>(accumulates)),                      \
          "n"(static_cast<int>(A_MAJOR)), "n"(static_cast<int>(B_MAJOR))           \
    )
#define WGMMA_N64(TYPE)                                                      \
    WGMMA("64", TYPE, PLACES_0_TO_31, "%32", "%33", "%34", "%35", "%36",     \
          REGISTERS_32(d, 0))
#define WGMMA_N128(TYPE)                                                     \
    WGMMA("128", TYPE, PLACES_0_TO_31 ", " PLACES_32_TO_63,                  \
          "%64", "%65", "%66", "%67", "%68",                                 \
          REGISTERS_32(d, 0), REGISTERS_32(d, 32))
#define WGMMA_N256(TYPE)                                                     \
    WGMMA("256", TYPE, PLACES_0_TO_31 ", " PLACES_32_TO_63 ", " PLACES_64_TO_127, \
          "%128", "%129", "%130", "%131", "%132",                            \
          REGISTERS_32(d, 0), REGISTERS_32(d, 32),                           \
          REGISTERS_32(d, 64), REGISTERS_32(d, 96))
// clang-format on

// Starts d (64 x N) = a (64 x 16) * b (16 x N), plus d if it accumulates. Warp w of the
// warpgroup holds rows 16 w to 16 w + 15 of d; d[8 j / 2 + i] of lane l is row l / 4, or 8
// more if i & 2, and column 8 j + 2 (l % 4) + (i & 1).
template <typename T, Major A_MAJOR, Major B_MAJOR, int N>
__device__ __forceinline__ void wgmma_m64k16(
    float (&d)[N / 2], uint64_t a, uint64_t b, bool accumulates
) {
    static_assert(std::is_same_v<T, __half> || std::is_same_v<T, __nv_bfloat16>);
    static_assert(N == 64 || N == 128 || N == 256);
    constexpr bool IS_HALF = std::is_same_v<T, __half>;
    if constexpr (N == 64 && IS_HALF) WGMMA_N64("f16");
    if constexpr (N == 64 && !IS_HALF) WGMMA_N64("bf16");
    if constexpr (N == 128 && IS_HALF) WGMMA_N128("f16");
    if constexpr (N == 128 && !IS_HALF) WGMMA_N128("bf16");
    if constexpr (N == 256 && IS_HALF) WGMMA_N256("f16");
    if constexpr (N == 256 && !IS_HALF) WGMMA_N256("bf16");
}

#undef PLACES_0_TO_31
#undef PLACES_32_TO_63
#undef PLACES_64_TO_127
#undef REGISTERS_8
#undef REGISTERS_32
#undef WGMMA
#undef WGMMA_N64
#undef WGMMA_N128
#undef WGMMA_N256

// Stores 4 matrices of 8 rows of 16 bytes, the opposite of ldmatrix.
__device__ __forceinline__ void stmatrix(void* row, const uint32_t (&fragment)[4]) {
    asm volatile(
        "stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(
            shared_address(row)
        ),
        "r"(fragment[0]),
        "r"(fragment[1]),
        "r"(fragment[2]),
        "r"(fragment[3])
        : "memory"
    );
}

}  // namespace ptx

#endif  // TWIN_EMULATOR
