// Fibres: stacks between which one thread of the operating system switches in a few
// nanoseconds.
//
// The ThreadRecord at the top of every stack, that of the emulated thread that runs on
// it, is all that fibres know of the runtime.
#pragma once

#include <ucontext.h>

#include <array>
#include <cstddef>
#include <cstdint>

#include "../runtime.h"
#include "h100.h"

/// Pushes the callee-saved registers onto the current stack, stores the stack pointer
/// in *save, and goes on with the stack at `load`. Control registers (MXCSR, x87
/// control word, FPCR) are the same in all fibres and are not saved.
extern "C" __attribute__((visibility("hidden"))) void twin_emulator_switch(
    void** save, void* load
);

namespace [[gnu::visibility("hidden")]] emulator {

/// The instruction at which a signal interrupted a thread.
std::uintptr_t program_counter(const ucontext_t* context);

struct Fibre {
    void* stack_pointer = nullptr;  // while it is not running
};

/// The fibres of one block.
class FibrePool {
  public:
    /// Every fibre begins with `entry`, which must not return.
    FibrePool(Block& block, void (*entry)());
    ~FibrePool();
    FibrePool(const FibrePool&) = delete;
    FibrePool& operator=(const FibrePool&) = delete;

    /// The stack of the operating system's thread itself.
    Fibre& main() { return main_; }
    Fibre& running() { return *running_; }

    void switch_to(Fibre& next) {
        if (&next == running_) return;
        Fibre& previous = *running_;
        running_ = &next;
        twin_emulator_switch(&previous.stack_pointer, next.stack_pointer);
    }

    /// A fibre without a thread: one that was put back, or a new one.
    Fibre& take() { return idle_count_ > 0 ? *idle_[--idle_count_] : create(); }
    void put_back(Fibre& fibre) { idle_[idle_count_++] = &fibre; }

    /// Forgets all fibres, without unwinding their stacks.
    void abandon() { created_count_ = idle_count_ = 0; }

  private:
    Fibre& create();

    Block& block_;
    void (*entry_)();
    Fibre main_;
    Fibre* running_ = &main_;
    unsigned created_count_ = 0;
    unsigned idle_count_ = 0;
    std::array<Fibre*, MAX_THREADS> idle_;
    std::array<Fibre, MAX_THREADS> fibres_;  // in the order of their stacks
    char* mapping_ = nullptr;
    char* stacks_ = nullptr;
};

}  // namespace emulator
