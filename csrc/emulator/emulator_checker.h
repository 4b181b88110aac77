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

// What kernels may do with a tensor: read it; write to it, all of it in the end; or write
// to as much of it as they like.
enum emulator_use { EMULATOR_INPUT, EMULATOR_OUTPUT, EMULATOR_WORKSPACE };

// Allows kernels to use a tensor. One with gaps is registered piece by piece, under one
// name.
void emulator_register_tensor(
    const char* name, const void* address, size_t bytes, enum emulator_use use
);

// Forgets all tensors.
void emulator_clear_tensors(void);

// What of the outputs no launch has written since they were registered: a sentence, or a
// null pointer if nothing is missing. It is valid until the next call.
const char* emulator_unwritten_outputs(void);

#ifdef __cplusplus
}
#endif
