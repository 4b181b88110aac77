"""The cost of the accesses that the lanes of a warp make together.

The rules are those of NVIDIA's programming guides. Global memory is moved in sectors of
32 bytes, each once for a request. Shared memory has 32 banks of 4 bytes; in a wavefront
each bank gives one word, to all lanes that ask for it. Accesses of 8 and 16 bytes are
made by half and by quarter warps.
"""

import functools

import numpy as np

from compare.ptx_simulator.group import WARP
from compare.ptx_simulator.values import Bits, Lanes

SECTOR_BYTES = 32
_BANKS = 32
_BANK_BYTES = 4


def bytes_and_sectors(starts: Bits, ends: Bits) -> tuple[Lanes, Lanes]:
    """The number of different bytes, and of sectors, that each row of ranges covers.

    Args:
        starts: one row for each request.
        ends: behind the last byte of each; the same as the start where there is none.
    """
    if (ends > starts).all() and (starts[:, 1:] >= ends[:, :-1]).all():
        # One behind the other: they share no byte, and neighbours at most a sector.
        first_sectors, last_sectors = starts // SECTOR_BYTES, -(-ends // SECTOR_BYTES)
        n_shared = np.count_nonzero(last_sectors[:, :-1] > first_sectors[:, 1:], axis=1)
        n_sectors = (last_sectors - first_sectors).sum(axis=1) - n_shared
        return (ends - starts).sum(axis=1), n_sectors
    if (starts[:, 1:] < starts[:, :-1]).any():
        order = np.argsort(starts, axis=1)
        starts = np.take_along_axis(starts, order, axis=1)
        ends = np.take_along_axis(ends, order, axis=1)
    first_sectors = starts // SECTOR_BYTES
    last_sectors = np.where(ends > starts, -(-ends // SECTOR_BYTES), first_sectors)
    return _covered(starts, ends), _covered(first_sectors, last_sectors)


def _covered(starts: Bits, ends: Bits) -> Lanes:
    """The size of the union of each row of ranges, which are sorted by their starts."""
    new = ends - starts
    reach = np.maximum.accumulate(ends, axis=1)[:, :-1]
    new[:, 1:] = ends[:, 1:] - np.maximum(starts[:, 1:], reach)
    covered: Lanes = np.maximum(new, 0).sum(axis=1)
    return covered


def wavefronts(
    rows: Lanes, columns: Lanes, offsets: Lanes, width: int
) -> tuple[int, int]:
    """Wavefronts that accesses to shared memory take, and the fewest they could.

    Args:
        rows: for each lane the number of its request.
        columns: for each lane its place in the warp.
        offsets: where each lane accesses shared memory.
        width: the bytes that each accesses.
    """
    lanes = (np.asarray(each, np.int64).tobytes() for each in (rows, columns, offsets))
    return _wavefronts(*lanes, width)


# Loops access the same places again and again.
@functools.lru_cache(maxsize=1024)
def _wavefronts(
    row_bytes: bytes, column_bytes: bytes, offset_bytes: bytes, width: int
) -> tuple[int, int]:
    rows, columns, offsets = (
        np.frombuffer(each, np.int64)
        for each in (row_bytes, column_bytes, offset_bytes)
    )
    lanes_at_once = min(WARP, _BANKS * _BANK_BYTES // max(width, _BANK_BYTES))
    phases = rows * (WARP // lanes_at_once) + columns // lanes_at_once
    words = offsets[:, np.newaxis] // _BANK_BYTES + np.arange(-(-width // _BANK_BYTES))
    words &= (1 << 40) - 1
    different = np.unique((phases[:, np.newaxis] << 40) + words)
    banks = (different >> 40) * _BANKS + different % _BANKS
    by_phase = np.bincount(banks, minlength=_BANKS * (int(phases.max()) + 1))
    most = by_phase.reshape(-1, _BANKS).max(axis=1)
    return int(most.sum()), int(np.count_nonzero(most))


def local_sectors(rows: Lanes, columns: Lanes, offsets: Lanes, width: int) -> int:
    """Sectors that accesses to local memory touch, each once for a request.

    It is laid out so that the same word of all lanes of a warp lies side by side.
    """
    words = offsets[:, np.newaxis] // _BANK_BYTES + np.arange(-(-width // _BANK_BYTES))
    places = (words * WARP + columns[:, np.newaxis]) * _BANK_BYTES
    return len(np.unique((rows[:, np.newaxis] << 40) + places // SECTOR_BYTES))
