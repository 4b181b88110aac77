// The tiles of matmul's rungs but the first. The cycles of the last two are fitted to times on
// an H200, those of tests/matmul_times.json and of cuts of drawn products: such that the
// fastest cut has the fewest, even where that leaves some a little wrong.
#pragma once

#include "matmul/model_tiles.cuh"

// All stages take up to 200 KB. Clusters, the last two numbers, take longer to begin and to end.
constexpr MatmulTile TILES[] = {
    {128, 256, 4, 1020, 1180, 7980},        {128, 128, 6, 610, 1050, 6040},
    {64, 256, 5, 620, 980, 6360},           {64, 128, 8, 370, 860, 5640},
    {128, 64, 8, 350, 560, 6100},           {64, 64, 12, 250, 1860, 5260},
    {128, 256, 4, 1020, 1180, 10430, 2, 1}, {128, 256, 4, 1020, 1180, 8800, 4, 1},
    {128, 128, 6, 610, 1050, 7250, 2, 1},   {128, 128, 6, 610, 1050, 7250, 1, 2},
    {128, 128, 6, 610, 1050, 5970, 4, 1},   {128, 128, 6, 610, 1050, 5970, 1, 4},
    {64, 256, 5, 620, 980, 6930, 4, 1},     {64, 128, 8, 370, 860, 6720, 2, 1},
    {64, 128, 8, 370, 860, 5410, 4, 1},     {128, 64, 8, 350, 560, 7070, 1, 4},
    {64, 64, 12, 250, 1860, 6320, 4, 1},    {64, 64, 12, 250, 1860, 6320, 1, 4},
    {128, 192, 4, 870, 1765, 7060},         {128, 192, 4, 870, 1765, 7750, 2, 1},
    {128, 192, 4, 870, 1765, 6290, 4, 1},
};

// Of float32, whose tiles' rows are those of the left operand. Two warpgroups have 64 of them
// each: one is at its epilogue while the other multiplies.
constexpr MatmulTile TF32_TILES[] = {
    {128, 256, 4, 1150, 3000, 9000},
    {128, 128, 6, 790, 1600, 8000},
    {128, 64, 8, 580, 1000, 7500},
};
constexpr MatmulTile TF32X3_TILES[] = {
    {128, 128, 4, 2150, 1600, 8500},
    {128, 64, 6, 1700, 1000, 8000},
};

// Of float32 by IEEE 754. Of an entry of K, cycles are those of large products on an H200; all
// else is guessed, and little. A multiprocessor has two blocks of the first two, and of the
// second tile one that has it alone takes longer. The last tile takes more shared memory than
// some GPUs have.
constexpr TiledTile TILED_TILES[] = {
    {128, 128, 195, 195, 5000},
    {64, 256, 178, 205, 5000},
    {128, 256, 335, 335, 7000},
};
constexpr TiledTile SMALL_TILED_TILES[] = {TILED_TILES[0], TILED_TILES[1]};

// Small products wait for the memory, so that as many bytes are on their way as 99 KB allow.
// The last ones are for all dtypes.
constexpr RungTile TENSOR_CORES_TILES[] = {
    {32, 32, 128, 2, 2, 5, 730, 700, 0, 2960, 2},
    {16, 64, 128, 1, 4, 4, 380, 800, 260, 2940, 2},
    {64, 16, 128, 4, 1, 4, 880, 760, 350, 2830, 2},
    {64, 32, 128, 4, 1, 4, 1070, 1010, 500, 3010, 2},
    {32, 64, 128, 2, 2, 4, 1070, 1060, 140, 3010, 2},
    {64, 64, 64, 2, 2, 6, 670, 570, 460, 3610},
    {128, 128, 64, 2, 4, 3, 1700, 1430, 1170, 5490},
};
