"""Text that a terminal shows and does not obey."""

from __future__ import annotations

import re

_COLOURS = re.compile(r"\x1b\[[0-9;]*m")


def printable(value: object) -> str:
    """The value as it is printed, without control characters.

    Names and messages come from compilers, drivers and files, and may hold any.
    """
    text = _COLOURS.sub("", str(value))
    return "".join(each for each in text if each.isprintable() or each == "\n")
