"""The scales of a product's rows and columns."""

import triton
import triton.language as tl


@triton.jit
def load_scales(scale_ptr, places, n_places, stride):
    """The scales of some rows or columns; with a stride of 0 they share one."""
    places = places.to(tl.int64)
    return tl.load(scale_ptr + places * stride, mask=places < n_places, other=0.0)


@triton.jit
def scaled(accumulator, scale_a, scale_b, dtype):
    """Sums, each times the scales of its row and its column, rounded once."""
    return (accumulator * (scale_a[:, None] * scale_b[None, :])).to(dtype)
