// Streams and events of a device whose calls are all synchronous.

#include "../host/streams.h"

#include "../runtime.h"
#include "errors.h"

struct CUstream_st {};

struct CUevent_st {
    bool has_timing;
    bool is_recorded;
    std::int64_t nanoseconds;
};

cudaError_t cudaStreamCreate(cudaStream_t* stream) {
    *stream = new CUstream_st;
    return cudaSuccess;
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) {
    return cudaStreamCreate(stream);
}

cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned, int) {
    return cudaStreamCreate(stream);
}

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
    if (stream == nullptr || stream == cudaStreamLegacy ||
        stream == cudaStreamPerThread) {
        return emulator::report(
            cudaErrorInvalidResourceHandle,
            "cudaStreamDestroy: cudaStreamCreate has not made this stream"
        );
    }
    delete stream;
    return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t) { return emulator::pending_fault(); }

cudaError_t cudaStreamQuery(cudaStream_t) { return emulator::pending_fault(); }

cudaError_t cudaStreamWaitEvent(cudaStream_t, cudaEvent_t, unsigned) {
    return cudaSuccess;
}

cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
    *least = 0;
    *greatest = -5;  // as on an H100
    return cudaSuccess;
}

cudaError_t cudaLaunchHostFunc(cudaStream_t, cudaHostFn_t function, void* data) {
    function(data);
    return cudaSuccess;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags) {
    *event = new CUevent_st{(flags & cudaEventDisableTiming) == 0, false, 0};
    return cudaSuccess;
}

cudaError_t cudaEventCreate(cudaEvent_t* event) {
    return cudaEventCreateWithFlags(event, cudaEventDefault);
}

cudaError_t cudaEventDestroy(cudaEvent_t event) {
    delete event;
    return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t) {
    event->is_recorded = true;
    event->nanoseconds = emulator::clock_nanoseconds();
    return cudaSuccess;
}

cudaError_t cudaEventSynchronize(cudaEvent_t) { return emulator::pending_fault(); }

cudaError_t cudaEventQuery(cudaEvent_t) { return emulator::pending_fault(); }

cudaError_t cudaEventElapsedTime(
    float* milliseconds, cudaEvent_t start, cudaEvent_t end
) {
    for (const CUevent_st* event : {start, end}) {
        if (event->has_timing && event->is_recorded) continue;
        return emulator::report(
            cudaErrorInvalidResourceHandle,
            event->has_timing
                ? "cudaEventElapsedTime: an event has not been recorded"
                : "cudaEventElapsedTime: an event was made with cudaEventDisableTiming"
        );
    }
    auto elapsed = static_cast<double>(end->nanoseconds - start->nanoseconds);
    *milliseconds = static_cast<float>(elapsed / 1e6);
    return cudaSuccess;
}
