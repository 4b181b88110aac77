"""`compare routes`: one .cu, built as setup.py does it, by load_inline and by NVRTC.

Each route is tried in processes of its own. What is built at run time is tried in two:
one that finds nothing built, and one that finds what the first has left. A route's code
is compared instruction by instruction.
"""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sysconfig
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pybind11
import torch
from torch import Tensor

from bindings import child_process, sources, toolchain
from bindings.backends import cuda_inline, native, prebuilt
from bindings.errors import UnsupportedError
from bindings.op import Op, as_tuple
from bindings.registry import OPS
from bindings.trials import TRIALS
from compare.assembly.listing import Listing
from compare.code import binary
from compare.code.cuda import title_of
from compare.errors import (
    BuildFailedError,
    CodegenUnavailable,
    CompilationFailed,
    UnavailableError,
)
from compare.judge.cases import Case, make_arguments
from compare.judge.parity import Skipped
from compare.timing import environment, gpu_state, nvrtc
from compare.timing.route_times import DeviceCode, Route, RoutesReport

_DEFAULT_ARCHITECTURE = (90, "sm_90a")


def compare_routes(op_name: str, progress: Callable[[str], None]) -> RoutesReport:
    """Builds an op by every route that there is here.

    Args:
        op_name: Of the op.
        progress: Is told, from time to time, what is going on.

    Raises:
        UnavailableError: There is no nvcc that works, or no native module.
        BuildFailedError: A compiler refused the sources.
    """
    op = OPS[op_name]
    case = Case(TRIALS[op.name].large_shape)
    number, arch = _architecture()
    toolkit = _find_toolkit(op_name)
    plans = _plans(op, case, number)
    with tempfile.TemporaryDirectory(prefix="twin-routes-") as folder:
        lab = _Lab(op, plans, arch, toolkit, Path(folder), gpu_state.obstacle())
        tried = {
            "prebuilt": _try_prebuilt(lab, progress),
            "load_inline": _try_load_inline(lab, progress),
            "nvrtc": _try_nvrtc(lab, progress),
        }
        progress("comparing the machine code")
        codes = _read_codes(tried, arch)
        routes = {
            name: _route(each, codes[name]) if isinstance(each, _Tried) else each
            for name, each in tried.items()
        }
    return RoutesReport(
        op=op.name,
        case=case,
        kernel=title_of(plans[0]["signature"]),
        arch=arch,
        environment=environment.collect(),
        routes=routes,
    )


# ---- What there is here --------------------------------------------------------------


@dataclass(frozen=True)
class _Toolkit:
    home: Path
    version: str
    runtime_folder: Path
    gencode: tuple[str, ...]
    symbol_flags: tuple[str, ...]


def _architecture() -> tuple[int, str]:
    """Number and name of the current GPU's architecture, or of the default."""
    if not torch.cuda.is_available():
        return _DEFAULT_ARCHITECTURE
    major, minor = torch.cuda.get_device_capability()
    number = 10 * major + minor
    return number, f"sm_{number}{'a' if major >= 9 else ''}"


def _find_toolkit(op: str) -> _Toolkit:
    home = toolchain.find_cuda_home()
    if home is None:
        raise UnavailableError(
            f"nothing can build csrc/{op}/{op}.cu here: no nvcc is found; the extra "
            "brings one: pip install -e '.[nvcc]'"
        )
    runtime_folder = toolchain.cuda_runtime_folder(home)
    if runtime_folder is None:
        raise UnavailableError(
            f"{home} has no libcudart_static.a in lib64 or lib, which the prebuilt "
            "module is linked with; set CUDA_HOME to a toolkit that has"
        )
    try:
        version = toolchain.nvcc_version(home)
        gencode = toolchain.gencode_flags()
    except (OSError, subprocess.CalledProcessError, RuntimeError) as error:
        raise UnavailableError(f"{home}/bin/nvcc cannot be run ({error})") from error
    except ValueError as error:
        raise UnavailableError(str(error)) from error
    return _Toolkit(
        home=home,
        version="{}.{}".format(*version),
        runtime_folder=runtime_folder,
        gencode=tuple(gencode),
        symbol_flags=tuple(toolchain.kernel_symbol_flags(version)),
    )


def _plans(op: Op, case: Case, architecture: int) -> list[dict[str, Any]]:
    """What is launched, with positions in place of addresses, for another process."""
    try:
        module = prebuilt.load("_cpu")
    except UnsupportedError as error:
        raise UnavailableError(str(error)) from error
    given = make_arguments(op, case, "cuda" if torch.cuda.is_available() else "cpu")
    arguments = op.arguments(*as_tuple(op.allocate(*given)), *given)
    positions = {
        native.address(position, each): position
        for position, each in enumerate(arguments)
        if isinstance(each, Tensor) and each.numel() > 0
    }
    plans = native.plan(module, op, arguments, architecture)
    for plan in plans:
        plan["arguments"] = [
            positions.get(each) if parameter.endswith("*") else each
            for parameter, each in zip(
                nvrtc.parameters(plan["signature"]), plan["arguments"], strict=True
            )
        ]
    return plans


# ---- The routes ----------------------------------------------------------------------


@dataclass(frozen=True)
class _Tried:
    """A route as Route has it, with its binary, which is there for a while."""

    how: str
    cold_s: float
    warm_s: float
    call_us: float | Skipped
    binary: Path
    symbol: str


@dataclass(frozen=True)
class _Lab:
    """What every route is tried with; no_calls says why no call can be timed."""

    op: Op
    plans: Sequence[Mapping[str, Any]]
    arch: str
    toolkit: _Toolkit
    folder: Path
    no_calls: str | None

    def load_in_a_process(self, route: str) -> dict[str, Any]:
        """What compare.timing.route_process answers."""
        answer = self.folder / "answer.json"
        request = {
            "route": route,
            "op": self.op.name,
            "plans": self.plans,
            "arch": self.arch,
            "folder": str(self.folder),
            "answer": str(answer),
            "times_calls": self.no_calls is None,
        }
        variables = {
            "CUDA_HOME": str(self.toolkit.home),
            "XDG_CACHE_HOME": str(self.folder / "cache"),
        }
        done = subprocess.run(
            child_process.command("compare.timing.route_process"),
            input=json.dumps(request),
            env=child_process.environment(variables),
            cwd=sources.ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        if done.returncode != 0:
            raise UnavailableError(
                f"the process of {route} ended with {done.returncode}:\n{done.stdout}"
            )
        result: dict[str, Any] = json.loads(answer.read_text("utf-8"))
        return result

    def tried(self, how: str, cold_s: float, warm: Mapping[str, Any]) -> _Tried:
        """A route, by what its last process has answered."""
        call_us: float | Skipped
        if self.no_calls is not None:
            call_us = Skipped(self.no_calls)
        elif "not_called" in warm:
            call_us = Skipped(warm["not_called"])
        else:
            call_us = warm["call_us"]
        return _Tried(
            how=how,
            cold_s=cold_s,
            warm_s=warm["load_s"],
            call_us=call_us,
            binary=Path(warm["binary"]),
            symbol=warm["symbol"],
        )


def _try_prebuilt(lab: _Lab, progress: Callable[[str], None]) -> _Tried:
    progress(f"building csrc/{lab.op.source}/{lab.op.source}.cu as setup.py does")
    build_s = _build(lab.op.source, lab.toolkit, lab.folder)
    progress("loading what was built")
    answer = lab.load_in_a_process("prebuilt")
    how = (
        f"nvcc {lab.toolkit.version} with the flags of setup.py, every kernel for "
        f"{_targets(lab.toolkit.gencode)}"
    )
    if obstacle := toolchain.cuda_obstacle(torch.__version__, torch.version.cuda):
        how += f"; setup.py itself leaves it out here: {obstacle}"
    return lab.tried(how, build_s + answer["load_s"], answer)


def _try_load_inline(lab: _Lab, progress: Callable[[str], None]) -> _Tried | Skipped:
    if obstacle := toolchain.cuda_obstacle(torch.__version__, torch.version.cuda):
        return Skipped(obstacle)
    progress("load_inline with an empty cache")
    cold = lab.load_in_a_process("load_inline")
    if "problem" in cold:
        raise BuildFailedError(cold["problem"])
    progress("load_inline with a filled cache")
    warm = lab.load_in_a_process("load_inline")
    how = (
        f"nvcc {lab.toolkit.version} by torch's load_inline, every kernel for "
        f"{_targets(cuda_inline.gencode_flags())}"
    )
    return lab.tried(how, cold["load_s"], warm)


def _try_nvrtc(lab: _Lab, progress: Callable[[str], None]) -> _Tried | Skipped:
    if obstacle := nvrtc.obstacle():
        return Skipped(obstacle)
    progress("NVRTC")
    cold = lab.load_in_a_process("nvrtc")
    if "problem" in cold:
        return Skipped(cold["problem"])
    progress("NVRTC once more")
    warm = lab.load_in_a_process("nvrtc")
    how = (
        f"NVRTC of CUDA {torch.version.cuda} by a private function of torch, this one "
        f"kernel for {lab.arch}, and nothing is kept for another process"
    )
    return lab.tried(how, cold["load_s"], warm)


def _targets(gencode: Iterable[str]) -> str:
    """`sm_80, sm_90a, compute_90`, of nvcc's flags."""
    return ", ".join(flag.rpartition("code=")[2] for flag in gencode)


def _route(tried: _Tried, code: DeviceCode | Skipped) -> Route:
    return Route(
        how=tried.how,
        cold_s=tried.cold_s,
        warm_s=tried.warm_s,
        call_us=tried.call_us,
        binary_bytes=tried.binary.stat().st_size,
        code=code,
    )


def _build(op: str, toolkit: _Toolkit, folder: Path) -> float:
    """Builds the module `_cuda` of one op into a folder; returns the seconds it took.

    Commands and flags are those of setup.py, where they go through torch and ninja.
    """
    fingerprint = sources.source_hash("_cuda")
    (folder / "bindings.cpp").write_text(
        f'extern const char SOURCE_HASH[] = "{fingerprint}";\n'
        f'#include "module.cpp"\n{sources.bindings_of(op)}'
    )
    includes = [
        f"-I{path}"
        for path in (
            *sources.include_folders("_cuda"),
            toolkit.home / "include",
            pybind11.get_include(),
            sysconfig.get_path("include"),
        )
    ]
    cxx = shlex.split(os.environ.get("CXX", "c++"))
    nvcc = [
        *(str(toolkit.home / "bin/nvcc"), *sources.NVCC_FLAGS, *toolkit.gencode),
        *(*toolkit.symbol_flags, "-Xcompiler=-fPIC"),
    ]
    defines = ("-fPIC", "-DTORCH_EXTENSION_NAME=_cuda")
    libraries = ("-lcudart_static", "-lrt", "-ldl", "-lpthread")
    began = time.perf_counter()
    _run_at_once(
        [
            [*nvcc, *includes, "-c", str(sources.kernel_source(op)), "-o", "kernel.o"],
            [*cxx, *sources.CXX_FLAGS, *defines, *includes, "-c", "bindings.cpp"],
        ],
        folder,
    )
    link = [*cxx, "-shared", "kernel.o", "bindings.o", "-o", "_cuda.so"]
    _run_at_once([[*link, f"-L{toolkit.runtime_folder}", *libraries]], folder)
    return time.perf_counter() - began


def _run_at_once(commands: list[list[str]], folder: Path) -> None:
    """Runs compilers side by side, as ninja does.

    Raises:
        BuildFailedError: One of them failed.
    """
    processes: list[subprocess.Popen[str]] = []
    try:
        for command in commands:
            process = subprocess.Popen(
                command,
                cwd=folder,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
            processes.append(process)
        outputs = [process.communicate()[0] for process in processes]
    except OSError as error:
        raise UnavailableError(f"a compiler cannot be run: {error}") from error
    finally:
        for process in processes:
            process.kill()  # only where this was interrupted are they still there
    for command, process, output in zip(commands, processes, outputs, strict=True):
        if process.returncode != 0:
            raise BuildFailedError(f"{shlex.join(command)} failed:\n{output}")


# ---- Machine code --------------------------------------------------------------------


def _read_codes(
    tried: Mapping[str, _Tried | Skipped], arch: str
) -> dict[str, DeviceCode | Skipped]:
    """Each route's code beside that of the first one that has some."""
    codes: dict[str, DeviceCode | Skipped] = {}
    first: Listing | None = None
    for name, each in tried.items():
        if isinstance(each, Skipped):
            continue
        try:
            code = binary.read_kernel(each.binary, each.symbol, arch)
        except CodegenUnavailable as error:
            codes[name] = Skipped(str(error))
        except CompilationFailed as error:
            codes[name] = Skipped(f"{error}: {error.log}")
        else:
            first = first or code
            differing = binary.count_differing(first, code)
            codes[name] = DeviceCode(len(code.instructions), differing)
    return codes
