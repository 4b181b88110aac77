"""The traffic of a kernel, tensor by tensor, from the simulation of its PTX."""

from __future__ import annotations

from dataclasses import dataclass

from compare.ptx_simulator import Launch, MemoryAccess, Simulation

SHARED = "shared memory"


@dataclass(frozen=True)
class Movement:
    """All loads of a tensor, or all stores to it, in the blocks that were simulated."""

    argument: str  # the tensor's name, or SHARED; empty where the address is unknown
    is_store: bool
    # By one thread in one instruction, the widest first; 0 where one thread moves for
    # all, and the instruction does not tell how much.
    access_bytes: tuple[int, ...]
    requests: int  # executions, counted once for each warp
    bytes: int  # by all active threads together
    sectors: int  # of 32 bytes, that these requests touch
    fewest_sectors: int  # that would hold as many different bytes
    wavefronts: int  # passes that the banks of shared memory need
    bank_conflicts: int  # those of them that other addresses would have spared
    instructions: tuple[int, ...]  # indices in the PTX

    @property
    def widths(self) -> str:
        """The widths of the accesses for a reader."""
        return ", ".join(str(each or "bulk") for each in self.access_bytes)


def movements(simulation: Simulation) -> tuple[Movement, ...]:
    """By tensor, loads before stores; shared memory comes last."""
    groups: dict[tuple[str, bool], list[MemoryAccess]] = {}
    for access in simulation.accesses:
        if access.space != "local":
            argument = SHARED if access.space == "shared" else access.argument
            groups.setdefault((argument, access.is_store), []).append(access)
    order = sorted(groups, key=lambda key: (key[0] == SHARED, key[0], key[1]))
    return tuple(_movement(*key, groups[key]) for key in order)


def _movement(argument: str, is_store: bool, accesses: list[MemoryAccess]) -> Movement:
    widths = {each.bytes_per_thread for each in accesses}
    return Movement(
        argument=argument,
        is_store=is_store,
        access_bytes=tuple(sorted(widths, reverse=True)),
        requests=sum(each.requests for each in accesses),
        bytes=sum(each.bytes for each in accesses),
        sectors=sum(each.sectors for each in accesses),
        fewest_sectors=sum(each.ideal_sectors for each in accesses),
        wavefronts=sum(each.wavefronts for each in accesses),
        bank_conflicts=sum(each.bank_conflicts for each in accesses),
        instructions=tuple(sorted({each.index for each in accesses})),
    )


def sampled_elements(
    simulation: Simulation, launch: Launch, element_bytes: int
) -> float:
    """How many elements of the largest tensor the simulated blocks are there for.

    Two sides simulate different numbers of blocks, which own different numbers of rows:
    their counts are comparable only for each element.
    """
    largest = max((each.bytes for each in launch.tensors), default=0)
    return largest / element_bytes * simulation.blocks / simulation.total_blocks


@dataclass(frozen=True)
class Totals:
    """The traffic of the simulated blocks altogether."""

    global_bytes: int  # from and to global memory, by all active threads
    sectors: int  # of 32 bytes, that their requests touch
    fewest_sectors: int  # that would hold as many different bytes
    bank_conflicts: int  # passes of shared memory that could have been spared


def totals(simulation: Simulation) -> Totals:
    """Sums up all accesses."""
    outside = [
        each for each in simulation.accesses if each.space in ("global", "generic")
    ]
    return Totals(
        global_bytes=sum(each.bytes for each in outside),
        sectors=sum(each.sectors for each in outside),
        fewest_sectors=sum(each.ideal_sectors for each in outside),
        bank_conflicts=sum(each.bank_conflicts for each in simulation.accesses),
    )
