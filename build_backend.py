"""The build backend: setuptools, asking only for what the target environment lacks.

pip builds in an environment of its own. A fixed list of build requirements with torch
would download a second torch (gigabytes) into it, and one without would leave none to
build with. But that environment is the target's interpreter with a cut `sys.path`, so
what the target already has can be found and lent to the build.
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from typing import Any

from setuptools.build_meta import (
    build_editable,
    build_sdist,
    build_wheel,
    prepare_metadata_for_build_editable,
    prepare_metadata_for_build_wheel,
)

__all__ = [
    "build_editable",
    "build_sdist",
    "build_wheel",
    "get_requires_for_build_editable",
    "get_requires_for_build_sdist",
    "get_requires_for_build_wheel",
    "prepare_metadata_for_build_editable",
    "prepare_metadata_for_build_wheel",
]

REQUIREMENTS = {"ninja": "ninja", "pybind11": "pybind11>=2.12", "torch": "torch>=2.11"}


def target_path() -> list[str]:
    """Returns `sys.path` as it is outside of the build environment."""
    set_by_pip = ("PYTHONPATH", "PYTHONNOUSERSITE")
    environment = {
        name: value for name, value in os.environ.items() if name not in set_by_pip
    }
    script = "import json, sys; print(json.dumps(sys.path[1:]))"
    output = subprocess.check_output([sys.executable, "-c", script], env=environment)
    path: list[str] = json.loads(output)
    return path


# At the end, so that what the build environment has of its own comes first.
sys.path += [folder for folder in target_path() if folder not in sys.path]


def get_requires_for_build_wheel(
    config_settings: dict[str, Any] | None = None,
) -> list[str]:
    """Returns what a build needs and the target environment lacks."""
    return [
        requirement
        for module, requirement in REQUIREMENTS.items()
        if importlib.util.find_spec(module) is None
    ]


get_requires_for_build_editable = get_requires_for_build_wheel
get_requires_for_build_sdist = get_requires_for_build_wheel
