"""What a launch is: its blocks and threads, how they fill a GPU, and what lies idle.

CUDA's blocks and Triton's programs are the same to the GPU, and so are they here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import networkx

from compare.assembly.control_flow import find_loops
from compare.assembly.listing import Instruction, Listing
from compare.code.architectures import WARP_SIZE, Architecture
from compare.code.occupancy import Occupancy
from compare.ptx_simulator import Simulation

if TYPE_CHECKING:  # importing the model imports torch and Triton
    from compare.code.kernel_code import KernelCode, Side

_LIMITS = {
    "registers": "registers",
    "shared memory": "shared memory",
    "threads": "the number of threads",
    "blocks": "the number of blocks",
}


@dataclass(frozen=True)
class LaunchFacts:
    """One launch of a kernel on the GPU of an architecture.

    Attributes:
        blocks: of the launch; Triton calls them programs.
        threads_per_block: each of which computes several elements, or one, or none.
        warps_per_block: of 32 threads; the last one may be incomplete.
        elements_per_thread: of the output, on average.
        multiprocessors: (SMs) of the GPU.
        occupancy: how many blocks one of them holds at a time.
        waves: how often the GPU is filled with blocks until all have run.
        tail: how full the last wave is: more than 0, and 1 if it is full.
        masked: the part of the loads and stores that threads are kept from, as
            `masked_fraction` finds it in the blocks that were simulated.
        simulated_blocks: how many these are.
    """

    blocks: int
    threads_per_block: int
    warps_per_block: int
    elements_per_thread: float
    multiprocessors: int
    occupancy: Occupancy
    waves: float
    tail: float
    masked: float | None
    simulated_blocks: int


def facts(
    code: KernelCode,
    occupancy: Occupancy,
    architecture: Architecture,
    simulation: Simulation,
) -> LaunchFacts:
    """Gathers what there is to know of the launch of a kernel.

    Args:
        code: the kernel.
        occupancy: that of the kernel on the architecture.
        architecture: the one that the kernel was compiled for.
        simulation: of all blocks of the launch, or of many. Among a few, those at the
            edge of the data would weigh too much.
    """
    blocks_at_once = architecture.multiprocessors * occupancy.blocks_per_sm
    return LaunchFacts(
        blocks=code.blocks,
        threads_per_block=code.threads_per_block,
        warps_per_block=-(-code.threads_per_block // WARP_SIZE),
        elements_per_thread=code.elements_per_thread,
        multiprocessors=architecture.multiprocessors,
        occupancy=occupancy,
        waves=code.blocks / blocks_at_once,
        tail=(code.blocks % blocks_at_once or blocks_at_once) / blocks_at_once,
        masked=masked_fraction(code.ptx, simulation),
        simulated_blocks=simulation.blocks,
    )


def sentences(facts: LaunchFacts, side: Side) -> tuple[str, ...]:
    """The launch in two or three sentences, in the words of its side."""
    noun = "program" if side == "triton" else "block"
    first = _division_of_work(facts, side, noun)
    second = _filling_of_the_gpu(facts, noun)
    if facts.masked is None:
        return first, second
    return first, second, _masking(facts, facts.masked, noun)


def _division_of_work(facts: LaunchFacts, side: Side, noun: str) -> str:
    threads = _counted(facts.threads_per_block, "thread")
    if side == "triton":
        warps = f"num_warps={facts.warps_per_block}"
    else:
        warps = _counted(facts.warps_per_block, "warp")
    elements = facts.elements_per_thread
    average = f"{elements:.3g}" if elements < 100 else f"{elements:,.0f}"
    return (
        f"{_counted(facts.blocks, noun)} of {threads} ({warps}); for each thread"
        f" {average} elements of the output on average."
    )


def _filling_of_the_gpu(facts: LaunchFacts, noun: str) -> str:
    occupancy = facts.occupancy
    used = f"{_percent(occupancy.fraction)} of its warps"
    if occupancy.fraction < 1:
        limits = " and ".join(_LIMITS[each] for each in occupancy.limited_by)
        used += f", limited by {limits}"
    holds = f"An SM holds {_counted(occupancy.blocks_per_sm, noun)} at a time ({used})"
    sms = f"{facts.multiprocessors} SMs"
    if facts.blocks < facts.multiprocessors:
        return f"{holds}, but at most {facts.blocks} of {sms} get one."
    if facts.waves < 1:
        share = f"{_percent(facts.waves)} of a wave over {sms}"
        return f"{holds}: {share}, so that all {facts.blocks:,} run at once."
    if facts.tail == 1:
        return f"{holds}: exactly {_counted(round(facts.waves), 'wave')} over {sms}."
    return (
        f"{holds}: {facts.waves:,.2f} waves over {sms}, the last of them"
        f" {_percent(facts.tail)} full."
    )


def _masking(facts: LaunchFacts, masked: float, noun: str) -> str:
    share = _percent(masked) if masked else "None"
    text = f"{share} of its loads and stores of global memory are masked off"
    if facts.simulated_blocks < facts.blocks:
        of_all = f"{facts.simulated_blocks:,} of {facts.blocks:,} {noun}s"
        return f"{text} (seen in {of_all})."
    return f"{text}."


def _percent(part: float) -> str:
    """Rounded, but neither to nothing nor to all unless it is."""
    if 0 < part < 0.005:
        return "under 1%"
    if 0.995 <= part < 1:
        return "over 99%"
    return f"{part:.0%}"


def _counted(number: int, noun: str) -> str:
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


# ---- Masks ----


def masked_fraction(ptx: Listing, simulation: Simulation) -> float | None:
    """The part of the loads and stores of global memory that threads are kept from.

    It is what tiles cover beyond the data, as when rows of 781 columns are padded to
    1024. Triton keeps a thread from an access by a predicate, CUDA by a branch around
    it or an early return; all of these are masks. So the bytes that the threads move
    are set against what they would move if each of them, in every turn of a loop, took
    the way with the most bytes. What one thread moves for others is masked in these.

    Returns:
        0 to 1, or None if there is no access, or if masks depend on loaded data.
    """
    # A bulk copy is made by one thread for all, so that it has no masks.
    accesses = {
        each.index: each
        for each in ptx.in_category("global load", "global store", "async copy")
        if "bulk" not in each.opcode
    }
    graph, loops = _flow(ptx), find_loops(ptx)
    if not simulation.is_complete or accesses.keys() & _doubtful(graph, simulation):
        return None
    turns: dict[int | None, int] = {None: simulation.blocks * simulation.threads}
    for loop in loops:
        ends = [each for each in graph.predecessors(loop.head) if each in loop.body]
        turns[loop.head] = sum(simulation.executed[each] for each in ends)
        graph.remove_edges_from([(each, loop.head) for each in ends])
    if not networkx.is_directed_acyclic_graph(graph):
        return None  # a loop with several entries, which no compiler should make
    # The outer loops come first, so that of each instruction the innermost one stays.
    loop_of = {index: loop.head for loop in loops for index in loop.body}
    moved = Counter[int | None]()
    for access in simulation.accesses:
        if access.index in accesses and access.space == "global":
            moved[loop_of.get(access.index)] += access.bytes
    needed = _needed(accesses, loop_of, simulation)
    masked = 0
    for head, count in turns.items():
        weights = {
            index: access.access_bytes
            for index, access in needed.items()
            if loop_of.get(index) == head
        }
        # A turn that is broken off does not count, but may have moved something.
        masked += max(0, count * _heaviest_way(graph, weights) - moved[head])
    total = moved.total() + masked
    return masked / total if total else None


def _flow(ptx: Listing) -> networkx.DiGraph:
    """Which instruction can follow which; the end of the kernel stands behind all."""
    end = len(ptx.instructions)
    places = {label: each.index for each in ptx.instructions for label in each.labels}
    graph = networkx.DiGraph()
    graph.add_nodes_from(range(end + 1))
    for each in ptx.instructions:
        leaves = each.opcode.partition(".")[0] in ("ret", "exit", "trap")
        if each.branch_target is not None:
            graph.add_edge(each.index, places.get(each.branch_target, end))
        elif leaves:
            graph.add_edge(each.index, end)
        if each.predicate or (each.branch_target is None and not leaves):
            graph.add_edge(each.index, each.index + 1)
    return graph


def _doubtful(graph: networkx.DiGraph, simulation: Simulation) -> set[int]:
    """The instructions of which it is unknown how many threads execute them."""
    end = len(graph) - 1
    meetings = networkx.immediate_dominators(graph.reverse(copy=False), end)
    doubtful = set(simulation.unknown_branches)
    for branch in simulation.unknown_branches:
        seen = {meetings.get(branch)}
        waiting = [*graph.successors(branch)]
        while waiting:
            index = waiting.pop()
            if index not in seen:
                seen.add(index)
                doubtful.add(index)
                waiting.extend(graph.successors(index))
    return doubtful


def _needed(
    accesses: Mapping[int, Instruction],
    loop_of: Mapping[int, int],
    simulation: Simulation,
) -> dict[int, Instruction]:
    """The accesses without those that no thread makes, for another reason than a mask.

    Compilers put a loop's odd turn in front of it or behind, and parts of the source
    are for other launches. A mask keeps all threads from an access only where they make
    others of the same place in the source: those of another column, or row.
    """
    used = {
        (access.frames, loop_of.get(index))
        for index, access in accesses.items()
        if simulation.executed[index]
    }
    return {
        index: access
        for index, access in accesses.items()
        if (access.frames, loop_of.get(index)) in used
    }


def _heaviest_way(graph: networkx.DiGraph, weights: Mapping[int, int]) -> int:
    """The greatest sum of weights along a way through a graph without loops."""
    sums: dict[int, int] = {}
    for index in networkx.topological_sort(graph):
        before = max((sums[each] for each in graph.predecessors(index)), default=0)
        sums[index] = before + weights.get(index, 0)
    return max(sums.values())
