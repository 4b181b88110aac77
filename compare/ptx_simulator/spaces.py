"""Where a kernel's variables lie, and which space a generic address is in."""

from compare.assembly.listing import Listing
from compare.ptx_simulator.declarations import Declarations
from compare.ptx_simulator.meter import END_OF_TENSORS

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

_DYNAMIC_SHARED_ALIGN = 16
_PARAMETER_BYTES = 4096  # more than one can have


class Addresses:
    """Gives every variable and parameter of the kernel an address in its space.

    Attributes:
        by_name: the address in its own space of each that has one.
        shared_bytes: of a block, what the launch adds included.
        local_bytes: of a thread.
    """

    def __init__(
        self, listing: Listing, declarations: Declarations, dynamic_shared_bytes: int
    ) -> None:
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
        align = _DYNAMIC_SHARED_ALIGN
        start = -(-ends["shared"] // align) * align
        for each in named:
            if not each.bytes and each.space == "shared":
                self.by_name[each.name] = start
        self.shared_bytes = max(ends["shared"], start + dynamic_shared_bytes)
        self.local_bytes = ends["local"]
