"""The prebuilt extension's sources, built by torch's load_inline at the first call.

One module for each op and target: `_cpu` runs the kernel in the emulator, `_cuda` on a
GPU, built for the architecture of the current one; `_checked`, which only `load`
returns, runs it in the emulator under the checker. No source is copied: load_inline
gets #include lines, and what bindings/sources.py makes of the launchers.
"""

from __future__ import annotations

import os
import sysconfig
import threading
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import pybind11
import torch
from torch import Tensor

from bindings import build_cache, sources, toolchain
from bindings.backends import Launch, native
from bindings.errors import BuildError
from bindings.op import Argument, Op, Outputs, as_tuple
from bindings.sources import ModuleName

_modules: dict[tuple[str, ModuleName, tuple[str, ...]], ModuleType] = {}
_lock = threading.Lock()


def run(op: Op, outputs: Outputs, *args: Any) -> None:
    """Runs the op on args and writes its outputs."""
    device = as_tuple(outputs)[0].device
    if device.type != "cuda":
        native.run(load(op, "_cpu"), op, outputs, *args)
        return
    with torch.cuda.device(device):
        native.run(load(op, "_cuda"), op, outputs, *args)


def record(
    op: Op, arguments: tuple[Argument, ...], tensors: Sequence[Tensor], stream: int
) -> Launch | None:
    """Launches, and returns a function that repeats the launch."""
    module = load(op, "_cuda" if tensors[0].is_cuda else "_cpu")
    return native.record(module, op, arguments, tensors, stream)


def load(op: Op, module: ModuleName) -> ModuleType:
    """Returns an op's module, built from its sources as they are at the first call.

    Raises:
        BuildError: The module cannot be built here; the message says why.
    """
    gencode = gencode_flags() if module == "_cuda" else ()
    key = (op.source, module, gencode)
    with _lock:
        if key not in _modules:
            _modules[key] = build_cache.load(_recipe(op.source, module, gencode))
    return _modules[key]


def gencode_flags() -> tuple[str, ...]:
    """The flags for the current device; without a device, the prebuilt module's."""
    if not torch.cuda.is_available():
        return tuple(toolchain.gencode_flags())
    major, minor = torch.cuda.get_device_capability()
    # From 9.0 on the "a" variant has the instructions that only this architecture has.
    arch = f"{major}{minor}{'a' if major >= 9 else ''}"
    return (f"-gencode=arch=compute_{arch},code=sm_{arch}",)


def _recipe(
    op: str, module: ModuleName, gencode: tuple[str, ...]
) -> build_cache.Recipe:
    kernel = [f"{op}/{op}.cu"]
    included = ["entry.cpp"]
    cuda_home = None
    nvcc_flags: tuple[str, ...] = ()
    parts: tuple[build_cache.Part, ...] = (for_python(),)
    link_flags: tuple[str, ...] = ()
    if module == "_cuda":
        obstacle = toolchain.cuda_obstacle(torch.__version__, torch.version.cuda)
        if obstacle:
            raise BuildError(f"{op} cannot be built for a GPU: {obstacle}")
        cuda_home = toolchain.find_cuda_home()
        assert cuda_home
        symbol_flags = toolchain.kernel_symbol_flags(toolchain.nvcc_version(cuda_home))
        nvcc_flags = (*sources.NVCC_FLAGS, *gencode, *symbol_flags)
    elif module == "_checked":
        # Only the kernel calls the checker, which must not check itself.
        parts += (emulator(), checker(), _checked_kernel(op))
        link_flags = sources.CHECKED_LINK_FLAGS
        kernel = []
    else:
        parts += (emulator(),)
        included = [*kernel, *included]
        kernel = []
    return build_cache.Recipe(
        name=op + module,
        cpp_source=_include_lines(included) + sources.bindings_of(op),
        cuda_source=_include_lines(kernel),
        cxx_flags=sources.CXX_FLAGS if module == "_cuda" else sources.EMULATED_FLAGS,
        nvcc_flags=nvcc_flags,
        include_folders=tuple(sources.include_folders(module)),
        files=(*_own_files(op), *_headers(module)),
        cuda_home=cuda_home,
        parts=parts,
        link_flags=link_flags,
    )


def for_python() -> build_cache.Part:
    """What makes functions for Python of the launchers, which all ops share."""
    python_headers = (pybind11.get_include(), sysconfig.get_path("include"))
    return build_cache.Part(
        name="for_python",
        source=_include_lines(["module.cpp"]),
        # Assertions name their file. setup.py leaves them out, by Python's own flags.
        flags=(*sources.CXX_FLAGS, "-DNDEBUG"),
        include_folders=(sources.NATIVE, *map(Path, python_headers)),
        files=(sources.NATIVE / "module.cpp", *_headers_in(sources.NATIVE)),
        names_no_file=True,
        is_for_python=True,
    )


def emulator() -> build_cache.Part:
    """The emulator's runtime, which all ops share."""
    return _emulator_part("emulator", sources.emulator_sources(), names_no_file=True)


def checker() -> build_cache.Part:
    """The emulator's checker, which all ops share."""
    # It knows the emulator's lines by the folder that it was compiled in.
    return _emulator_part("checker", sources.checker_sources(), names_no_file=False)


def _emulator_part(
    name: str, files: list[Path], names_no_file: bool
) -> build_cache.Part:
    folder = sources.EMULATOR
    return build_cache.Part(
        name=name,
        source=_include_lines([str(path.relative_to(folder)) for path in files]),
        flags=sources.CXX_FLAGS,
        include_folders=(folder,),
        files=(*files, *_headers_in(folder)),
        names_no_file=names_no_file,
    )


def _checked_kernel(op: str) -> build_cache.Part:
    return build_cache.Part(
        name=f"{op}_checked_kernel",
        source=_include_lines([f"{op}/{op}.cu"]),
        flags=sources.CHECKED_FLAGS,
        include_folders=(sources.EMULATOR, sources.CSRC),
        files=(sources.kernel_source(op), *_headers_in(sources.CSRC)),
    )


def _include_lines(names: list[str]) -> str:
    return "".join(f'#include "{name}"\n' for name in names)


def _own_files(op: str) -> tuple[Path, ...]:
    return sources.kernel_source(op), sources.NATIVE / "entry.cpp"


def _headers(module: ModuleName) -> list[Path]:
    """Every header that an op's files might include."""
    headers = [*_headers_in(sources.CSRC), *_headers_in(sources.NATIVE)]
    if module != "_cuda":
        return headers
    return [path for path in headers if not path.is_relative_to(sources.EMULATOR)]


def _headers_in(folder: Path) -> list[Path]:
    suffixes = {".h", ".cuh"}
    return sorted(path for path in folder.rglob("*") if path.suffix in suffixes)


def _new_lock() -> None:
    # A forked process inherits the lock, but not a thread that held it.
    global _lock
    _lock = threading.Lock()


os.register_at_fork(after_in_child=_new_lock)
