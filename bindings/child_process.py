"""Child Python processes, for work that this process must not do itself."""

from __future__ import annotations

import os
import sys


def command(module: str, *arguments: str) -> list[str]:
    """Returns the command line that runs a module of this project, from its root."""
    # The fault handler shows which line of Python crashed.
    return [sys.executable, "-Xfaulthandler", "-m", module, *arguments]


def environment(variables: dict[str, str]) -> dict[str, str]:
    """Returns this process's environment with variables set, and with its sys.path."""
    path = os.pathsep.join(map(os.path.abspath, sys.path))
    return os.environ | {"PYTHONPATH": path} | variables
