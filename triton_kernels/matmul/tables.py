"""The tiles of matmul's rungs."""

from typing import NamedTuple


class TiledTile(NamedTuple):
    """A tile of the rung tiled, how it is computed, and the cycles that it takes."""

    block_m: int
    block_n: int
    block_k: int
    num_stages: int  # steps whose a and b are in shared memory at a time
    num_warps: int
    k_cycles: int  # of each entry of K
    alone_cycles: int  # where a multiprocessor has no other program
    tile_cycles: int  # of all else
    b_is_left: bool = False


class TensorCoresTile(NamedTuple):
    """A tile of tensor_cores, how it is computed, and the cycles that it takes."""

    block_m: int
    block_n: int
    block_k: int  # a step, in elements of 2 bytes; of float32, half as many
    num_stages: int  # steps whose a and b are in shared memory at a time
    num_warps: int
    step_cycles: int  # where a multiprocessor has no other program
    busy_cycles: int  # for each of those that it has
    tile_cycles: int  # of each behind the first two, other than steps
    ends_cycles: int  # before the first step and after the last one
    element_bytes: int = 0  # of which dtypes; 0: all
    # By how much the memory takes longer for operands whose rows begin within lines:
    unlined_percent: int = 0  # CUDA's tiles have more, with which these were no better


class MatmulTile(NamedTuple):
    """A tile of the twin, how it is computed, and the cycles that it takes."""

    block_m: int
    block_n: int
    block_k: int  # a step, in elements of 2 bytes; of float32, half as many
    num_stages: int  # steps whose a and b are in shared memory at a time
    num_warps: int
    n_stores: int  # groups of columns stored in turn
    programs_per_sm: int  # that a multiprocessor runs at a time
    step_cycles: int  # where the L2 keeps up, and all these programs are at work
    tile_cycles: int  # between two tiles
    ends_cycles: int  # before the first step and after the last one
    cluster_rows: int = 1  # blocks of a cluster, in a column of out or in a row:
    cluster_cols: int = 1  # CUDA's twin alone has more than one
    unlined_percent: int = 0  # as above
    # What each row or column that lies outside of a or b adds to 64 of k. CUDA's twin
    # of 16 bits copies none of those, where one tile has all others:
    outer_cycles: int = 2


# Rows, columns and depth, stages, warps; then cycles: of an entry of K those of large
# products on an H200, and a guess of all else. The last tile is for calls without
# vectors: where elements come one by one, a thread holds the address of each, and has
# registers for half as many sums only.
TILED_TILES = (
    TiledTile(64, 128, 16, 3, 4, 100, 100, 5000),
    TiledTile(128, 64, 16, 3, 4, 100, 100, 5000, b_is_left=True),
    TiledTile(64, 128, 16, 2, 8, 150, 150, 5000),
)
# Rows, columns and depth, stages and warps; then cycles. They fit into the 99
# KB of shared memory that the smallest GPUs have. These products mostly wait for the
# memory, so that many steps are on their way: one less than stages for 64 rows or more,
# two less for fewer, which need no warpgroup.
TENSOR_CORES_TILES = (
    TensorCoresTile(128, 128, 32, 4, 8, 605, 570, 2150, 4585),
    TensorCoresTile(64, 128, 64, 4, 8, 825, 595, 2050, 4330, 2),
    TensorCoresTile(64, 64, 64, 4, 4, 915, 380, 1270, 2935),
    TensorCoresTile(32, 32, 128, 5, 4, 750, 510, 970, 3270, 2),
    TensorCoresTile(16, 64, 128, 5, 4, 1310, 365, 1845, 2815, 2),
    TensorCoresTile(16, 128, 64, 6, 4, 675, 570, 430, 3335, 2),
    TensorCoresTile(32, 64, 64, 7, 4, 535, 420, 430, 3370, 2),
    TensorCoresTile(64, 16, 128, 4, 4, 305, 775, 430, 3100, 2),
    TensorCoresTile(128, 16, 64, 4, 4, 705, 645, 430, 3175, 2),
    TensorCoresTile(64, 32, 128, 3, 4, 1190, 505, 1920, 2985, 2),
)
# Rows, columns and depth, stages, warps, stores and programs; then cycles. The largest
# tile costs the fewest bytes. Two programs with tiles of 128 x 128 share a
# multiprocessor: one stores while the tensor cores work for the other. The last two
# lines are for few steps of many tiles and many steps of few: the longer ring has more
# bytes on their way, and takes longer to begin with.
TILES = (
    MatmulTile(128, 256, 64, 4, 8, 2, 1, 1025, 2175, 7070),
    MatmulTile(128, 128, 64, 3, 4, 2, 2, 1295, 1465, 5210),
    MatmulTile(64, 256, 64, 5, 4, 2, 1, 675, 1405, 5000),
    MatmulTile(64, 128, 128, 4, 4, 1, 1, 790, 760, 3900),
    MatmulTile(128, 64, 128, 4, 4, 1, 1, 790, 1810, 4130),
    MatmulTile(64, 64, 128, 3, 4, 1, 2, 780, 2245, 4200),
    MatmulTile(64, 64, 128, 6, 4, 1, 1, 260, 2390, 6440),
)
# Of float32, whose tiles' rows are those of the left operand. Two warpgroups have 64 of
# them each: one is at its epilogue while the other multiplies.
TF32_TILES = (
    MatmulTile(128, 256, 64, 4, 8, 4, 1, 1150, 3000, 9000, unlined_percent=25),
    MatmulTile(128, 128, 64, 6, 8, 2, 1, 790, 1600, 8000, unlined_percent=25),
    MatmulTile(128, 64, 64, 8, 8, 1, 1, 580, 1000, 7500, unlined_percent=25),
)
TF32X3_TILES = (
    MatmulTile(128, 128, 64, 4, 8, 2, 1, 2150, 1600, 8500, unlined_percent=25),
    MatmulTile(128, 64, 64, 6, 8, 1, 1, 1700, 1000, 8000, unlined_percent=25),
)
