// The functions of csrc/common/ptx/ for kernels in the emulator. There each is one PTX
// instruction; here each emulates that instruction, and takes the call site, which
// error messages name, as its last parameter.
#pragma once

#include <bit>
#include <cmath>

#include "cuda_bf16.h"
#include "cuda_fp16.h"
#include "cuda_runtime.h"
#include "device/async_copy.h"
#include "device/cluster.h"
#include "device/matrix.h"
#include "device/mbarrier.h"
#include "device/tensor_copy.h"
#include "device/warpgroup.h"

namespace ptx {

using emulator::Site;

// ---- math.cuh: as exact as the C library --------------------------------------------

inline float exp2(float x) { return std::exp2(x); }

inline int bits_of(float x) { return __builtin_bit_cast(int, x); }

inline float reciprocal(float x) { return 1.0f / x; }

inline float tanh(float x) { return std::tanh(x); }

inline float max_or_nan(float x, float y) { return x > y || x != x ? x : y; }

inline std::uint64_t multiply_wide(std::uint32_t x, std::uint32_t y) {
    return std::uint64_t{x} * y;
}

// ---- memory.cuh: there are no caches ------------------------------------------------

[[gnu::always_inline]]  // as in device/memory.h
inline uint4 load_evict_last(const uint4* ptr, Site site = Site::here()) {
    return emulator::checked_load(ptr, "load_evict_last", site);
}

// ---- griddepcontrol.cuh: no launch begins before the last one has ended --------------

inline void griddepcontrol_launch_dependents() {}

inline void griddepcontrol_wait() {}

// ---- reduction.cuh ------------------------------------------------------------------

[[gnu::always_inline]]  // as in device/atomics.h
inline void add_in_memory(float4* sums, float4 values, Site site = Site::here()) {
    if (reinterpret_cast<std::uintptr_t>(sums) % alignof(float4) != 0) {
        emulator::misaligned_access("add_in_memory", site, sums, alignof(float4));
    }
    atomicAdd(sums, values, site);
}

inline int load_acquire(const int* count, Site site = Site::here()) {
    return atomicAdd(const_cast<int*>(count), 0, site);  // which may poll
}

inline void add_release(int* count, int value, Site site = Site::here()) {
    atomicAdd(count, value, site);
}

// ---- async_copy.cuh -----------------------------------------------------------------

template <int BYTES>
void cp_async(
    void* shared, const void* global, int source_bytes = BYTES, Site site = Site::here()
) {
    static_assert(BYTES == 4 || BYTES == 8 || BYTES == 16);
    auto read = static_cast<std::size_t>(source_bytes);
    emulator::start_async_copy(shared, global, BYTES, read, "cp.async", site);
}

inline void cp_async_commit_group() { emulator::commit_async_copies(); }

template <int UNFINISHED>
void cp_async_wait_group() {
    static_assert(UNFINISHED >= 0);
    emulator::wait_for_async_groups(UNFINISHED);
}

inline void cp_async_wait_all() { emulator::wait_for_async_copies(); }

// ---- mma.cuh ------------------------------------------------------------------------

inline void ldmatrix(
    std::uint32_t (&fragment)[4], const void* row, Site site = Site::here()
) {
    emulator::load_matrices(fragment, false, row, "ldmatrix", site);
}

inline void ldmatrix_transposed(
    std::uint32_t (&fragment)[4], const void* row, Site site = Site::here()
) {
    emulator::load_matrices(fragment, true, row, "ldmatrix.trans", site);
}

inline void stmatrix(
    void* row, const std::uint32_t (&fragment)[4], Site site = Site::here()
) {
    emulator::store_matrices(row, fragment, site);
}

template <typename T>
void mma_m16n8k16(
    float (&d)[4], const std::uint32_t (&a)[4], const std::uint32_t (&b)[2],
    const float (&c)[4], Site site = Site::here()
) {
    static_assert(std::is_same_v<T, __half> || std::is_same_v<T, __nv_bfloat16>);
    constexpr auto format = std::is_same_v<T, __half>
                                ? emulator::MatrixFormat::half
                                : emulator::MatrixFormat::bfloat16;
    emulator::multiply_matrices<float>(format, {d, a, b, c}, site);
}

template <typename T>
void mma_m16n8k16(
    std::uint32_t (&d)[2], const std::uint32_t (&a)[4], const std::uint32_t (&b)[2],
    const std::uint32_t (&c)[2], Site site = Site::here()
) {
    static_assert(std::is_same_v<T, __half>);
    emulator::multiply_matrices<std::uint32_t>(
        emulator::MatrixFormat::half, {d, a, b, c}, site
    );
}

inline std::uint32_t round_to_tf32(float x) {
    constexpr std::uint32_t DROPPED = 0x1fff;
    if (std::isnan(x)) return 0x7fffffff;
    return (std::bit_cast<std::uint32_t>(x) + (DROPPED + 1) / 2) & ~DROPPED;
}

inline void mma_m16n8k8_tf32(
    float (&d)[4], const std::uint32_t (&a)[4], const std::uint32_t (&b)[2],
    const float (&c)[4], Site site = Site::here()
) {
    emulator::multiply_matrices<float>(
        emulator::MatrixFormat::tf32, {d, a, b, c}, site
    );
}

// ---- barrier.cuh --------------------------------------------------------------------

inline void named_barrier_sync(int barrier, int n_threads, Site site = Site::here()) {
    emulator::meet_at_named_barrier(barrier, n_threads, site);
}

inline void named_barrier_arrive(int barrier, int n_threads, Site site = Site::here()) {
    emulator::arrive_at_named_barrier(barrier, n_threads, site);
}

inline void mbarrier_init(
    std::uint64_t* barrier, int n_arrivals, Site site = Site::here()
) {
    emulator::initialise_mbarrier(barrier, n_arrivals, site);
}

inline void fence_mbarrier_init() { emulator::publish_mbarriers(); }

inline void mbarrier_arrive(std::uint64_t* barrier, Site site = Site::here()) {
    emulator::arrive_at_mbarrier(barrier, 0, "mbarrier_arrive", site);
}

inline void mbarrier_arrive_expect_bytes(
    std::uint64_t* barrier, int bytes, Site site = Site::here()
) {
    emulator::arrive_at_mbarrier(barrier, bytes, "mbarrier_arrive_expect_bytes", site);
}

inline void mbarrier_wait(
    std::uint64_t* barrier, int parity, Site site = Site::here()
) {
    emulator::wait_for_mbarrier(barrier, parity, site);
}

// ---- cluster.cuh --------------------------------------------------------------------

inline int cluster_rank() { return emulator::cluster_rank(); }

inline void cluster_sync(Site site = Site::here()) { emulator::meet_cluster(site); }

inline void cluster_arrive(Site site = Site::here()) {
    emulator::arrive_at_cluster(site);
}

inline void cluster_wait(Site site = Site::here()) { emulator::wait_for_cluster(site); }

template <typename T>
T* map_shared(T* shared, int block, Site site = Site::here()) {
    return static_cast<T*>(emulator::map_shared(shared, block, site));
}

inline void mbarrier_arrive_remote(
    std::uint64_t* barrier, int block, Site site = Site::here()
) {
    emulator::arrive_at_remote_mbarrier(barrier, block, site);
}

template <typename T>
void store_remote(
    T* shared, T value, std::uint64_t* barrier, int block, Site site = Site::here()
) {
    static_assert(sizeof(T) == 4 || sizeof(T) == 8);
    *static_cast<T*>(emulator::map_shared(shared, block, site)) = value;
    emulator::complete_remote_bytes(barrier, sizeof(T), block, site);
}

// ---- tma.cuh ------------------------------------------------------------------------

inline void prefetch_tensor_map(const CUtensorMap* map, Site site = Site::here()) {
    emulator::check_tensor_map(map, "prefetch_tensor_map", site);
}

inline void tma_load(
    void* shared, const CUtensorMap* map, int x, int y, int z, std::uint64_t* barrier,
    Site site = Site::here()
) {
    emulator::start_box_load(
        shared, map, {x, y, z}, barrier, nullptr, "tma_load", site
    );
}

inline void tma_load_multicast(
    void* shared, const CUtensorMap* map, int x, int y, int z, std::uint64_t* barrier,
    std::uint16_t blocks, Site site = Site::here()
) {
    emulator::start_box_load(
        shared, map, {x, y, z}, barrier, &blocks, "tma_load_multicast", site
    );
}

inline void tma_load(
    void* shared, const CUtensorMap* map, int x, int y, int z, int w,
    std::uint64_t* barrier, Site site = Site::here()
) {
    emulator::start_box_load(
        shared, map, {x, y, z, w, 4}, barrier, nullptr, "tma_load", site
    );
}

inline void bulk_load(
    void* shared, const void* global, int bytes, std::uint64_t* barrier,
    Site site = Site::here()
) {
    emulator::start_bulk_load(shared, global, bytes, barrier, site);
}

inline void fence_async_proxy() { emulator::publish_shared_writes(); }

inline void tma_store(
    const CUtensorMap* map, int x, int y, int z, const void* shared,
    Site site = Site::here()
) {
    emulator::start_box_store(map, {x, y, z}, shared, site);
}

inline void tma_store(
    const CUtensorMap* map, int x, int y, int z, int w, const void* shared,
    Site site = Site::here()
) {
    emulator::start_box_store(map, {x, y, z, w, 4}, shared, site);
}

inline void tma_store_commit_group() { emulator::commit_box_stores(); }

template <int UNREAD>
void tma_store_wait_group_read(Site site = Site::here()) {
    static_assert(UNREAD >= 0);
    emulator::wait_for_box_stores(UNREAD, site);
}

// ---- wgmma.cuh ----------------------------------------------------------------------

template <int REGISTERS>
void setmaxnreg_dec() {
    static_assert(REGISTERS >= 24 && REGISTERS <= 256 && REGISTERS % 8 == 0);
}

template <int REGISTERS>
void setmaxnreg_inc() {
    static_assert(REGISTERS >= 24 && REGISTERS <= 256 && REGISTERS % 8 == 0);
}

enum class Major { K = 0, MN = 1 };

inline std::uint64_t wgmma_descriptor(
    const void* shared, int leading_bytes, int stride_bytes, Site site = Site::here()
) {
    return emulator::matrix_descriptor(shared, leading_bytes, stride_bytes, site);
}

inline std::uint64_t wgmma_advance(std::uint64_t descriptor, int bytes) {
    return descriptor + bytes / 16;
}

inline void wgmma_fence(Site site = Site::here()) {
    emulator::fence_multiplications(site);
}

inline void wgmma_commit_group(Site site = Site::here()) {
    emulator::commit_multiplications(site);
}

template <int UNFINISHED>
void wgmma_wait_group(Site site = Site::here()) {
    static_assert(UNFINISHED >= 0);
    emulator::wait_for_multiplications(UNFINISHED, site);
}

template <typename T, Major A_MAJOR, Major B_MAJOR, int N>
void wgmma_m64k16(
    float (&d)[N / 2], std::uint64_t a, std::uint64_t b, bool accumulates,
    Site site = Site::here()
) {
    static_assert(std::is_same_v<T, __half> || std::is_same_v<T, __nv_bfloat16>);
    static_assert(N % 8 == 0 && N >= 8 && N <= 256);
    constexpr auto format = std::is_same_v<T, __half>
                                ? emulator::MatrixFormat::half
                                : emulator::MatrixFormat::bfloat16;
    emulator::start_multiplication(
        {format, N, A_MAJOR == Major::MN, B_MAJOR == Major::MN, accumulates, a, b}, d,
        nullptr, site
    );
}

template <typename T, Major B_MAJOR, int N>
void wgmma_m64k16(
    float (&d)[N / 2], const std::uint32_t (&a)[4], std::uint64_t b, bool accumulates,
    Site site = Site::here()
) {
    static_assert(std::is_same_v<T, __half> || std::is_same_v<T, __nv_bfloat16>);
    static_assert(N % 8 == 0 && N >= 8 && N <= 256);
    constexpr auto format = std::is_same_v<T, __half>
                                ? emulator::MatrixFormat::half
                                : emulator::MatrixFormat::bfloat16;
    emulator::start_multiplication(
        {format, N, false, B_MAJOR == Major::MN, accumulates, 0, b, true}, d, a, site
    );
}

template <int N>
void wgmma_m64k8(
    float (&d)[N / 2], std::uint64_t a, std::uint64_t b, bool accumulates,
    Site site = Site::here()
) {
    static_assert(N % 8 == 0 && N >= 8 && N <= 256);
    emulator::start_multiplication(
        {emulator::MatrixFormat::tf32, N, false, false, accumulates, a, b}, d, nullptr,
        site
    );
}

template <int N>
void wgmma_m64k8(
    float (&d)[N / 2], const float (&a)[4], std::uint64_t b, bool accumulates,
    Site site = Site::here()
) {
    static_assert(N % 8 == 0 && N >= 8 && N <= 256);
    emulator::start_multiplication(
        {emulator::MatrixFormat::tf32, N, false, false, accumulates, 0, b, true}, d,
        reinterpret_cast<const std::uint32_t*>(a), site
    );
}

// ---- wgmma_float8.cuh ---------------------------------------------------------------

enum class Float8 { e4m3, e5m2 };

template <int N, Float8 A_TYPE, Float8 B_TYPE>
void wgmma_m64k32(
    float (&d)[N / 2], std::uint64_t a, std::uint64_t b, bool accumulates,
    Site site = Site::here()
) {
    constexpr auto format_of = [](Float8 type) {
        return type == Float8::e4m3 ? emulator::MatrixFormat::e4m3
                                    : emulator::MatrixFormat::e5m2;
    };
    emulator::start_multiplication(
        {format_of(A_TYPE), N, false, false, accumulates, a, b, false,
         format_of(B_TYPE)},
        d, nullptr, site
    );
}

}  // namespace ptx
