"""What the kernels of both norms share: weights, and means of rows."""

import triton
import triton.language as tl


@triton.jit
def load_weight(weight_ptr, cols, mask, absent):
    """A weight or a bias in float32, or `absent` where there is none.

    All rows share them: they are to stay in the cache while rows pass through it.
    """
    if weight_ptr is None:
        weight = tl.full(cols.shape, absent, tl.float32)
    else:
        weight = tl.load(
            weight_ptr + cols, mask=mask, other=0.0, eviction_policy="evict_last"
        ).to(tl.float32)
    return weight


@triton.jit
def mean_of(total, n_cols):
    """The mean of a row from its sum, correctly rounded.

    So a row of equal numbers, whose sum is exact, has exactly these as its mean.
    """
    return tl.div_rn(total, tl.cast(n_cols, tl.float32))


@triton.jit
def row_mean(tiles, n_cols, N_TILES: tl.constexpr):
    """The means of rows that are tuples of tiles, in one column."""
    sums = tiles[0]
    for i in tl.static_range(1, N_TILES):
        sums += tiles[i]
    return mean_of(tl.sum(sums, axis=1, keep_dims=True), n_cols)
