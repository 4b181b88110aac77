"""The loops of a listing, found by what can be reached from where."""

from dataclasses import dataclass

import networkx

from compare.assembly.listing import Instruction, Listing

_LEAVES = frozenset({"ret", "exit", "trap", "EXIT", "RET", "KILL"})
_BRANCHES = frozenset({"bra", "brx", "BRA", "BRX"}) | _LEAVES


@dataclass(frozen=True)
class Loop:
    """A natural loop: what is executed again and again.

    Attributes:
        head: the index of the instruction through which it is entered.
        body: the indices of all its instructions, those of inner loops included.
    """

    head: int
    body: frozenset[int]


def find_loops(listing: Listing) -> tuple[Loop, ...]:
    """The loops in the order of their heads; an outer one stands before its inner ones.

    A branch backwards alone is no proof: assemblers also put rare code at the end, and
    let it jump back. A loop is a branch to a block that every way to the branch passes.
    """
    if not listing.instructions:
        return ()
    blocks = _basic_blocks(listing.instructions)
    graph = _control_flow_graph(listing.instructions, blocks)
    reachable = {0} | networkx.descendants(graph, 0)
    dominators = networkx.immediate_dominators(graph, 0)
    bodies: dict[int, set[int]] = {}
    for tail, head in graph.edges:
        if tail in reachable and _dominates(head, tail, dominators):
            bodies.setdefault(head, {head}).update(_natural_loop(graph, tail, head))
    return tuple(
        Loop(
            head=blocks[head].start,
            body=frozenset(index for block in bodies[head] for index in blocks[block]),
        )
        for head in sorted(bodies)
    )


def _basic_blocks(instructions: tuple[Instruction, ...]) -> list[range]:
    targets = {each.branch_target for each in instructions}
    starts = [
        index
        for index, each in enumerate(instructions)
        if index == 0
        or targets.intersection(each.labels)
        or instructions[index - 1].stem in _BRANCHES
    ]
    return [
        range(start, stop)
        for start, stop in zip(starts, [*starts[1:], len(instructions)], strict=True)
    ]


def _control_flow_graph(
    instructions: tuple[Instruction, ...], blocks: list[range]
) -> networkx.DiGraph:
    block_of_label = {
        label: number
        for number, block in enumerate(blocks)
        for label in instructions[block.start].labels
    }
    graph = networkx.DiGraph()
    graph.add_nodes_from(range(len(blocks)))
    for number, block in enumerate(blocks):
        last = instructions[block.stop - 1]
        if last.branch_target in block_of_label:
            graph.add_edge(number, block_of_label[last.branch_target])
        always_leaves = last.stem in _BRANCHES and not last.predicate
        if not always_leaves and number + 1 < len(blocks):
            graph.add_edge(number, number + 1)
    return graph


def _dominates(candidate: int, block: int, dominators: dict[int, int | None]) -> bool:
    while block != candidate:
        above = dominators.get(block)
        if above is None or above == block:
            return False
        block = above
    return True


def _natural_loop(graph: networkx.DiGraph, tail: int, head: int) -> set[int]:
    """All from where the tail is reached without passing the head, and the head."""
    if tail == head:
        return {head}
    without_head = networkx.restricted_view(graph, [head], [])
    return {head, tail, *networkx.ancestors(without_head, tail)}
