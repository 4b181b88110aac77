"""Child Python processes, for work that this process must not do itself."""

from __future__ import annotations

import os
import subprocess
import sys

from bindings.sources import ROOT


def command(module: str, *arguments: str) -> list[str]:
    """Returns the command line that runs a module of this project, from its root."""
    # The fault handler shows which line of Python crashed.
    return [sys.executable, "-Xfaulthandler", "-m", module, *arguments]


def environment(variables: dict[str, str]) -> dict[str, str]:
    """Returns this process's environment with variables set, and with its sys.path."""
    path = os.pathsep.join(map(os.path.abspath, sys.path))
    return os.environ | {"PYTHONPATH": path} | variables


def run(
    arguments: list[str], variables: dict[str, str], text: str = ""
) -> subprocess.CompletedProcess[str]:
    """Runs a command line from the project's root, with a text as its input.

    Its stdout holds all that it printed; whether it failed is for the caller to see.
    """
    return subprocess.run(
        arguments,
        input=text,
        env=environment(variables),
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
