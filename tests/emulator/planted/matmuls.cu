// Matrix products that need every barrier of the matmul's kernels, by one instance of
// each kernel. x is small, so rows and columns of the operands overlap or are all the
// same.
#define TWIN_SINGLE_KERNEL  // the tables would instantiate all
#include "../launch.h"
#include "matmul/matmul.cu"

constexpr Activation NONE = Activation::none;

// Eight steps along K.
EXPORT int tiled_matmul(float* out, float* x) {
    constexpr int M = 8, N = 16, K = 64, STRIDE = 4;
    float* const no_parts = nullptr;
    const auto kernel = matmul_tiled_kernel<float, NONE, 128, 256>;
    const Plan plan{
        kernel, 1, tiled::NUM_THREADS<128>, sizeof(tiled::Shared<128, 256>)
    };
    const Launcher launcher(nullptr);
    return launcher(
        plan, out, x, x, nullptr, M, N, K, 0, STRIDE, 1, 0, 1, STRIDE, no_parts, 1, K
    );
}

// Four steps along K. The last one reads the stage through which the result is stored.
EXPORT int tensor_cores_matmul(__half* out, __half* x) {
    using namespace tensor_cores;
    constexpr int M = 16, N = 16, K = 256, STRIDE = 0, NUM_STEPS = 4, NUM_STAGES = 3;
    const auto kernel = matmul_tensor_cores_kernel<
        __half, 128, 128, K / NUM_STEPS, 2, 4, NUM_STAGES, true, true, true>;
    const int64_t n_bytes = sizeof(Shared<__half, 128, 128, K / NUM_STEPS, NUM_STAGES>);
    const Plan plan{kernel, 1, 256, n_bytes};
    const Launcher launcher(nullptr);
    return launcher(
        plan, out, x, x, nullptr, nullptr, M, N, K, 0, STRIDE, 0, STRIDE, false, false,
        static_cast<int>(NONE), 1, NUM_STEPS, true
    );
}

// A tile in eight parts, whose groups of threads meet once.
EXPORT int sum_of_parts(__half* out, __half*) {
    constexpr int BLOCK_M = 16, BLOCK_N = 64, NUM_PARTS = 8;
    static float parts[2 * NUM_PARTS * BLOCK_M * BLOCK_N];
    const auto kernel = matmul_sum_kernel<__half, NUM_PARTS>;
    const Plan plan{kernel, 8, parts::NUM_THREADS};
    const Launcher launcher(nullptr);
    return launcher(
        plan, out, parts, nullptr, 4, 64, BLOCK_M, BLOCK_N, 1, NUM_PARTS, NUM_PARTS,
        static_cast<int>(NONE)
    );
}

// One block has four tiles of four steps each. Its two consumer warpgroups take turns
// with the last two.
EXPORT int twin_matmul(__half* out, __half* x) {
    using namespace twin;
    constexpr int M = 1, N = 256, K = 256, STRIDE = 0, NUM_STAGES = 2;
    constexpr int BLOCK_M = 128, BLOCK_N = 64;
    constexpr auto ALONG_K = ptx::Major::K;
    TensorMap out_map = make_tensor_map<__half>(out, 1, M, N, M * N, N, BOX_SIZE);
    TensorMap a_map = make_tensor_map<__half>(x, 1, M, K, M * K, K, M);
    TensorMap b_map = make_tensor_map<__half>(x, 1, N, K, N * K, STRIDE, BLOCK_N);
    for (TensorMap* map : {&out_map, &a_map, &b_map}) {
        if (encode_tensor_map<__half>(map) != cudaSuccess) return cudaErrorInvalidValue;
    }
    const auto kernel =
        matmul_kernel<__half, BLOCK_M, BLOCK_N, NUM_STAGES, ALONG_K, ALONG_K>;
    const Plan plan{
        kernel, 1, NUM_THREADS<BLOCK_M>, sizeof(Shared<BLOCK_M, BLOCK_N, NUM_STAGES>)
    };
    const Launcher launcher(nullptr);
    return launcher(
        plan, out_map, a_map, b_map, x, nullptr, nullptr, 1, M, N, K, true, true,
        static_cast<int>(NONE), 0, 1, 1
    );
}

// Two such tiles of float32 in three steps. The planes of the right operand overlap.
EXPORT int tf32_twin_matmul(float* out, float* x) {
    using namespace twin;
    constexpr int M = 1, N = 128, K = 96, STRIDE = 0, NUM_STAGES = 2, NUM_PLANES = 2;
    constexpr int PLANE_STRIDE = 32;
    TensorMap out_map = make_tensor_map<float>(out, 1, M, N, M * N, N, BOX_SIZE);
    TensorMap left_map = make_tensor_map<float>(x, 1, M, K, M * K, K, BOX_SIZE);
    TensorMap right_map =
        make_tensor_map<Tf32>(x, NUM_PLANES, N, K, PLANE_STRIDE, STRIDE, BOX_SIZE);
    if (encode_tensor_map<float>(&out_map) != cudaSuccess ||
        encode_tensor_map<float>(&left_map) != cudaSuccess ||
        encode_tensor_map<Tf32>(&right_map) != cudaSuccess) {
        return cudaErrorInvalidValue;
    }
    const auto kernel =
        matmul_tf32_kernel<128, 64, NUM_STAGES, NUM_PLANES, ptx::Major::K>;
    const int64_t n_bytes = sizeof(Tf32Shared<128, 64, NUM_STAGES, NUM_PLANES>);
    const Plan plan{kernel, 1, NUM_THREADS<128>, n_bytes};
    const Launcher launcher(nullptr);
    return launcher(
        plan, out_map, left_map, right_map, x, nullptr, nullptr, 1, M, N, K, true, true,
        false, static_cast<int>(NONE), 0
    );
}

EXPORT int transposed_matrix(float* out, float* x) {
    constexpr int N_ROWS = 8, N_COLS = 16;
    const auto kernel = matmul_transpose_kernel<float, 1>;
    const Plan plan{kernel, 1, align::NUM_THREADS};
    const Launcher launcher(nullptr);
    return launcher(plan, out, x, N_ROWS, N_COLS, 0, N_COLS, N_ROWS, 0);
}
