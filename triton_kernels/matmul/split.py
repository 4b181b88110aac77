"""A float32 as the sum of two tf32 numbers, which have 11 bits each of its 24."""

import triton
import triton.language as tl

from triton_kernels.common.math import INTERPRETED
from triton_kernels.common.ptx import inline_ptx


@triton.jit
def round_to_tf32(x):
    """The nearest numbers of tf32, to which the tensor cores would only truncate."""
    if INTERPRETED:
        # Ties round away from zero. inf and NaN, which an addition might change, stay.
        bits = (x.to(tl.int32, bitcast=True) + 0x1000) & -0x2000
        rounded = tl.where(
            tl.abs(x) < float("inf"), bits.to(tl.float32, bitcast=True), x
        )
    else:
        rounded = inline_ptx("cvt.rna.tf32.f32 $0, $1;", "=r, f", x)
    return rounded


@triton.jit
def truncate_to_tf32(x):
    """Numbers without the bits that tf32 lacks."""
    return (x.to(tl.int32, bitcast=True) & -0x2000).to(tl.float32, bitcast=True)


@triton.jit
def split_float(x):
    """The large and the small parts of numbers.

    Infinities and NaN are the small part of their sum: the large parts are multiplied
    with both of the other operand, of which one may be 0. Where rounding would
    overflow, bits are cut off.
    """
    is_finite = tl.abs(x) < float("inf")
    rounded, truncated = round_to_tf32(x), truncate_to_tf32(x)
    is_rounded = tl.abs(rounded) < float("inf")
    large = tl.where(is_rounded, rounded, truncated)
    rest = x - large
    small = tl.where(is_rounded, round_to_tf32(rest), truncate_to_tf32(rest))
    return tl.where(is_finite, large, 0.0), tl.where(is_finite, small, x)
