// Names of torch's CUDA headers as extensions use them; only compiled.
#include <ATen/cuda/CUDAContext.h>
#include <ATen/cuda/CUDAContextLight.h>
#include <ATen/cuda/Exceptions.h>
#include <assert.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAMacros.h>
#include <c10/cuda/CUDAMathCompat.h>
#include <c10/cuda/CUDAStream.h>
#include <cuda_bf16.h>
#include <curand_kernel.h>
#include <ATen/cuda/Atomic.cuh>

namespace {

__global__ void kernel(
    c10::Half* halves, at::BFloat16* narrow, float* floats, std::int64_t* integers
) {
    CUDA_KERNEL_ASSERT(floats != nullptr);
    gpuAtomicAdd(halves, c10::Half(1.0f));
    gpuAtomicAddNoReturn(narrow, at::BFloat16(1.0f));
    gpuAtomicMax(integers, std::int64_t{3});
    atomicAdd(integers, 1);
    atomicAdd(floats, 1.0f);
    reinterpret_cast<__half*>(halves)[1] = __float2half(0.5f);
    assert(threadIdx.x < blockDim.x);
}

C10_CUDA_API void launch(const at::Tensor& x) {
    const at::cuda::OptionalCUDAGuard optional_guard(device_of(x));
    const c10::cuda::CUDAGuard guard(x.device());
    const at::cuda::CUDAGuard guard_of_number(x.get_device());
    const at::cuda::CUDAStream stream = at::cuda::getCurrentCUDAStream();
    const at::cuda::CUDAStreamGuard stream_guard(c10::cuda::getStreamFromPool());
    cudaStream_t raw = c10::cuda::getCurrentCUDAStream(x.get_device()).stream();
    raw = at::cuda::getCurrentCUDAStream();
    const cudaDeviceProp* properties = at::cuda::getCurrentDeviceProperties();
    const int threads = properties->maxThreadsPerBlock / at::cuda::warp_size();
    TORCH_CHECK(at::cuda::getDeviceProperties(x.get_device())->major >= 8);
    TORCH_CHECK(c10::cuda::device_count() > c10::cuda::current_device());
    cudaLaunchConfig_t config{};
    config.gridDim = 1;
    config.blockDim = static_cast<unsigned>(threads);
    config.stream = raw;
    AT_CUDA_CHECK(cudaLaunchKernelEx(
        &config, kernel, x.data_ptr<at::Half>(), x.data_ptr<at::BFloat16>(),
        x.data_ptr<float>(), x.data_ptr<std::int64_t>()
    ));
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    C10_CUDA_CHECK(cudaStreamSynchronize(stream));
    stream.synchronize();
    void* scratch = c10::cuda::CUDACachingAllocator::raw_alloc(16);
    c10::cuda::CUDACachingAllocator::raw_delete(scratch);
}

}  // namespace

void use(const at::Tensor& x) { launch(x); }
