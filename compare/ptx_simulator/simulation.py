"""The launch that is simulated, and the results."""

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
        address: made up: aligned as the real one, and far from every other, so that an
            address out of bounds still tells whose bounds.
        bytes: from the address on, which may be read and written.
        holds_indices: whether it holds integers. Each is taken for 0, since addresses
            and branches can depend on them; the content of other tensors is unknown.
    """

    name: str
    position: int
    address: int
    bytes: int
    holds_indices: bool = False


@dataclass(frozen=True)
class TensorMap:
    """A parameter that describes a tensor to the tensor memory accelerator.

    Attributes:
        position: among the kernel's parameters.
        address: where the tensor begins.
        element_bytes: of a number in it.
        sizes: of the tensor, in elements, the contiguous dimension first.
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
    """A launch, as far as the kernel's own code can tell.

    Attributes:
        grid: blocks in x, y and z.
        block: threads of a block in x, y and z.
        parameters: of the PTX entry, in order: addresses, integers, and the bits of
            anything else, the first byte the lowest; for a tensor map its tensor's
            address.
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
    """The accesses of one instruction to a space and a tensor, in all blocks run.

    An instruction has several if it loads and stores, as asynchronous copies and
    atomics do, or if its threads go to several spaces or tensors.

    Attributes:
        index: of the instruction in the listing.
        space: `global`, `shared` or `local`; `generic` if the address is unknown.
        is_store: whether it writes.
        argument: the tensor's name; empty if there is none, or none that is known.
        bytes_per_thread: by one execution; for `ldmatrix` and `stmatrix` the row whose
            address a thread gives; 0 for a bulk copy, whose size is not fixed.
        requests: executions, counted once for each warp.
        bytes: by all active threads together.
        sectors: of 32 bytes of global or local memory, each counted once for each
            request that touches it.
        ideal_sectors: the fewest that hold as many different bytes.
        wavefronts: passes that the banks of shared memory need.
        bank_conflicts: those of them that other addresses would have spared.
        unknown: requests with an unknown address; only these and bytes are counted.
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
    """An access of one thread out of bounds.

    Attributes:
        index: of the instruction in the listing.
        argument: the tensor next to the address, or `shared memory`.
        block: in x, y and z.
        thread: in x, y and z.
        offset: in bytes, from the tensor's first byte to the first that is accessed.
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
    """The run of some blocks of a launch.

    Attributes:
        blocks: how many were run.
        total_blocks: of the launch.
        threads: of a block.
        executed: for each instruction of the listing, how many threads executed it. A
            thread whose predicate is false does not; a branch counts, taken or not.
        warp_executed: how many warps did, each counted once where it acts as one.
        accesses: by instruction.
        out_of_bounds: the first few threads of every instruction.
        unknown_branches: the instructions whose predicate or target is unknown. They
            are taken for executed, and a branch for not taken, unless the kernel ends
            right behind it: what is counted until its two ways meet is a guess.
        unknown_opcodes: what could not be simulated; its results are unknown.
        is_complete: whether all threads came to their end. Otherwise they were stopped,
            in an endless loop or at a barrier that not all threads come to.
        traces: the instructions that warps of the first block execute, by the warp's
            number: the first warp, and the first of each other role.
        store_counts: how often each byte of each tensor was written, if asked for.
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
