"""Which ways lead through PTX, and where they part and meet."""

from __future__ import annotations

from functools import cached_property

from compare.assembly.control_flow import END, flow_graph, meetings, ways
from compare.assembly.listing import Instruction, Listing


class Ways:
    """The ways through one listing of PTX."""

    def __init__(self, ptx: Listing) -> None:
        """Follows none yet."""
        self.graph = flow_graph(ptx)
        self._all = ptx.instructions
        self._places = {
            label: each.index for each in self._all for label in each.labels
        }
        self._targets = {each.branch_target for each in self._all}

    def block(self, access: Instruction) -> list[Instruction]:
        """The basic block of an instruction: all that is executed together with it."""
        start, stop = access.index, access.index + 1
        while start > 0 and not self._is_edge(start):
            start -= 1
        while stop < len(self._all) and not self._is_edge(stop):
            stop += 1
        return list(self._all[start:stop])

    def guard(self, access: Instruction) -> Instruction | None:
        """The conditional branch that leads around an instruction and its neighbours.

        None if there is none, or if something else is executed on the other way.
        """
        for index in range(access.index, 0, -1):
            if self._is_target(index):
                return None
            before = self._all[index - 1]
            if before.branch_target:
                place = self._places.get(before.branch_target, END)
                leads_around = before.predicate and place > access.index
                return before if leads_around else None
        return None

    def leads_back(self, instruction: Instruction) -> bool:
        """Whether it is a branch to something above it."""
        target = instruction.branch_target
        return target is not None and self._places.get(target, 0) <= instruction.index

    def depending_on(self, condition: int) -> frozenset[int]:
        """The instructions whose execution a branch or a predicate decides."""
        instruction = self._all[condition]
        itself = set[int]() if instruction.branch_target else {condition}
        meeting = self._meetings.get(condition, END)
        behind = self.graph.successors(condition)
        return frozenset(itself | ways(self.graph, behind, meeting))

    @cached_property
    def _meetings(self) -> dict[int, int]:
        return meetings(self.graph)

    def _is_target(self, index: int) -> bool:
        return not self._targets.isdisjoint(self._all[index].labels)

    def _is_edge(self, index: int) -> bool:
        """Whether something new begins with this instruction."""
        is_behind = self._all[index - 1].category == "branch / control"
        return is_behind or self._is_target(index)
