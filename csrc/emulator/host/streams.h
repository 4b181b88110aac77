// Streams and events. Every call is synchronous, so streams never overlap, and an event
// has happened once it is recorded.
#pragma once

#include "errors.h"

using cudaStream_t = struct CUstream_st*;
using cudaEvent_t = struct CUevent_st*;

// ---- Streams ------------------------------------------------------------------------

constexpr unsigned cudaStreamDefault = 0;
constexpr unsigned cudaStreamNonBlocking = 1;

#define cudaStreamLegacy (reinterpret_cast<cudaStream_t>(1))
#define cudaStreamPerThread (reinterpret_cast<cudaStream_t>(2))

cudaError_t cudaStreamCreate(cudaStream_t* stream);
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags);
cudaError_t cudaStreamCreateWithPriority(
    cudaStream_t* stream, unsigned flags, int priority
);
cudaError_t cudaStreamDestroy(cudaStream_t stream);
/// As cudaDeviceSynchronize.
cudaError_t cudaStreamSynchronize(cudaStream_t stream);
cudaError_t cudaStreamQuery(cudaStream_t stream);
cudaError_t cudaStreamWaitEvent(
    cudaStream_t stream, cudaEvent_t event, unsigned flags = 0
);
cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest);

using cudaHostFn_t = void (*)(void* data);

/// Calls the function at once.
cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void* data);

// ---- Events -------------------------------------------------------------------------

constexpr unsigned cudaEventDefault = 0;
constexpr unsigned cudaEventBlockingSync = 1;
constexpr unsigned cudaEventDisableTiming = 2;

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags);
cudaError_t cudaEventCreate(cudaEvent_t* event);
inline cudaError_t cudaEventCreate(cudaEvent_t* event, unsigned flags) {
    return cudaEventCreateWithFlags(event, flags);
}
cudaError_t cudaEventDestroy(cudaEvent_t event);
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream = nullptr);
/// As cudaDeviceSynchronize.
cudaError_t cudaEventSynchronize(cudaEvent_t event);
cudaError_t cudaEventQuery(cudaEvent_t event);
/// Milliseconds of the host's clock between two recorded events: the time that the
/// emulator took, which says nothing about a GPU.
cudaError_t cudaEventElapsedTime(
    float* milliseconds, cudaEvent_t start, cudaEvent_t end
);
