"""Finds the tools that build native code: nvcc and ninja.

setup.py imports this module where torch may be absent, so it imports nothing but the
standard library.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path

USUAL_CUDA_HOME = Path("/usr/local/cuda")

# The default without TORCH_CUDA_ARCH_LIST: machine code for A100 and H100 (sm_80 also
# runs on sm_86 and sm_89), and PTX for newer GPUs. The PTX is of 9.0, since PTX of an
# "a" architecture runs on that architecture alone.
DEFAULT_GENCODE = (
    "-gencode=arch=compute_80,code=sm_80",
    "-gencode=arch=compute_90a,code=sm_90a",
    "-gencode=arch=compute_90,code=compute_90",
)


def find_cuda_home() -> Path | None:
    """Returns the CUDA toolkit to use, or None where there is none.

    Tried in this order: CUDA_HOME, CUDA_PATH, a toolkit installed by pip,
    /usr/local/cuda, and the nvcc on PATH.
    """
    return next(
        (home.resolve() for home in _candidate_homes() if is_toolkit(home)), None
    )


def is_toolkit(home: Path) -> bool:
    """Returns whether a folder holds a CUDA toolkit."""
    # An nvcc without CUDA's headers beside it compiles nothing.
    return (home / "bin/nvcc").is_file() and (home / "include/cuda_runtime.h").is_file()


def _candidate_homes() -> Iterator[Path]:
    for variable in ("CUDA_HOME", "CUDA_PATH"):
        if value := os.environ.get(variable):
            yield Path(value)
    # The environment's own comes first: in a build under pip sys.path lacks it.
    folders = [Path(folder) for folder in (sysconfig.get_path("purelib"), *sys.path)]
    for folder in folders:
        yield from sorted(folder.glob("nvidia/cu[0-9]*"), reverse=True)
    yield USUAL_CUDA_HOME
    if nvcc := shutil.which("nvcc"):
        # The file found may be a wrapper script that lies anywhere, so nvcc itself is
        # asked where it is.
        try:
            dry_run = subprocess.run(
                [nvcc, "--dryrun", "-c", "x.cu"],
                capture_output=True,
                text=True,
                check=False,
            )
        except OSError:
            return  # built for another system, or not a program at all
        if match := re.search(r"^#\$ _HERE_=(.+)$", dry_run.stderr, re.MULTILINE):
            yield Path(match[1]).parent


def nvcc_version(cuda_home: Path) -> tuple[int, int]:
    """Returns the version of a toolkit's nvcc, such as (13, 0)."""
    nvcc = f"{cuda_home}/bin/nvcc"
    text = subprocess.check_output([nvcc, "--version"], text=True)
    match = re.search(r"release (\d+)\.(\d+)", text)
    if match is None:
        raise RuntimeError(f"{nvcc} --version names no release:\n{text}")
    return int(match[1]), int(match[2])


def cuda_runtime_folder(cuda_home: Path) -> Path | None:
    """Returns the folder of the static CUDA runtime library, or None."""
    for name in ("lib64", "lib"):
        if (cuda_home / name / "libcudart_static.a").is_file():
            return cuda_home / name
    return None


def cuda_obstacle(torch_version: str, torch_cuda: str | None) -> str | None:
    """Returns why GPU code cannot be built here, or None where it can.

    Args:
        torch_version: torch.__version__
        torch_cuda: torch.version.cuda
    """
    if torch_cuda is None:
        return f"torch {torch_version} is a CPU build, which drives no GPU"
    cuda_home = find_cuda_home()
    if cuda_home is None:
        return "no nvcc is found; the extra brings one: pip install -e '.[nvcc]'"
    try:
        major, minor = nvcc_version(cuda_home)
    except (OSError, subprocess.CalledProcessError, RuntimeError) as error:
        return f"{cuda_home}/bin/nvcc cannot be run ({error})"
    if major != int(torch_cuda.partition(".")[0]):
        return (
            f"{cuda_home} is CUDA {major}.{minor}, torch {torch_version} is built for"
            f" CUDA {torch_cuda}; set CUDA_HOME to a toolkit of that release"
        )
    if cuda_runtime_folder(cuda_home) is None:
        return f"{cuda_home} has no libcudart_static.a in lib64 or lib"
    return None


def gencode_flags() -> list[str]:
    """Returns nvcc's -gencode flags: from TORCH_CUDA_ARCH_LIST, or the default."""
    arch_list = re.split(r"[;, ]+", os.environ.get("TORCH_CUDA_ARCH_LIST", "").strip())
    if arch_list == [""]:
        return list(DEFAULT_GENCODE)
    flags = []
    for entry in arch_list:
        match = re.fullmatch(r"(\d+)\.(\d)([af]?)(\+PTX)?", entry)
        if match is None:
            raise ValueError(
                f"TORCH_CUDA_ARCH_LIST: {entry!r} is not an architecture;"
                " write it as 8.0, 9.0a or 9.0+PTX, separated by semicolons"
            )
        major, minor, suffix, with_ptx = match.groups()
        arch = f"{major}{minor}{suffix}"
        flags.append(f"-gencode=arch=compute_{arch},code=sm_{arch}")
        if with_ptx:
            flags.append(f"-gencode=arch=compute_{arch},code=compute_{arch}")
    return flags


def kernel_symbol_flags(version: tuple[int, int]) -> list[str]:
    """Returns the nvcc flags that keep kernels in a module's symbol table.

    A plan finds its kernel's name by looking up the host stub that stands for it. From
    CUDA 13 on nvcc hides these stubs unless it is told not to.
    """
    if version < (13, 0):
        return []
    return [
        "-static-global-template-stub=false",
        "-device-entity-has-hidden-visibility=false",
    ]


def put_ninja_on_path() -> None:
    """Puts the ninja of this interpreter's environment on PATH.

    torch calls ninja through PATH, which has it only once the environment is activated.

    Raises:
        RuntimeError: ninja is not installed.
    """
    folder = str(Path(sys.executable).parent)
    if shutil.which("ninja", path=folder):
        os.environ["PATH"] = os.pathsep.join([folder, os.environ.get("PATH", "")])
    elif not shutil.which("ninja"):
        raise RuntimeError(f"ninja is missing: {sys.executable} -m pip install ninja")


def limit_parallel_jobs() -> None:
    """Sets MAX_JOBS where it is not set, since each compiler takes much memory."""
    os.environ.setdefault("MAX_JOBS", str(min(4, os.cpu_count() or 1)))
