// The tiles of matmul's rungs but the first: the cuts into them, and the cycles that these take
// by the model.
#pragma once

#include <cstdint>

#include "matmul/call.cuh"
#include "matmul/model.cuh"

// A tile of the twin, and the cycles that it takes. The blocks of a cluster share what they load,
// and count as one with as many tiles side by side.
struct MatmulTile {
    int block_m;
    int block_n;
    int num_stages;
    int64_t step_cycles;   // where the L2 keeps up
    int64_t tile_cycles;   // between two tiles
    int64_t ends_cycles;   // before the first step and after the last one
    int cluster_rows = 1;  // blocks of a cluster, in a column of out or in a row
    int cluster_cols = 1;

    template <typename T>
    constexpr bool is_for() const {
        return true;
    }
    constexpr bool serves(const Device&, const MatmulTile& chosen) const {
        return block_m == chosen.block_m && block_n == chosen.block_n;
    }

    constexpr int cluster_size() const { return cluster_rows * cluster_cols; }
    // The tile of a cluster.
    constexpr int cluster_m() const { return cluster_rows * block_m; }
    constexpr int cluster_n() const { return cluster_cols * block_n; }

    // Clusters that run at a time.
    constexpr int64_t n_clusters(int64_t n_sms) const {
        const int64_t n_apart = n_sms / cluster_size();
        return cluster_size() < 4 ? n_apart : n_apart * model::IN_FOURS_PERCENT / 100;
    }
    // It helps where boxes take long, and more than half of its blocks have a tile.
    constexpr bool may_serve(const Call& call) const {
        if (cluster_size() == 1) return true;
        return !(call.a_has_lines && call.b_has_lines) &&
               ceil_div(call.M, block_m) > cluster_rows / 2 &&
               ceil_div(call.N, block_n) > cluster_cols / 2;
    }

    // Elements of k in a step.
    static constexpr int64_t step_of(const Call& call) {
        return model::STEP_BYTES / call.element_bytes();
    }

    constexpr int64_t cycles(const Call& call, const Cut& cut, int64_t) const {
        using namespace model;
        const auto [_, n_blocks, n_streamed] = cut;
        const int64_t n_steps = ceil_div(call.K, step_of(call));
        const int64_t n_whole =
            ceil_div(call.n_tiles(cluster_m(), cluster_n()) - n_streamed, n_blocks);
        const int64_t n_shared_steps = ceil_div(n_streamed * n_steps, n_blocks);

        // Where all tiles have as many parts of as many steps, no block begins within one.
        const int64_t n_parts = n_streamed == 0 ? 1 : n_blocks / n_streamed;
        const bool is_even = n_streamed <= 1 || (n_parts * n_streamed == n_blocks &&
                                                 n_steps % n_parts == 0);

        // A row of a box, a line's bytes, lies in two lines where it does not begin one.
        // The blocks of a cluster load each row once.
        // That of float32 copies rows that lie outside of a or b as well.
        const bool loads_all = call.dtype == DType::float32;
        const int64_t n_rows = loads_all ? cluster_m() : least(cluster_m(), call.M);
        const int64_t n_cols = loads_all ? cluster_n() : least(cluster_n(), call.N);
        const int64_t n_loaded =
            n_rows * (2 - call.a_has_lines) + n_cols * (2 - call.b_has_lines);
        const int64_t n_unlined =
            (call.a_has_lines ? 0 : least(block_m, n_rows) / cluster_cols) +
            (call.b_has_lines ? 0 : least(block_n, n_cols) / cluster_rows);
        const int64_t row_cycles = n_unlined * UNLINED_ROW_TENTHS / 10;
        const int64_t step_bytes =
            n_loaded * least(call.K * call.element_bytes(), STEP_BYTES);
        const int64_t loading = most(row_cycles, n_blocks * step_bytes / L2_BYTES);
        const int64_t step =
            most(step_cycles, loading) * (is_even ? 100 : 100 + UNEVEN_PERCENT) / 100;
        const int64_t n_outer = most(n_rows - call.M, 0) + most(n_cols - call.N, 0);
        const int64_t n_block_steps = n_whole * n_steps + n_shared_steps;
        int64_t n_tiles = n_whole;
        if (n_streamed > 0) n_tiles += ceil_div(n_streamed, n_blocks) + !is_even;
        int64_t each_cycles = tile_cycles;
        if (!call.out_is_aligned) {
            each_cycles += block_m * block_n * SINGLE_STORE_CYCLES / 1024;
        }
        const int64_t memory =
            memory_cycles(call, cluster_size() == 1 ? UNLINED_TWIN_PERCENT : 0);
        return most(n_block_steps * step, memory) +
               n_block_steps * n_outer * OUTER_CYCLES + ends_cycles - tile_cycles +
               n_tiles * each_cycles + sum_cycles(cut, cluster_m() * cluster_n()) +
               align_cycles(call);
    }

    // Calls `consider` with the cuts that are worth it, those without parts first.
    template <typename Consider>
    constexpr void for_each_cut(
        const Call& call, int tile, int64_t n_sms, bool may_share, Consider&& consider
    ) const {
        using namespace model;
        if (!may_serve(call)) return;
        const int64_t n_tiles = call.n_tiles(cluster_m(), cluster_n());
        const int64_t n_steps = ceil_div(call.K, step_of(call));
        const int64_t n_blocks = n_clusters(n_sms);
        const int64_t n_left = n_tiles % n_blocks;
        consider(Cut{tile, least(n_tiles, n_blocks), 0});
        if (!may_share || n_steps == 1 || n_steps > MOST_STEPS || n_left == 0) return;
        if (n_tiles > n_blocks) {
            if (n_left * n_steps >= n_blocks) consider(Cut{tile, n_blocks, n_left});
            consider(Cut{tile, n_blocks, n_left + n_blocks});
            return;
        }
        for (int64_t n_parts = 2; n_parts <= MOST_PARTS; ++n_parts) {
            if (n_parts > n_steps || n_parts * n_tiles > n_blocks) break;
            consider(Cut{tile, n_parts * n_tiles, n_tiles});
        }
        if (n_tiles * n_steps >= n_blocks) consider(Cut{tile, n_blocks, n_tiles});
    }
};

// A tile of the rung tiled, for float32 by IEEE 754, whose parts have whole sums.
struct TiledTile {
    int block_m;
    int block_n;
    int64_t k_cycles;      // of each entry of K
    int64_t alone_cycles;  // where a multiprocessor has no other block
    int64_t tile_cycles;   // of all else

    template <typename T>
    constexpr bool is_for() const {
        return true;
    }
    constexpr bool serves(const Device&, const TiledTile& chosen) const {
        return block_m == chosen.block_m && block_n == chosen.block_n;
    }

    // How many sums over K each of n_parts has.
    static constexpr int64_t sums_of_part(const Call& call, int64_t n_parts) {
        return ceil_div(ceil_div(call.K, model::K_PER_SUM), n_parts);
    }

    constexpr int64_t cycles(const Call& call, const Cut& cut, int64_t n_sms) const {
        using namespace model;
        const int64_t n_parts = cut.n_streamed == 0 ? 1 : cut.n_blocks / cut.n_streamed;
        const int64_t n_k = least(call.K, sums_of_part(call, n_parts) * K_PER_SUM);
        const int64_t blocks_per_sm = ceil_div(cut.n_blocks, n_sms);
        return n_k * most(blocks_per_sm * k_cycles, alone_cycles) +
               blocks_per_sm * tile_cycles + sum_cycles(cut, block_m * block_n);
    }

    template <typename Consider>
    constexpr void for_each_cut(
        const Call& call, int tile, int64_t n_sms, bool may_share, Consider&& consider
    ) const {
        const Cut whole{tile, call.n_tiles(block_m, block_n), 0};
        const int64_t n_sums = may_share ? sums_of_part(call, 1) : 1;
        model::for_each_even_cut(whole, block_m * block_n, n_sums, n_sms, consider);
    }
};

// A tile of the rung tensor_cores.
struct RungTile {
    int block_m;
    int block_n;
    int block_k;  // a step, in elements of 2 bytes; of float32, half as many
    int warps_m;  // that share its rows
    int warps_n;
    int num_stages;
    int64_t step_cycles;    // where a multiprocessor has no other block
    int64_t busy_cycles;    // for each of those that it has
    int64_t tile_cycles;    // of each behind the first two, other than steps
    int64_t ends_cycles;    // before the first step and after the last one
    int element_bytes = 0;  // of which dtypes; 0: all

    template <typename T>
    constexpr bool is_for() const {
        return element_bytes == 0 || element_bytes == sizeof(T);
    }
    constexpr bool serves(const Device&, const RungTile& chosen) const {
        return block_m == chosen.block_m && block_n == chosen.block_n;
    }

    // How many steps each of n_parts has.
    constexpr int64_t steps_of_part(const Call& call, int64_t n_parts) const {
        const int64_t step = block_k * 2 / call.element_bytes();
        return ceil_div(ceil_div(call.K, step), n_parts);
    }

    constexpr int64_t cycles(const Call& call, const Cut& cut, int64_t n_sms) const {
        using namespace model;
        const int64_t n_parts = cut.n_streamed == 0 ? 1 : cut.n_blocks / cut.n_streamed;
        const int64_t n_steps = steps_of_part(call, n_parts);
        const int64_t blocks_per_sm = ceil_div(cut.n_blocks, n_sms);
        const int64_t percent = 100 + (call.are_aligned ? 0
                                       : call.has_words ? WORD_PERCENT
                                                        : SINGLE_PERCENT);
        int64_t each_cycles = tile_cycles;
        if (!call.out_is_aligned && n_parts == 1) {
            each_cycles += block_m * block_n * SINGLE_STORE_CYCLES / 1024;
        }
        const int64_t n_busy = blocks_per_sm * n_steps * busy_cycles * percent / 100 +
                               most(blocks_per_sm - 2, 0) * each_cycles;
        const int64_t memory =
            memory_cycles(call, call.are_aligned ? UNLINED_PERCENT : 0);
        return most(most(n_steps * step_cycles * percent / 100, n_busy), memory) +
               ends_cycles + sum_cycles(cut, block_m * block_n);
    }

    template <typename Consider>
    constexpr void for_each_cut(
        const Call& call, int tile, int64_t n_sms, bool may_share, Consider&& consider
    ) const {
        if (element_bytes != 0 && element_bytes != call.element_bytes()) return;
        const Cut whole{tile, call.n_tiles(block_m, block_n), 0};
        const int64_t n_steps = may_share ? steps_of_part(call, 1) : 1;
        model::for_each_even_cut(whole, block_m * block_n, n_steps, n_sms, consider);
    }
};
