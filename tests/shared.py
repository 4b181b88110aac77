"""Folders that are made once for a run of the tests, by the first process to need them.

Other processes that need one wait for it, and leave their core to its maker.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from filelock import FileLock

# Common to the processes of this run; common.py says which it is.
folder = Path()


def once(name: str, make: Callable[[Path], object]) -> Path:
    """The folder of that name, which a call of make has filled."""
    made = folder / name
    marker = made / "is complete"
    with FileLock(folder / f"{name}.lock"):
        if not marker.exists():
            made.mkdir(exist_ok=True)
            make(made)
            marker.touch()
    return made
