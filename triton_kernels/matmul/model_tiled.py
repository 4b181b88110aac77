"""Which parts of K the rung tiled cuts a product of matrices into.

It is those that take the least time by a model, as in model.py. A program adds up sums
over K_PER_SUM entries of K, and a part has whole sums, so that it is no less exact than
the whole.
"""

import functools

from triton_kernels.matmul.call import Call, Cut, ceil_div
from triton_kernels.matmul.model import even_cuts, sum_cycles
from triton_kernels.matmul.tables import TILED_TILES, TiledTile

# Along a single chain of additions the rounding errors of thousands would pile up.
K_PER_SUM = 256


def sums_of_part(call: Call, n_parts: int) -> int:
    """How many sums over K each part has on the rung tiled."""
    return ceil_div(ceil_div(call.K, K_PER_SUM), n_parts)


def cycles(call: Call, tile: TiledTile, cut: Cut, n_sms: int) -> int:
    """The time that a call takes on the rung tiled, cut up like this."""
    n_parts = cut.n_blocks // cut.n_streamed if cut.n_streamed else 1
    n_k = min(call.K, sums_of_part(call, n_parts) * K_PER_SUM)
    programs_per_sm = ceil_div(cut.n_blocks, n_sms)
    return (
        n_k * max(programs_per_sm * tile.k_cycles, tile.alone_cycles)
        + programs_per_sm * tile.tile_cycles
        + sum_cycles(cut, tile.block_m * tile.block_n)
    )


@functools.lru_cache(maxsize=4096)
def choose(call: Call, number: int, n_sms: int, may_share: bool) -> Cut:
    """The cut into a tile of the rung tiled that takes the least time."""
    tile = TILED_TILES[number]
    cuts = even_cuts(call, tile, number, sums_of_part(call, 1), n_sms, may_share)
    return min(cuts, key=lambda cut: cycles(call, tile, cut, n_sms))
