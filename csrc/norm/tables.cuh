// How rows of both norms are cut up, and the launch that it takes.
#pragma once

#include "common/launch.cuh"
#include "common/table.cuh"
#include "norm/long.cuh"
#include "norm/twin.cuh"

// Rows in registers: longest row, elements a thread, threads a row, bytes of an element.
// Short rows share a block; of long ones few threads have nothing.
constexpr RowTile NORM_TILES[] = {
    {64, 8, 8},          {128, 8, 16},     {256, 8, 32},        {512, 16, 32},
    {1024, 8, 128},      {2048, 16, 128},  {4096, 8, 512, 4},   {4096, 32, 128, 2},
    {5120, 32, 160},     {6144, 32, 192},  {8192, 32, 256},     {12288, 32, 384, 4},
    {12288, 48, 256, 2}, {16384, 32, 512}, {24576, 32, 768, 4}, {32768, 32, 1024, 4},
};

// Longer rows in registers, of which a mean would leave none for weight and bias.
constexpr RowTile NO_MEAN_TILE{51200, 100, 512, 4};

// Short rows with a mean, in vectors of 2-byte elements, which leave little time for
// two reductions: the fewer threads share a row, the fewer steps a reduction has.
constexpr RowTile NARROW_TILES[] = {
    {64, 16, 4},   {96, 24, 4},   {128, 32, 4},  {192, 24, 8},   {256, 32, 8},
    {384, 24, 16}, {512, 32, 16}, {768, 24, 32}, {1024, 32, 32}, {1536, 48, 32},
};

// Rows that are read twice: longest row, elements that a thread works on at a time,
// threads. Where a block reads a row in one step, two share a multiprocessor.
constexpr RowTile LONG_TILES[] = {
    {32768, 32, 1024, 2},
    {LONGEST, 64, 1024, 2},
    {LONGEST, 32, 1024, 4},
};

// Starts what the tables choose, in vectors of VEC_SIZE or element by element.
template <typename T, int VEC_SIZE, bool HAS_MEAN, typename Start>
cudaError_t launch_norm(
    const Device& device, int64_t n_rows, int64_t n_cols, int rung, Start&& start
) {
    const auto in_registers = [&]<RowTile TILE> {
        constexpr int VECS = TILE.elements_per_thread / VEC_SIZE;
        constexpr int THREADS_PER_ROW = TILE.threads_per_row;
        const auto kernel = norm_kernel<T, VEC_SIZE, VECS, THREADS_PER_ROW, HAS_MEAN>;
        return start(plan_rows<TILE>(kernel, n_rows));
    };
    if constexpr (HAS_MEAN && VEC_SIZE > 1 && sizeof(T) == 2) {
        if (n_cols <= longest_row<T>(NARROW_TILES)) {
            return choose_tile<T, NARROW_TILES>(device, n_cols, in_registers);
        }
    }
    if (n_cols <= longest_row<T>(NORM_TILES)) {
        return choose_tile<T, NORM_TILES>(device, n_cols, in_registers);
    }
    if constexpr (!HAS_MEAN && NO_MEAN_TILE.is_for<T>()) {
        constexpr RowTile TILE = NO_MEAN_TILE;
        if (n_cols <= TILE.max_cols) return in_registers.template operator()<TILE>();
    }
    if (Rung{rung} == Rung::twin) return cudaErrorNotSupported;
    return choose_tile<T, LONG_TILES>(device, n_cols, [&]<RowTile TILE> {
        constexpr int ELEMENTS = TILE.elements_per_thread;
        constexpr int NUM_THREADS = TILE.threads_per_row;
        const auto kernel =
            norm_long_kernel<T, VEC_SIZE, ELEMENTS, NUM_THREADS, HAS_MEAN>;
        return start(Plan{kernel, dim3(n_rows), dim3(NUM_THREADS)});
    });
}
