"""What is simulated, and what comes of it."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from compare.ptx_simulator.values import Bits

Triple = tuple[int, int, int]


@dataclass(frozen=True)
class TensorArgument:
    """A tensor that a kernel gets a pointer to.

    Attributes:
        name: for a reader, such as `out`.
        position: of the pointer among the kernel's parameters.
        address: where it is taken to lie: aligned as the real one, and far from every
            other, so that an address out of bounds still tells whose bounds.
        bytes: from the address on, which may be read and written.
        holds_indices: whether it holds integers. Each is taken for 0, since where a
            kernel reads and what it leaves out can depend on them; of other tensors,
            nothing that they hold is known.
    """

    name: str
    position: int
    address: int
    bytes: int
    holds_indices: bool = False


@dataclass(frozen=True)
class TensorMap:
    """What a kernel's parameter tells the tensor memory accelerator of a tensor.

    Sizes are those of all dimensions, the contiguous one first.

    Attributes:
        position: among the kernel's parameters.
        address: where the tensor begins.
        element_bytes: of a number in it.
        sizes: of the tensor, in elements.
        strides: in bytes, of all dimensions but the first.
        box: what one copy moves, in elements.
    """

    position: int
    address: int
    element_bytes: int
    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    box: tuple[int, ...]


@dataclass(frozen=True)
class Launch:
    """How a kernel is launched, as far as its own code can tell.

    Attributes:
        grid: blocks in x, y and z.
        block: threads of a block in x, y and z.
        parameters: one for each of the PTX entry, in order: addresses, integers, and
            the bits of anything else, the first byte the lowest; of a tensor map its
            tensor's address.
        tensors: what the addresses among them point to.
        dynamic_shared_bytes: shared memory of a block on top of what the PTX declares.
        tensor_maps: those among the parameters.
    """

    grid: Triple
    block: Triple
    parameters: tuple[int, ...]
    tensors: tuple[TensorArgument, ...]
    dynamic_shared_bytes: int = 0
    tensor_maps: tuple[TensorMap, ...] = ()

    @property
    def blocks(self) -> int:
        """Blocks of the whole launch."""
        return math.prod(self.grid)

    @property
    def threads_per_block(self) -> int:
        """Threads of a block."""
        return math.prod(self.block)


@dataclass
class MemoryAccess:
    """What one instruction moved between a space and one tensor, in all blocks run.

    Instructions that move something twice have two of these: asynchronous copies read
    global and write shared memory, atomics read and write the same. So have the rare
    ones whose threads go to several spaces or tensors.

    Attributes:
        index: of the instruction in the listing.
        space: `global`, `shared` or `local`; `generic` where the address, and so the
            space, is unknown.
        is_store: whether it writes.
        argument: the tensor's name; empty if there is none, or none that is known.
        bytes_per_thread: by one execution; of `ldmatrix` and `stmatrix` the row whose
            address a thread gives, and 0 of a bulk copy, whose size is not fixed.
        requests: executions, counted once for each warp.
        bytes: by all active threads together.
        sectors: of 32 bytes, each counted once for each request that touches it; of
            global and local memory.
        ideal_sectors: the fewest that hold as many different bytes.
        wavefronts: passes that the banks of shared memory need.
        bank_conflicts: those of them that other addresses would have spared.
        unknown: requests with an address that cannot be known; of these there are
            requests and bytes alone, and the argument is empty.
    """

    index: int
    space: str
    is_store: bool
    argument: str
    bytes_per_thread: int
    requests: int = 0
    bytes: int = 0
    sectors: int = 0
    ideal_sectors: int = 0
    wavefronts: int = 0
    bank_conflicts: int = 0
    unknown: int = 0


@dataclass(frozen=True)
class OutOfBounds:
    """A thread that reads or writes what it must not.

    Attributes:
        index: of the instruction in the listing.
        argument: the tensor next to the address, or `shared memory`.
        block: in x, y and z.
        thread: in x, y and z.
        offset: in bytes, from where the tensor begins to the first byte accessed.
        is_store: whether it writes.
    """

    index: int
    argument: str
    block: Triple
    thread: Triple
    offset: int
    is_store: bool


@dataclass(frozen=True)
class Simulation:
    """What some blocks of a launch did.

    Attributes:
        blocks: how many were run.
        total_blocks: of the launch.
        threads: of a block.
        executed: for each instruction of the listing, how many threads executed it. A
            thread whose predicate is false does not; a branch counts, taken or not.
        warp_executed: the same, counted once for each warp that executes it together.
        accesses: by instruction.
        out_of_bounds: of every instruction the first few threads.
        unknown_branches: the instructions whose predicate, or whose target, could not
            be known. They are taken for executed, and a branch for not taken, unless
            the kernel ends right behind it: what is counted until its two ways meet is
            a guess.
        unknown_opcodes: what could not be simulated; its results are unknown.
        is_complete: whether all threads came to their end. Otherwise they were stopped,
            in an endless loop or at a barrier that not all threads come to.
        traces: the instructions that warps of the first block execute, by their number:
            the first one, and of those that do something else on purpose their first.
        store_counts: how often each byte was written, by tensor, where that was asked
            for.
    """

    blocks: int
    total_blocks: int
    threads: int
    executed: tuple[int, ...]
    warp_executed: tuple[int, ...]
    accesses: tuple[MemoryAccess, ...]
    out_of_bounds: tuple[OutOfBounds, ...]
    unknown_branches: tuple[int, ...]
    unknown_opcodes: tuple[str, ...]
    is_complete: bool
    traces: Mapping[int, tuple[int, ...]]
    store_counts: Mapping[str, Bits] = field(default_factory=dict)

    @property
    def is_exact(self) -> bool:
        """Whether nothing was guessed or left out in the blocks that were run."""
        return self.is_complete and not (self.unknown_branches or self.unknown_opcodes)

    @property
    def executed_per_thread(self) -> float:
        """Instructions that a thread executes, on average."""
        return sum(self.executed) / (self.blocks * self.threads)
