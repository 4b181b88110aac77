// The tiles of matmul's last two rungs. The cycles are fitted to times on an H200, those of
// tests/matmul_times.json and of the drawn products in records: such that the fastest cut has
// the fewest, even where that leaves some a little wrong.
#pragma once

#include "matmul/model_tiles.cuh"

// All stages take nearly 200 KB. Clusters, the last two numbers, take longer to begin and to end.
constexpr MatmulTile TILES[] = {
    {128, 256, 4, 1040, 1250, 5750},       {128, 128, 6, 565, 800, 6100},
    {64, 256, 5, 630, 930, 5350},          {64, 128, 8, 370, 530, 5150},
    {128, 64, 8, 420, 600, 5600},          {64, 64, 12, 185, 460, 5000},
    {128, 256, 4, 1040, 1250, 6750, 2, 1}, {128, 256, 4, 1040, 1250, 6750, 4, 1},
    {128, 128, 6, 565, 800, 7100, 2, 1},   {128, 128, 6, 565, 800, 7100, 1, 2},
    {128, 128, 6, 565, 800, 7100, 4, 1},   {128, 128, 6, 565, 800, 7100, 1, 4},
    {64, 256, 5, 630, 930, 6350, 4, 1},    {64, 128, 8, 370, 530, 6150, 2, 1},
    {64, 128, 8, 370, 530, 6150, 4, 1},    {128, 64, 8, 420, 600, 6600, 1, 4},
    {64, 64, 12, 185, 460, 6000, 4, 1},    {64, 64, 12, 185, 460, 6000, 1, 4},
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

// Small products wait for the memory, so that as many bytes are on their way as 99 KB allow.
// The last ones are for all dtypes.
constexpr RungTile TENSOR_CORES_TILES[] = {
    {32, 32, 128, 2, 2, 5, 830, 620, 300, 3160, 2},
    {16, 64, 128, 1, 4, 4, 920, 740, 300, 2690, 2},
    {64, 16, 128, 4, 1, 4, 780, 750, 300, 3000, 2},
    {64, 32, 128, 4, 1, 4, 1040, 910, 300, 3140, 2},
    {32, 64, 128, 2, 2, 4, 1070, 940, 300, 2980, 2},
    {64, 64, 64, 2, 2, 6, 900, 610, 300, 3480},
    {128, 128, 64, 2, 4, 3, 1670, 2090, 300, 5550},
};
