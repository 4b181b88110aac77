// The call-outs of kernels compiled with -fsanitize=thread,bounds,alignment: one for
// every access that the compiler cannot prove to be to a local variable, one for every
// bad index and every misaligned address. They replace the compilers' sanitizer
// libraries, which are not linked.
//
// Each module has its own hidden copy, so a process that runs under a real sanitizer
// keeps that sanitizer's.

#include <cstdint>
#include <cstring>
#include <string>

#include "checker.h"

using emulator::Access;
using emulator::checking::check_access;
using emulator::checking::check_volatile_access;

#define CALLOUT extern "C" __attribute__((visibility("hidden")))
#define CALLER __builtin_return_address(0)

// ---- Nothing to do ------------------------------------------------------------------

CALLOUT void __tsan_init() {}
CALLOUT void __tsan_func_entry(void*) {}
CALLOUT void __tsan_func_exit() {}
CALLOUT void __tsan_ignore_thread_begin() {}
CALLOUT void __tsan_ignore_thread_end() {}

// ---- Plain accesses -----------------------------------------------------------------

#define TWIN_ACCESS(name, check, kind, bytes)          \
    CALLOUT void __tsan_##name##bytes(void* address) { \
        check(address, bytes, Access::kind, CALLER);   \
    }
#define TWIN_ACCESSES(bytes)                                                   \
    TWIN_ACCESS(read, check_access, read, bytes)                               \
    TWIN_ACCESS(write, check_access, write, bytes)                             \
    TWIN_ACCESS(unaligned_read, check_access, read, bytes)                     \
    TWIN_ACCESS(unaligned_write, check_access, write, bytes)                   \
    TWIN_ACCESS(volatile_read, check_volatile_access, read, bytes)             \
    TWIN_ACCESS(volatile_write, check_volatile_access, write, bytes)           \
    TWIN_ACCESS(unaligned_volatile_read, check_volatile_access, read, bytes)   \
    TWIN_ACCESS(unaligned_volatile_write, check_volatile_access, write, bytes) \
    CALLOUT void __tsan_read_write##bytes(void* address) {                     \
        check_access(address, bytes, Access::read, CALLER);                    \
        check_access(address, bytes, Access::write, CALLER);                   \
    }                                                                          \
    CALLOUT void __tsan_unaligned_read_write##bytes(void* address) {           \
        check_access(address, bytes, Access::read, CALLER);                    \
        check_access(address, bytes, Access::write, CALLER);                   \
    }

TWIN_ACCESSES(1)
TWIN_ACCESSES(2)
TWIN_ACCESSES(4)
TWIN_ACCESSES(8)
TWIN_ACCESSES(16)

CALLOUT void __tsan_read_range(void* address, std::size_t bytes) {
    check_access(address, bytes, Access::read, CALLER);
}

CALLOUT void __tsan_write_range(void* address, std::size_t bytes) {
    check_access(address, bytes, Access::write, CALLER);
}

CALLOUT void __tsan_vptr_update(void** address, void*) {
    check_access(address, sizeof(void*), Access::write, CALLER);
}

CALLOUT void __tsan_vptr_read(void** address) {
    check_access(address, sizeof(void*), Access::read, CALLER);
}

// ---- Copies -------------------------------------------------------------------------

// g++ leaves calls of memcpy as they are, and the linker's --wrap redirects every one
// of the module here, whether a kernel makes it or not. clang++ calls __tsan_memcpy.

extern "C" void* __real_memcpy(void* target, const void* source, std::size_t bytes);
extern "C" void* __real_memmove(void* target, const void* source, std::size_t bytes);
extern "C" void* __real_memset(void* target, int value, std::size_t bytes);

#define TWIN_COPY(name, real)                                                 \
    CALLOUT void* name(void* target, const void* source, std::size_t bytes) { \
        check_access(source, bytes, Access::read, CALLER);                    \
        check_access(target, bytes, Access::write, CALLER);                   \
        return real(target, source, bytes);                                   \
    }
#define TWIN_FILL(name, real)                                        \
    CALLOUT void* name(void* target, int value, std::size_t bytes) { \
        check_access(target, bytes, Access::write, CALLER);          \
        return real(target, value, bytes);                           \
    }

TWIN_COPY(__wrap_memcpy, __real_memcpy)
TWIN_COPY(__wrap_memmove, __real_memmove)
TWIN_FILL(__wrap_memset, __real_memset)
TWIN_COPY(__tsan_memcpy, __real_memcpy)
TWIN_COPY(__tsan_memmove, __real_memmove)
TWIN_FILL(__tsan_memset, __real_memset)

// ---- Atomics ------------------------------------------------------------------------

// Sequentially consistent whatever the kernel asks for: weaker orders are not modelled.
constexpr int ORDER = __ATOMIC_SEQ_CST;

#define TWIN_CHECK_ATOMIC \
    check_access(const_cast<const T*>(address), sizeof(T), Access::atomic, CALLER)

#define TWIN_ATOMIC_UPDATE(bits, name)                      \
    CALLOUT Bits##bits __tsan_atomic##bits##_##name(        \
        volatile Bits##bits* address, Bits##bits value, int \
    ) {                                                     \
        using T = Bits##bits;                               \
        TWIN_CHECK_ATOMIC;                                  \
        return __atomic_##name(address, value, ORDER);      \
    }

#define TWIN_ATOMICS(bits)                                                             \
    using Bits##bits = std::uint##bits##_t;                                            \
    CALLOUT Bits##bits __tsan_atomic##bits##_load(                                     \
        const volatile Bits##bits* address, int                                        \
    ) {                                                                                \
        using T = Bits##bits;                                                          \
        TWIN_CHECK_ATOMIC;                                                             \
        return __atomic_load_n(address, ORDER);                                        \
    }                                                                                  \
    CALLOUT void __tsan_atomic##bits##_store(                                          \
        volatile Bits##bits* address, Bits##bits value, int                            \
    ) {                                                                                \
        using T = Bits##bits;                                                          \
        TWIN_CHECK_ATOMIC;                                                             \
        __atomic_store_n(address, value, ORDER);                                       \
    }                                                                                  \
    CALLOUT Bits##bits __tsan_atomic##bits##_exchange(                                 \
        volatile Bits##bits* address, Bits##bits value, int                            \
    ) {                                                                                \
        using T = Bits##bits;                                                          \
        TWIN_CHECK_ATOMIC;                                                             \
        return __atomic_exchange_n(address, value, ORDER);                             \
    }                                                                                  \
    TWIN_ATOMIC_UPDATE(bits, fetch_add)                                                \
    TWIN_ATOMIC_UPDATE(bits, fetch_sub)                                                \
    TWIN_ATOMIC_UPDATE(bits, fetch_and)                                                \
    TWIN_ATOMIC_UPDATE(bits, fetch_or)                                                 \
    TWIN_ATOMIC_UPDATE(bits, fetch_xor)                                                \
    TWIN_ATOMIC_UPDATE(bits, fetch_nand)                                               \
    CALLOUT int __tsan_atomic##bits##_compare_exchange_strong(                         \
        volatile Bits##bits* address, Bits##bits* expected, Bits##bits value, int, int \
    ) {                                                                                \
        using T = Bits##bits;                                                          \
        TWIN_CHECK_ATOMIC;                                                             \
        return __atomic_compare_exchange_n(                                            \
            address, expected, value, false, ORDER, ORDER                              \
        );                                                                             \
    }                                                                                  \
    CALLOUT int __tsan_atomic##bits##_compare_exchange_weak(                           \
        volatile Bits##bits* address, Bits##bits* expected, Bits##bits value, int, int \
    ) {                                                                                \
        using T = Bits##bits;                                                          \
        TWIN_CHECK_ATOMIC;                                                             \
        return __atomic_compare_exchange_n(                                            \
            address, expected, value, false, ORDER, ORDER                              \
        );                                                                             \
    }                                                                                  \
    CALLOUT Bits##bits __tsan_atomic##bits##_compare_exchange_val(                     \
        volatile Bits##bits* address, Bits##bits expected, Bits##bits value, int, int  \
    ) {                                                                                \
        using T = Bits##bits;                                                          \
        TWIN_CHECK_ATOMIC;                                                             \
        __atomic_compare_exchange_n(address, &expected, value, false, ORDER, ORDER);   \
        return expected;                                                               \
    }

TWIN_ATOMICS(8)
TWIN_ATOMICS(16)
TWIN_ATOMICS(32)
TWIN_ATOMICS(64)

CALLOUT void __tsan_atomic_thread_fence(int) {
    emulator::checking::note_memory_fence();
    __atomic_thread_fence(ORDER);
}

CALLOUT void __tsan_atomic_signal_fence(int) { __atomic_signal_fence(ORDER); }

// ---- Bad indices and misaligned addresses -------------------------------------------

// The compilers lay these structures out (LLVM's compiler-rt/lib/ubsan/ubsan_value.h).

namespace {

struct SourceLocation {
    const char* file;
    std::uint32_t line;
    std::uint32_t column;
};

struct TypeDescriptor {
    std::uint16_t kind;
    std::uint16_t info;  // of an integer: bit 0: signed; the rest: log2 of its width
    char name[1];        // longer: it continues behind the structure
};

struct BadIndex {
    SourceLocation place;
    const TypeDescriptor* array;
    const TypeDescriptor* index;
};

struct TypeMismatch {
    SourceLocation place;
    const TypeDescriptor* type;
    std::uint8_t log_alignment;
    std::uint8_t action;
};

std::string index_text(const TypeDescriptor& type, std::uintptr_t value) {
    bool is_signed = (type.info & 1) != 0;
    unsigned unused_bits = 64 - (1u << (type.info >> 1));
    if (!is_signed || unused_bits >= 64) return std::to_string(value);
    auto shifted = static_cast<std::int64_t>(std::uint64_t{value} << unused_bits);
    return std::to_string(shifted >> unused_bits);
}

const char* action_text(std::uint8_t action) {
    switch (action) {
        case 0:
            return "reads a";
        case 1:
            return "writes a";
        default:
            return "accesses a";
    }
}

}  // namespace

CALLOUT void __ubsan_handle_out_of_bounds(BadIndex* what, std::uintptr_t index) {
    emulator::checking::report_bad_index(
        index_text(*what->index, index), what->array->name, CALLER
    );
}

CALLOUT void __ubsan_handle_type_mismatch_v1(TypeMismatch* what, void* address) {
    emulator::checking::report_misalignment(
        address, std::size_t{1} << what->log_alignment, what->type->name,
        action_text(what->action), CALLER
    );
}
