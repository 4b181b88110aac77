"""What works here, what cannot, why, and the command that mends it.

Nothing here may raise: what is broken is what the doctor is asked about. So whatever a
probe raises is its result, imports are part of the probes, and output is plain text.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import json
import os
import platform
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

from compare.errors import EXIT_OK
from compare.printable import printable
from compare.repository import ROOT

SUMMARY = "Say what works here, what cannot, and what mends it."

_PIP = f"{shlex.quote(sys.executable)} -m pip install"
_REBUILD = f"{_PIP} --no-build-isolation --no-deps -e {shlex.quote(str(ROOT))}"
_INSTALL = f"{_PIP} -e {shlex.quote(str(ROOT))}"
_INSTALL_NVCC = f"{_PIP} -e {shlex.quote(f'{ROOT}[nvcc]')}"

_VARIABLES = ("CC", "CXX", "MAX_JOBS", "PYTORCH_NVCC", "XDG_CACHE_HOME")
_PREFIXES = ("CUDA_", "TORCH_", "TRITON_", "TWIN_")


@dataclass(frozen=True)
class Capability:
    """Something that the project can do, tried here."""

    name: str
    works: bool
    reason: str  # why not; empty if it works
    remedy: str  # what mends that


@dataclass(frozen=True)
class Diagnosis:
    """The facts about this machine by name, and the capabilities."""

    facts: dict[str, str]
    capabilities: tuple[Capability, ...]


def examine() -> Diagnosis:
    """Looks at everything and tries everything."""
    # The output of libraries is not part of the answer.
    with contextlib.redirect_stdout(sys.stderr):
        return Diagnosis(
            {name: _answer(probe) for name, probe in _FACTS},
            tuple(_try(*each) for each in _CAPABILITIES),
        )


def show(diagnosis: Diagnosis, as_json: bool) -> None:
    """Writes it to stdout."""
    if as_json:
        document = {"schema_version": 1, **asdict(diagnosis)}
        sys.stdout.write(json.dumps(document, indent=2) + "\n")
        return
    width = max(map(len, diagnosis.facts))
    for name, fact in diagnosis.facts.items():
        indented = printable(fact).replace("\n", "\n" + " " * (width + 2))
        sys.stdout.write(f"{name:<{width}}  {indented}\n")
    sys.stdout.write("\n")
    for each in diagnosis.capabilities:
        sys.stdout.write(f"{'works ' if each.works else 'CANNOT'}  {each.name}\n")
        if not each.works:
            sys.stdout.write(f"        because {printable(each.reason)}\n")
            sys.stdout.write(f"        so      {printable(each.remedy)}\n")


def _answer(probe: Callable[[], str]) -> str:
    try:
        return probe()
    except Exception as error:
        return _sentence(error)


def _try(name: str, probe: Callable[[], None], remedy: str) -> Capability:
    try:
        probe()
    except Exception as error:
        reason = str(getattr(error, "reason", _sentence(error)))
        return Capability(name, False, reason, str(getattr(error, "remedy", remedy)))
    return Capability(name, True, "", "")


def _sentence(error: Exception) -> str:
    # Errors of the project's own say what is wrong; others tell more with their type.
    message = str(error).strip()
    if type(error).__module__.partition(".")[0] in ("bindings", "compare"):
        return message
    return f"{type(error).__name__}: {message}" if message else type(error).__name__


class _MissingError(Exception):
    """Something is not here; the message says what."""

    def __init__(self, reason: str, remedy: str) -> None:
        super().__init__(reason)
        self.remedy = remedy


def _package(name: str) -> str:
    module = importlib.import_module(name)
    return f"{module.__version__}, {Path(str(module.__file__)).parent}"


def _torch() -> str:
    import torch

    build = f"for CUDA {torch.version.cuda}" if torch.version.cuda else "a CPU build"
    return f"{torch.__version__}, {build}, {Path(str(torch.__file__)).parent}"


def _gpus() -> str:
    from torch import cuda

    names = []
    for index in range(cuda.device_count()):
        major, minor = cuda.get_device_capability(index)
        names.append(f"{cuda.get_device_name(index)} (sm_{major}{minor})")
    return ", ".join(names) or "none that torch can use"


def _driver() -> str:
    from compare.timing.environment import driver_version

    return driver_version() or "none"


def _nvcc() -> str:
    from bindings import toolchain

    ignored = "".join(
        f"\n{name}={os.environ[name]} is ignored: it has no bin/nvcc with "
        "include/cuda_runtime.h"
        for name in ("CUDA_HOME", "CUDA_PATH")
        if os.environ.get(name) and not toolchain.is_toolkit(Path(os.environ[name]))
    )
    cuda_home = toolchain.find_cuda_home()
    if cuda_home is None:
        return "none" + ignored
    try:
        release = "{}.{}".format(*toolchain.nvcc_version(cuda_home))
    except (OSError, subprocess.CalledProcessError, RuntimeError) as error:
        release = f"cannot be run ({error})"
    return f"{release}, {cuda_home}/bin/nvcc{ignored}"


def _compiler() -> str:
    name = os.environ.get("CXX") or "c++"  # as load_inline has it
    path = shutil.which(shlex.split(name)[0])
    if path is None:
        raise _MissingError(f"{name} is not found", "apt-get install g++")
    version = subprocess.run(
        [path, "--version"], capture_output=True, text=True, check=False, timeout=30
    )
    return f"{version.stdout.partition(chr(10))[0]}, {path}"


def _ninja() -> str:
    folder = str(Path(sys.executable).parent)
    path = shutil.which("ninja", path=folder) or shutil.which("ninja")
    if path is None:
        raise _MissingError("ninja is not found", f"{_PIP} ninja")
    return path


def _module(name: str) -> str:
    prebuilt = importlib.import_module("bindings.backends.prebuilt")
    return str(prebuilt.load(name).__file__)


def _caches() -> str:
    import platformdirs
    import triton

    folders = (platformdirs.user_cache_dir("twin-kernels"), triton.knobs.cache.dir)
    return "\n".join(f"{folder}, {_access(Path(folder))}" for folder in folders)


def _access(folder: Path) -> str:
    nearest = next(each for each in (folder, *folder.parents) if each.exists())
    done = "written" if nearest == folder else "made"
    is_possible = nearest.is_dir() and not _write_error(nearest)
    return f"{'can' if is_possible else 'CANNOT'} be {done}"


def _write_error(folder: Path) -> str:
    # Tried, because permissions tell nothing of a file system that takes no files.
    try:
        with tempfile.TemporaryFile(dir=folder) as file:
            file.write(b"x")
    except OSError as error:
        return str(error)
    return ""


def _variables() -> str:
    settings = [
        f"{name}={value}"
        for name, value in sorted(os.environ.items())
        if name in _VARIABLES or name.startswith(_PREFIXES)
    ]
    return "\n".join(settings) or "none that matter"


def _add(backend: str, device: str) -> None:
    import torch

    import bindings

    if device == "cuda" and not torch.cuda.is_available():
        raise _MissingError(
            f"torch {torch.__version__} finds no GPU",
            "use a machine with an NVIDIA GPU and a CUDA build of torch",
        )
    x = torch.arange(8.0, device=device)
    result = bindings.add(x, x, backend=backend)
    if not torch.equal(result, 2 * x):
        raise RuntimeError(f"8 numbers were added wrongly: {result.tolist()}")


def _inspect(side: str) -> None:
    from bindings.registry import OPS
    from compare.code import kernel_code
    from compare.code.architectures import parse_architecture
    from compare.judge.cases import Case, launcher_arguments

    inspect = getattr(kernel_code, f"inspect_{side}")
    arguments = launcher_arguments(OPS["add"], Case((4096,)))
    inspect(OPS["add"], arguments, parse_architecture("sm_90"))


def _build() -> None:
    # Not tried, which would take a while; only what it takes is looked for.
    importlib.import_module("torch.utils.cpp_extension")
    importlib.import_module("pybind11")
    _compiler()
    _ninja()
    from bindings import build_cache

    remedy = "set XDG_CACHE_HOME to a folder that can be written"
    try:
        folder = build_cache.cache_folder()
    except RuntimeError as error:
        raise _MissingError(str(error), remedy) from error
    if reason := _write_error(folder):
        raise _MissingError(f"its cache cannot be written ({reason})", remedy)


_FACTS: tuple[tuple[str, Callable[[], str]], ...] = (
    ("system", platform.platform),
    ("python", lambda: f"{platform.python_version()}, {sys.executable}"),
    ("torch", _torch),
    ("triton", partial(_package, "triton")),
    ("numpy", partial(_package, "numpy")),
    ("GPU", _gpus),
    ("driver", _driver),
    ("nvcc", _nvcc),
    ("C++ compiler", _compiler),
    ("ninja", _ninja),
    ("bindings._cpu", partial(_module, "_cpu")),
    ("bindings._cuda", partial(_module, "_cuda")),
    ("caches", _caches),
    ("environment", _variables),
)

_CAPABILITIES: tuple[tuple[str, Callable[[], None], str], ...] = (
    (
        "CUDA kernels on the CPU, in the emulator",
        partial(_add, "cuda", "cpu"),
        _REBUILD,
    ),
    (
        "Triton kernels on the CPU, in its interpreter",
        partial(_add, "triton", "cpu"),
        _INSTALL,
    ),
    ("CUDA kernels on a GPU", partial(_add, "cuda", "cuda"), _REBUILD),
    ("Triton kernels on a GPU, and times", partial(_add, "triton", "cuda"), _INSTALL),
    ("CUDA sources built by load_inline", _build, _INSTALL),
    ("PTX and SASS of the CUDA side", partial(_inspect, "cuda"), _INSTALL_NVCC),
    ("PTX and SASS of the Triton side", partial(_inspect, "triton"), _INSTALL),
)


def add_options(parser: argparse.ArgumentParser) -> None:
    """The form of the answer."""
    parser.add_argument("--json", action="store_true", help="as JSON on stdout")


def run(options: argparse.Namespace) -> int:
    """Examines, and shows what it found."""
    if sys.stderr.isatty():
        sys.stderr.write("trying what works here, which takes some seconds\n")
    show(examine(), as_json=options.json)
    return EXIT_OK
