"""Reads and writes numbers anywhere in an array of bytes.

Most accesses of a warp are aligned to their width, and then the bytes are seen as an
array of such numbers, which is several times as fast as to put numbers together.
"""

import numpy as np

from compare.ptx_simulator.values import U8, Bits, Dtype, Lanes


def gather(content: Bits, places: Lanes, dtype: Dtype) -> Bits:
    """The numbers of a type that begin at these places, all of which exist."""
    width = dtype.itemsize
    if _are_aligned(places, width):
        found: Bits = _as_numbers(content, dtype)[places >> (width.bit_length() - 1)]
        return found
    rows = content[places[:, np.newaxis] + np.arange(width)]
    return np.ascontiguousarray(rows).view(dtype).reshape(-1)


def scatter(places: Lanes, dtype: Dtype, *changes: tuple[Bits, Bits]) -> None:
    """Puts numbers of a type there; of several at one place one stays.

    Args:
        places: Where the numbers begin; all of their bytes exist.
        dtype: Their type.
        changes: What is changed, each with the numbers, one for each place or one for
            all.
    """
    width = dtype.itemsize
    if _are_aligned(places, width):
        indices = places >> (width.bit_length() - 1)
        for content, bits in changes:
            _as_numbers(content, dtype)[indices] = bits
        return
    indices = places[:, np.newaxis] + np.arange(width)
    for content, bits in changes:
        rows = np.ascontiguousarray(np.broadcast_to(bits, places.size)).view(U8)
        content[indices] = rows.reshape(-1, width)


def _are_aligned(places: Lanes, width: int) -> bool:
    """Whether all numbers begin at multiples of their width, a power of two."""
    return width == 1 or not np.bitwise_or.reduce(places) & (width - 1)


def _as_numbers(content: Bits, dtype: Dtype) -> Bits:
    """The content as numbers, from the first on, as many as are whole."""
    return content[: content.size // dtype.itemsize * dtype.itemsize].view(dtype)
