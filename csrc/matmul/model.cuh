// What matmul's rungs but the first cut a call into: the tiles that take the least time by a
// model, in cycles of a multiprocessor.
//
// A block multiplies its steps as fast as the tensor cores or the L2 allow, or all blocks wait
// for the memory. Then come the ends of tiles, parts of tiles, and copies of operands.
// The numbers are fitted to times on an H200, which tests/matmul_times.json has: such that the
// fastest cut has the fewest cycles, even where that leaves some cycles a little wrong.
// triton_kernels/matmul/model.py and model_tiled.py are the same model; there, only the twin
// reads copies.
#pragma once

#include <cstdint>

#include "common/table.cuh"
#include "matmul/call.cuh"

namespace model {

constexpr int64_t STEP_BYTES = 128;  // of a row of a or b, in a step of the twin
constexpr int64_t LINE_BYTES = 128;  // of the L2
// The rung tiled adds up the sums over so many entries of K: along a single chain of additions
// the rounding errors of thousands would pile up.
constexpr int64_t K_PER_SUM = 256;
// How much longer the memory takes for operands whose rows do not begin lines, so that two
// blocks read the line between them: on tensor_cores, and on the twin. The blocks of a
// cluster are neighbours.
constexpr int64_t UNLINED_PERCENT = 45, UNLINED_TWIN_PERCENT = 25;
// What a row of a box takes that lies in two lines, in tenths of a cycle.
constexpr int64_t UNLINED_ROW_TENTHS = 30;
// Of all multiprocessors, those that lie together in fours; an H200 has 120 of 132.
constexpr int64_t IN_FOURS_PERCENT = 91;
constexpr int64_t L2_BYTES = 9400, MEMORY_BYTES = 2400;  // in a cycle
// What each row or column of a tile that lies outside of a or b adds to a step of float32,
// whose twin copies all.
constexpr int64_t OUTER_CYCLES = 2;
// How much longer steps take where blocks begin within tiles, each at another k.
constexpr int64_t UNEVEN_PERCENT = 29;
// How much longer steps take where words of a and b come one by one, or elements.
constexpr int64_t WORD_PERCENT = 130, SINGLE_PERCENT = 140;
// What out costs where its rows are not aligned, for 1024 elements of a tile.
constexpr int64_t SINGLE_STORE_CYCLES = 340;
// A launch that adds parts of tiles, one that copies operands to aligned rows, and how many
// bytes of parts are written or read in a cycle.
constexpr int64_t SUM_CYCLES = 3500, ALIGN_CYCLES = 8200, PART_BYTES = 2000;
// A product that takes longer gains nothing where it begins while the launch before it ends,
// and its blocks are spread less evenly.
constexpr int64_t LONG_CYCLES = 50000;
constexpr int64_t MOST_PARTS = 64;       // of a tile, where all have as many
constexpr int64_t MOST_STEPS = 1 << 18;  // thousands of them are counted in 32 bits
// Sums that there is memory for, for each multiprocessor.
constexpr int64_t MOST_SUMS = 2 * 128 * 256;
constexpr int64_t SUM_BYTES = 4;

constexpr int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }
constexpr int64_t most(int64_t a, int64_t b) { return a > b ? a : b; }

// The fewest cycles that the memory takes.
constexpr int64_t memory_cycles(const Call& call, int64_t unlined_percent) {
    int64_t n_elements = call.M * call.K + call.K * call.N + call.M * call.N;
    if (!call.a_has_lines) n_elements += call.M * call.K * unlined_percent / 100;
    if (!call.b_has_lines) n_elements += call.K * call.N * unlined_percent / 100;
    return call.n_batches * n_elements * call.element_bytes() / MEMORY_BYTES;
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

// Calls `consider` with a cut into whole tiles of n_steps steps, and with those into tiles that
// all have as many parts: none is empty, and there is memory for them.
template <typename Consider>
constexpr void for_each_even_cut(
    const Cut& whole, int64_t tile_size, int64_t n_steps, int64_t n_sms,
    Consider&& consider
) {
    consider(whole);
    if (n_steps > MOST_STEPS) return;
    for (int64_t n_parts = 2; n_parts <= least(n_steps, MOST_PARTS); ++n_parts) {
        const int64_t n_blocks = n_parts * whole.n_blocks;
        if ((n_parts - 1) * ceil_div(n_steps, n_parts) >= n_steps) continue;
        if (2 * n_blocks * tile_size > n_sms * MOST_SUMS) break;
        consider(Cut{whole.tile, n_blocks, whole.n_blocks});
    }
}

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
