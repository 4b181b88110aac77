// Matrix products that need every barrier of the matmul's kernels, by one instance of
// each kernel. x is small, so rows and columns of the operands overlap or are all the
// same.
#define TWIN_SINGLE_KERNEL  // the tables would instantiate all
#include "../launch.h"
#include "matmul/matmul.cu"

constexpr Activation NONE = Activation::none;

// Four steps along K.
EXPORT int tiled_matmul(float* out, float* x) {
    constexpr int M = 8, N = 16, K = 64, STRIDE = 4;
    const auto kernel = matmul_tiled_kernel<float, NONE>;
    const Plan plan{kernel, 1, tiled::NUM_THREADS, sizeof(tiled::Shared)};
    const Launcher launcher(nullptr);
    return launcher(plan, out, x, x, nullptr, M, N, K, 0, STRIDE, 1, 0, 1, STRIDE);
}

// Four steps along K. The last one reads the stage through which the result is stored.
EXPORT int tensor_cores_matmul(__half* out, __half* x) {
    using namespace tensor_cores;
    constexpr int M = 16, N = 16, K = 256, STRIDE = 0;
    const auto kernel = matmul_tensor_cores_kernel<__half, true, true, NONE>;
    const Plan plan{kernel, 1, NUM_THREADS, SHARED_BYTES};
    const Launcher launcher(nullptr);
    return launcher(plan, out, x, x, nullptr, M, N, K, 0, STRIDE, 1, 0, 1, STRIDE);
}

// One block has four tiles of four steps each. Its two consumer warpgroups take turns
// with the last two.
EXPORT int twin_matmul(__half* out, __half* x) {
    using namespace twin;
    constexpr int M = 1, N = 256, K = 256, STRIDE = 0, NUM_STAGES = 2;
    constexpr auto ALONG_K = ptx::Major::K;
    TensorMap out_map = make_tensor_map<__half>(out, 1, M, N, M * N, N, BOX_SIZE);
    TensorMap a_map = make_tensor_map<__half>(x, 1, M, K, M * K, K, BOX_SIZE);
    TensorMap b_map = make_tensor_map<__half>(x, 1, N, K, N * K, STRIDE, BOX_SIZE);
    for (TensorMap* map : {&out_map, &a_map, &b_map}) {
        if (encode_tensor_map<__half>(map) != cudaSuccess) return cudaErrorInvalidValue;
    }
    const auto kernel = matmul_kernel<__half, 128, 64, NUM_STAGES, ALONG_K, ALONG_K>;
    const Plan plan{kernel, 1, NUM_THREADS<128>, sizeof(Shared<128, 64, NUM_STAGES>)};
    const Launcher launcher(nullptr);
    return launcher(
        plan, out_map, a_map, b_map, x, nullptr, nullptr, 1, M, N, K, true, true,
        static_cast<int>(NONE), 0
    );
}
