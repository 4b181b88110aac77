// Stands in for torch's header of this name.
#pragma once

#include <c10/cuda/CUDAException.h>
#include <cuda.h>

#define AT_CUDA_CHECK(expression) C10_CUDA_CHECK(expression)
#define AT_CUDA_DRIVER_CHECK(expression)                           \
    do {                                                           \
        const CUresult driver_result = (expression);               \
        TORCH_CHECK(                                               \
            driver_result == CUDA_SUCCESS,                         \
            "CUDA driver error: ", static_cast<int>(driver_result) \
        );                                                         \
    } while (0)
