"""The ring of stages in shared memory through which tiles of a and b come.

The mirror of ring.cuh, in Gluon: one warp fills the stages, two warpgroups use them.
"""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    mbarrier,
    warpgroup_mma,
    warpgroup_mma_init,
    warpgroup_mma_wait,
)

from triton_kernels.matmul.gluon_names import tma_load
from triton_kernels.matmul.tiles import tile_at

BLOCK_M, BLOCK_N, BLOCK_K = gl.constexpr(128), gl.constexpr(256), gl.constexpr(64)
HALF_M = gl.constexpr(64)  # rows of a warpgroup
NUM_STAGES = gl.constexpr(4)


@gluon.jit
def load(
    ring,
    M,
    N,
    K,
    A_ROW_MAJOR: gl.constexpr,
    B_ROW_MAJOR: gl.constexpr,
    a_map,
    b_map,
):
    """Loads each stage as soon as both warpgroups have used what was there."""
    a_stages, b_stages, full, empty = ring
    BYTES: gl.constexpr = 2 * a_map.block_type.nbytes + b_map.block_type.nbytes
    n_tile_rows, n_tile_cols = gl.cdiv(M, BLOCK_M), gl.cdiv(N, BLOCK_N)
    n_tiles = n_tile_rows * n_tile_cols
    n_loaded = 0
    for index in range(gl.program_id(0), n_tiles, gl.num_programs(0)):
        _, tile_row, tile_col = tile_at(index, n_tile_rows, n_tile_cols)
        row, col = tile_row * BLOCK_M, tile_col * BLOCK_N
        for k in range(0, K, BLOCK_K):
            stage = n_loaded % NUM_STAGES
            parity = n_loaded // NUM_STAGES & 1
            mbarrier.wait(empty.index(stage), parity ^ 1)
            mbarrier.expect(full.index(stage), BYTES)
            for half in gl.static_range(2):
                half_row = row + half * HALF_M
                tma_load(
                    a_map,
                    [half_row, k] if A_ROW_MAJOR else [k, half_row],
                    full.index(stage),
                    a_stages.index(2 * stage + half),
                )
            tma_load(
                b_map,
                [k, col] if B_ROW_MAJOR else [col, k],
                full.index(stage),
                b_stages.index(stage),
            )
            n_loaded += 1


@gluon.jit
def release(ring, n_multiplied, when):
    """Tells the loading warp that the last of n_multiplied stages has been used."""
    last = (n_multiplied + NUM_STAGES - 1) % NUM_STAGES
    mbarrier.arrive(ring[3].index(last), count=1, pred=when)


@gluon.jit
def multiply_stage(
    sums,
    ring,
    n_multiplied,
    is_first,
    releases,
    WARPGROUP: gl.constexpr,
    A_ROW_MAJOR: gl.constexpr,
    B_ROW_MAJOR: gl.constexpr,
):
    """Starts to multiply a stage, and releases the one before it.

    That one is done when nothing but the first half of this one is under way.
    """
    a_stages, b_stages, full, _ = ring
    stage = n_multiplied % NUM_STAGES
    mbarrier.wait(full.index(stage), n_multiplied // NUM_STAGES & 1)
    a = a_stages.index(2 * stage + WARPGROUP)
    b = b_stages.index(stage)
    a = a if A_ROW_MAJOR else a.permute((1, 0))
    b = b if B_ROW_MAJOR else b.permute((1, 0))
    HALF_K: gl.constexpr = a.shape[1] // 2
    sums = warpgroup_mma(
        a.slice(0, HALF_K, dim=1),
        b.slice(0, HALF_K, dim=0),
        sums,
        use_acc=not is_first,
        is_async=True,
    )
    sums = warpgroup_mma_init(warpgroup_mma_wait(1, deps=(sums,)))
    release(ring, n_multiplied, releases)
    return warpgroup_mma(
        a.slice(HALF_K, HALF_K, dim=1),
        b.slice(HALF_K, HALF_K, dim=0),
        sums,
        is_async=True,
    )
