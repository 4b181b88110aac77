"""The time until the first result is there: first call, compilation, build.

Each in a process of its own, where nothing is loaded yet: it runs this file, once with
empty caches on disk and once more with those that the first has filled. What has to be
imported for the first call counts; the CUDA context and PyTorch's first kernel do not.
"""

from __future__ import annotations

import functools
import json
import os
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import torch

from bindings import sources, toolchain
from bindings.backends import cuda_inline
from bindings.errors import UnsupportedError
from bindings.registry import OPS
from compare.errors import BuildFailedError, UnavailableError
from compare.judge.cases import Case, make_arguments
from compare.judge.parity import Skipped
from compare.timing import implementations
from compare.timing.times import StartTime

# Compilers at run time keep their results below these.
_CACHE_VARIABLES = (
    "XDG_CACHE_HOME",
    "TRITON_CACHE_DIR",
    "TORCHINDUCTOR_CACHE_DIR",
    "QUACK_CACHE_DIR",
)
_TIMEOUT_S = 600


def measure(
    op: str,
    shape: tuple[int, ...],
    names: Sequence[str],
    progress: Callable[[str], None],
) -> dict[str, StartTime | Skipped]:
    """First calls of implementations of an op, in float32 and with its defaults."""
    results: dict[str, StartTime | Skipped] = {}
    for name in names:
        progress(f"first calls of {name}, in processes of their own")
        with tempfile.TemporaryDirectory() as folder:
            run = functools.partial(_first_call_in_a_process, folder, op, shape, name)
            cold, warm = run(), run()
        match cold, warm:
            case float(), float():
                is_prebuilt = name in implementations.COMPILED_BEFORE
                results[name] = StartTime(
                    first_call_ms=1e3 * warm,
                    compile_s=None if is_prebuilt else max(0.0, cold - warm),
                    build_s=_build_s(op) if name == "cuda" else None,
                )
            case (Skipped() as skipped, _) | (_, Skipped() as skipped):
                results[name] = skipped
    return results


def _build_s(op: str) -> float | None:
    """Seconds that nvcc takes for an op's source, all kernels of it, for this GPU.

    None where there is no nvcc: the module that is there was built elsewhere.

    Raises:
        BuildFailedError: It does not compile.
    """
    cuda_home = toolchain.find_cuda_home()
    if cuda_home is None:
        return None
    command = nvcc_command(cuda_home, OPS[op].source, cuda_inline.gencode_flags())
    with tempfile.TemporaryDirectory() as folder:
        return run_at_once([command], Path(folder))


def run_at_once(commands: Sequence[list[str]], folder: Path) -> float:
    """Runs compilers side by side, as ninja does; returns the seconds that they took.

    Raises:
        UnavailableError: One of them cannot be run.
        BuildFailedError: One of them failed.
    """

    def run(command: list[str]) -> None:
        done = subprocess.run(
            command,
            cwd=folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        if done.returncode != 0:
            raise BuildFailedError(f"{shlex.join(command)} failed:\n{done.stdout}")

    began = time.perf_counter()
    try:
        with ThreadPoolExecutor() as pool:
            list(pool.map(run, commands))
    except OSError as error:
        raise UnavailableError(f"a compiler cannot be run: {error}") from error
    return time.perf_counter() - began


def nvcc_command(cuda_home: Path, op: str, gencode: Iterable[str]) -> list[str]:
    """The command that compiles csrc/<op>/<op>.cu to kernel.o, as setup.py does."""
    symbol_flags = toolchain.kernel_symbol_flags(toolchain.nvcc_version(cuda_home))
    return [
        *(f"{cuda_home}/bin/nvcc", *sources.NVCC_FLAGS, *gencode, *symbol_flags),
        *(f"-I{folder}" for folder in sources.include_folders("_cuda")),
        *("-Xcompiler=-fPIC", "-c", str(sources.kernel_source(op)), "-o", "kernel.o"),
    ]


def _first_call_in_a_process(
    folder: str, op: str, shape: tuple[int, ...], name: str
) -> float | Skipped:
    try:
        done = subprocess.run(
            [sys.executable, "-m", __spec__.name, op, "x".join(map(str, shape)), name],
            env={**os.environ, **dict.fromkeys(_CACHE_VARIABLES, folder)},
            cwd=sources.ROOT,
            capture_output=True,
            text=True,
            timeout=_TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return Skipped(f"it takes longer than {_TIMEOUT_S} s")
    if done.returncode != 0:
        lines = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
        return Skipped(lines[-1])
    answer = json.loads(done.stdout.splitlines()[-1])
    return Skipped(answer["skipped"]) if "skipped" in answer else float(answer["s"])


def _first_call(op: str, shape: tuple[int, ...], name: str) -> dict[str, Any]:
    arguments = make_arguments(OPS[op], Case(shape), "cuda")
    arguments[0].clone()
    torch.cuda.synchronize()
    began = time.perf_counter()
    implementation = implementations.find_one(OPS[op], name)
    assert implementation
    if isinstance(implementation, Skipped):
        return {"skipped": implementation.reason}
    try:
        implementation.call(*arguments)
    except UnsupportedError as error:
        return {"skipped": str(error)}
    torch.cuda.synchronize()
    return {"s": time.perf_counter() - began}


if __name__ == "__main__":
    _op, _shape, _name = sys.argv[1:]
    _answer = _first_call(_op, tuple(map(int, _shape.split("x"))), _name)
    sys.stdout.write(json.dumps(_answer) + "\n")
