// The twin: its tiles, and how a call is cut up into them.
#pragma once

#include "attention/regimes.cuh"
#include "attention/twin.cuh"
#include "common/table.cuh"
#include "common/tensor_map_4d.cuh"

// A tile of the twin, and the calls that it is for.
struct AttentionTile {
    int head_dim;  // the largest that it is for
    int block_m;
    int block_n;
    int num_stages;
    int64_t min_queries = 0;

    template <typename T>
    constexpr bool is_for() const {
        return true;
    }
    constexpr bool serves(const Device&, const AttentionCall& call) const {
        return call.head_dim <= head_dim && min_queries <= call.n_queries;
    }
};

// Registers bound a tile, which holds scores, their exponentials and sums for out.
constexpr AttentionTile TWIN_TILES[] = {
    {.head_dim = 64,
     .block_m = 192,
     .block_n = 128,
     .num_stages = 4,
     .min_queries = 129},
    {.head_dim = 64, .block_m = 128, .block_n = 128, .num_stages = 4},
    {.head_dim = 96, .block_m = 128, .block_n = 128, .num_stages = 2},
    {.head_dim = 128, .block_m = 128, .block_n = 128, .num_stages = 2},
    {.head_dim = 192, .block_m = 128, .block_n = 80, .num_stages = 2},
    {.head_dim = 256, .block_m = 128, .block_n = 80, .num_stages = 2},
};

// How many heads are computed at a time, so that they read no more than the L2 can keep: each
// two matrices of n_rows rows, and as many heads as `sharing` the same ones.
inline int64_t heads_in_l2(
    int64_t n_all_heads, int64_t n_rows, int64_t row_bytes, int64_t sharing
) {
    constexpr int64_t L2_BYTES = 32 << 20;
    const int64_t n_heads = ceil_div(L2_BYTES, 2 * n_rows * row_bytes) * sharing;
    return n_heads < n_all_heads ? n_heads : n_all_heads;
}

template <typename T>
cudaError_t launch_twin(
    const Launcher& launch, const AttentionCall& call, void* lse, void* n_taken,
    const HeadRows& out_rows, const HeadRows& q_rows, const HeadRows& k_rows,
    const HeadRows& v_rows, float scale, int64_t window_left, int64_t window_right
) {
    const int64_t n_batches = q_rows.n_batches, n_queries = q_rows.n_rows;
    const int64_t n_heads = q_rows.n_heads, head_dim = q_rows.n_cols;
    const int64_t n_keys = k_rows.n_rows, n_kv_heads = k_rows.n_heads;
    const Device& device = launch.device();
    const auto start_tile = [&]<AttentionTile TILE>() {
        constexpr int BLOCK_M = TILE.block_m, BLOCK_N = TILE.block_n;
        constexpr int HEAD_DIM = TILE.head_dim, NUM_STAGES = TILE.num_stages;
        using Shared = twin::AttentionShared<HEAD_DIM, BLOCK_M, BLOCK_N, NUM_STAGES>;
        TensorMap4D out_map = make_tensor_map<T>(out_rows, twin::BOX_SIZE);
        TensorMap4D q_map = make_tensor_map<T>(q_rows, twin::BOX_SIZE);
        TensorMap4D k_map = make_tensor_map<T>(k_rows, BLOCK_N);
        TensorMap4D v_map = make_tensor_map<T>(v_rows, BLOCK_N);
        for (TensorMap4D* map : {&out_map, &q_map, &k_map, &v_map}) {
            if (launch.describes()) break;
            if (const cudaError_t error = encode_tensor_map<T>(map)) return error;
        }
        const int64_t n_all_heads = n_batches * n_heads;
        const int64_t n_tiles = n_all_heads * ceil_div(n_queries, BLOCK_M);
        const int64_t open = n_queries + n_keys;
        const bool are_even = window_left >= open && window_right >= open;
        void* const count = are_even || n_tiles <= device.n_sms ? nullptr : n_taken;
        if (count != nullptr) {
            const Plan plan{attention_count_kernel<T>, dim3(1), dim3(1)};
            if (const cudaError_t error = launch(plan, count)) return error;
        }
        return launch(
            Plan{
                attention_kernel<T, HEAD_DIM, BLOCK_M, BLOCK_N, NUM_STAGES>,
                dim3(n_tiles < device.n_sms ? n_tiles : device.n_sms),
                dim3(twin::NUM_THREADS<BLOCK_M>), sizeof(Shared)
            },
            out_map, lse, count, q_map, k_map, v_map, n_batches, n_heads, n_kv_heads,
            n_queries, n_keys,
            heads_in_l2(
                n_all_heads, n_keys, head_dim * sizeof(T), n_heads / n_kv_heads
            ),
            scale, window_left, window_right
        );
    };
    return choose_tile<T, TWIN_TILES>(launch.device(), call, start_tile);
}
