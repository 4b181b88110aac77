"""Where a kernel's variables lie, and which space a generic address is in."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from compare.assembly.listing import Listing
from compare.ptx_simulator.declarations import Declarations
from compare.ptx_simulator.group import Group
from compare.ptx_simulator.simulation import Launch
from compare.ptx_simulator.values import Bits, Lanes, Value, spread

# Tensors lie below, variables of the PTX and the other spaces above.
END_OF_TENSORS = 1 << 59
# The generic addresses of each space begin here; on a GPU, where it likes.
WINDOW_BYTES = 2 * END_OF_TENSORS
WINDOWS: dict[str, int] = {
    "global": 0,
    "shared": 1 * WINDOW_BYTES,
    "local": 2 * WINDOW_BYTES,
    "const": 3 * WINDOW_BYTES,
    "param": 4 * WINDOW_BYTES,
}
_GLOBAL_VARIABLES = 5 * WINDOW_BYTES
_WINDOW_NAMES = {
    window // WINDOW_BYTES: name for name, window in WINDOWS.items() if window
}
_UNKNOWN_WINDOW = -1000

# From this bit on an address in shared memory tells which block of a cluster it is in,
# counted from 1; without, it is the own one. On a GPU, too, it is above all offsets.
OTHER_BLOCK_BITS = 24

_DYNAMIC_SHARED_ALIGN = 16
_PARAMETER_BYTES = 4096  # more than one can have


class Addresses:
    """Gives every variable and parameter of the kernel an address in its space.

    Attributes:
        by_name: the address in its own space of each that has one.
        shared_bytes: of a block, without what a launch adds.
        dynamic_start: where in shared memory that begins.
        local_bytes: of a thread.
    """

    def __init__(self, listing: Listing, declarations: Declarations) -> None:
        """Lays out the variables that the kernel names."""
        self.by_name = {
            name: position * _PARAMETER_BYTES
            for position, name in enumerate(declarations.parameters)
        }
        ends = {"global": _GLOBAL_VARIABLES, "shared": 0, "local": 0, "const": 0}
        text = {operand for each in listing.instructions for operand in each.operands}
        named = [
            each
            for each in declarations.variables
            if any(each.name in operand for operand in text)
        ]
        for each in named:
            if each.bytes:
                start = -(-ends[each.space] // each.align) * each.align
                self.by_name[each.name] = start
                ends[each.space] = start + each.bytes
        # Shared memory without a size is what the launch adds, behind all other.
        added = [each for each in named if not each.bytes and each.space == "shared"]
        align = max([_DYNAMIC_SHARED_ALIGN, *(each.align for each in added)])
        self.dynamic_start = -(-ends["shared"] // align) * align
        for each in added:
            self.by_name[each.name] = self.dynamic_start
        self.shared_bytes = ends["shared"]
        self.local_bytes = ends["local"]

    def shared_bytes_of(self, launch: Launch) -> int:
        """Shared memory of a block, what the launch adds included."""
        return max(self.shared_bytes, self.dynamic_start + launch.dynamic_shared_bytes)


@dataclass(frozen=True)
class Part:
    """Lanes that access the same space together."""

    space: str  # which one; `generic` if the addresses are unknown
    group: Group
    # In this space, one for each lane; or a row for each, which is a request of its
    # own; None if unknown.
    addresses: Lanes | None = None
    # The bytes at each address, if not all that the instruction can move.
    sizes: Lanes | None = None

    def behind(self, offset: int) -> Lanes:
        """So many bytes behind the addresses, which have to be known."""
        assert self.addresses is not None
        return self.addresses + offset if offset else self.addresses

    def split(self, kinds: Bits) -> Iterator[tuple[int, "Part"]]:
        """The lanes of each kind, with the kind."""
        for kind, group in self.group.split(kinds):
            chosen = kinds == kind
            addresses, sizes = (
                each if each is None else each[chosen]
                for each in (self.addresses, self.sizes)
            )
            yield kind, Part(self.space, group, addresses, sizes)


def parts(
    space: str, group: Group, address: Value, sizes: Lanes | None = None
) -> Iterator[Part]:
    """Splits an access into lanes of known and unknown addresses, and by space."""
    if address.known is False:
        yield Part(space, group)
        return
    addresses = spread(address.bits, group.size)
    whole = Part(space, group, addresses, sizes)
    if space != "generic" and address.known is True:
        yield whole
        return
    windows = addresses // WINDOW_BYTES if space == "generic" else 0 * addresses
    windows = np.where(address.known, windows, _UNKNOWN_WINDOW)
    for window, part in whole.split(windows):
        assert part.addresses is not None
        if window == _UNKNOWN_WINDOW:
            yield replace(part, addresses=None)
        elif window in _WINDOW_NAMES:
            inside = part.addresses - window * WINDOW_BYTES
            yield replace(part, space=_WINDOW_NAMES[window], addresses=inside)
        else:
            yield replace(part, space="global" if space == "generic" else space)
