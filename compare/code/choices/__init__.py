"""What a call of an op was cut into, and why: a sentence for each language.

A new op may bring its own along as compare/code/choices/<op>.py, with a function
`sentence` of a Choice.
"""

from __future__ import annotations

import importlib
import importlib.util
from dataclasses import dataclass

from bindings.op import Argument, Op
from compare.code.architectures import Architecture
from compare.code.planned import PlannedLaunch


@dataclass(frozen=True)
class Choice:
    """What the launcher of one language chose for a call."""

    launches: tuple[PlannedLaunch, ...]
    arguments: tuple[Argument, ...]  # the launcher's, on the meta device
    architecture: Architecture
    is_asked: bool  # whether the user named the rung
    twin_serves: bool  # whether the twin has a kernel for this call


def sentence(op: Op, choice: Choice) -> str:
    """What was chosen and why, in one line; nothing of an op that does not say."""
    name = f"{__name__}.{op.name}"
    if importlib.util.find_spec(name) is None:
        return ""
    found: str = importlib.import_module(name).sentence(choice)
    return found
