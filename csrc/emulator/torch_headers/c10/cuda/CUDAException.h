// Stands in for torch's header of this name: what fails raises c10::Error.
#pragma once

#include <c10/cuda/CUDAMacros.h>
#include <c10/util/Exception.h>
#include <cuda_runtime.h>

namespace c10 {

class CUDAError : public c10::Error {
    using Error::Error;
};

namespace cuda {

inline void check(cudaError_t error) {
    if (error == cudaSuccess) return;
    cudaGetLastError();  // clears it: the exception tells it now
    TORCH_CHECK(false, "CUDA error: ", cudaGetErrorString(error));
}

}  // namespace cuda
}  // namespace c10

#define C10_CUDA_CHECK(expression) ::c10::cuda::check(expression)
#define C10_CUDA_KERNEL_LAUNCH_CHECK() C10_CUDA_CHECK(cudaGetLastError())
#define C10_CUDA_ERROR_HANDLED(expression) (expression)
#define C10_CUDA_IGNORE_ERROR(expression)                    \
    do {                                                     \
        if ((expression) != cudaSuccess) cudaGetLastError(); \
    } while (0)
#define C10_CUDA_CLEAR_ERROR() ((void)cudaGetLastError())
#define C10_CUDA_CHECK_WARN(expression)                                         \
    do {                                                                        \
        const cudaError_t error_to_warn_of = (expression);                      \
        if (error_to_warn_of != cudaSuccess) {                                  \
            cudaGetLastError();                                                 \
            TORCH_WARN("CUDA warning: ", cudaGetErrorString(error_to_warn_of)); \
        }                                                                       \
    } while (0)
