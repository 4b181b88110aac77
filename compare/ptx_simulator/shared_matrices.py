"""Matrices in shared memory, as the descriptors of `wgmma` tell where they lie."""

from dataclasses import dataclass, replace

import numpy as np

from compare.ptx_simulator.batch import Batch
from compare.ptx_simulator.fragments import SIZE, UNKNOWN, Elements
from compare.ptx_simulator.group import WARP, WARPGROUP, Group
from compare.ptx_simulator.matrices import CHUNK_BYTES, load_chunks
from compare.ptx_simulator.races import Actor
from compare.ptx_simulator.values import (
    U64,
    Bits,
    Dtype,
    Known,
    Lanes,
    Mask,
    Value,
    settled,
)

ROWS = 2 * SIZE  # of the sums, in a warp


# ---- Who multiplies ------------------------------------------------------------------


class Teams:
    """The warps of a group, in teams that multiply by the same matrix b.

    A team is a warpgroup, if the group consists of whole ones; if not, a warp.

    Attributes:
        group: the lanes, of whole warps.
        lanes: of a team.
        rows: of the sums, in a team.
        first_rows: for each team, which row of the warpgroup its first one is.
        owners: for each team, the place of its block.
    """

    def __init__(self, group: Group) -> None:
        """Finds the teams."""
        self.group = group
        threads = group.layout.thread_of_lane[group.numbers]
        first, last = threads[::WARPGROUP], threads[WARPGROUP - 1 :: WARPGROUP]
        are_whole = group.size % WARPGROUP == 0 and not (first % WARPGROUP).any()
        are_whole = are_whole and bool((last == first + WARPGROUP - 1).all())
        self.lanes = WARPGROUP if are_whole else WARP
        self.rows = self.lanes // WARP * ROWS
        warps = threads[:: self.lanes] // WARP
        self.first_rows = warps % (WARPGROUP // WARP) * ROWS
        self.owners = group.blocks[:: self.lanes]

    def values(self, value: Value) -> Bits | None:
        """The value in each team; None unless it is one, and known, in all of them."""
        if settled(value.known) is not True:
            return None
        by_team = np.broadcast_to(value.bits, self.group.size).reshape(-1, self.lanes)
        found = by_team[:, 0]
        return found if (by_team == found[:, np.newaxis]).all() else None


# ---- Matrices in shared memory -------------------------------------------------------

# By the number of the swizzle: how far it is from one row of 8 to the next.
_ROW_BYTES = np.array([16, 128, 64, 32])
# Of a descriptor: address, leading and stride offset, swizzle. Not modelled is the base
# offset, for patterns that begin elsewhere than at a multiple of their size.
_DESCRIPTOR_BITS = 3 << 62 | 0x3FFF_3FFF_3FFF


@dataclass(frozen=True)
class SharedMatrix:
    """A matrix in shared memory, as far as the instruction tells."""

    depth: int  # columns of a, or rows of b
    dtype: Dtype  # of its elements
    is_k_major: bool  # whether neighbours along the depth are neighbours in memory

    def chunks(self, descriptors: Bits, first: Lanes, size: int) -> Lanes:
        """Where chunks of it begin: see "Canonical Layouts" in the PTX manual.

        Args:
            descriptors: by team.
            first: by team, the first row, of a, or column, of b.
            size: how many there are.

        Returns:
            By team, and by row or column and chunk of it; or, if not `is_k_major`, by
            place along the depth and chunk of 8 rows or columns.
        """
        descriptors = descriptors.astype(np.int64).reshape(-1, 1, 1)
        start, leading, stride = (
            (descriptors >> bit & 0x3FFF) * CHUNK_BYTES for bit in (0, 16, 32)
        )
        row_bytes = _ROW_BYTES[descriptors >> 62 & 3]
        has_swizzle, first = row_bytes > CHUNK_BYTES, first.reshape(-1, 1, 1)
        if self.is_k_major:
            row, chunk = first + np.arange(size)[:, np.newaxis], np.arange(2)
            across = chunk * np.where(has_swizzle, CHUNK_BYTES, leading)
            along = row // SIZE * stride
        else:
            row = np.arange(self.depth)[:, np.newaxis]
            chunk = first // SIZE + np.arange(size // SIZE)
            per_row = row_bytes // CHUNK_BYTES
            step = np.where(has_swizzle, leading, stride)
            across = chunk % per_row * CHUNK_BYTES + chunk // per_row * step
            along = row // SIZE * np.where(has_swizzle, stride, leading)
        places = start + along + row % SIZE * row_bytes + across
        swizzled: Lanes = places ^ (places >> 3 & row_bytes - CHUNK_BYTES)
        return swizzled

    def by_depth(self, elements: Bits) -> Bits:
        """By depth, team, and row or column; given by place of the chunk and in it."""
        rows = elements.reshape(*elements.shape[:2], -1)
        return rows.transpose((2, 0, 1) if self.is_k_major else (1, 0, 2))


@dataclass(frozen=True)
class Reader:
    """Who reads matrices in shared memory."""

    batch: Batch
    index: int  # of the instruction
    teams: Teams
    actor: Actor | None  # the first lane of each team, where races are looked for

    def load(
        self, matrix: SharedMatrix, descriptor: Value, first: Lanes, size: int
    ) -> Elements:
        """So many rows of a or columns of b for each team, as `by_depth` gives them."""
        teams = self.teams
        descriptors = teams.values(descriptor)
        if descriptors is None:
            return UNKNOWN
        if (descriptors & ~U64.type(_DESCRIPTOR_BITS)).any():
            what = "has a descriptor of a kind that is not simulated"
            self.batch.tell(self.index, teams.group, what)
            return UNKNOWN
        starts = matrix.chunks(descriptors, first, size)
        owners = np.broadcast_to(teams.owners.reshape(-1, 1, 1), starts.shape)
        self._look_for_races(owners, starts)
        loaded = load_chunks(self.batch.shared, owners, starts, matrix.dtype)
        if loaded.known is not True:
            self._tell_unwritten(starts, loaded.known)
        return UNKNOWN if loaded.known is False else loaded.arranged(matrix.by_depth)

    def _look_for_races(self, owners: Lanes, starts: Lanes) -> None:
        races = self.batch.races
        if races is None or self.actor is None:
            return
        flat = owners.reshape(-1), starts.reshape(-1)
        places, inside = self.batch.shared.places(*flat, CHUNK_BYTES)
        actor = self.actor.repeated(starts[0].size)
        if inside is not None:
            places, actor = places[inside], actor.select(inside)
        races.read(actor, places, CHUNK_BYTES)

    def _tell_unwritten(self, starts: Lanes, known: Known) -> None:
        """Tells of chunks, not all of them known: in each team the first."""
        chunks = starts.reshape(len(starts), -1)
        is_known: Mask = np.zeros(chunks.shape, np.bool_)
        if not isinstance(known, bool):
            is_known = np.logical_and.reduce(known, axis=-1).reshape(chunks.shape)
        first = chunks[np.arange(len(chunks)), is_known.argmin(axis=1)]
        addresses, are_known = (
            np.repeat(each, self.teams.lanes) for each in (first, is_known.all(axis=1))
        )
        group = self.teams.group
        self.batch.tell_unwritten(self.index, group, addresses, are_known)

    def is_done(self) -> None:
        """Tells all warps of the teams that what they started is done."""
        if self.batch.races and self.actor:
            for warp in range(self.teams.lanes // WARP):
                units = self.actor.units + warp
                self.batch.races.is_done(replace(self.actor, units=units))
