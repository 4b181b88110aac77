// The functions of csrc/common/ptx.cuh for kernels in the emulator: there each is one
// PTX instruction, here what that instruction does. Their last parameter, the call site
// that reports name, is why they are not one with those.
#pragma once

#include <cmath>

#include "cuda_bf16.h"
#include "cuda_fp16.h"
#include "cuda_runtime.h"
#include "device/async_copy.h"
#include "device/matrix.h"

namespace ptx {

using emulator::Site;

// ---- Approximate functions: as exact as the C library -------------------------------

inline float exp2(float x) { return std::exp2(x); }

inline float reciprocal(float x) { return 1.0f / x; }

// ---- Integers -----------------------------------------------------------------------

inline std::uint64_t multiply_wide(std::uint32_t x, std::uint32_t y) {
    return std::uint64_t{x} * y;
}

// ---- Asynchronous copies ------------------------------------------------------------

template <int BYTES>
void cp_async(void* shared, const void* global, Site site = Site::here()) {
    static_assert(BYTES == 4 || BYTES == 8 || BYTES == 16);
    emulator::start_async_copy(shared, global, BYTES, BYTES, "cp.async", site);
}

template <int BYTES>
void cp_async(
    void* shared, const void* global, int source_bytes, Site site = Site::here()
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

// ---- Matrices -----------------------------------------------------------------------

template <int COUNT>
void ldmatrix(
    std::uint32_t (&fragment)[COUNT], const void* row, Site site = Site::here()
) {
    static_assert(COUNT == 1 || COUNT == 2 || COUNT == 4);
    emulator::load_matrices(fragment, COUNT, false, row, "ldmatrix", site);
}

template <int COUNT>
void ldmatrix_transposed(
    std::uint32_t (&fragment)[COUNT], const void* row, Site site = Site::here()
) {
    static_assert(COUNT == 1 || COUNT == 2 || COUNT == 4);
    emulator::load_matrices(fragment, COUNT, true, row, "ldmatrix.trans", site);
}

template <typename T>
void mma_m16n8k16(
    float (&d)[4],
    const std::uint32_t (&a)[4],
    const std::uint32_t (&b)[2],
    const float (&c)[4],
    Site site = Site::here()
) {
    static_assert(std::is_same_v<T, __half> || std::is_same_v<T, __nv_bfloat16>);
    constexpr auto format = std::is_same_v<T, __half>
                                ? emulator::MatrixFormat::half
                                : emulator::MatrixFormat::bfloat16;
    emulator::multiply_matrices<float>(format, {d, a, b, c}, site);
}

template <typename T>
void mma_m16n8k16(
    std::uint32_t (&d)[2],
    const std::uint32_t (&a)[4],
    const std::uint32_t (&b)[2],
    const std::uint32_t (&c)[2],
    Site site = Site::here()
) {
    static_assert(std::is_same_v<T, __half>);
    emulator::multiply_matrices<std::uint32_t>(
        emulator::MatrixFormat::half, {d, a, b, c}, site
    );
}

inline void mma_m16n8k8_tf32(
    float (&d)[4],
    const std::uint32_t (&a)[4],
    const std::uint32_t (&b)[2],
    const float (&c)[4],
    Site site = Site::here()
) {
    emulator::multiply_matrices<float>(
        emulator::MatrixFormat::tf32, {d, a, b, c}, site
    );
}

}  // namespace ptx
