"""An op's kernels under the four tools of NVIDIA's compute-sanitizer, on a GPU.

The same cases as in the emulator, in a process of its own for each tool: it runs this
file. The tools make a kernel ten to a hundred times slower.
"""

from __future__ import annotations

import itertools
import math
import re
import shutil
import sys
import time
from collections.abc import Callable

import torch

from bindings import child_process, toolchain
from bindings.backends import native, prebuilt
from bindings.op import as_tuple
from bindings.registry import OPS
from compare.errors import UnavailableError
from compare.judge.cases import make_arguments
from compare.judge.requirements import require_module
from compare.judge.sanitizer import (
    Finding,
    Report,
    Run,
    choose_runs,
    distinct_runs,
    identity,
)

TOOLS = ("memcheck", "racecheck", "synccheck", "initcheck")

_FOUND = 99  # the exit status that stands for findings
_SUMMARY = re.compile(r"(?:ERROR|RACECHECK) SUMMARY: (\d+)")


def sanitize(name: str, progress: Callable[[str], None]) -> Report:
    """Runs an op under all four tools, and tells `progress` what is going on.

    Raises:
        UnavailableError: There is no GPU, no compute-sanitizer or no module, or a tool
            did not come to its end.
    """
    if not torch.cuda.is_available():
        raise UnavailableError(f"--gpu: torch {torch.__version__} finds no GPU here")
    program = find_program()
    if program is None:
        raise UnavailableError(
            "--gpu: compute-sanitizer is not found on PATH or in the CUDA toolkit; "
            "it comes with the toolkit (package cuda-sanitizer)"
        )
    chosen = _choose(name)
    report = Report(
        name,
        torch.cuda.get_device_name(),
        kernels=sorted(chosen),
        runs=distinct_runs(chosen),
        passes=TOOLS,
    )
    begin = time.perf_counter()
    for tool in TOOLS:
        progress(f"running {len(report.runs)} cases under {tool}")
        report.findings += _run(program, tool, name)
    report.seconds = time.perf_counter() - begin
    return report


def find_program() -> str | None:
    """The path of compute-sanitizer, if it is installed."""
    cuda_home = toolchain.find_cuda_home()
    folders = [cuda_home / "bin", cuda_home / "compute-sanitizer"] if cuda_home else []
    for path in (None, *map(str, folders)):
        if program := shutil.which("compute-sanitizer", path=path):
            return program
    return None


def _choose(name: str) -> dict[str, list[Run]]:
    require_module("_cuda")
    major, minor = torch.cuda.get_device_capability()
    return choose_runs(OPS[name], prebuilt.load("_cuda"), 10 * major + minor)


def _run(program: str, tool: str, name: str) -> list[Finding]:
    command = [
        *(program, "--tool", tool, "--error-exitcode", str(_FOUND)),
        *("--target-processes", "application-only"),
        *child_process.command("compare.judge.gpu_sanitizers", name),
    ]
    # Cached memory comes in slabs, within which nothing is out of bounds.
    done = child_process.run(command, {"PYTORCH_NO_CUDA_MEMORY_CACHING": "1"})
    summary = _SUMMARY.search(done.stdout)
    if done.returncode not in (0, _FOUND) or summary is None:
        tail = "\n".join(done.stdout.splitlines()[-10:])
        raise UnavailableError(f"--gpu: {tool} ended with {done.returncode}:\n{tail}")
    return parse(done.stdout, tool)


def parse(output: str, tool: str) -> list[Finding]:
    """The findings in what a tool has printed, each once."""
    found: dict[str, Finding] = {}
    for block in re.split(r"(?m)^=========\s*$", output):
        lines = re.findall(r"(?m)^========= (.*)$", block)
        lines = [line for line in lines if "COMPUTE-SANITIZER" not in line]
        if not lines or "SUMMARY:" in lines[0]:
            continue
        # The stack of the host follows, which is the same for all.
        own = itertools.takewhile(
            lambda line: "Saved host backtrace" not in line, lines
        )
        message = "\n".join(line.rstrip() for line in own)
        finding = Finding(f"{tool}: {message}", tool)
        found.setdefault(identity(finding.message), finding).count += 1
    summary = _SUMMARY.search(output)
    if summary and int(summary[1]) > 0 and not found:
        text = f"{tool}: {summary[0]}"
        found[text] = Finding(text, tool, int(summary[1]))
    return list(found.values())


def main(name: str) -> None:
    """Runs all cases of an op once, under whatever tool watches."""
    module = prebuilt.load("_cuda")
    for run in distinct_runs(_choose(name)):
        arguments = make_arguments(run.op, run.case, "cuda")
        outputs = run.op.allocate(*arguments)
        for out in as_tuple(outputs):
            out.fill_(math.nan)
        native.run(module, run.op, outputs, *arguments)
        torch.cuda.synchronize()


if __name__ == "__main__":
    main(sys.argv[1])
