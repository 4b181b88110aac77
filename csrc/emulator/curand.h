// Stands in for cuRAND's header of this name, without its generators on the host, which
// the emulator does not model: curand_kernel.h has those of kernels.
#pragma once
