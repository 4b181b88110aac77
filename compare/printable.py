"""Text that a terminal shows and does not obey."""

from __future__ import annotations


def printable(value: object) -> str:
    """The value as it is printed, without control characters.

    Names and messages come from compilers, drivers and files, and may hold any.
    """
    return "\n".join(
        line if line.isprintable() else "".join(filter(str.isprintable, line))
        for line in str(value).split("\n")
    )
