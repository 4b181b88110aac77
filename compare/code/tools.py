"""NVIDIA's command line tools: where they are, and how they are run and read."""

import functools
import re
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from triton import knobs

from compare.code import cache
from compare.code.architectures import Architecture
from compare.errors import CodegenUnavailable, CompilationFailed

REMEDY_OF_TOOLKIT = "mend it, or set CUDA_HOME to another CUDA toolkit"

_TIMEOUT_SECONDS = 300
_DISASSEMBLE = ("-c", "-g", "-gi", "-gp")  # with source lines, inlining and PTX lines
# Leaves out the analysis of what registers hold, which takes a third of the time and
# tells no more than where jumps to an address in a register lead.
_WITHOUT_DATAFLOW = "-ndf"
_JUMP_TO_REGISTER = re.compile(r"\b(BRX|BRXU|JMX|JMXU) ")


@dataclass(frozen=True)
class Resources:
    """The resources of a multiprocessor that a kernel takes."""

    registers: int
    stack_bytes: int
    static_shared_bytes: int


@dataclass(frozen=True)
class AssemblerReport:
    """Figures of one kernel that `ptxas -v` prints, and a cubin does not have."""

    spill_store_bytes: int = 0
    spill_load_bytes: int = 0


def run(
    command: list[str], failure: str, folder: Path | None = None
) -> subprocess.CompletedProcess[str]:
    """Runs a tool to its end, in `folder` if one is given.

    Raises:
        CompilationFailed: the tool reported failure or did not end; the message is
            `failure`, the log is the tool's.
    """
    try:
        return subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=_TIMEOUT_SECONDS,
            cwd=folder,
            check=True,
        )
    except subprocess.TimeoutExpired as error:
        raise CompilationFailed(failure, str(error)) from error
    except subprocess.CalledProcessError as error:
        log = (error.stdout + error.stderr).strip()
        raise CompilationFailed(failure, log) from error


@functools.cache
def version_of(tool: Path) -> str:
    """The version that a compiler or an assembler names, such as 13.0.88.

    Raises:
        CodegenUnavailable: It cannot be run, or it names none.
    """
    try:
        text = subprocess.check_output([str(tool), "--version"], text=True)
    except (OSError, subprocess.CalledProcessError) as error:
        raise CodegenUnavailable(
            f"{tool} cannot be run ({error})", REMEDY_OF_TOOLKIT
        ) from error
    if match := re.search(r", V(\S+)", text):
        return match[1]
    raise CodegenUnavailable(f"{tool} --version names no version", REMEDY_OF_TOOLKIT)


def resources_of(cubin: bytes, kernel: str, architecture: Architecture) -> Resources:
    """Reads from a cubin what the driver does, with the cuobjdump of Triton's wheel."""
    cuobjdump = triton_tool("cuobjdump").path
    command = [cuobjdump, "--dump-resource-usage"]
    text = _read(command, cubin, kernel)
    line = text.partition(f" Function {kernel}:")[2].lstrip().partition("\n")[0]
    usage = {name: int(value) for name, value in re.findall(r"(\w+):(\d+)", line)}
    shared_bytes = usage["SHARED"] - architecture.reserved_shared_bytes
    return Resources(usage["REG"], usage["STACK"], max(0, shared_bytes))


def disassemble(cubin: bytes, kernel: str) -> str:
    """The machine code of one kernel, by the disassembler of Triton's wheel.

    However small the cubin, that takes almost half a second.

    Raises:
        CodegenUnavailable: There is no disassembler.
        CompilationFailed: It cannot read the cubin, or finds no such kernel there.
    """
    nvdisasm = triton_tool("nvdisasm")
    key = cache.key_of(cubin, f"{nvdisasm.version} {' '.join(_DISASSEMBLE)}")
    stored = cache.read(key, ("sass",))
    if stored is None:
        command = [nvdisasm.path, *_DISASSEMBLE]
        text = _read([*command, _WITHOUT_DATAFLOW], cubin, kernel)
        if _JUMP_TO_REGISTER.search(text):
            text = _read(command, cubin, kernel)
        stored = {"sass": text.encode()}
        cache.write(key, stored)
    section = section_of(stored["sass"].decode(), kernel)
    if not section:
        raise CompilationFailed(f"nvdisasm shows no code of {kernel}", "")
    return section


def section_of(disassembly: str, kernel: str) -> str:
    """The part of a disassembly about one kernel; empty if it has no such kernel."""
    start = re.search(rf"(?m)^\.text\.{re.escape(kernel)}:$", disassembly)
    if start is None:
        return ""
    end = re.compile(r"(?m)^//-{3,}").search(disassembly, start.end())
    return disassembly[start.start() : end.start() if end else None]


def _read(command: list[str], cubin: bytes, kernel: str) -> str:
    """Runs a tool on a cubin, and returns what it prints."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "kernel.cubin"
        path.write_bytes(cubin)
        failure = f"{Path(command[0]).name} cannot read the code of {kernel}"
        return run([*command, str(path)], failure).stdout


def parse_assembler_report(log: str, kernel: str) -> AssemblerReport:
    """Reads the lines about `kernel` in what `ptxas -v` wrote."""
    _, _, text = log.partition(f"Function properties for {kernel}\n")
    found = re.search(r"(\d+) bytes spill stores, (\d+) bytes spill loads", text)
    if found is None:
        raise ValueError(f"ptxas says nothing of {kernel}:\n{log}")
    return AssemblerReport(int(found[1]), int(found[2]))


def triton_tool(name: str) -> knobs.NvidiaTool:
    """A program that Triton's wheel carries, such as cuobjdump.

    Raises:
        CodegenUnavailable: It cannot be run.
    """
    try:
        tool: knobs.NvidiaTool = getattr(knobs.nvidia, name)
    except RuntimeError as error:
        raise CodegenUnavailable(
            f"Triton's copy of {name} cannot be run ({error})",
            f"reinstall triton, or set TRITON_{name.upper()}_PATH to one that runs",
        ) from error
    return tool
