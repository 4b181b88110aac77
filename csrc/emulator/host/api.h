// The part of the CUDA runtime API that programs use beside launches.
#pragma once

#include "device.h"
#include "errors.h"
#include "memory.h"
#include "queries.h"
#include "streams.h"
#include "symbols.h"

// ---- Functions of the driver --------------------------------------------------------

enum cudaDriverEntryPointQueryResult : int {
    cudaDriverEntryPointSuccess = 0,
    cudaDriverEntryPointSymbolNotFound = 1,
    cudaDriverEntryPointVersionNotSufficent = 2,
};

constexpr unsigned long long cudaEnableDefault = 0;

/// Finds the functions of cuda.h.
cudaError_t cudaGetDriverEntryPointByVersion(
    const char* symbol, void** function, unsigned version, unsigned long long flags,
    cudaDriverEntryPointQueryResult* status = nullptr
);
