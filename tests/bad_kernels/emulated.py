"""Bad CUDA kernels, run by the emulator: those in the folder cuda."""

from __future__ import annotations

import ctypes
import functools
import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import Tensor

from bad_kernels.catalogue import BAD_KERNELS, SHAPE, BadKernel, unchanged
from bindings import sources
from bindings.backends import native
from bindings.registry import OPS
from compare.judge.cases import Case

FOLDER = Path(__file__).parent / "cuda"

# The file, the beginning of the verdict, and where it shows.
KERNELS = (
    (
        "add_ignores_strides",
        r"\d+ of 335 elements are NaN",
        Case(SHAPE, layout="sliced"),
    ),
    ("add_one_too_many", "memory around the output", Case((4099,))),
    ("gelu_without_last_block", "35 of 1059 elements were not written", Case((1059,))),
    ("softmax_padded_with_zeros", "the largest error is", Case((3, 33))),
    ("softmax_row_stride", "memory around the output", Case(SHAPE, layout="sliced")),
    ("softmax_sum_in_half", "the largest error is", Case((3, 781), torch.float16)),
)


def _run(name: str, out: Tensor, *args: Any) -> None:
    op = OPS[name.split("_")[0]]
    module = ModuleType(name)

    def launch(*values: int) -> None:
        library = _library()
        error = getattr(library, name)(*map(ctypes.c_int64, values))
        if error:
            raise RuntimeError(f"{name}: error {error}")

    setattr(module, op.name, launch)
    native.run(module, op, out, *args)


@functools.cache
def _library() -> ctypes.CDLL:
    """All of them, in one library."""
    compiler = os.environ.get("CXX", "c++")
    if shutil.which(compiler) is None:
        pytest.skip(f"no {compiler}")
    runtime = [str(path) for path in sources.emulator_sources()]
    files = [*runtime, *(f"{name}.cu" for name, _, _ in KERNELS)]
    with tempfile.TemporaryDirectory() as folder:
        library = Path(folder, "bad_kernels.so")
        folders = (f"-I{path}" for path in (sources.EMULATOR, sources.CSRC, FOLDER))
        subprocess.run(
            [
                *(compiler, *sources.CXX_FLAGS, "-O1", *folders, "-shared", "-fPIC"),
                *("-pthread", "-xc++", "-", "-o", library),
            ],
            input="".join(f'#include "{file}"\n' for file in files),
            text=True,
            check=True,
        )
        return ctypes.CDLL(str(library))


BAD_KERNELS.extend(
    BadKernel(
        f"cuda.{name}",
        functools.partial(_run, name),
        verdict,
        name.split("_")[0],
        case,
        unchanged,
        ("cpu",),
    )
    for name, verdict, case in KERNELS
)
