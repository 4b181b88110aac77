"""A task for tests of the sandbox: runs a user's file and answers with its RESULT."""

from __future__ import annotations

import runpy
from collections.abc import Mapping
from typing import Any


def answer(request: Mapping[str, Any]) -> Any:
    """Runs the file at `path`, and returns its RESULT, or None."""
    return runpy.run_path(request["path"]).get("RESULT")
