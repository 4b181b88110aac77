"""The native modules that were built when the project was installed."""

from __future__ import annotations

import functools
import importlib
import shlex
import sys
from types import ModuleType

import torch

from bindings import sources, toolchain
from bindings.errors import UnsupportedError

REBUILD_COMMAND = shlex.join(
    [
        *(sys.executable, "-m", "pip", "install"),
        *("--no-build-isolation", "--no-deps", "-e", str(sources.ROOT)),
    ]
)


@functools.cache
def load(name: sources.ModuleName) -> ModuleType:
    """Returns a native module, built from the sources as they are now.

    Raises:
        UnsupportedError: The module is missing, cannot be loaded, or is out of date.
    """
    try:
        module = importlib.import_module(f"bindings.{name}")
    except ImportError as error:
        raise UnsupportedError(_why_not_imported(name, error)) from error
    if module.source_hash != sources.source_hash(name):
        raise UnsupportedError(
            f"bindings.{name} was built from other sources than those on disk;"
            f" build it again: {REBUILD_COMMAND}"
        )
    return module


def _why_not_imported(name: sources.ModuleName, error: ImportError) -> str:
    if not isinstance(error, ModuleNotFoundError):
        return (
            f"bindings.{name} cannot be loaded ({error}); build it again:"
            f" {REBUILD_COMMAND}"
        )
    obstacle = None
    if name == "_cuda":
        obstacle = toolchain.cuda_obstacle(torch.__version__, torch.version.cuda)
    if obstacle:
        return f"bindings.{name} is not built: {obstacle}; then run {REBUILD_COMMAND}"
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    return f"bindings.{name} is not built for Python {version}; run {REBUILD_COMMAND}"
