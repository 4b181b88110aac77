"""Compiles a user's .cu, unchanged, for this machine's GPU."""

from __future__ import annotations

import sysconfig
from collections.abc import Sequence
from pathlib import Path

import pybind11
from torch.utils.cpp_extension import include_paths, library_paths

from bindings import build_cache, sources, toolchain
from bindings.errors import BuildError
from compare.errors import BuildFailedError, UnavailableError
from compare.pairs import cuda_module
from compare.pairs.cuda_module import Target
from compare.pairs.cuda_source import CudaSource

# As torch.utils.cpp_extension compiles a .cu, but that it says nothing of warnings.
_FLAGS = (
    *("-std=c++20", "-O3", "-lineinfo", "-w"),
    *("--expt-relaxed-constexpr", "--expt-extended-lambda"),
    *("-DTORCH_EXTENSION_NAME=own_module", "-DTORCH_API_INCLUDE_EXTENSION_H"),
)
_OWN = sources.EMULATOR / "own"
_LIBRARIES = ("c10", "c10_cuda", "torch_cpu", "torch_cuda", "torch", "torch_python")


def build(
    source: CudaSource,
    targets: Sequence[Target],
    capability: tuple[int, int],
    wrappers: CudaSource | None = None,
) -> Path:
    """Compiles a file with nvcc, unless the cache has what it would become.

    Args:
        source: The file.
        targets: What Python calls, by the number in this order.
        capability: Of the GPU, such as (9, 0).
        wrappers: A text that calls functions of the file, as cpp_sources do. It has at
            least a declaration of each target.

    Returns:
        A library with the functions of csrc/emulator/own/interface.h.

    Raises:
        BuildFailedError: nvcc refuses the file; the message names the user's line.
        UnavailableError: There is no nvcc.
    """
    home = toolchain.find_cuda_home()
    if home is None:
        raise UnavailableError("to run CUDA on the GPU needs nvcc, and there is none")
    number = 10 * capability[0] + capability[1]
    flags: tuple[str, ...] = (
        *_FLAGS,
        f"-arch=sm_{number}{'a' if number >= 90 else ''}",
    )
    folders = [source.path.parent]
    if source.uses_torch or wrappers:
        folders += [*map(Path, include_paths()), Path(pybind11.get_include())]
        folders.append(Path(sysconfig.get_path("include")))
        for each in library_paths():
            flags += (f"-L{each}", f"-Xlinker=-rpath,{each}")
        flags += tuple(f"-l{each}" for each in _LIBRARIES)
    made = build_cache.CudaLibrary(
        name=f"{source.path.stem}_gpu",
        texts=_texts(source, targets, wrappers),
        flags=flags,
        include_folders=tuple(folders),
        files=(*source.files, *sorted(_OWN.iterdir())),
        cuda_home=home,
    )
    try:
        return build_cache.shared_library(made)
    except BuildError as error:
        what = "nvcc cannot compile this for the GPU"
        sentence = cuda_module.first_error(source, str(error), what)
        raise BuildFailedError(sentence) from error


def _texts(
    source: CudaSource, targets: Sequence[Target], wrappers: CudaSource | None
) -> tuple[str, ...]:
    """The user's texts, and behind the last what Python calls.

    They are compiled apart, as load_inline does: both may have a name for themselves.
    """
    entry = "torch_entry.h" if source.uses_torch or wrappers else "entry.h"
    adapters = ", ".join(each.adapter for each in targets)
    # By their paths: beside them lies the emulator's own cuda_runtime.h.
    lines = [
        f'#include "{_OWN / entry}"',
        f"static const own::Call own_entries[] = {{{adapters}}};",
        f'#include "{_OWN / "interface.h"}"',
    ]
    *first, last = (_text(each) for each in (source, wrappers) if each)
    return (*first, last + "\n".join(lines) + "\n")


def _text(source: CudaSource) -> str:
    lines = []
    if source.path.suffix == ".py":  # load_inline includes these itself
        lines += ["#include <torch/extension.h>", "#include <cuda_runtime.h>"]
    # A solution's text for load_inline stands in a file of Python, so it is given here.
    lines += [
        f'#line {source.first_line} "{source.path}"',
        source.files[source.path],
    ]
    return "\n".join(lines) + "\n"
