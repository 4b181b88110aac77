"""The test kernels of tests/emulator, compiled and callable by name.

By default the local compiler makes a library of them that is loaded here. With CXX set
to a cross compiler and CXX_RUNNER to an emulator of its processor they run in a process
of their own: tests/emulator/aarch64.sh does that.
"""

from __future__ import annotations

import ctypes
import functools
import os
import shlex
import shutil
import struct
import subprocess
import tempfile
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import shared
import torch
from common import needs_gpu

from bindings import build_cache, toolchain
from bindings.backends import cuda_inline
from bindings.build_cache import Part

ROOT = Path(__file__).parent.parent
SOURCES = ROOT / "tests" / "emulator"
EMULATOR = ROOT / "csrc" / "emulator"
COMPILER = os.environ.get("CXX", "g++")
UNKNOWN_TO_CLANG = ("-Wno-restrict", "-Wno-psabi", "-fno-gnu-unique")
RUNNER = shlex.split(os.environ.get("CXX_RUNNER", ""))
ORDERS = ["forward", "reverse", "random:1", "random:2", "random:3"]


class Library:
    """The test kernels in a library that this process has loaded."""

    def __init__(self, path: Path) -> None:
        """Loads the library that was built at the path."""
        self._functions = ctypes.CDLL(str(path))
        self._functions.last_message.restype = ctypes.c_char_p

    def __call__(self, name: str, *arguments: Any) -> None:
        """Calls a launcher.

        Raises:
            RuntimeError: The launch failed; has its message.
        """
        error, message = self.result(name, *arguments)
        if error != 0:
            raise RuntimeError(message)

    def result(self, name: str, *arguments: Any) -> tuple[int, str]:
        """Calls a launcher; the error code that it returned, and its message."""
        converted = [
            ctypes.c_void_p(argument.ctypes.data)
            if isinstance(argument, np.ndarray)
            else ctypes.c_int64(argument)
            for argument in arguments
        ]
        error = int(getattr(self._functions, name)(*converted))
        return error, self._functions.last_message(error).decode()


class RemoteLibrary(Library):
    """The test kernels in a program that another process runs: remote.cpp."""

    def __init__(self, program: Path) -> None:
        """Starts the program."""
        self._process = subprocess.Popen(
            [*RUNNER, program], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        self._options: set[str] = set()
        self._lock = threading.Lock()

    def result(self, name: str, *arguments: Any) -> tuple[int, str]:
        """Calls a launcher; the error code that it returned, and its message."""
        with self._lock:
            self._send(name, arguments)
            error = struct.unpack("<i", self._read(4))[0]
            message = self._read(struct.unpack("<I", self._read(4))[0]).decode()
            for argument in arguments:
                if isinstance(argument, np.ndarray):
                    answer = np.frombuffer(self._read(argument.nbytes), argument.dtype)
                    if argument.flags.writeable:
                        argument[...] = answer.reshape(argument.shape)
        return error, message

    def _send(self, name: str, arguments: Sequence[Any]) -> None:
        options = {
            option: value
            for option, value in os.environ.items()
            if option.startswith("TWIN_EMULATOR_")
        }
        parts = [struct.pack("<I", len(self._options))]
        parts += [_counted(option) for option in self._options]
        parts.append(struct.pack("<I", len(options)))
        for option, value in options.items():
            parts += [_counted(option), _counted(value)]
        self._options = set(options)
        parts += [_counted(name), struct.pack("<I", len(arguments))]
        for argument in arguments:
            if isinstance(argument, np.ndarray):
                parts += [struct.pack("<I", 1), _counted(argument.tobytes())]
            else:
                parts.append(struct.pack("<Iq", 0, argument))
        assert self._process.stdin is not None
        self._process.stdin.write(b"".join(parts))
        self._process.stdin.flush()

    def _read(self, size: int) -> bytes:
        assert self._process.stdout is not None
        data = self._process.stdout.read(size)
        assert len(data) == size, "the program with the test kernels has ended"
        return data


def _counted(value: str | bytes) -> bytes:
    data = value.encode() if isinstance(value, str) else value
    return struct.pack("<I", len(data)) + data


def run(*command: str | Path, env: Mapping[str, str] | None = None) -> str:
    """Runs a command that must succeed; its standard output."""
    done = subprocess.run(
        command, check=True, stdout=subprocess.PIPE, text=True, env=env
    )
    return done.stdout


def compile_object(source: Path, target: Path) -> None:
    """Compiles a kernel, or a part of the emulator, for the processor of CXX."""
    flags = ["-std=c++20", "-O1", "-fPIC", "-Wall", "-Wextra", "-Werror"]
    flags.append("-Wno-unknown-pragmas")
    if "clang" not in COMPILER:
        # g++ 12 warns of structures that versions before 4.6 passed differently.
        flags += ["-fno-gnu-unique", "-Wno-psabi"]
    flags += ["-I", str(EMULATOR), "-I", str(ROOT / "csrc")]
    run(COMPILER, *flags, "-x", "c++", "-c", source, "-o", target)


def _compile_all(sources: Sequence[Path], folder: Path) -> list[Path]:
    objects = [folder / f"{source.name}.o" for source in sources]
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(compile_object, sources, objects))
    return objects


@functools.cache
def object_of(part: Part) -> Path:
    """The object file of a part of the emulator, for the processor of CXX."""
    if shutil.which(COMPILER) is None:
        pytest.skip(f"no {COMPILER}")
    if "clang" in COMPILER:
        flags = (each for each in part.flags if each not in UNKNOWN_TO_CLANG)
        part = replace(part, flags=tuple(flags))
    return build_cache.object_file(part)


def _build_kernels(folder: Path) -> None:
    runtime = object_of(cuda_inline.emulator())
    objects = [*_compile_all(sorted(SOURCES.glob("*.cu")), folder), runtime]
    if RUNNER:
        objects += _compile_all([SOURCES / "remote.cpp"], folder)
        program = folder / "kernels"
        run(COMPILER, "-rdynamic", "-pthread", *objects, "-ldl", "-o", program)
    else:
        run(COMPILER, "-shared", "-pthread", *objects, "-o", folder / "kernels.so")


@functools.cache
def load_kernels() -> Library:
    """All test kernels, compiled once for all tests."""
    object_of(cuda_inline.emulator())  # or the test is skipped
    folder = shared.once("emulated-kernels", _build_kernels)
    return (
        RemoteLibrary(folder / "kernels") if RUNNER else Library(folder / "kernels.so")
    )


def array(values: Any, dtype: Any = np.int32) -> np.ndarray:
    """An argument of a launcher."""
    return np.array(values, dtype)


def zeros(*shape: int, dtype: Any = np.int32) -> np.ndarray:
    """A result of a launcher."""
    return np.zeros(shape, dtype)


# ---- The same kernels on a GPU -------------------------------------------------------


def integers(*shape: int) -> np.ndarray:
    """Small integers, whose sums here are exact."""
    return np.random.default_rng(shape).integers(-3, 4, shape).astype(np.float32)


def narrow(kind: str, x: np.ndarray) -> np.ndarray:
    """The bits of numbers that are exact in half or bfloat16, or as they are."""
    if kind in ("tf32", "float"):
        return np.ascontiguousarray(x)
    if kind == "half":
        return x.astype(np.float16).view(np.uint16)
    return (np.ascontiguousarray(x).view(np.uint32) >> 16).astype(np.uint16)


FOR_BOTH = [
    SOURCES / f"{stem}.cu"
    for stem in ("copies", "float8", "groups", "hopper", "kernels", "matrices", "turns")
]


class GpuLibrary(Library):
    """The test kernels as nvcc compiles them; arrays go to the GPU and back."""

    def result(self, name: str, *arguments: Any) -> tuple[int, str]:
        """Calls a launcher; the error code that it returned, and its message."""
        tensors = [
            torch.from_numpy(argument.view(np.uint8).reshape(-1).copy()).cuda()
            if isinstance(argument, np.ndarray)
            else None
            for argument in arguments
        ]
        torch.cuda.synchronize()
        converted = [
            argument if tensor is None else tensor.data_ptr()
            for argument, tensor in zip(arguments, tensors, strict=True)
        ]
        error, message = super().result(name, *converted)
        if error == 0:
            error, message = super().result("synchronize")
        for argument, tensor in zip(arguments, tensors, strict=True):
            if tensor is not None:
                argument.view(np.uint8).reshape(-1)[:] = tensor.cpu().numpy()
        return error, message


def nvcc(*arguments: str | Path) -> None:
    """Compiles some of the test kernels as a user of CUDA would."""
    cuda_home = toolchain.find_cuda_home()
    if cuda_home is None:
        pytest.skip("needs nvcc")
    flags = ["-std=c++20", "-O3", "-Werror=all-warnings", f"-I{ROOT / 'csrc'}"]
    subprocess.run([cuda_home / "bin/nvcc", *flags, *arguments], check=True)


@functools.cache
def gpu_library() -> Library:
    """The library of the kernels that also run on a GPU, compiled for this one."""
    cuda_home = toolchain.find_cuda_home()
    folder = cuda_home and toolchain.cuda_runtime_folder(cuda_home)
    if folder is None:
        pytest.skip("needs nvcc and the CUDA runtime library")
    major, minor = torch.cuda.get_device_capability()
    with tempfile.TemporaryDirectory() as target:
        path = Path(target) / "kernels.so"
        # Instructions of Hopper alone need sm_90a.
        arch = f"sm_{major}{minor}" + "a" * (major == 9)
        options = [f"-arch={arch}", "-shared", "-Xcompiler=-fPIC"]
        libraries = ["-lcudart_static", "-lrt", "-ldl", "-lpthread"]
        nvcc(*options, *FOR_BOTH, "-cudart=none", "-L", folder, *libraries, "-o", path)
        return GpuLibrary(path)


MACHINES = ["emulator", pytest.param("gpu", marks=needs_gpu)]
