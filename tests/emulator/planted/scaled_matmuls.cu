// A product of 8-bit floats that needs every barrier of the twin of scaled_matmul. x is small,
// so rows and columns of the operands overlap or are all the same.
#define TWIN_SINGLE_KERNEL  // the table would instantiate all
#include "../launch.h"
#include "scaled_matmul/scaled_matmul.cu"

// Two tiles, so that both buffers of results are used again, in three steps each, more than
// there are stages.
EXPORT int twin_scaled_matmul(__half* out, float* x) {
    using namespace twin;
    constexpr int M = 1, N = 256, K = 384, STRIDE_ROW = 16, STRIDE_COL = 0;
    constexpr int BLOCK_N = 128, NUM_STAGES = 2;
    constexpr Float8 E4M3 = Float8::e4m3, E5M2 = Float8::e5m2;
    TensorMap out_map = make_tensor_map<__half>(out, 1, M, N, 0, N, BOX_SIZE);
    TensorMap a_map = make_tensor_map<uint8_t>(x, 1, M, K, 0, STRIDE_ROW, M);
    TensorMap b_map = make_tensor_map<uint8_t>(x, 1, N, K, 0, STRIDE_COL, BLOCK_N);
    if (encode_tensor_map<__half>(&out_map) != cudaSuccess ||
        encode_tensor_map<uint8_t>(&a_map) != cudaSuccess ||
        encode_tensor_map<uint8_t>(&b_map) != cudaSuccess) {
        return cudaErrorInvalidValue;
    }
    const auto kernel = scaled_matmul_kernel<__half, E4M3, E5M2, BLOCK_N, NUM_STAGES>;
    const int64_t n_bytes = sizeof(ScaledShared<BLOCK_N, NUM_STAGES>);
    const Plan plan{kernel, 1, SCALED_NUM_THREADS, n_bytes};
    const Launcher launcher(nullptr);
    return launcher(plan, out_map, a_map, b_map, x, x, nullptr, M, N, K, 0, 0);
}
