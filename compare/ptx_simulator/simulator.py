"""Runs blocks of a launch, and sums up what they did."""

from collections.abc import Sequence

import numpy as np

from compare.assembly.listing import Listing
from compare.ptx_simulator.group import Layout
from compare.ptx_simulator.machine import Counters, Machine
from compare.ptx_simulator.meter import Meter
from compare.ptx_simulator.program import Program
from compare.ptx_simulator.simulation import Launch, Simulation

# Warps with roles of their own share out the registers of their block by it.
_ROLE = "setmaxnreg"

# Threads that run side by side; the registers of more leave the caches.
_LANES_AT_ONCE = 1 << 15
# Threads of a sample; fewer take as long: an instruction costs more than its lanes.
_SAMPLED_LANES = 1 << 14


def simulate(
    listing: Listing,
    launch: Launch,
    blocks: Sequence[int] | None = None,
    *,
    counts_stores: bool = False,
) -> Simulation:
    """Runs blocks of a launch, without a GPU and without data.

    Args:
        listing: the kernel's PTX.
        launch: how it is launched.
        blocks: which to run, counted along x first; all of them if not given, or of
            many the first, the last and some between.
        counts_stores: whether to count how often each byte of each tensor is written.

    Raises:
        ValueError: the launch has more or fewer parameters than the kernel.
    """
    program = Program(listing, launch)
    if blocks is None:
        blocks = _sample(launch)
    shared_bytes = program.decoder.addresses.shared_bytes
    meter = Meter(launch, shared_bytes, counts_stores=counts_stores)
    counters = Counters()
    at_once = max(1, _LANES_AT_ONCE // Layout(launch, [0]).lanes)
    done = 0
    while done < len(blocks) and counters.is_complete:
        layout = Layout(launch, blocks[done : done + at_once])
        Machine(program, layout, meter, counters, is_traced=done == 0).run()
        done += len(layout.blocks)
    indices = range(len(listing.instructions))
    unknown_opcodes = {
        opcode
        for index, opcode in program.unknown_opcodes.items()
        if counters.executed[index]
    }
    return Simulation(
        blocks=done,
        total_blocks=launch.blocks,
        threads=launch.threads_per_block,
        executed=tuple(map(counters.executed.__getitem__, indices)),
        warp_executed=tuple(map(counters.warp_executed.__getitem__, indices)),
        accesses=meter.accesses(),
        out_of_bounds=tuple(meter.out_of_bounds),
        unknown_branches=tuple(sorted(counters.unknown)),
        unknown_opcodes=tuple(sorted(unknown_opcodes)),
        is_complete=counters.is_complete,
        traces=_traces(listing, counters.trace),
        store_counts=meter.store_counts,
    )


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
