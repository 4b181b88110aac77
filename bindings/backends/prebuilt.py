"""The native modules that were built when the project was installed."""

from __future__ import annotations

import functools
import importlib
import os
import re
import shlex
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import ModuleType

import torch

from bindings import build_cache, sources, toolchain
from bindings.errors import BuildError, UnsupportedError

REBUILD_COMMAND = shlex.join(
    [
        *(sys.executable, "-m", "pip", "install"),
        *("--no-build-isolation", "--no-deps", "-e", str(sources.ROOT)),
    ]
)


_ERROR = re.compile(
    r"^(?P<path>[^\n:]+):(?P<line>\d+):\d+: (?:fatal )?error: (?P<what>.+)",
    re.MULTILINE,
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
    on_disk = sources.source_hash(name)
    if module.source_hash != on_disk:
        obstacle = _first_error(module, on_disk)
        remedy = (
            f", which do not compile ({obstacle}); mend them and" if obstacle else ";"
        )
        raise UnsupportedError(
            f"bindings.{name} was built from other sources than those on disk{remedy}"
            f" build it again: {REBUILD_COMMAND}"
        )
    return module


@functools.cache
def _first_error(module: ModuleType, _source_hash: str) -> str | None:
    """The C++ compiler's first error in what was edited since a module was built."""
    try:
        compiler = build_cache.cxx()
    except BuildError:
        return None  # building again will say so
    folders = [f"-I{path}" for path in (sources.EMULATOR, sources.CSRC)]
    command = [*compiler, *sources.CXX_FLAGS, "-w", "-fsyntax-only", *folders, "-xc++"]

    def errors_in(path: Path) -> str:
        done = subprocess.run([*command, path], capture_output=True, text=True)
        return done.stderr

    with ThreadPoolExecutor(os.cpu_count()) as threads:
        for output in threads.map(errors_in, _edited_since(module)):
            if found := _ERROR.search(output):
                path = os.path.relpath(found["path"], sources.ROOT)
                return f"{path}:{found['line']}: {found['what']}"
    return None


def _edited_since(module: ModuleType) -> list[Path]:
    """The ops' CUDA files that may compile to something else now."""
    assert module.__file__
    built = os.path.getmtime(module.__file__)
    files = sources.kernel_sources()
    edited = {
        path.parent
        for path in sources.CSRC.rglob("*.cu*")
        if path.stat().st_mtime > built
    }
    if edited <= {path.parent for path in files}:
        return [path for path in files if path.parent in edited]
    return files  # of a folder that several include


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
