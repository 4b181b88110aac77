// The host's side of CUDA as programs use it. Each function notes the lines of the checks
// that fail.
#include <cuda_runtime_api.h>
#include <string.h>

#include <chrono>
#include <initializer_list>

#include "launch.h"

namespace {

struct Checks {
    int* wrong;  // numbers of lines, up to the first 0
    void operator()(bool right, int line) {
        if (!right) *wrong++ = line;
    }
};

#define CHECK(condition) check(condition, __LINE__)

__constant__ float table[4];
__device__ int counter = 5;

}  // namespace

__global__ void host_add_kernel(float* out, int n) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < static_cast<unsigned>(n)) out[i] += table[i % 4];
    if (i == 0) ++counter;
}

template <typename T>
__global__ void host_fill_kernel(T* out, T value) {
    out[threadIdx.x] = value;
}

__global__ void host_trap_kernel() { __trap(); }

EXPORT int host_device(int* wrong) {
    Checks check{wrong};
    int count = 0, value = 0;
    CHECK(cudaGetDeviceCount(&count) == cudaSuccess && count == 1);
    CHECK(cudaSetDevice(1) == cudaErrorInvalidDevice);
    CHECK(cudaGetLastError() == cudaErrorInvalidDevice);
    cudaDeviceProp properties;
    CHECK(cudaGetDeviceProperties(&properties, 0) == cudaSuccess);
    CHECK(properties.major == 9 && properties.minor == 0);
    CHECK(properties.multiProcessorCount == 132 && properties.warpSize == 32);
    CHECK(properties.maxGridSize[1] == 65535 && properties.maxThreadsDim[2] == 64);
    CHECK(strncmp(properties.name, "NVIDIA H100", 11) == 0);
    cudaDeviceGetAttribute(&value, cudaDevAttrMaxSharedMemoryPerBlockOptin, 0);
    CHECK(static_cast<int>(properties.sharedMemPerBlockOptin) == value);
    cudaDeviceGetAttribute(&value, cudaDevAttrL2CacheSize, 0);
    CHECK(properties.l2CacheSize == value);
    CHECK(cudaRuntimeGetVersion(&value) == cudaSuccess && value == CUDART_VERSION);
    CHECK(cudaDriverGetVersion(&value) == cudaSuccess && value >= CUDART_VERSION);
    CHECK(cudaDeviceSetLimit(cudaLimitPrintfFifoSize, 1 << 24) == cudaSuccess);
    size_t limit = 0;
    CHECK(cudaDeviceGetLimit(&limit, cudaLimitPrintfFifoSize) == cudaSuccess);
    CHECK(limit == 1 << 24);
    CHECK(cudaDeviceSetCacheConfig(cudaFuncCachePreferL1) == cudaSuccess);
    CHECK(strcmp(cudaGetErrorName(cudaErrorNotReady), "cudaErrorNotReady") == 0);
    return 0;
}

EXPORT int host_occupancy(int* wrong) {
    Checks check{wrong};
    int blocks = 0, grid = 0, size = 0;
    auto most = [&](int threads, size_t shared_bytes) {
        cudaOccupancyMaxActiveBlocksPerMultiprocessor(
            &blocks, host_fill_kernel<float>, threads, shared_bytes
        );
        return blocks;
    };
    CHECK(most(1024, 0) == 2 && most(256, 0) == 8 && most(32, 0) == 32);
    CHECK(most(100, 0) == 16);
    CHECK(most(128, 48 * 1024) == 4 && most(128, 227 * 1024) == 1);
    CHECK(most(128, 228 * 1024) == 0 && most(1025, 0) == 0);
    CHECK(
        cudaOccupancyMaxPotentialBlockSize(&grid, &size, host_add_kernel) == cudaSuccess
    );
    CHECK(grid == 264 && size == 1024);
    cudaOccupancyMaxPotentialBlockSize(&grid, &size, host_fill_kernel<int>, 0, 200);
    CHECK(grid == 132 * 16 && size == 128);
    auto shared_bytes = [](int threads) { return static_cast<size_t>(threads) * 256; };
    cudaOccupancyMaxPotentialBlockSizeVariableSMem(
        &grid, &size, host_fill_kernel<int>, shared_bytes
    );
    CHECK(size == 896 && grid == 132);

    CHECK(
        cudaFuncSetAttribute(
            host_fill_kernel<double>, cudaFuncAttributeMaxDynamicSharedMemorySize,
            100000
        ) == cudaSuccess
    );
    cudaFuncAttributes attributes;
    CHECK(cudaFuncGetAttributes(&attributes, host_fill_kernel<double>) == cudaSuccess);
    CHECK(attributes.maxDynamicSharedSizeBytes == 100000);
    CHECK(attributes.maxThreadsPerBlock == 1024 && attributes.numRegs == 0);
    CHECK(
        cudaFuncSetCacheConfig(host_add_kernel, cudaFuncCachePreferL1) == cudaSuccess
    );
    return 0;
}

EXPORT int host_streams(int* wrong) {
    Checks check{wrong};
    cudaStream_t stream, other;
    CHECK(cudaStreamCreate(&stream) == cudaSuccess && stream != nullptr);
    CHECK(
        cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking) == cudaSuccess &&
        other != stream
    );
    cudaEvent_t start, end, untimed;
    cudaEventCreate(&start);
    cudaEventCreate(&end, cudaEventBlockingSync);
    cudaEventCreateWithFlags(&untimed, cudaEventDisableTiming);
    float milliseconds = -1;
    cudaEventRecord(start, stream);
    CHECK(
        cudaEventElapsedTime(&milliseconds, start, end) ==
        cudaErrorInvalidResourceHandle
    );
    using Clock = std::chrono::steady_clock;
    for (auto from = Clock::now(); Clock::now() - from < std::chrono::milliseconds(2););
    cudaEventRecord(end, stream);
    CHECK(cudaStreamWaitEvent(other, end, 0) == cudaSuccess);
    CHECK(cudaEventSynchronize(end) == cudaSuccess);
    CHECK(cudaEventQuery(end) == cudaSuccess);
    CHECK(cudaEventElapsedTime(&milliseconds, start, end) == cudaSuccess);
    CHECK(milliseconds >= 2 && milliseconds < 10000);
    cudaEventRecord(untimed);
    CHECK(
        cudaEventElapsedTime(&milliseconds, start, untimed) ==
        cudaErrorInvalidResourceHandle
    );
    int calls = 0;
    cudaLaunchHostFunc(stream, [](void* data) { ++*static_cast<int*>(data); }, &calls);
    CHECK(calls == 1);
    CHECK(cudaStreamQuery(stream) == cudaSuccess);
    CHECK(cudaStreamSynchronize(cudaStreamPerThread) == cudaSuccess);
    CHECK(cudaStreamDestroy(stream) == cudaSuccess);
    CHECK(cudaStreamDestroy(other) == cudaSuccess);
    CHECK(cudaStreamDestroy(cudaStreamLegacy) == cudaErrorInvalidResourceHandle);
    for (cudaEvent_t event : {start, end, untimed}) cudaEventDestroy(event);
    cudaGetLastError();

    // A fault shows at the next synchronisation, until it is cleared.
    CHECK(launch(host_trap_kernel, 1, 1, 0) == cudaErrorLaunchFailure);
    CHECK(cudaDeviceSynchronize() == cudaErrorLaunchFailure);
    CHECK(
        strstr(cudaGetErrorString(cudaErrorLaunchFailure), "host_trap_kernel") !=
        nullptr
    );
    CHECK(cudaGetLastError() == cudaErrorLaunchFailure);
    CHECK(cudaDeviceSynchronize() == cudaSuccess);
    return 0;
}

EXPORT int host_memory(int* wrong) {
    Checks check{wrong};
    size_t before = 0, after = 0, total = 0, pitch = 0;
    cudaMemGetInfo(&before, &total);
    float *device, *managed, *host, *asynchronous, *rows;
    CHECK(cudaMalloc(&device, 1000) == cudaSuccess);
    CHECK(cudaMallocManaged(&managed, 1000) == cudaSuccess);
    CHECK(cudaMallocHost(&host, 1000) == cudaSuccess);
    CHECK(cudaMallocAsync(&asynchronous, 1000, nullptr) == cudaSuccess);
    CHECK(cudaMallocPitch(&rows, &pitch, 100, 3) == cudaSuccess && pitch == 512);
    cudaMemGetInfo(&after, &total);
    CHECK(before - after == 4 * 1000 + 3 * 512 && total == size_t{80} << 30);

    cudaPointerAttributes attributes;
    cudaPointerGetAttributes(&attributes, device + 5);
    CHECK(attributes.type == cudaMemoryTypeDevice && attributes.device == 0);
    cudaPointerGetAttributes(&attributes, managed);
    CHECK(attributes.type == cudaMemoryTypeManaged);
    cudaPointerGetAttributes(&attributes, host);
    CHECK(attributes.type == cudaMemoryTypeHost && attributes.hostPointer == host);

    char dense[3][100], back[3][100] = {};
    for (int i = 0; i < 300; ++i) dense[i / 100][i % 100] = static_cast<char>(i);
    CHECK(
        cudaMemcpy2D(rows, pitch, dense, 100, 100, 3, cudaMemcpyHostToDevice) ==
        cudaSuccess
    );
    CHECK(reinterpret_cast<char*>(rows)[512 + 7] == dense[1][7]);
    CHECK(static_cast<unsigned char>(reinterpret_cast<char*>(rows)[511]) == 0xFF);
    cudaMemcpy2DAsync(back, 100, rows, pitch, 100, 3, cudaMemcpyDeviceToHost);
    CHECK(memcmp(dense, back, sizeof(dense)) == 0);
    CHECK(
        cudaMemcpy2D(rows, 50, dense, 100, 100, 3, cudaMemcpyDefault) ==
        cudaErrorInvalidPitchValue
    );
    cudaMemset2D(rows, pitch, 0, 2, 3);
    CHECK(reinterpret_cast<char*>(rows)[1025] == 0 && rows[0] != 0);

    CHECK(cudaMemcpy(device, dense, 1001, cudaMemcpyDefault) == cudaErrorInvalidValue);
    CHECK(
        strstr(cudaGetErrorString(cudaErrorInvalidValue), "1001 bytes from byte 0") !=
        nullptr
    );
    CHECK(cudaMemset(device + 249, 0, 5) == cudaErrorInvalidValue);
    CHECK(cudaMemset(device + 249, 0, 4) == cudaSuccess);
    CHECK(cudaMemset(nullptr, 0, 4) == cudaErrorInvalidValue);
    CHECK(cudaMemPrefetchAsync(managed, 1000, 0) == cudaSuccess);
    CHECK(cudaMalloc(&rows, size_t{1} << 40) == cudaErrorMemoryAllocation);

    CHECK(cudaFree(device) == cudaSuccess && cudaFree(device) == cudaErrorInvalidValue);
    CHECK(cudaFree(host) == cudaErrorInvalidValue && cudaFree(managed) == cudaSuccess);
    CHECK(cudaFreeHost(host) == cudaSuccess && cudaFree(nullptr) == cudaSuccess);
    CHECK(cudaFreeAsync(asynchronous, nullptr) == cudaSuccess);
    cudaGetLastError();
    return 0;
}

EXPORT int host_symbols(int* wrong) {
    Checks check{wrong};
    const float values[4] = {1, 2, 3, 4};
    CHECK(cudaMemcpyToSymbol(table, values, sizeof(values)) == cudaSuccess);
    const float replaced = 7;
    CHECK(cudaMemcpyToSymbol(table, &replaced, 4, 8) == cudaSuccess);
    CHECK(cudaMemcpyToSymbol(table, values, 16, 4) == cudaErrorInvalidValue);
    int count = 8;
    cudaMemcpyToSymbolAsync(counter, &count, sizeof(count));
    float out[6] = {};
    CHECK(launch(host_add_kernel, 2, 4, 0, out, 6) == 0);
    const float expected[6] = {1, 2, 7, 4, 1, 2};
    CHECK(memcmp(out, expected, sizeof(out)) == 0);
    cudaMemcpyFromSymbol(&count, counter, sizeof(count));
    CHECK(count == 9);
    int* address = nullptr;
    size_t size = 0;
    CHECK(cudaGetSymbolAddress(&address, counter) == cudaSuccess && *address == 9);
    CHECK(
        cudaGetSymbolAddress(reinterpret_cast<void**>(&address), table) == cudaSuccess
    );
    CHECK(cudaGetSymbolSize(&size, table) == cudaSuccess && size == 16);
    cudaGetLastError();
    return 0;
}
