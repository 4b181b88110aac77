// Atomics on shared and global memory, relaxed as in CUDA. Always inlined, so that the
// checker (../checker) finds the line of the kernel.
#pragma once

#include <type_traits>

#include "../runtime.h"
#include "bits.h"
#include "language.h"

namespace emulator {

template <typename T, typename... Choices>
concept OneOf = (std::is_same_v<T, Choices> || ...);

/// CUDA's sets of types, for which its atomics exist.
template <typename T>
concept AtomicInteger = OneOf<T, int, unsigned, unsigned long long>;
template <typename T>
concept AtomicOrdered = AtomicInteger<T> || std::is_same_v<T, long long>;

/// Floating-point types narrower than float, and pairs of them. cuda_fp16.h and
/// cuda_bf16.h specialise these.
template <typename T>
constexpr bool is_narrow_float = false;
template <typename T>
constexpr bool is_narrow_pair = false;

template <typename T>
concept AtomicSummed = AtomicInteger<T> || OneOf<T, float, double> ||
                       is_narrow_float<T> || is_narrow_pair<T>;
template <typename T>
concept AtomicExchanged = AtomicInteger<T> || std::is_same_v<T, float>;
template <typename T>
concept AtomicCompared = AtomicInteger<T> || std::is_same_v<T, unsigned short>;

/// Replaces *address by update(*address) and returns the old value. `operand` is the
/// kernel's argument.
template <typename T, typename Update>
__forceinline__ T
atomic_update(T* address, T operand, const char* operation, Site site, Update update) {
    using Bits = BitsOf<T>;
    auto* memory = reinterpret_cast<Bits*>(address);
    Bits before = __atomic_load_n(memory, __ATOMIC_RELAXED);
    Bits after = 0;
    do {
        after = as<Bits>(update(as<T>(before)));
    } while (!__atomic_compare_exchange_n(
        memory, &before, after, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED
    ));
    after_atomic(operation, site, {address, as<Bits>(operand), before, after});
    return as<T>(before);
}

template <typename T>
T wrapping_add(T a, T b) {
    if constexpr (std::is_integral_v<T>) {
        using Unsigned = std::make_unsigned_t<T>;
        return static_cast<T>(static_cast<Unsigned>(a) + static_cast<Unsigned>(b));
    } else {
        return a + b;
    }
}

}  // namespace emulator

template <emulator::AtomicSummed T>
__forceinline__ T atomicAdd(
    T* address, std::type_identity_t<T> value,
    emulator::Site site = emulator::Site::here()
) {
    return emulator::atomic_update(address, value, "atomicAdd", site, [value](T old) {
        return emulator::wrapping_add(old, value);
    });
}

/// Adds every element by an atomic of its own, as CUDA does.
__forceinline__ float2
atomicAdd(float2* address, float2 value, emulator::Site site = emulator::Site::here()) {
    return {
        atomicAdd(&address->x, value.x, site), atomicAdd(&address->y, value.y, site)
    };
}
__forceinline__ float4
atomicAdd(float4* address, float4 value, emulator::Site site = emulator::Site::here()) {
    return {
        atomicAdd(&address->x, value.x, site), atomicAdd(&address->y, value.y, site),
        atomicAdd(&address->z, value.z, site), atomicAdd(&address->w, value.w, site)
    };
}

template <emulator::OneOf<int, unsigned> T>
__forceinline__ T atomicSub(
    T* address, std::type_identity_t<T> value,
    emulator::Site site = emulator::Site::here()
) {
    return emulator::atomic_update(address, value, "atomicSub", site, [value](T old) {
        auto negated = static_cast<T>(0u - static_cast<unsigned>(value));
        return emulator::wrapping_add(old, negated);
    });
}

template <emulator::AtomicExchanged T>
__forceinline__ T atomicExch(
    T* address, std::type_identity_t<T> value,
    emulator::Site site = emulator::Site::here()
) {
    return emulator::atomic_update(address, value, "atomicExch", site, [value](T) {
        return value;
    });
}

template <emulator::AtomicCompared T>
__forceinline__ T atomicCAS(
    T* address, std::type_identity_t<T> compare, std::type_identity_t<T> value,
    emulator::Site site = emulator::Site::here()
) {
    return emulator::atomic_update(address, value, "atomicCAS", site, [=](T old) {
        return old == compare ? value : old;
    });
}

template <emulator::AtomicOrdered T>
__forceinline__ T atomicMax(
    T* address, std::type_identity_t<T> value,
    emulator::Site site = emulator::Site::here()
) {
    return emulator::atomic_update(address, value, "atomicMax", site, [value](T old) {
        return old < value ? value : old;
    });
}

template <emulator::AtomicOrdered T>
__forceinline__ T atomicMin(
    T* address, std::type_identity_t<T> value,
    emulator::Site site = emulator::Site::here()
) {
    return emulator::atomic_update(address, value, "atomicMin", site, [value](T old) {
        return value < old ? value : old;
    });
}

template <emulator::AtomicInteger T>
__forceinline__ T atomicAnd(
    T* address, std::type_identity_t<T> value,
    emulator::Site site = emulator::Site::here()
) {
    return emulator::atomic_update(address, value, "atomicAnd", site, [value](T old) {
        return old & value;
    });
}

template <emulator::AtomicInteger T>
__forceinline__ T atomicOr(
    T* address, std::type_identity_t<T> value,
    emulator::Site site = emulator::Site::here()
) {
    return emulator::atomic_update(address, value, "atomicOr", site, [value](T old) {
        return old | value;
    });
}

template <emulator::AtomicInteger T>
__forceinline__ T atomicXor(
    T* address, std::type_identity_t<T> value,
    emulator::Site site = emulator::Site::here()
) {
    return emulator::atomic_update(address, value, "atomicXor", site, [value](T old) {
        return old ^ value;
    });
}

/// Counts up to the limit, then starts again from 0.
__forceinline__ unsigned atomicInc(
    unsigned* address, unsigned limit, emulator::Site site = emulator::Site::here()
) {
    return emulator::atomic_update(
        address, limit, "atomicInc", site,
        [limit](unsigned old) { return old >= limit ? 0 : old + 1; }
    );
}

/// Counts down to 0, then starts again from the limit.
__forceinline__ unsigned atomicDec(
    unsigned* address, unsigned limit, emulator::Site site = emulator::Site::here()
) {
    return emulator::atomic_update(
        address, limit, "atomicDec", site,
        [limit](unsigned old) { return old == 0 || old > limit ? limit : old - 1; }
    );
}

// ---- Scopes -------------------------------------------------------------------------

// An atomic of the scope of a block or of the system is one of the device here.
#define atomicAdd_block atomicAdd
#define atomicAdd_system atomicAdd
#define atomicSub_block atomicSub
#define atomicSub_system atomicSub
#define atomicExch_block atomicExch
#define atomicExch_system atomicExch
#define atomicCAS_block atomicCAS
#define atomicCAS_system atomicCAS
#define atomicMin_block atomicMin
#define atomicMin_system atomicMin
#define atomicMax_block atomicMax
#define atomicMax_system atomicMax
#define atomicAnd_block atomicAnd
#define atomicAnd_system atomicAnd
#define atomicOr_block atomicOr
#define atomicOr_system atomicOr
#define atomicXor_block atomicXor
#define atomicXor_system atomicXor
#define atomicInc_block atomicInc
#define atomicInc_system atomicInc
#define atomicDec_block atomicDec
#define atomicDec_system atomicDec
