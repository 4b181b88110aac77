"""A launch in words: blocks and threads, how they fill a GPU, and how many lie idle.

CUDA's blocks and Triton's programs are the same to the GPU, and so are they here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING

import networkx

from compare.assembly.control_flow import find_loops
from compare.assembly.listing import Listing
from compare.code.architectures import parse_architecture
from compare.code.ways import Ways
from compare.code.words import amount, counted
from compare.ptx_simulator import Simulation

if TYPE_CHECKING:  # importing the model imports torch and Triton
    from compare.code.kernel_code import KernelCode


def sentences(code: KernelCode) -> tuple[str, ...]:
    """The launch of a kernel in two or three sentences of its language's words."""
    noun = "program" if code.language == "triton" else "block"
    masked = masked_fraction(code.ptx, code.simulation)
    return (
        _division_of_work(code, noun),
        _filling_of_the_gpu(code, noun),
        *([] if masked is None else [_masking(code, masked, noun)]),
    )


def _division_of_work(code: KernelCode, noun: str) -> str:
    threads = counted(code.launch.threads_per_block, "thread")
    warps = counted(code.warps_per_block, "warp")
    if code.language == "triton":
        warps = f"num_warps={code.warps_per_block}"
    return (
        f"{counted(code.launch.blocks, noun)} of {threads} ({warps}); for each thread"
        f" {amount(code.elements_per_thread)} elements of the output on average."
    )


def _filling_of_the_gpu(code: KernelCode, noun: str) -> str:
    held, blocks = code.occupancy, code.launch.blocks
    used = f"{_percent(held.fraction)} of its warps"
    if held.fraction < 1:
        used += f", limited by {held.limits}"
    holds = f"An SM holds {counted(held.blocks_per_sm, noun)} at a time ({used})"
    n_sms = parse_architecture(code.arch).multiprocessors
    at_once = n_sms * held.blocks_per_sm
    waves, tail = divmod(blocks, at_once)
    if blocks < n_sms:
        return f"{holds}, but at most {blocks} of {n_sms} SMs get one."
    if not waves:
        share = f"{_percent(blocks / at_once)} of a wave over {n_sms} SMs"
        return f"{holds}: {share}, so that all {blocks:,} run at once."
    if not tail:
        return f"{holds}: exactly {counted(waves, 'wave')} over {n_sms} SMs."
    return (
        f"{holds}: {blocks / at_once:,.2f} waves over {n_sms} SMs, the last of them"
        f" {_percent(tail / at_once)} full."
    )


def _masking(code: KernelCode, masked: float, noun: str) -> str:
    share = _percent(masked) if masked else "None"
    text = f"{share} of its loads and stores of global memory are masked off"
    if code.simulation.blocks < code.launch.blocks:
        of_all = f"{code.simulation.blocks:,} of {code.launch.blocks:,} {noun}s"
        return f"{text} (seen in {of_all})."
    return f"{text}."


def _percent(part: float) -> str:
    """Rounded, but neither to nothing nor to all unless it is."""
    if 0 < part < 0.005:
        return "under 1%"
    return "over 99%" if 0.995 <= part < 1 else f"{part:.0%}"


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
    ways, loops = Ways(ptx), find_loops(ptx)
    branches = simulation.unknown_branches
    doubtful = frozenset[int]().union(*map(ways.depending_on, branches))
    if not simulation.is_complete or accesses.keys() & doubtful:
        return None
    graph = ways.graph
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
    # Compilers put a loop's odd turn in front of it or behind, and parts of the source
    # are for other launches. An access that no thread makes is masked only if others of
    # the same place in the source are made: those of another column, or row.
    place_of = {
        index: (loop_of.get(index), each.frames) for index, each in accesses.items()
    }
    used = {place for index, place in place_of.items() if simulation.executed[index]}
    masked = 0
    for head, count in turns.items():
        weights = {
            index: accesses[index].access_bytes
            for index, place in place_of.items()
            if place in used and place[0] == head
        }
        # A turn that is broken off does not count, but may have moved something.
        masked += max(0, count * _heaviest_way(graph, weights) - moved[head])
    total = moved.total() + masked
    return masked / total if total else None


def _heaviest_way(graph: networkx.DiGraph, weights: Mapping[int, int]) -> int:
    """The greatest sum of weights along a way through a graph without loops."""
    sums: dict[int, int] = {}
    for index in networkx.topological_sort(graph):
        before = max((sums[each] for each in graph.predecessors(index)), default=0)
        sums[index] = before + weights.get(index, 0)
    return max(sums.values())
