"""Looks whether accesses to memory are within bounds."""

import itertools
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from compare.ptx_simulator.contents import Contents
from compare.ptx_simulator.group import Group
from compare.ptx_simulator.simulation import Launch, OutOfBounds, TensorArgument
from compare.ptx_simulator.spaces import END_OF_TENSORS, OTHER_BLOCK_BITS, Part
from compare.ptx_simulator.values import Lanes, Mask

# What addresses belong to that are far from all tensors.
_NO_TENSOR = TensorArgument("no tensor", position=-1, address=0, bytes=0)

_TOLD_THREADS = 8  # of an instruction that goes out of bounds; more would add nothing


@dataclass(frozen=True)
class Access:
    """A memory instruction, whatever the addresses."""

    index: int  # of the instruction in the listing
    is_store: bool  # whether it writes
    bytes_per_thread: int  # that it moves at most
    # Whether it is done at once and by each thread on its own, unlike asynchronous
    # copies and atomics.
    is_plain: bool = True


class Bounds:
    """The tensors and the shared memory of a launch, and who accesses what is beside.

    Attributes:
        out_of_bounds: the first accesses of each instruction that are.
    """

    def __init__(self, launch: Launch, shared_bytes: int) -> None:
        """Begins with nothing out of bounds."""
        self.out_of_bounds: list[OutOfBounds] = []
        self._shared_bytes = shared_bytes
        self._told: Counter[tuple[int, str]] = Counter()
        # An address belongs to the tensor that is nearest.
        tensors = sorted(launch.tensors, key=lambda each: each.address)
        self._tensors: list[TensorArgument | None] = [*tensors, None]
        self._borders = [
            (left.address + left.bytes + right.address) // 2
            for left, right in itertools.pairwise(tensors)
        ]
        if tensors:
            self._borders.append(END_OF_TENSORS)

    def by_tensor(
        self, part: Part, addresses: Lanes
    ) -> Iterator[tuple[TensorArgument | None, Part]]:
        """The tensors that are accessed, and by which lanes."""
        addresses = addresses.reshape(part.group.size, -1)[:, 0]
        ends = np.array([addresses.min(), addresses.max()])
        first, last = np.searchsorted(self._borders, ends, side="right")
        if first == last:
            yield self._tensors[first], part
            return
        places = np.searchsorted(self._borders, addresses, side="right")
        for place, lanes in part.split(places):
            yield self._tensors[place], lanes

    def are_indices(self, part: Part) -> bool:
        """Whether a tensor of indices lies wherever these lanes access."""
        if part.space != "global" or part.addresses is None:
            return False
        first, last = part.addresses.min(), part.addresses.max()
        return any(
            each.address <= first and last < each.address + each.bytes
            for each in self._tensors
            if each and each.holds_indices
        )

    def look_in_tensor(
        self,
        access: Access,
        part: Part,
        tensor: TensorArgument,
        lengths: Lanes,
        doubt: Mask | None,
    ) -> tuple[Lanes, Mask]:
        """Notes who accesses bytes beside a tensor that it should be in.

        Args:
            access: the instruction.
            part: the lanes, whose addresses may be rows of several.
            tensor: what they access.
            lengths: how many bytes at each address.
            doubt: which lanes of the batch may not be there at all; None if all are.

        Returns:
            For each address how far from the tensor's first byte, and whether outside.
        """
        assert part.addresses is not None
        offsets = part.addresses - tensor.address
        outside = (offsets < 0) | (offsets + lengths > tensor.bytes)
        outside &= lengths > 0
        if outside.any():
            group, first = part.group, offsets
            is_outside = outside
            if offsets.ndim == 2:  # of a row the first that is outside tells
                lanes, places = np.arange(group.size), outside.argmax(axis=1)
                first, is_outside = offsets[lanes, places], outside[lanes, places]
            self._tell(access, tensor.name, group, first, is_outside, doubt)
        return offsets, outside

    def look_in_shared(
        self, access: Access, group: Group, offsets: Lanes, doubt: Mask | None
    ) -> None:
        """Notes who accesses shared memory that a block does not have."""
        outside = (offsets < 0) | (
            offsets + access.bytes_per_thread > self._shared_bytes
        )
        if outside.any():
            self._tell(access, "shared memory", group, offsets, outside, doubt)

    def _tell(
        self,
        access: Access,
        argument: str,
        group: Group,
        offsets: Lanes,
        outside: Mask,
        doubt: Mask | None,
    ) -> None:
        """Notes the first accesses out of bounds, unless these are in doubt."""
        if doubt is not None:
            outside = outside & ~doubt[group.numbers]
        key = access.index, argument
        free = _TOLD_THREADS - self._told[key]
        for place in np.flatnonzero(outside)[:free]:
            self._told[key] += 1
            lane = int(group.numbers[place])
            self.out_of_bounds.append(
                OutOfBounds(
                    access.index,
                    argument,
                    *group.layout.coordinates(lane),
                    int(offsets[place]),
                    access.is_store,
                )
            )


class Watch:
    """What stands in for the meter where memory has contents: it counts nothing."""

    def __init__(self, bounds: Bounds, contents: Contents) -> None:
        """Looks at accesses to what the contents hold, and to shared memory."""
        self._bounds = bounds
        self._contents = contents

    @property
    def out_of_bounds(self) -> list[OutOfBounds]:
        """The first accesses of each instruction that are."""
        return self._bounds.out_of_bounds

    def are_indices(self, part: Part) -> bool:
        """Nothing need be made up of what tensors hold."""
        return False

    def count(self, access: Access, part: Part, doubt: Mask | None) -> None:
        """Looks whether lanes access what there is."""
        if part.addresses is None:
            return
        if part.space == "shared":
            inside = part.addresses & (1 << OTHER_BLOCK_BITS) - 1
            self._bounds.look_in_shared(access, part.group, inside, doubt)
        elif part.space == "global":
            lengths = part.sizes
            if lengths is None:
                lengths = np.full(1, access.bytes_per_thread)
            if self._contents.outside(part.addresses, lengths) is None:
                return
            for tensor, lanes in self._bounds.by_tensor(part, part.addresses):
                sizes = lanes.sizes if lanes.sizes is not None else lengths
                self._bounds.look_in_tensor(
                    access, lanes, tensor or _NO_TENSOR, sizes, doubt
                )
