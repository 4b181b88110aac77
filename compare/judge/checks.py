"""What is looked at besides parity, such as races: one word on each, and the fault."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Check:
    """How an implementation did in one respect."""

    text: str  # in a cell of a table: "clean", "3 of 5 orders", "refused"
    mood: str = ""  # "good", "bad" or "unsure", as of a Cell
    problem: str = ""  # one sentence; empty if nothing is wrong
    note: str = ""  # one sentence on what is no fault, such as why it refused

    @property
    def passed(self) -> bool:
        """Whether there is no problem."""
        return not self.problem
