"""Reads and writes numbers anywhere in an array of bytes.

Most accesses of a warp are aligned to their width, and then the bytes are seen as an
array of such numbers, which is several times as fast as to put numbers together.
"""

import numpy as np

from compare.ptx_simulator.values import U8, Bits, Dtype, Lanes


def gather(content: Bits, places: Lanes, dtype: Dtype) -> Bits:
    """The numbers of a type that begin at these places, all of which exist."""
    width = dtype.itemsize
    numbers = _as_numbers(content, places, dtype)
    if numbers is not None:
        found: Bits = numbers[places >> (width.bit_length() - 1)]
        return found
    rows = content[places[:, np.newaxis] + np.arange(width)]
    return np.ascontiguousarray(rows).view(dtype).reshape(-1)


def scatter(content: Bits, places: Lanes, bits: Bits, dtype: Dtype) -> None:
    """Puts numbers of a type there; of several at one place one stays.

    Args:
        content: Is changed.
        places: Where the numbers begin; all of their bytes exist.
        bits: The numbers, one for each place or one for all.
        dtype: Their type.
    """
    width = dtype.itemsize
    numbers = _as_numbers(content, places, dtype)
    if numbers is not None:
        numbers[places >> (width.bit_length() - 1)] = bits
        return
    rows = np.ascontiguousarray(np.broadcast_to(bits, places.size)).view(U8)
    content[places[:, np.newaxis] + np.arange(width)] = rows.reshape(-1, width)


def _as_numbers(content: Bits, places: Lanes, dtype: Dtype) -> Bits | None:
    """The content as numbers, from the first on; None if a place is between two.

    A place is the number of its first byte, so that its number is a part of that.
    """
    width = dtype.itemsize
    if width == 1:
        return content.view(dtype)
    if np.bitwise_or.reduce(places) & (width - 1):
        return None
    return content[: content.size // width * width].view(dtype)
