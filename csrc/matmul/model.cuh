// What matmul's last two rungs cut a call into: the tiles that take the least time by a model,
// in cycles of a multiprocessor.
//
// A block multiplies its steps as fast as the tensor cores or the L2 allow, or all blocks wait
// for the memory. Then come the ends of tiles, parts of tiles, and copies of operands.
// The numbers are fitted to times on an H200, which tests/matmul_times.json has: such that the
// fastest cut has the fewest cycles, even where that leaves some cycles a little wrong.
// triton_kernels/matmul/model.py is the same model; there, only the twin reads copies.
#pragma once

#include <cstdint>

#include "common/table.cuh"
#include "matmul/call.cuh"

namespace model {

constexpr int64_t STEP_BYTES = 128;  // of a row of a or b, in a step of the twin
constexpr int64_t LINE_BYTES = 128;  // of the L2
constexpr int64_t L2_BYTES = 9400, MEMORY_BYTES = 2400;  // in a cycle
// What each row or column of a tile that lies outside of a or b adds to a step.
constexpr int64_t OUTER_CYCLES = 2;
// How much longer steps take where blocks begin within tiles, each at another k.
constexpr int64_t UNEVEN_PERCENT = 29;
// How much longer steps take where elements of a and b come one by one.
constexpr int64_t SINGLE_PERCENT = 160;
// What out costs where its rows are not aligned, for 1024 elements of a tile.
constexpr int64_t SINGLE_STORE_CYCLES = 340;
// A launch that adds parts of tiles, one that copies operands to aligned rows, and how many
// bytes of parts are written or read in a cycle.
constexpr int64_t SUM_CYCLES = 3500, ALIGN_CYCLES = 8200, PART_BYTES = 2000;
constexpr int64_t MOST_PARTS = 64;       // of a tile, where all have as many
constexpr int64_t MOST_STEPS = 1 << 18;  // thousands of them are counted in 32 bits
// Sums that there is memory for, for each multiprocessor.
constexpr int64_t MOST_SUMS = 2 * 128 * 256;
constexpr int64_t SUM_BYTES = 4;

constexpr int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }
constexpr int64_t most(int64_t a, int64_t b) { return a > b ? a : b; }

// The fewest cycles that the memory takes.
constexpr int64_t memory_cycles(const Call& call) {
    const int64_t n_elements =
        call.n_batches * (call.M * call.K + call.K * call.N + call.M * call.N);
    return n_elements * call.element_bytes() / MEMORY_BYTES;
}

// Parts of tiles, which are written once and read once.
constexpr int64_t sum_cycles(const Cut& cut, int64_t tile_size) {
    const int64_t n_bytes = 2 * cut.n_blocks * tile_size * SUM_BYTES;
    return cut.n_streamed == 0 ? 0 : SUM_CYCLES + n_bytes / PART_BYTES;
}

// Copies of operands.
constexpr int64_t align_cycles(const Call& call) {
    const int64_t n_bytes = 2 * call.n_copied * call.element_bytes();
    return call.n_copied == 0 ? 0 : ALIGN_CYCLES + n_bytes / MEMORY_BYTES;
}

}  // namespace model

// A tile of the twin, and the cycles that it takes.
struct MatmulTile {
    int block_m;
    int block_n;
    int num_stages;
    int64_t step_cycles;  // where the L2 keeps up
    int64_t tile_cycles;  // between two tiles
    int64_t ends_cycles;  // before the first step and after the last one

    template <typename T>
    constexpr bool is_for() const {
        return true;
    }
    constexpr bool serves(const Device&, const MatmulTile& chosen) const {
        return block_m == chosen.block_m && block_n == chosen.block_n;
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
            ceil_div(call.n_tiles(block_m, block_n) - n_streamed, n_blocks);
        const int64_t n_shared_steps = ceil_div(n_streamed * n_steps, n_blocks);

        // Where all tiles have as many parts of as many steps, no block begins within one.
        const int64_t n_parts = n_streamed == 0 ? 1 : n_blocks / n_streamed;
        const bool is_even = n_streamed <= 1 || (n_parts * n_streamed == n_blocks &&
                                                 n_steps % n_parts == 0);

        // A row of a box, a line's bytes, lies in two lines where it does not begin one.
        const int64_t n_loaded =
            block_m * (2 - call.a_has_lines) + block_n * (2 - call.b_has_lines);
        const int64_t step_bytes =
            n_loaded * least(call.K * call.element_bytes(), STEP_BYTES);
        const int64_t step = most(step_cycles, n_blocks * step_bytes / L2_BYTES) *
                             (is_even ? 100 : 100 + UNEVEN_PERCENT) / 100;
        const int64_t n_outer = most(block_m - call.M, 0) + most(block_n - call.N, 0);
        const int64_t n_block_steps = n_whole * n_steps + n_shared_steps;
        int64_t n_tiles = n_whole;
        if (n_streamed > 0) n_tiles += ceil_div(n_streamed, n_blocks) + !is_even;
        int64_t each_cycles = tile_cycles;
        if (!call.out_is_aligned) {
            each_cycles += block_m * block_n * SINGLE_STORE_CYCLES / 1024;
        }
        return most(n_block_steps * step, memory_cycles(call)) +
               n_block_steps * n_outer * OUTER_CYCLES + ends_cycles - tile_cycles +
               n_tiles * each_cycles + sum_cycles(cut, block_m * block_n) +
               align_cycles(call);
    }

    // Calls `consider` with the cuts that are worth it, those without parts first.
    template <typename Consider>
    constexpr void for_each_cut(
        const Call& call, int tile, int64_t n_sms, bool may_share, Consider&& consider
    ) const {
        using namespace model;
        const int64_t n_tiles = call.n_tiles(block_m, block_n);
        const int64_t n_steps = ceil_div(call.K, step_of(call));
        const int64_t n_left = n_tiles % n_sms;
        consider(Cut{tile, least(n_tiles, n_sms), 0});
        if (!may_share || n_steps == 1 || n_steps > MOST_STEPS || n_left == 0) return;
        if (n_tiles > n_sms) {
            if (n_left * n_steps >= n_sms) consider(Cut{tile, n_sms, n_left});
            consider(Cut{tile, n_sms, n_left + n_sms});
            return;
        }
        for (int64_t n_parts = 2; n_parts <= MOST_PARTS; ++n_parts) {
            if (n_parts > n_steps || n_parts * n_tiles > n_sms) break;
            consider(Cut{tile, n_parts * n_tiles, n_tiles});
        }
        if (n_tiles * n_steps >= n_sms) consider(Cut{tile, n_sms, n_tiles});
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
        const int64_t percent = 100 + (call.are_aligned ? 0 : SINGLE_PERCENT);
        int64_t each_cycles = tile_cycles;
        if (!call.out_is_aligned && n_parts == 1) {
            each_cycles += block_m * block_n * SINGLE_STORE_CYCLES / 1024;
        }
        const int64_t n_busy = blocks_per_sm * n_steps * busy_cycles * percent / 100 +
                               most(blocks_per_sm - 2, 0) * each_cycles;
        return most(
                   most(n_steps * step_cycles * percent / 100, n_busy),
                   memory_cycles(call)
               ) +
               ends_cycles + sum_cycles(cut, block_m * block_n);
    }

    template <typename Consider>
    constexpr void for_each_cut(
        const Call& call, int tile, int64_t n_sms, bool may_share, Consider&& consider
    ) const {
        using namespace model;
        if (element_bytes != 0 && element_bytes != call.element_bytes()) return;
        const int64_t n_tiles = call.n_tiles(block_m, block_n);
        const int64_t n_steps = steps_of_part(call, 1);
        consider(Cut{tile, n_tiles, 0});
        if (!may_share || n_steps > MOST_STEPS) return;
        for (int64_t n_parts = 2; n_parts <= least(n_steps, MOST_PARTS); ++n_parts) {
            // No part is without a step, and there is memory for all.
            if ((n_parts - 1) * steps_of_part(call, n_parts) >= n_steps) continue;
            if (2 * n_parts * n_tiles * block_m * block_n > n_sms * MOST_SUMS) break;
            consider(Cut{tile, n_parts * n_tiles, n_tiles});
        }
    }
};

namespace model {

// A cut, and how long it takes.
struct Choice {
    Cut cut;
    int64_t n_cycles;
};

// The cut into tiles of a table that takes the least time, of several the first.
template <const auto& TABLE>
constexpr Choice choose(const Call& call, int64_t n_sms, bool may_share) {
    Choice best{{}, INT64_MAX};
    for (int tile = 0; tile < int{std::size(TABLE)}; ++tile) {
        TABLE[tile].for_each_cut(call, tile, n_sms, may_share, [&](const Cut& cut) {
            const int64_t n_cycles = TABLE[tile].cycles(call, cut, n_sms);
            if (n_cycles < best.n_cycles) best = {cut, n_cycles};
        });
    }
    return best;
}

}  // namespace model
