"""The launch that is simulated, and the results."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from compare.ptx_simulator.values import Bits, Lanes

Triple = tuple[int, int, int]

# In which the warps of a block are run, one after the other: forward, reverse or
# random:SEED. Empty for side by side.
Order = str


@dataclass(frozen=True)
class TensorArgument:
    """A tensor that a kernel gets a pointer to."""

    name: str  # for a reader, such as `out`
    position: int  # of the pointer among the kernel's parameters
    # Made up: aligned as the real one, and far from every other, so that an address out
    # of bounds still tells whose bounds.
    address: int
    bytes: int  # from the address on, which may be read and written
    # Whether it holds integers. Each is taken for 0, since addresses and branches can
    # depend on them; the content of other tensors is unknown.
    holds_indices: bool = False


@dataclass(frozen=True)
class TensorMap:
    """A parameter that describes a tensor to the tensor memory accelerator."""

    position: int  # among the kernel's parameters
    address: int  # where the tensor begins
    element_bytes: int  # of a number in it
    sizes: tuple[int, ...]  # of the tensor, in elements, the contiguous dimension first
    strides: tuple[int, ...]  # in bytes, of all dimensions but the first
    box: tuple[int, ...]  # what one copy moves, in elements
    # Within so many bytes of shared memory, 32, 64 or 128, chunks of 16 bytes change
    # places; 0 for none.
    swizzle_bytes: int = 0
    rounds_to_tf32: bool = False  # float32, as it is loaded


@dataclass(frozen=True)
class Launch:
    """A launch, as far as the kernel's own code can tell."""

    grid: Triple  # blocks in x, y and z
    block: Triple  # threads of a block in x, y and z
    # Of the PTX entry, in order: addresses, integers, and the bits of anything else,
    # the first byte the lowest; for a tensor map its tensor's address.
    parameters: tuple[int, ...]
    tensors: tuple[TensorArgument, ...]  # what the addresses among them point to
    # Shared memory of a block on top of what the PTX declares.
    dynamic_shared_bytes: int = 0
    tensor_maps: tuple[TensorMap, ...] = ()  # those among the parameters
    cluster: Triple = (1, 1, 1)  # blocks that can reach each other's shared memory

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
    """

    index: int  # of the instruction in the listing
    space: str  # `global`, `shared` or `local`; `generic` if the address is unknown
    is_store: bool  # whether it writes
    argument: str  # the tensor's name; empty if there is none, or none that is known
    # By one execution; for `ldmatrix` and `stmatrix` the row whose address a thread
    # gives; 0 for a bulk copy, whose size is not fixed.
    bytes_per_thread: int
    requests: int = 0  # executions, counted once for each warp
    bytes: int = 0  # by all active threads together
    # Of 32 bytes of global or local memory, each counted once for each request that
    # touches it.
    sectors: int = 0
    ideal_sectors: int = 0  # the fewest that hold as many different bytes
    wavefronts: int = 0  # passes that the banks of shared memory need
    bank_conflicts: int = 0  # those of them that other addresses would have spared
    # Requests with an unknown address; only these and bytes are counted.
    unknown: int = 0
    # Of a tensor: the bits that any address has; where each lane went first, or -1.
    address_bits: int = 0
    first_addresses: Lanes | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True)
class OutOfBounds:
    """An access of one thread out of bounds."""

    index: int  # of the instruction in the listing
    argument: str  # the tensor next to the address, or `shared memory`
    block: Triple  # in x, y and z
    thread: Triple  # in x, y and z
    offset: int  # in bytes, from the tensor's first byte to the first that is accessed
    is_store: bool  # whether it writes


@dataclass(frozen=True)
class Fault:
    """What a kernel does that it must not, seen where memory has contents."""

    index: int  # of the instruction in the listing
    what: str  # such as "reads shared memory that nothing was written to"
    block: Triple  # in x, y and z, of the first thread that does it
    thread: Triple  # in x, y and z
    other: int | None = None  # the index of another instruction that takes part


@dataclass(frozen=True)
class Simulation:
    """The run of some blocks of a launch."""

    blocks: int  # how many were run
    total_blocks: int  # of the launch
    threads: int  # of a block
    # For each instruction of the listing, how many threads executed it. A thread whose
    # predicate is false does not; a branch counts, taken or not.
    executed: tuple[int, ...]
    # How many warps did, each counted once where it acts as one.
    warp_executed: tuple[int, ...]
    accesses: tuple[MemoryAccess, ...]  # by instruction
    out_of_bounds: tuple[OutOfBounds, ...]  # the first few threads of every instruction
    # The instructions whose predicate or target is unknown. They are taken for
    # executed, and a branch for not taken, unless the kernel ends right behind it: what
    # is counted until its two ways meet is a guess.
    unknown_branches: tuple[int, ...]
    # What could not be simulated; its results are unknown.
    unknown_opcodes: tuple[str, ...]
    # Whether all threads came to their end. Otherwise they were stopped, in an endless
    # loop or at a barrier that not all threads come to.
    is_complete: bool
    # The instructions that warps of the first block execute, by the warp's number: the
    # first warp, and the first of each other role.
    traces: Mapping[int, tuple[int, ...]]
    # How often each byte of each tensor was written, if asked for.
    store_counts: Mapping[str, Bits] = field(default_factory=dict)
    # What was done that must not be; only a run with contents can tell.
    faults: tuple[Fault, ...] = ()

    @property
    def is_exact(self) -> bool:
        """Whether nothing was guessed or left out in the blocks that were run."""
        return self.is_complete and not (self.unknown_branches or self.unknown_opcodes)

    @property
    def executed_per_thread(self) -> float:
        """Instructions that a thread executes, on average."""
        return sum(self.executed) / (self.blocks * self.threads)

    @property
    def executed_words(self) -> str:
        """The same in a report, which does not know it of threads that were stopped."""
        return f"{self.executed_per_thread:.0f}" if self.is_complete else "-"
