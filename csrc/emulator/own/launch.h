// What launches in files of a user's become: each is made by the emulator and recorded,
// and the memory that its kernel may access is made known to the checker.
#pragma once

// What nvcc includes in every file on its own.
#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cstddef>
#include <cstring>
#include <type_traits>
#include <utility>

#include "../cuda_runtime.h"

// Every user's file is compiled with this one, so that it does without the large headers
// of C++, such as those of strings.
namespace own {

struct Argument {
    bool is_pointer;
    const void* bytes;  // as the kernel gets them
    std::size_t size;
};

struct Record {
    const void* kernel;
    dim3 grid;
    dim3 block;
    std::size_t shared_bytes;
    const char* names;  // of the kernel's parameters, joined by commas; may be empty
    const Argument* arguments;
    std::size_t argument_count;
};

/// Whether the launch may be made: after a fault, the others of a call are left out.
bool begin_launch(const Record& record);
void end_launch(cudaError_t error);

template <typename... Parameters>
cudaError_t launch_recorded(
    const cudaLaunchConfig_t& config, const char* names, void (*kernel)(Parameters...),
    std::type_identity_t<Parameters>... arguments
) {
    const Argument described[] = {
        {std::is_pointer_v<Parameters>, std::addressof(arguments),
         sizeof(arguments)}...,
        {}  // of kernels without parameters
    };
    const bool may_begin = begin_launch(
        {reinterpret_cast<const void*>(kernel), config.gridDim, config.blockDim,
         config.dynamicSmemBytes, names, described, sizeof...(Parameters)}
    );
    if (!may_begin) return cudaErrorLaunchFailure;
    const cudaError_t error = cudaLaunchKernelEx(&config, kernel, arguments...);
    end_launch(error);
    return error;
}

/// Stands for `<<<grid, block, shared_bytes, stream>>>`.
class Launch {
  public:
    Launch(
        dim3 grid, dim3 block, std::size_t shared_bytes = 0,
        cudaStream_t stream = nullptr
    ) {
        config_.gridDim = grid;
        config_.blockDim = block;
        config_.dynamicSmemBytes = shared_bytes;
        config_.stream = stream;
    }

    template <typename... Parameters, typename... Arguments>
    void run(
        void (*kernel)(Parameters...), const char* names, Arguments&&... arguments
    ) const {
        launch_recorded(config_, names, kernel, std::forward<Arguments>(arguments)...);
    }

    /// Launches a kernel template whose arguments the compiler deduces: `pick` takes the
    /// call's arguments and returns the instance.
    template <typename Pick, typename... Arguments>
    void run_deduced(Pick pick, const char* names, Arguments&&... arguments) const {
        run(pick(arguments...), names, std::forward<Arguments>(arguments)...);
    }

  private:
    cudaLaunchConfig_t config_{};
};

template <typename... Parameters, typename... Arguments>
cudaError_t launch_kernel_ex(
    const cudaLaunchConfig_t* config, void (*kernel)(Parameters...),
    Arguments&&... arguments
) {
    return launch_recorded(*config, "", kernel, std::forward<Arguments>(arguments)...);
}

/// Stands for `extern __shared__ T name[]` outside of functions.
template <typename T>
struct DynamicShared {
    operator T*() const { return reinterpret_cast<T*>(emulator::dynamic_shared()); }
};

}  // namespace own
