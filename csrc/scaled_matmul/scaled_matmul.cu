// A product of matrices of 8-bit floats, with scales.
//
//   scaled_matmul: out[i, j] = scale_a[i] scale_b[j] (sum over k of a[i, k] b[k, j])
//
// Layout   out: contiguous. a: rows contiguous, b: columns contiguous, both with a multiple of
//          16 bytes between them. Scales: one for each row or column, of any stride, or one
//          number, with a stride of 0.
// Traffic  a byte of a or b that a block has loaded serves all columns or rows of its tile.
//          Large products are bound by the tensor cores, those of few rows by b.
// Limits   tensor cores add up products of 8 bits with 13 bits of fraction: 128 at a time, and
//          such sums are added in float32. Without them all is added in float32.
// Mirror   triton_kernels/scaled_matmul/scaled_matmul.py
// Source   matmul's twin, and that for tf32x3, which adds steps likewise; DeepSeek-AI 2024,
//          arXiv:2412.19437, section 3.3.2

#include "common/dtype.cuh"
#include "common/launch.cuh"
#include "scaled_matmul/first.cuh"
#include "scaled_matmul/twin.cuh"

namespace {

constexpr int64_t MOST = (int64_t{1} << 31) - 1;  // of what the twin counts in 32 bits

// The calls that a rung can serve.
struct Regime {
    Rung rung;
    bool needs_tensor_maps = false;
    int min_arch = 0;  // the first architecture, such as 90
    int max_arch = 999;

    bool serves(const Device& device, bool has_tensor_maps) const {
        return (has_tensor_maps || !needs_tensor_maps) && min_arch <= device.arch &&
               device.arch <= max_arch;
    }
};

// A call takes the first rung that can serve it.
constexpr Regime REGIMES[] = {
    {.rung = Rung::twin, .needs_tensor_maps = true, .min_arch = 90, .max_arch = 90},
    {.rung = Rung::first},
};

// What the launcher is called with.
struct Call {
    DType dtype;
    void* out;
    const void *a, *b, *scale_a, *scale_b;
    int64_t M, N, K, a_stride_row, b_stride_col, scale_a_stride, scale_b_stride;

    int64_t n_tiles(int64_t block_m, int64_t block_n) const {
        return ceil_div(M, block_m) * ceil_div(N, block_n);
    }
};

// The first of the tiles that cost least: a tile costs as much in each wave of blocks.
int choose_tile(const Call& call, int n_sms) {
    int64_t best_cost = INT64_MAX;
    int best = 0;
    for (int i = 0; i < int{std::size(twin::SCALED_TILES)}; ++i) {
        const twin::ScaledTile& tile = twin::SCALED_TILES[i];
        const int64_t n_tiles = call.n_tiles(twin::SCALED_BLOCK_M, tile.block_n);
        const int64_t cost = ceil_div(n_tiles, n_sms) * tile.cost;
        if (cost < best_cost) best = i, best_cost = cost;
    }
    return best;
}

template <typename T, Float8 A_TYPE, Float8 B_TYPE>
cudaError_t launch_first(const Launcher& launch, const Call& call) {
    return launch(
        plan_first(
            scaled_matmul_first_kernel<T, A_TYPE, B_TYPE>,
            call.n_tiles(first::BLOCK_M, first::BLOCK_N)
        ),
        call.out, call.a, call.b, call.scale_a, call.scale_b, call.M, call.N, call.K,
        call.a_stride_row, call.b_stride_col, call.scale_a_stride, call.scale_b_stride
    );
}

template <typename T, Float8 A_TYPE, Float8 B_TYPE, int TILE>
cudaError_t launch_twin(const Launcher& launch, const Call& call) {
    using namespace twin;
    constexpr int BLOCK_M = SCALED_BLOCK_M;
    constexpr int BLOCK_N = SCALED_TILES[TILE].block_n;
    constexpr int NUM_STAGES = SCALED_TILES[TILE].num_stages;
    const auto
        [dtype, out, a, b, scale_a, scale_b, M, N, K, a_stride_row, b_stride_col,
         scale_a_stride, scale_b_stride] = call;
    TensorMap out_map = make_tensor_map<T>(out, 1, M, N, 0, N, BOX_SIZE);
    const int64_t n_copied_rows = M < BLOCK_M ? M : BLOCK_M;
    TensorMap a_map =
        make_tensor_map<uint8_t>(a, 1, M, K, 0, a_stride_row, n_copied_rows);
    TensorMap b_map = make_tensor_map<uint8_t>(b, 1, N, K, 0, b_stride_col, BLOCK_N);
    const bool out_is_aligned = have_vectors(dtype, {{out, N}});
    if (!launch.describes()) {
        cudaError_t error = encode_tensor_map<uint8_t>(&a_map);
        if (error == cudaSuccess) error = encode_tensor_map<uint8_t>(&b_map);
        if (error == cudaSuccess && out_is_aligned)
            error = encode_tensor_map<T>(&out_map);
        if (error != cudaSuccess) return error;
    }
    const int64_t n_tiles = call.n_tiles(BLOCK_M, BLOCK_N);
    const int64_t n_sms = launch.device().n_sms;
    const int64_t n_blocks = n_tiles < n_sms ? n_tiles : n_sms;
    // The blocks of a cluster lie on neighbouring multiprocessors, and their tiles, mostly,
    // below each other: what both read of b comes from the L2 once.
    const bool are_pairs = n_blocks == n_sms && n_sms % 2 == 0;
    return launch(
        Plan{
            .kernel = scaled_matmul_kernel<T, A_TYPE, B_TYPE, BLOCK_N, NUM_STAGES>,
            .grid = dim3(n_blocks),
            .block = dim3(SCALED_NUM_THREADS),
            .shared_bytes = sizeof(ScaledShared<BLOCK_N, NUM_STAGES>),
            .cluster = dim3(are_pairs ? 2 : 1)
        },
        out_map, a_map, b_map, scale_a, scale_b, out_is_aligned ? nullptr : out, M, N,
        K, scale_a_stride, scale_b_stride
    );
}

}  // namespace

cudaError_t scaled_matmul(
    const Launcher& launch, DType dtype, void* out, const void* a, const void* b,
    const void* scale_a, const void* scale_b, int64_t M, int64_t N, int64_t K,
    int64_t a_stride_row, int64_t b_stride_col, int64_t scale_a_stride,
    int64_t scale_b_stride, bool a_is_e5m2, bool b_is_e5m2, int rung
) {
    const Device& device = launch.device();
    const Call call{
        dtype,
        out,
        a,
        b,
        scale_a,
        scale_b,
        M,
        N,
        K,
        a_stride_row,
        b_stride_col,
        scale_a_stride,
        scale_b_stride
    };
    const bool has_tensor_maps = 0 < K && K <= MOST - twin::SCALED_BLOCK_K &&
                                 M <= MOST && N <= MOST &&
                                 call.n_tiles(twin::SCALED_BLOCK_M, 64) <= MOST;
    auto chosen = Rung::chosen;
    for (const Regime& regime : REGIMES) {
        const bool is_asked = rung == 0 || Rung{rung} == regime.rung;
        if (chosen == Rung::chosen && is_asked &&
            regime.serves(device, has_tensor_maps)) {
            chosen = regime.rung;
        }
    }
    if (chosen == Rung::chosen) return cudaErrorNotSupported;

    const int tile = choose_tile(call, device.n_sms);
    return dispatch_float<cudaError_t>(dtype, [&]<typename T>() {
        const auto start = [&]<Float8 A_TYPE, Float8 B_TYPE>() {
            if (chosen == Rung::first) {
                return launch_first<T, A_TYPE, B_TYPE>(launch, call);
            }
            return tile == 0 ? launch_twin<T, A_TYPE, B_TYPE, 0>(launch, call)
                             : launch_twin<T, A_TYPE, B_TYPE, 1>(launch, call);
        };
        // One of the types is e4m3.
        constexpr Float8 E4M3 = Float8::e4m3, E5M2 = Float8::e5m2;
        return a_is_e5m2   ? start.template operator()<E5M2, E4M3>()
               : b_is_e5m2 ? start.template operator()<E4M3, E5M2>()
                           : start.template operator()<E4M3, E4M3>();
    });
}
