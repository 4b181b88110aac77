// The functions by which Python calls the entries of a library. Include it once, at the
// end; the array `own_entries` is defined before it.
#pragma once

#include <exception>
#include <utility>

#include "entry.h"

#ifdef __CUDACC__
#include "results.h"
#endif

extern "C" {

// 0: it returned; 1: it raised; 2: the arguments do not fit.
int own_call(size_t entry, const own::Value* arguments, size_t count) {
#ifdef __CUDACC__
    own_forget_results();
#endif
    own::note_refusal("");
    cudaGetLastError();  // of an earlier call
    try {
        own_entries[entry](arguments, count);
#ifdef __CUDACC__
        // Of a launch that the function itself did not look at.
        if (const cudaError_t error = cudaGetLastError()) {
            own::report_fault(cudaGetErrorString(error));
        }
#endif
        return 0;
    } catch (const own::Mismatch& error) {
        own::note_refusal(error.what());
        return 2;
    } catch (const std::exception& error) {
        own::note_refusal(error.what());
        return 1;
    }
}

void own_configure(
    const unsigned* grid, const unsigned* block, unsigned long shared_bytes
) {
    own::next_config.gridDim = {grid[0], grid[1], grid[2]};
    own::next_config.blockDim = {block[0], block[1], block[2]};
    own::next_config.dynamicSmemBytes = shared_bytes;
}

#ifdef __CUDACC__
// Forgets the last call's fault; launches of the next call go to this stream.
void own_begin_call_on(void* stream) {
    own::fault.clear();
    own::stream = static_cast<cudaStream_t>(stream);
}

const char* own_fault(void) { return own::fault.c_str(); }

const char* own_refusal(void) { return own::refusal.c_str(); }

// Hands over what owns the last call's results, which live until it is dropped: calls
// that are timed must not share their memory.
void* own_keep(void) { return new own::Owners(std::move(own::results.owners)); }

void own_drop(void* owners) { delete static_cast<own::Owners*>(owners); }
#endif
}
