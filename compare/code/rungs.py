"""Which rung of an op is shown, and what a call takes where that is another kernel."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from bindings.errors import UnsupportedError
from bindings.op import Argument, Op
from bindings.trials import TRIALS
from compare.code import choices, kernel_code
from compare.code.architectures import Architecture
from compare.code.choices import Choice
from compare.code.kernel_code import Side
from compare.code.planned import PlannedLaunch
from compare.errors import CodegenUnavailable

SIDES: tuple[Side, ...] = ("cuda", "triton")
TWIN = "twin"


@dataclass(frozen=True)
class Shown:
    """The rung of an op that one side shows."""

    op: Op  # on the rung that is shown; on none where that is what a call takes
    taken: str = ""  # the kernel that a call takes, where that is not the rung's
    is_missing: bool = False  # the twin has no kernel: what a call takes is shown
    # What a call, or the rung that was asked for, is cut into, and why.
    choice: str = ""


def choose(
    op: Op,
    rung: str | None,
    arguments_of: Callable[[Op], tuple[Argument, ...]],
    architecture: Architecture,
) -> Mapping[Side, Shown]:
    """By side, the rung that was asked for; by default the last, the twin.

    Args:
        op: What a call takes.
        rung: A name; None for the last rung, which is the twin once there is one, or
            for what a call takes where that has no kernel.
        arguments_of: What both launchers take, of the op on a rung.
        architecture: Which kernels are chosen for.

    Raises:
        UnsupportedError: The rung that was asked for has no kernel for this call.
    """
    on_rung = op.on_rung(op.rungs[-1] if rung is None else rung)

    def planned(side: Side, op: Op) -> tuple[PlannedLaunch, ...]:
        return kernel_code.planned_launches(side, op, arguments_of(op), architecture)

    def chosen(op: Op, launches: tuple[PlannedLaunch, ...], twin_serves: bool) -> str:
        is_asked = rung is not None
        choice = Choice(launches, arguments_of(op), architecture, is_asked, twin_serves)
        return choices.sentence(op, choice)

    def shown(side: Side) -> Shown:
        try:
            taken = planned(side, op)
        except CodegenUnavailable:
            return Shown(on_rung)  # who asks for its code is told why there is none
        try:
            own = planned(side, on_rung)
        except UnsupportedError:
            if rung is not None:
                raise
            return Shown(op, taken[0].kernel, True, chosen(op, taken, False))
        titles = {each.title for each in own}
        others = [each.kernel for each in taken if each.title not in titles]
        choice = chosen(op, taken, True) if rung is None else chosen(on_rung, own, True)
        return Shown(on_rung, others[0] if others else "", choice=choice)

    return {side: shown(side) for side in SIDES}


def name_of(title: str) -> str:
    """The kernel's name, without what it is compiled for."""
    return re.split(r"[<\[(]", title, maxsplit=1)[0]


def reasons(op: Op, titles: Iterable[str]) -> list[str]:
    """Why kernels are no twins, a sentence for each of those that are declared so."""
    names = dict.fromkeys(map(name_of, titles))
    declared = TRIALS[op.name].other_kernels
    return [f"{name}: {declared[name]}" for name in names if name in declared]


def sentences(
    shown: Mapping[Side, Shown], gains: Mapping[Side, float], names: Mapping[str, str]
) -> list[str]:
    """What was chosen, a sentence for each side, and what a call takes in its place.

    The gains tell, where it is known, how many times as fast as the twin a call is.
    """
    chosen = {side: each.choice for side, each in shown.items() if each.choice}
    found = [f"{names[side]}: {choice}" for side, choice in chosen.items()]
    for side, each in shown.items():
        if not each.taken:
            continue
        sentence = f"a call at this shape takes {each.taken} in {names[side]}"
        if each.is_missing:
            sentence += ", where the twin has no kernel"
        elif side in gains:
            sentence += f": {gains[side]:.2f}x"
        found.append(sentence)
    return found
