"""Runs blocks of a launch, and sums up what they did."""

import contextlib
import gc
from collections.abc import Iterator, Sequence

import numpy as np

from compare.assembly.listing import Listing
from compare.ptx_simulator.batch import Memory
from compare.ptx_simulator.bounds import Bounds, Watch
from compare.ptx_simulator.contents import Contents
from compare.ptx_simulator.counters import Counters
from compare.ptx_simulator.group import Layout
from compare.ptx_simulator.machine import Machine
from compare.ptx_simulator.meter import Meter
from compare.ptx_simulator.program import Program
from compare.ptx_simulator.simulation import Fault, Launch, Order, Simulation
from compare.ptx_simulator.spaces import WINDOWS

# Warps with roles of their own share out the registers of their block by it.
_ROLE = "setmaxnreg"

# Threads that run side by side; the registers of more leave the caches. No power of 2,
# of which arrays one behind the other would share few places of a cache.
_LANES_AT_ONCE = 5 << 13
# Threads of a sample; fewer take as long: an instruction costs more than its lanes.
_SAMPLED_LANES = 1 << 14

# By kernel and text of a listing, what was asked for last behind all others.
_programs: dict[tuple[str, str], Program] = {}
_KEPT_PROGRAMS = 12


def simulate(
    listing: Listing,
    launch: Launch,
    blocks: Sequence[int] | None = None,
    *,
    counts_stores: bool = False,
    contents: Contents | None = None,
    ends_at_fault: bool = False,
    order: Order = "",
) -> Simulation:
    """Runs blocks of a launch, without a GPU.

    Without contents of tensors, integers are followed and accesses counted. With them
    everything is computed and nothing counted but the instructions.

    Args:
        listing: the kernel's PTX.
        launch: how it is launched.
        blocks: which to run, counted along x first; all of them if not given, or of
            many the first, the last and some between, unless there are contents.
        counts_stores: whether to count how often each byte of each tensor is written.
        contents: what tensors hold, and where results go.
        ends_at_fault: runs no further once there is something to tell.
        order: in which a block's warps run, one by one, and asynchronous work late.

    Raises:
        ValueError: the launch has more or fewer parameters than the kernel.
    """
    program = program_of(listing)
    addresses = program.decoder.addresses
    memory = _memory(program, launch, contents, is_late=bool(order))
    bounds = Bounds(launch, addresses.shared_bytes_of(launch))
    meter = Meter(launch, bounds, counts_stores=counts_stores)
    watch = Watch(bounds, memory.contents) if memory.contents else meter
    if blocks is None:
        blocks = _all_blocks(launch) if contents else _sample(launch)
    counters = _run(
        program, launch, blocks, watch, memory, order, ends_at_fault=ends_at_fault
    )
    indices = range(len(listing.instructions))
    unknown_opcodes = {
        opcode
        for index, opcode in program.unknown_opcodes.items()
        if counters.executed[index]
    }
    return Simulation(
        blocks=counters.blocks,
        total_blocks=launch.blocks,
        threads=launch.threads_per_block,
        executed=tuple(map(counters.executed.__getitem__, indices)),
        warp_executed=tuple(map(counters.warp_executed.__getitem__, indices)),
        accesses=meter.accesses(),
        out_of_bounds=tuple(bounds.out_of_bounds),
        unknown_branches=tuple(sorted(counters.unknown)),
        unknown_opcodes=tuple(sorted(unknown_opcodes)),
        is_complete=counters.is_complete,
        traces=_traces(listing, counters.trace),
        store_counts=meter.store_counts,
        faults=_faults(memory, bounds) if contents else (),
    )


def _run(
    program: Program,
    launch: Launch,
    blocks: Sequence[int],
    watch: Meter | Watch,
    memory: Memory,
    order: Order,
    *,
    ends_at_fault: bool,
) -> Counters:
    """Runs blocks, as many of them side by side as there is room for."""
    counters = Counters()
    at_once = _blocks_at_once(launch)
    with np.errstate(all="ignore"):  # overflows and NaN are what a GPU gives as well
        while counters.blocks < len(blocks) and counters.is_complete:
            some = blocks[counters.blocks : counters.blocks + at_once]
            is_traced = not counters.blocks and memory.contents is None
            Machine(
                program,
                Layout(launch, some),
                watch,
                memory,
                counters,
                is_traced=is_traced,
                ends_at_fault=ends_at_fault,
                order=order,
            ).run()
            counters.blocks += len(some)
    return counters


def _faults(memory: Memory, bounds: Bounds) -> tuple[Fault, ...]:
    """All that was found, an instruction at a time."""
    outside: dict[int, Fault] = {}
    for each in bounds.out_of_bounds:
        verb = "writes" if each.is_store else "reads"
        what = f"{verb} at byte {each.offset} of {each.argument}, out of bounds"
        outside.setdefault(each.index, Fault(each.index, what, each.block, each.thread))
    return (*outside.values(), *memory.faults)


def program_of(listing: Listing) -> Program:
    """The program of a listing, which is kept: to take it apart takes a while."""
    key = listing.kernel, listing.text
    with _no_collection():
        program = _programs.pop(key, None) or Program(listing)
    _programs[key] = program  # behind those that were asked for before it
    if len(_programs) > _KEPT_PROGRAMS:
        del _programs[next(iter(_programs))]
    return program


@contextlib.contextmanager
def _no_collection() -> Iterator[None]:
    """Rests the garbage collector where much is made that stays.

    It would go through all of that again and again, for three times as long as it takes
    to make it.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def _memory(
    program: Program, launch: Launch, contents: Contents | None, *, is_late: bool
) -> Memory:
    """What the launch brings along.

    Raises:
        ValueError: it has more or fewer parameters than the kernel.
    """
    decoder = program.decoder
    names, numbers = decoder.parameters, launch.parameters
    if len(names) != len(numbers):
        raise ValueError(
            f"{program.kernel} has {len(names)} parameters, the launch has "
            f"{len(numbers)}"
        )
    places = decoder.addresses.by_name
    return Memory(
        parameters=dict(zip(names, numbers, strict=True)),
        tensor_maps={
            WINDOWS["param"] + places[names[each.position]]: each
            for each in launch.tensor_maps
        },
        contents=contents and contents.beside(program.variables("global")),
        constants=Contents(program.variables("const")),
        is_late=is_late,
        faults=[],
    )


def _blocks_at_once(launch: Launch) -> int:
    """How many blocks run side by side: whole clusters."""
    layout = Layout(launch, [0])
    clusters = _LANES_AT_ONCE // layout.lanes // layout.cluster_size
    return max(1, clusters) * layout.cluster_size


def _all_blocks(launch: Launch) -> tuple[int, ...]:
    """All blocks, those of a cluster as neighbours, by their rank in it."""
    numbers = np.arange(launch.blocks).reshape(launch.grid[::-1])
    z, y, x = launch.cluster[::-1]
    depth, height, width = numbers.shape
    by_cluster = numbers.reshape(depth // z, z, height // y, y, width // x, x)
    ordered = by_cluster.transpose(0, 2, 4, 1, 3, 5).reshape(-1)
    return tuple(ordered.tolist())


def _traces(
    listing: Listing, executed: Sequence[tuple[int, int]]
) -> dict[int, tuple[int, ...]]:
    """The instructions of the first warp, and of the first one of each other role."""
    warps = {0}
    seen: set[int] = set()
    for place, members in executed:
        if place not in seen and listing.instructions[place].opcode.startswith(_ROLE):
            seen.add(place)
            warps.add((members & -members).bit_length() - 1)
    return {
        warp: tuple(place for place, members in executed if members >> warp & 1)
        for warp in sorted(warps)
    }


def _sample(launch: Launch) -> tuple[int, ...]:
    """The blocks to run: all, or as many as give a picture of the rest."""
    count = max(2, _SAMPLED_LANES // Layout(launch, [0]).lanes)
    if launch.blocks <= count:
        return tuple(range(launch.blocks))
    return tuple(round(each) for each in np.linspace(0, launch.blocks - 1, count))
