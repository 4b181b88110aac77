// The tiles of matmul's twin, and which of them a call is cut into: those that take the least
// time by a model, in cycles of a multiprocessor.
//
// A block multiplies its steps, each 64 of k, as fast as the tensor cores or the L2 allow, or
// all blocks wait for the memory. Then come the ends of tiles, and what parts of tiles cost.
// The numbers are fitted to times on an H200, which tests/matmul_times.json has: such that the
// fastest cut has the fewest cycles, even where that leaves some cycles a little wrong.
// triton_kernels/matmul/model.py is the same model.
#pragma once

#include <cstdint>

#include "common/dtype.cuh"
#include "common/launch.cuh"

// What rung, tile and cut are chosen by.
struct Call {
    DType dtype;
    bool tf32;
    int64_t n_batches, M, N, K;
    bool has_tensor_maps;  // out, a and b
    bool a_has_lines;  // each row, or column, begins a line of the L2 if the first does
    bool b_has_lines;

    constexpr int64_t n_tiles(int block_m, int block_n) const {
        return n_batches * ceil_div(M, block_m) * ceil_div(N, block_n);
    }
};

// How a call is cut up. Blocks share the steps of the first n_streamed tiles, 0 or as many that
// no block is left without a step.
struct Cut {
    int tile;  // its place in TILES
    int64_t n_blocks;
    int64_t n_streamed;
};

// A tile of the twin, and the cycles that it takes.
struct MatmulTile {
    int block_m;
    int block_n;
    int num_stages;
    int64_t step_cycles;  // of 64 of k, where the L2 keeps up
    int64_t tile_cycles;  // between two tiles
    int64_t ends_cycles;  // before the first step and after the last one

    template <typename T>
    constexpr bool is_for() const {
        return true;
    }
    constexpr bool serves(const Device&, const MatmulTile& chosen) const {
        return block_m == chosen.block_m && block_n == chosen.block_n;
    }
};

// All stages take nearly 200 KB.
constexpr MatmulTile TILES[] = {
    {128, 256, 4, 1040, 1250, 5750}, {128, 128, 6, 565, 800, 6100},
    {64, 256, 5, 630, 930, 5350},    {64, 128, 8, 370, 530, 5150},
    {128, 64, 8, 420, 600, 5600},    {64, 64, 12, 185, 460, 5000},
};

namespace model {

constexpr int64_t STEP = 64;       // of k
constexpr int64_t LINE_SIZE = 64;  // elements of 2 bytes in a line of the L2
constexpr int64_t L2_BYTES = 9400, MEMORY_BYTES = 2400;  // in a cycle
// What each row or column of a tile that lies outside of a or b adds to a step.
constexpr int64_t OUTER_CYCLES = 2;
// Of parts of tiles: what a multiprocessor writes or reads of them in a cycle, and how long it
// takes to start the counts, and to learn who comes last.
constexpr int64_t PART_BYTES = 28, PART_CYCLES = 4600;
// How much longer steps take where blocks begin within tiles, each at another k.
constexpr int64_t UNEVEN_PERCENT = 29;
constexpr int64_t MOST_PARTS = 32;  // of a tile, where all have as many
// Of a shared tile: four waves of them are counted in 32 bits.
constexpr int64_t MOST_STEPS = 1 << 21;

constexpr int64_t cycles(const Call& call, const Cut& cut) {
    const auto& [block_m, block_n, _, step_cycles, tile_cycles, ends_cycles] =
        TILES[cut.tile];
    const auto [tile, n_blocks, n_streamed] = cut;
    const auto least = [](int64_t a, int64_t b) { return a < b ? a : b; };
    const auto most = [](int64_t a, int64_t b) { return a > b ? a : b; };
    const int64_t n_steps = ceil_div(call.K, STEP);
    const int64_t n_whole =
        ceil_div(call.n_tiles(block_m, block_n) - n_streamed, n_blocks);
    const int64_t n_shared_steps = ceil_div(n_streamed * n_steps, n_blocks);

    // Where all tiles have as many parts of as many steps, no block begins within one.
    const int64_t n_parts = n_streamed == 0 ? 1 : n_blocks / n_streamed;
    const bool is_even =
        n_streamed <= 1 || (n_parts * n_streamed == n_blocks && n_steps % n_parts == 0);

    const int64_t element_bytes = 2;
    // A row of a box, a line's bytes, lies in two lines where it does not begin one.
    const int64_t n_loaded =
        block_m * (2 - call.a_has_lines) + block_n * (2 - call.b_has_lines);
    const int64_t step_bytes = n_loaded * least(call.K, STEP) * element_bytes;
    const int64_t step = most(step_cycles, n_blocks * step_bytes / L2_BYTES) *
                         (is_even ? 100 : 100 + UNEVEN_PERCENT) / 100;
    const int64_t n_elements =
        call.n_batches * (call.M * call.K + call.K * call.N + call.M * call.N);
    const int64_t bound = n_elements * element_bytes / MEMORY_BYTES;
    const int64_t n_outer = most(block_m - call.M, 0) + most(block_n - call.N, 0);
    const int64_t n_block_steps = n_whole * n_steps + n_shared_steps;
    const int64_t products =
        most(n_block_steps * step, bound) + n_block_steps * n_outer * OUTER_CYCLES;
    if (n_streamed == 0) return products + ends_cycles + (n_whole - 1) * tile_cycles;

    const int64_t parts_of_block = ceil_div(n_streamed, n_blocks) + !is_even;
    const int64_t parts_of_tile = ceil_div(n_blocks, n_streamed) + !is_even;
    const int64_t part_bytes = block_m * block_n * int64_t{sizeof(float)};
    return products + ends_cycles + (n_whole + parts_of_block - 1) * tile_cycles +
           PART_CYCLES + parts_of_tile * part_bytes / PART_BYTES;
}

// Calls `consider` with the cuts that are worth it, those without parts first.
template <typename Consider>
constexpr void for_each_cut(
    const Call& call, int tile, int64_t n_sms, bool may_share, Consider&& consider
) {
    const int64_t n_tiles = call.n_tiles(TILES[tile].block_m, TILES[tile].block_n);
    const int64_t n_steps = ceil_div(call.K, STEP), n_left = n_tiles % n_sms;
    consider(Cut{tile, n_tiles < n_sms ? n_tiles : n_sms, 0});
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

// The cut that takes the least time, of several the first.
constexpr Cut choose(const Call& call, int64_t n_sms, bool may_share) {
    Cut best{};
    int64_t least = INT64_MAX;
    for (int tile = 0; tile < int{std::size(TILES)}; ++tile) {
        for_each_cut(call, tile, n_sms, may_share, [&](const Cut& cut) {
            const int64_t n_cycles = cycles(call, cut);
            if (n_cycles < least) least = n_cycles, best = cut;
        });
    }
    return best;
}

}  // namespace model
