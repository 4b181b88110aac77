// What a program tells the checker (checker/), in plain C: which memory is meant for the
// kernels it launches.
//
// In a checking build every address that a kernel accesses must lie in a registered
// tensor, in memory from cudaMalloc, in shared memory, in a variable of the module or on
// the thread's own stack.
#pragma once

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

// Allows kernels to read a tensor, and to write to it if it is an output. A tensor with
// gaps is registered piece by piece, under one name.
void emulator_register_tensor(
    const char* name, const void* address, size_t bytes, int is_output
);

// Forgets all tensors.
void emulator_clear_tensors(void);

// What of the outputs no launch has written since they were registered: a sentence, or a
// null pointer if nothing is missing. It is valid until the next call.
const char* emulator_unwritten_outputs(void);

#ifdef __cplusplus
}
#endif
