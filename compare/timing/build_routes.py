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
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pybind11
import torch

from bindings import child_process, sources, toolchain
from bindings.backends import cuda_inline, native, prebuilt
from bindings.op import Op
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
from compare.judge.cases import Case, launcher_arguments
from compare.judge.parity import Skipped
from compare.judge.requirements import require_module
from compare.timing import environment, gpu_state, nvrtc
from compare.timing.start import nvcc_command, run_at_once
from compare.timing.times import Document


@dataclass(frozen=True)
class DeviceCode:
    """The machine code of the kernel in a route's binary."""

    instructions: int
    # How many have no equal in the first route's code, or the other way round, if that
    # is more; names of registers do not count.
    differing: int


@dataclass(frozen=True)
class Route:
    """The cost of one way to build a .cu, and its result."""

    how: str  # what compiles what
    # Until the launcher can be called, where nothing was built before. Imports, torch's
    # among them, and the CUDA context do not count.
    cold_s: float
    warm_s: float  # likewise, in a second process
    call_us: float | Skipped  # of the bare launcher, on the host
    binary_bytes: int
    code: DeviceCode | Skipped


@dataclass(frozen=True)
class RoutesReport(Document):
    """All routes of an op: "prebuilt", "load_inline" and "nvrtc"."""

    SCHEMA_VERSION = 1

    case: Case
    kernel: str  # the instance that the case takes, whose code is compared
    arch: str  # of that code, such as "sm_90a"
    routes: Mapping[str, Route | Skipped]


def compare_routes(op_name: str, progress: Callable[[str], None]) -> RoutesReport:
    """Builds an op by every route that there is here.

    Raises:
        UnavailableError: There is no nvcc that works, or no native module.
        BuildFailedError: A compiler refused the sources.
    """
    op = OPS[op_name]
    case = Case(TRIALS[op.name].large_shape)
    number, arch = _architecture()
    toolkit = _find_toolkit(op_name)
    require_module("_cpu")
    plans = native.plan(prebuilt.load("_cpu"), op, launcher_arguments(op, case), number)
    no_calls = gpu_state.obstacle()
    with tempfile.TemporaryDirectory(prefix="twin-routes-") as folder:
        request = {
            "op": op.name,
            "symbol": plans[0]["kernel"],
            "kernels": [title_of(plan["signature"]) for plan in plans],
            "arch": arch,
            "number": number,
            "folder": folder,
            "times_calls": no_calls is None,
        }
        lab = _Lab(op, request, toolkit, Path(folder), no_calls, progress)
        routes = {
            "prebuilt": _try_prebuilt(lab),
            "load_inline": _try_load_inline(lab),
            "nvrtc": _try_nvrtc(lab),
        }
    return RoutesReport(
        op=op.name,
        case=case,
        kernel=request["kernels"][0],
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
    gencode: Sequence[str]


def _architecture() -> tuple[int, str]:
    """Number and name of the current GPU's architecture, or of the default."""
    if not torch.cuda.is_available():
        return 90, "sm_90a"
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
        version = "{}.{}".format(*toolchain.nvcc_version(home))
        gencode = toolchain.gencode_flags()
    except (OSError, subprocess.CalledProcessError, RuntimeError) as error:
        raise UnavailableError(f"{home}/bin/nvcc cannot be run ({error})") from error
    except ValueError as error:
        raise UnavailableError(str(error)) from error
    return _Toolkit(home, version, runtime_folder, gencode)


# ---- The routes ----------------------------------------------------------------------


@dataclass
class _Lab:
    """The setting in which every route is tried."""

    op: Op
    request: Mapping[str, Any]  # to a process, but for the route
    toolkit: _Toolkit
    folder: Path
    no_calls: str | None  # why no call can be timed
    progress: Callable[[str], None]
    first_code: Listing | None = None  # which that of later routes is compared with

    def load_in_a_process(self, route: str) -> dict[str, Any]:
        """The answer of compare.timing.route_process.

        Raises:
            UnavailableError: The process crashed.
            BuildFailedError: The route's compiler refused the source.
        """
        cache = str(self.folder / "cache")
        variables = {"CUDA_HOME": str(self.toolkit.home), "XDG_CACHE_HOME": cache}
        command = child_process.command("compare.timing.route_process")
        request = json.dumps({**self.request, "route": route})
        done = child_process.run(command, variables, request)
        if done.returncode != 0:
            raise UnavailableError(
                f"the process of {route} ended with {done.returncode}:\n{done.stdout}"
            )
        answer = self.folder / "answer.json"
        result: dict[str, Any] = json.loads(answer.read_bytes())
        if "problem" in result:
            raise BuildFailedError(result["problem"])
        return result

    def load_twice(self, route: str, how: str) -> Route:
        """A route that builds at run time, and keeps what it can for the next time."""
        self.progress(f"{route} where nothing is built")
        cold = self.load_in_a_process(route)
        self.progress(f"{route} once more")
        return self.route(how, cold["load_s"], self.load_in_a_process(route))

    def route(self, how: str, cold_s: float, warm: Mapping[str, Any]) -> Route:
        """A route, by what its last process has answered."""
        path = Path(warm["binary"])
        reason = self.no_calls or warm.get("not_called")
        return Route(
            how=how,
            cold_s=cold_s,
            warm_s=warm["load_s"],
            call_us=Skipped(reason) if reason else warm["call_us"],
            binary_bytes=path.stat().st_size,
            code=self.code(path, warm["symbol"]),
        )

    def code(self, path: Path, symbol: str) -> DeviceCode | Skipped:
        """A kernel's machine code beside that of the first route that has some."""
        try:
            code = binary.read_kernel(path, symbol, self.request["arch"])
        except CodegenUnavailable as error:
            return Skipped(str(error))
        except CompilationFailed as error:
            return Skipped(f"{error}: {error.log}")
        self.first_code = self.first_code or code
        differing = binary.count_differing(self.first_code, code)
        return DeviceCode(len(code.instructions), differing)


def _try_prebuilt(lab: _Lab) -> Route:
    lab.progress(f"building csrc/{lab.op.source}/{lab.op.source}.cu as setup.py does")
    build_s = _build(lab.op.source, lab.toolkit, lab.folder)
    lab.progress("loading what was built")
    answer = lab.load_in_a_process("prebuilt")
    how = (
        f"nvcc {lab.toolkit.version} with the flags of setup.py, every kernel for "
        f"{_targets(lab.toolkit.gencode)}"
    )
    if obstacle := toolchain.cuda_obstacle(torch.__version__, torch.version.cuda):
        how += f"; setup.py itself leaves it out here: {obstacle}"
    return lab.route(how, build_s + answer["load_s"], answer)


def _try_load_inline(lab: _Lab) -> Route | Skipped:
    if obstacle := toolchain.cuda_obstacle(torch.__version__, torch.version.cuda):
        return Skipped(obstacle)
    how = (
        f"nvcc {lab.toolkit.version} by torch's load_inline, every kernel for "
        f"{_targets(cuda_inline.gencode_flags())}"
    )
    return lab.load_twice("load_inline", how)


def _try_nvrtc(lab: _Lab) -> Route | Skipped:
    if obstacle := nvrtc.obstacle():
        return Skipped(obstacle)
    how = (
        f"NVRTC of CUDA {torch.version.cuda} by a private function of torch, this one "
        f"kernel for {lab.request['arch']}, and nothing is kept for another process"
    )
    try:
        return lab.load_twice("nvrtc", how)
    except BuildFailedError as error:  # NVRTC accepts less than nvcc does
        return Skipped(str(error))


def _targets(gencode: Iterable[str]) -> str:
    """`sm_80, sm_90a, compute_90`, of nvcc's flags."""
    return ", ".join(flag.rpartition("code=")[2] for flag in gencode)


# ---- Building as setup.py does -------------------------------------------------------


def _build(op: str, toolkit: _Toolkit, folder: Path) -> float:
    """Builds the module `_cuda` of one op into a folder; returns the seconds it took.

    Commands and flags are those of setup.py, where they go through torch and ninja.
    """
    fingerprint = sources.source_hash("_cuda")
    (folder / "bindings.cpp").write_text(
        f'extern const char SOURCE_HASH[] = "{fingerprint}";\n'
        f'#include "entry.cpp"\n{sources.bindings_of(op)}'
    )
    cxx = shlex.split(os.environ.get("CXX", "c++"))
    includes = [
        f"-I{path}"
        for path in (
            *sources.include_folders("_cuda"),
            toolkit.home / "include",
            pybind11.get_include(),
            sysconfig.get_path("include"),
        )
    ]
    hosts = [
        [
            *(*cxx, *sources.CXX_FLAGS, "-fPIC", "-DTORCH_EXTENSION_NAME=_cuda"),
            *(*includes, "-c", file),
        ]
        for file in ("bindings.cpp", str(sources.NATIVE / "module.cpp"))
    ]
    objects = ("kernel.o", "bindings.o", "module.o")
    link = [
        *(*cxx, "-shared", *objects, "-o", "_cuda.so"),
        f"-L{toolkit.runtime_folder}",
        *("-lcudart_static", "-lrt", "-ldl", "-lpthread"),
    ]
    kernel = nvcc_command(toolkit.home, op, toolkit.gencode)
    return run_at_once([kernel, *hosts], folder) + run_at_once([link], folder)
