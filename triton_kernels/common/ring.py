"""Rings of stages in shared memory, which some warps fill and others empty.

A ring is (stages, full, empty). Tiles are counted, and take the stages in turns. `full`
has a barrier for each stage that tells when a tile has come, `empty` one that tells
when all have used it. Either changes its phase once in each turn.
"""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import mbarrier


@gluon.jit
def make_barriers(N: gl.constexpr, N_ARRIVALS: gl.constexpr):
    """Barriers, each of which waits for so many arrivals at a time."""
    barriers = gl.allocate_shared_memory(gl.int64, [N, 1], mbarrier.MBarrierLayout())
    for i in gl.static_range(N):
        mbarrier.init(barriers.index(i), count=N_ARRIVALS)
    return barriers


@gluon.jit
def wait_for_tile(ring, count):
    """Until the tile has come that comes after `count` others."""
    _, full, _ = ring
    stage = count % full.shape[0]
    mbarrier.wait(full.index(stage), count // full.shape[0] & 1)


@gluon.jit
def release(ring, count):
    """By a warpgroup, once it has used that tile."""
    _, _, empty = ring
    mbarrier.arrive(empty.index(count % empty.shape[0]), count=1)


@gluon.jit
def wait_until_empty(ring, count):
    """By the loading warp, until all have used what was in a tile's stage."""
    _, _, empty = ring
    stage = count % empty.shape[0]
    mbarrier.wait(empty.index(stage), count // empty.shape[0] & 1 ^ 1)
