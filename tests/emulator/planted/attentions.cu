// Attention that needs every barrier of its kernels, by one instance of each. x is small, so
// keys and values are all the same. out holds the result, and then the lse; or gradients.
#define TWIN_SINGLE_KERNEL  // the tables would instantiate all
#include "../launch.h"
#include "attention/attention.cu"
#include "emulator_checker.h"

// Three tiles of keys, which all queries see.
EXPORT int tiled_attention(float* out, float* x) {
    using namespace tiled;
    constexpr int M = 32, N = 130, HEAD_DIM = 3;
    const auto kernel = attention_tiled_kernel<float, 64>;
    const Plan plan{kernel, 1, NUM_THREADS<64>, sizeof(Shared<64>)};
    const Launcher launcher(nullptr);
    return launcher(
        plan, out, out + M * HEAD_DIM, x, x, x, 1, 1, M, N, HEAD_DIM, 0, HEAD_DIM, 0, 0,
        1, 0, 0, 0, 0, 0, 0, 0, 1.0f, 0.0f, M + N, M + N, 0, nullptr, nullptr
    );
}

static int run_on_tensor_cores(__half* out, __half* x, int N) {
    using namespace tensor_cores;
    constexpr int M = 16, HEAD_DIM = 14;
    void* const lse = out + M * HEAD_DIM;
    const auto kernel = attention_tensor_cores_kernel<__half, 64>;
    const Plan plan{kernel, 1, NUM_THREADS, sizeof(Shared<__half, 64>)};
    const Launcher launcher(nullptr);
    return launcher(
        plan, out, lse, x, x, x, 1, 1, M, N, HEAD_DIM, 0, HEAD_DIM, 0, 0, 0, 0, 0, 0, 0,
        0, 0, 0, 1.0f, 0.0f, M + N, M + N, 0, nullptr, nullptr
    );
}

// Three tiles of keys.
EXPORT int tensor_cores_attention(__half* out, __half* x) {
    return run_on_tensor_cores(out, x, 130);
}

// No tile of keys, after which q would be there.
EXPORT int attention_without_keys(__half* out, __half* x) {
    return run_on_tensor_cores(out, x, 0);
}

// Nine tiles of keys, which sixteen heads share and two warps take turns with: more for each
// than there are stages. They are one part, so that there are results at once.
EXPORT int split_attention(__half* out, __half* x) {
    constexpr int H = 16, N = 260, HEAD_DIM = 14, NUM_WARPS = 2;
    void* const lse = out + H * HEAD_DIM;
    const auto kernel = attention_split_kernel<__half, 16, 64>;
    const Plan plan{
        kernel, 1, NUM_WARPS * WARP_SIZE, split::shared_bytes<__half, 16, 64>(NUM_WARPS)
    };
    const Launcher launcher(nullptr);
    return launcher(
        plan, out, lse, nullptr, nullptr, x, x, x, H, 1, 1, N, HEAD_DIM, 0, 0, HEAD_DIM,
        0, 0, HEAD_DIM, 0, 0, 0, 0, 0, 0, 1.0f, 0.0f, N, N, 1
    );
}

// A tile of queries for each of three heads, which share all keys.
EXPORT int tiled_attention_backward_keys(float* out, float* x) {
    using namespace tiled;
    constexpr int H = 3, M = 40, N = 32, HEAD_DIM = 2;
    const auto kernel = attention_backward_keys_tiled_kernel<float, 64>;
    const Plan plan{kernel, 1, BACKWARD_THREADS, sizeof(KeysShared<64>)};
    const Launcher launcher(nullptr);
    return launcher(
        plan, out, out + N * HEAD_DIM, x, x, x, x, x, x, H, 1, M, N, HEAD_DIM, 0, 1, 0,
        0, 1, 0, 0, 0, 0, 0, 0, 0, 1.0f, 0.0f, M + N, M + N, 0, nullptr, nullptr
    );
}

// Three tiles of keys, which all queries see.
EXPORT int tiled_attention_backward_queries(float* out, float* x) {
    using namespace tiled;
    constexpr int M = 32, N = 130, HEAD_DIM = 4;
    const auto kernel = attention_backward_queries_tiled_kernel<float, 64>;
    const Plan plan{kernel, 1, BACKWARD_THREADS, sizeof(QueriesShared<64>)};
    const Launcher launcher(nullptr);
    return launcher(
        plan, out, x, x, x, x, x, x, 1, 1, M, N, HEAD_DIM, 0, 1, 0, 0, 1, 0, 0, 0, 0, 0,
        0, 0, 1.0f, 0.0f, M + N, M + N, 0, nullptr, nullptr
    );
}

static int run_keys_on_tensor_cores(__half* out, __half* x, int M) {
    using namespace tensor_cores;
    constexpr int H = 3, N = 64, HEAD_DIM = 2;
    const auto kernel = attention_backward_keys_tensor_cores_kernel<__half, 64>;
    const Plan plan{kernel, 1, KEYS_THREADS<64>, sizeof(KeysShared<__half, 64>)};
    const Launcher launcher(nullptr);
    void* const rows = x;
    return launcher(
        plan, out, out + N * HEAD_DIM, x, x, x, x, rows, rows, H, 1, M, N, HEAD_DIM, 0,
        0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1.0f, 0.0f, M + N, M + N, 0, nullptr, nullptr
    );
}

// A tile of queries for each of three heads.
EXPORT int tensor_cores_attention_backward_keys(__half* out, __half* x) {
    return run_keys_on_tensor_cores(out, x, 40);
}

// No tile of queries, after which k and v would be there.
EXPORT int attention_backward_without_queries(__half* out, __half* x) {
    return run_keys_on_tensor_cores(out, x, 0);
}

static int run_queries_on_tensor_cores(__half* out, __half* x, int N) {
    using namespace tensor_cores;
    constexpr int M = 128, HEAD_DIM = 2;
    const auto kernel = attention_backward_queries_tensor_cores_kernel<__half, 64>;
    const Plan plan{kernel, 1, QUERIES_THREADS, sizeof(QueriesShared<__half, 64>)};
    const Launcher launcher(nullptr);
    void* const rows = x;
    return launcher(
        plan, out, x, x, x, x, rows, rows, 1, 1, M, N, HEAD_DIM, 0, 0, 0, 0, 0, 0, 0, 0,
        0, 0, 0, 0, 1.0f, 0.0f, M + N, M + N, 0, nullptr, nullptr
    );
}

// Three tiles of keys.
EXPORT int tensor_cores_attention_backward_queries(__half* out, __half* x) {
    return run_queries_on_tensor_cores(out, x, 130);
}

// No tile of keys, after which q would be there.
EXPORT int attention_backward_without_keys(__half* out, __half* x) {
    return run_queries_on_tensor_cores(out, x, 0);
}

// One query and one key.
EXPORT int twin_attention(__half* out, __half* x) {
    using namespace twin;
    constexpr int HEAD_DIM = 254, BLOCK_N = 80;
    const HeadRows out_rows{out, 1, 1, 1, HEAD_DIM, 0, 0, 0};
    const HeadRows x_rows{x, 1, 1, 1, HEAD_DIM, 0, 0, 0};
    TensorMap4D out_map = make_tensor_map<__half>(out_rows, BOX_SIZE);
    TensorMap4D q_map = make_tensor_map<__half>(x_rows, BOX_SIZE);
    TensorMap4D k_map = make_tensor_map<__half>(x_rows, BLOCK_N);
    for (TensorMap4D* map : {&out_map, &q_map, &k_map}) {
        if (encode_tensor_map<__half>(map) != cudaSuccess) return cudaErrorInvalidValue;
    }
    void* const lse = out + HEAD_DIM;
    const auto kernel = attention_kernel<__half, 256, 128, BLOCK_N, 2>;
    const Plan plan{
        kernel, 1, NUM_THREADS<128>, sizeof(AttentionShared<256, 128, BLOCK_N, 2>)
    };
    const Launcher launcher(nullptr);
    return launcher(
        plan, out_map, lse, nullptr, q_map, k_map, k_map, 1, 1, 1, 1, 1, 1, 1.0f, 2, 2
    );
}

// The backward of a few queries and as many keys. `launch` gets maps of one or two results,
// and one of x.
template <int N_ROWS, typename Launch>
static int run_backward_twin(__half* out, __half* x, const Launch& launch) {
    constexpr int HEAD_DIM = 64;
    const auto map_of = [](__half* data) {
        const HeadRows rows{data, 1, N_ROWS, 1, HEAD_DIM, 0, HEAD_DIM, 0};
        return make_tensor_map<__half>(rows, twin::BOX_SIZE);
    };
    TensorMap4D first = map_of(out), second = map_of(out + 2 * HEAD_DIM);
    TensorMap4D x_map = map_of(x);
    for (TensorMap4D* map : {&first, &second, &x_map}) {
        if (encode_tensor_map<__half>(map) != cudaSuccess) return cudaErrorInvalidValue;
    }
    return launch(Launcher(nullptr), first, second, x_map);
}

EXPORT int twin_attention_backward_keys(__half* out, __half* x) {
    using namespace twin;
    const auto kernel = attention_backward_keys_kernel<__half, 64, 64, 64, 1>;
    using Shared = BackwardKeysShared<64, 64, 64, 1>;
    const Plan plan{kernel, 1, BACKWARD_NUM_THREADS, sizeof(Shared)};
    const void* const row = x;  // of lse and delta
    return run_backward_twin<2>(
        out, x, [&](const auto& launch, auto& grad_k, auto& grad_v, auto& map) {
            return launch(
                plan, grad_k, grad_v, map, map, map, map, row, row, 1, 1, 1, 2, 2, 1,
                1.0f, 4, 4
            );
        }
    );
}

EXPORT int twin_attention_backward_queries(__half* out, __half* x) {
    using namespace twin;
    const auto kernel = attention_backward_queries_kernel<__half, 64, 128, 64, 1, 1>;
    using Shared = BackwardQueriesShared<64, 128, 64, 1, 1>;
    const Plan plan{kernel, 1, BACKWARD_NUM_THREADS, sizeof(Shared)};
    const void* const row = x;  // of lse and delta
    return run_backward_twin<4>(
        out, x, [&](const auto& launch, auto& grad_q, auto&, auto& map) {
            return launch(
                plan, grad_q, map, map, map, map, row, row, 1, 1, 1, 4, 4, 1, 1.0f, 8, 8
            );
        }
    );
}

// Two boxes of sums, of which queries fill a part.
static twin::QuerySums<64>* registered_sums() {
    static twin::QuerySums<64> sums[2];
    sums[0].n_added = 0;
    emulator_register_tensor("sums", sums, sizeof(sums), EMULATOR_WORKSPACE);
    return sums;
}

EXPORT int twin_attention_backward(__half* out, __half* x) {
    using namespace twin;
    const auto kernel = attention_backward_kernel<__half, 64, 128, 128, 1, true>;
    using Shared = BackwardShared<64, 128, 128, 1>;
    const Plan plan{kernel, 1, BACKWARD_NUM_THREADS, sizeof(Shared)};
    TensorMap4D queries = make_tensor_map<__half>({x, 1, 2, 1, 64, 0, 64, 0}, 128);
    if (encode_tensor_map<__half>(&queries) != cudaSuccess) return 1;
    return run_backward_twin<2>(
        out, x, [&](const auto& launch, auto& grad_k, auto& grad_v, auto& keys) {
            return launch(
                plan, registered_sums(), grad_k, grad_v, queries, queries, keys, keys,
                1, 1, 1, 2, 2, 1, 0, 1.0f, 4, 4
            );
        }
    );
}

EXPORT int attention_end_sums(__half* out, __half* x) {
    const auto kernel = attention_end_sums_kernel<__half, 64>;
    const Plan plan{kernel, 1, twin::WARPGROUP_SIZE, sizeof(twin::Box)};
    return run_backward_twin<4>(
        out, x, [&](const auto& launch, auto& grad_q, auto&, auto&) {
            return launch(plan, grad_q, registered_sums(), 1, 1, 1.0f);
        }
    );
}
