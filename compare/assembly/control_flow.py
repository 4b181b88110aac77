"""Which ways lead through a listing, and its loops."""

from collections.abc import Iterable
from dataclasses import dataclass

import networkx

from compare.assembly.listing import Listing

END = -1  # of the kernel, as a place to go to
_JUMPS = frozenset(
    {"bra", "brx", "ret", "exit", "trap", "BRA", "BRX", "RET", "EXIT", "KILL"}
)


@dataclass(frozen=True)
class Loop:
    """A natural loop: what is executed again and again."""

    head: int  # the index of the instruction through which it is entered
    # The indices of all its instructions, those of inner loops included.
    body: frozenset[int]


def flow_graph(listing: Listing) -> networkx.DiGraph:
    """From each instruction to those that may follow it, and to the end.

    What jumps to where nobody knows goes there, too.
    """
    instructions = listing.instructions
    places = {label: each.index for each in instructions for label in each.labels}
    graph = networkx.DiGraph()
    graph.add_nodes_from([*range(len(instructions)), END])
    followers = [*range(1, len(instructions)), END]
    for each, follower in zip(instructions, followers, strict=True):
        target = each.branch_target or ""
        if jumps := each.stem in _JUMPS:
            graph.add_edge(each.index, places.get(target, END))
        # That of BRA.DIV, a branch of warps whose threads have parted, is an operand.
        has_condition = each.predicate or (target and each.operands[:-1])
        if has_condition or not jumps:
            graph.add_edge(each.index, follower)
    return graph


def meetings(graph: networkx.DiGraph) -> dict[int, int]:
    """For each instruction the first that every way from it to the end passes."""
    reverse = graph.reverse(copy=False)
    found: dict[int, int] = networkx.immediate_dominators(reverse, END)
    return found


def ways(graph: networkx.DiGraph, starts: Iterable[int], meeting: int) -> set[int]:
    """All instructions on the ways from some to where they meet, which is not one."""
    ends = {meeting, END}
    seen = ends.copy()
    waiting = list(starts)
    while waiting:
        place = waiting.pop()
        if place not in seen:
            seen.add(place)
            waiting += graph.successors(place)
    return seen - ends


def find_loops(listing: Listing) -> tuple[Loop, ...]:
    """The loops in the order of their heads; an outer one stands before its inner ones.

    A branch backwards alone is no proof: assemblers also put rare code at the end, and
    let it jump back. A loop is a way back to a place that every way there passes.
    """
    return natural_loops(flow_graph(listing)) if listing.instructions else ()


def natural_loops(graph: networkx.DiGraph) -> tuple[Loop, ...]:
    """Those of a graph whose way begins at 0, likewise."""
    dominators = networkx.immediate_dominators(graph, 0)
    tree = networkx.DiGraph((dominators[each], each) for each in dominators if each)
    tree.add_node(0)
    loops = []
    for head in sorted(tree):
        if head and graph.in_degree(head) == 1:
            continue  # most instructions, which nothing leads back to
        passed = graph.subgraph({head, *networkx.descendants(tree, head)})
        if passed.in_degree(head):
            body = frozenset(networkx.ancestors(passed, head)) | {head}
            loops.append(Loop(head, body))
    return tuple(loops)
