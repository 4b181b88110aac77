// The interface of the checker (checker/), in plain C: a program registers the memory
// that the kernels it launches may access.
//
// In a checking build every address that a kernel accesses must lie in a registered
// tensor, in memory from cudaMalloc, in shared memory, in a variable of the module or
// on the thread's own stack.
#pragma once

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

// A kernel may only read an input, must write all of an output, and may do either to
// any part of a workspace.
enum emulator_use { EMULATOR_INPUT, EMULATOR_OUTPUT, EMULATOR_WORKSPACE };

// Allows kernels to access a tensor. A tensor with gaps is registered piece by piece,
// under one name.
void emulator_register_tensor(
    const char* name, const void* address, size_t bytes, enum emulator_use use
);

// Forgets all tensors.
void emulator_clear_tensors(void);

// A sentence on the bytes of an output that no launch has written since its
// registration; null if there are none. It is valid until the calling thread's next
// call.
const char* emulator_unwritten_outputs(void);

#ifdef __cplusplus
}
#endif
