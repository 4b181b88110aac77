// Fibres: the switch, and the memory of the stacks. All code that depends on the
// processor is in this file.

#include "fibre.h"

#include <sys/mman.h>

#include <algorithm>
#include <new>

namespace emulator {

#if defined(__x86_64__)
asm(R"(
    .text
    .hidden twin_emulator_switch
    .globl twin_emulator_switch
    .type twin_emulator_switch, @function
twin_emulator_switch:
    pushq %rbp
    pushq %rbx
    pushq %r12
    pushq %r13
    pushq %r14
    pushq %r15
    movq %rsp, (%rdi)
    movq %rsi, %rsp
    popq %r15
    popq %r14
    popq %r13
    popq %r12
    popq %rbx
    popq %rbp
    ret
    .size twin_emulator_switch, .-twin_emulator_switch
)");
constexpr int SAVED_WORDS = 8;  // six registers, the return address, and padding
constexpr int RETURN_ADDRESS_WORD = 6;

std::uintptr_t program_counter(const ucontext_t* context) {
    return static_cast<std::uintptr_t>(context->uc_mcontext.gregs[REG_RIP]);
}
#elif defined(__aarch64__)
asm(R"(
    .text
    .hidden twin_emulator_switch
    .globl twin_emulator_switch
    .type twin_emulator_switch, %function
twin_emulator_switch:
    sub sp, sp, #160
    stp x19, x20, [sp, #0]
    stp x21, x22, [sp, #16]
    stp x23, x24, [sp, #32]
    stp x25, x26, [sp, #48]
    stp x27, x28, [sp, #64]
    stp x29, x30, [sp, #80]
    stp d8, d9, [sp, #96]
    stp d10, d11, [sp, #112]
    stp d12, d13, [sp, #128]
    stp d14, d15, [sp, #144]
    mov x2, sp
    str x2, [x0]
    mov sp, x1
    ldp x19, x20, [sp, #0]
    ldp x21, x22, [sp, #16]
    ldp x23, x24, [sp, #32]
    ldp x25, x26, [sp, #48]
    ldp x27, x28, [sp, #64]
    ldp x29, x30, [sp, #80]
    ldp d8, d9, [sp, #96]
    ldp d10, d11, [sp, #112]
    ldp d12, d13, [sp, #128]
    ldp d14, d15, [sp, #144]
    add sp, sp, #160
    ret
    .size twin_emulator_switch, .-twin_emulator_switch
)");
constexpr int SAVED_WORDS = 20;
constexpr int RETURN_ADDRESS_WORD = 11;

std::uintptr_t program_counter(const ucontext_t* context) {
    return context->uc_mcontext.pc;
}
#else
#error "The emulator switches stacks in assembly: x86-64 and AArch64 are supported."
#endif

// One stack more than needed, so that the first can begin at a multiple of its size.
constexpr std::size_t MAPPING_BYTES = (MAX_THREADS + 1) * STACK_BYTES;

FibrePool::FibrePool(Block& block, void (*entry)()) : block_(block), entry_(entry) {
    void* mapping = mmap(
        nullptr, MAPPING_BYTES, PROT_READ | PROT_WRITE,
        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0
    );
    if (mapping == MAP_FAILED) throw std::bad_alloc();
    mapping_ = static_cast<char*>(mapping);
    auto address = reinterpret_cast<std::uintptr_t>(mapping_);
    stacks_ = mapping_ + (STACK_BYTES - address % STACK_BYTES) % STACK_BYTES;
}

FibrePool::~FibrePool() { munmap(mapping_, MAPPING_BYTES); }

Fibre& FibrePool::create() {
    char* stack = stacks_ + created_count_ * STACK_BYTES;
    Fibre& fibre = fibres_[created_count_++];
    ThreadRecord& record = *record_of_stack(reinterpret_cast<std::uintptr_t>(stack));
    record.block = &block_;
    // The first switch to this stack returns to the beginning of `entry`.
    void** saved = reinterpret_cast<void**>(&record) - SAVED_WORDS;
    std::fill_n(saved, SAVED_WORDS, nullptr);
    saved[RETURN_ADDRESS_WORD] = reinterpret_cast<void*>(entry_);
    fibre.stack_pointer = saved;
    return fibre;
}

}  // namespace emulator
