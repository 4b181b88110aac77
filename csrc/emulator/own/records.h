// What is known of a call of a user's function, in plain C: Python reads it by ctypes.
#pragma once

#include <stddef.h>

#ifdef __cplusplus
#include <cstddef>

namespace own {

/// The first fault of a call is the one that counts.
void report_fault(const char* message);

/// What the function has raised, or that it declines its arguments.
void note_refusal(const char* message);

/// Memory that the host function has allocated, and has not released.
void note_allocation(const void* address, std::size_t bytes);
void note_release(const void* address);

}  // namespace own

extern "C" {
#endif

// Forgets the last call: its memory, launches and fault.
void own_begin_call(void);

// Lets kernels access memory of the caller's, under the name of an argument.
void own_give(const char* name, const void* address, size_t bytes, int is_written);

// One sentence or several lines, as the emulator writes them; empty if there is none.
const char* own_fault(void);

// Of what the function has raised.
const char* own_refusal(void);

size_t own_launch_count(void);

// A launch as JSON: the kernel's symbol, grid, block, shared bytes and arguments.
const char* own_launch(size_t number);

#ifdef __cplusplus
}
#endif
