"""The PTX simulator's counts beside those of Nsight Compute, from a GPU's counters.

`python tests/nsight_compute.py` measures on the GPU at hand and writes what it found to
records/<gpu>/nsight-compute; it needs `ncu`, and the right to read the counters.
"""

from __future__ import annotations

import contextlib
import csv
import ctypes
import io
import json
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from handicaps.build import FOLDER, compiled
from handicaps.catalogue import CLEAN, HANDICAPS, Kernel

from bindings import toolchain
from bindings.backends import native, prebuilt, triton
from bindings.registry import OPS
from compare.code.architectures import parse_architecture
from compare.code.kernel_code import KernelCode, Side, inspect_cuda, inspect_triton
from compare.judge.cases import Case, launcher_arguments, make_arguments
from compare.ptx_simulator import Simulation, simulate
from compare.records import source_hash, store
from compare.timing import environment

# Nsight Compute's names of what the simulator counts, for a whole launch. Shuffles and
# barriers have none: those are counted by instruction.
_METRICS = {
    "global load requests": "l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum",
    "global load sectors": "l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum",
    "global store requests": "l1tex__t_requests_pipe_lsu_mem_global_op_st.sum",
    "global store sectors": "l1tex__t_sectors_pipe_lsu_mem_global_op_st.sum",
    "bank conflicts": "derived__memory_l1_wavefronts_shared_excessive",
}
_OPCODES = {"shuffles": "SHFL", "barriers": "BAR"}
# The barrier of a cluster is another instruction.
_PTX_OPCODES = {
    "shuffles": ("shfl.",),
    "barriers": ("bar.", "barrier.sync", "barrier.cta"),
}
QUANTITIES = (*_METRICS, *_OPCODES)

_SOFTMAX_SHAPES = ((256, 1000), (64, 4096), (8, 40960), (4, 131072))
_CASES = (
    Case((1 << 18,)),
    Case((512, 513), layout="transposed"),
    Case((512, 513), layout="sliced"),
)


@dataclass(frozen=True)
class Count:
    """One kernel, simulated and measured.

    Attributes:
        kernel: The op, or the name of a kernel of tests/handicaps.
        side: "cuda" or "triton".
        shape: Of the input.
        dtype: Of the input.
        layout: Of the input.
        simulated: By quantity, the PTX simulator's count.
        measured: By quantity, the GPU's count.
    """

    kernel: str
    side: str
    shape: tuple[int, ...]
    dtype: str
    layout: str
    simulated: dict[str, int]
    measured: dict[str, int]


@dataclass(frozen=True)
class Subject:
    """A kernel to count: a case of an op, or one of tests/handicaps."""

    side: Side
    case: Case
    op: str = ""
    handicap: Kernel | None = None


def subjects() -> Iterator[Subject]:
    """All kernels that are counted, in the order of their launches."""
    for dtype in (torch.float32, torch.bfloat16):
        for op in OPS.values():
            if op.name not in ("add", "gelu", "softmax"):
                continue
            shapes = [Case(each) for each in _SOFTMAX_SHAPES]
            for case in shapes if op.name == "softmax" else _CASES:
                for side in ("cuda", "triton"):
                    yield Subject(side, Case(case.shape, dtype, case.layout), op.name)
    transpose = next(each for each in CLEAN if each.name == "transpose")
    conflict = next(each.kernel for each in HANDICAPS if each.rule == "bank conflicts")
    for kernel in (transpose, conflict):
        yield Subject("cuda", Case((kernel.tensors[1][0],)), handicap=kernel)


def measure() -> list[Count]:
    """Counts all subjects, on the GPU at hand and in the PTX simulator.

    Raises:
        RuntimeError: Nsight Compute failed; its output says why.
    """
    found = list(subjects())
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report"
        command = [
            *(find_ncu(), "--profile-from-start", "off", "--clock-control", "none"),
            *("--section", "SourceCounters", "--metrics", _metrics()),
            *("--export", str(report), sys.executable, __file__, "--launch"),
        ]
        _output(command)
        read = [find_ncu(), "--import", f"{report}.ncu-rep", "--csv", "--page"]
        totals = _totals(_output([*read, "raw"]))
        listings = _listings(_output([*read, "source", "--print-source", "sass"]))
    if not len(totals) == len(listings) == len(found):
        raise RuntimeError(
            f"{len(found)} kernels were launched, and Nsight Compute tells of "
            f"{len(totals)} and {len(listings)}"
        )
    return [
        Count(
            kernel=each.handicap.name if each.handicap else each.op,
            side=each.side,
            shape=each.case.shape,
            dtype=str(each.case.dtype).removeprefix("torch."),
            layout=each.case.layout,
            simulated=_simulated(_code_of(each)),
            measured={**total, **listing},
        )
        for each, total, listing in zip(found, totals, listings, strict=True)
    ]


def _metrics() -> str:
    return ",".join(each for each in _METRICS.values() if each.startswith("l1tex"))


def find_ncu() -> str:
    """The path of Nsight Compute.

    Raises:
        FileNotFoundError: It is not installed.
    """
    home = toolchain.find_cuda_home()
    for path in (None, str(home / "bin") if home else None):
        if program := shutil.which("ncu", path=path):
            return program
    raise FileNotFoundError("ncu is not found on PATH or in the CUDA toolkit")


def _output(command: list[str]) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{command[0]} failed: {done.stdout}{done.stderr}")
    return done.stdout


def _totals(text: str) -> list[dict[str, int]]:
    _, *rows = csv.DictReader(io.StringIO(text))  # the first row has the units
    return [
        {name: _integer(row[metric]) for name, metric in _METRICS.items()}
        for row in rows
    ]


def _listings(text: str) -> list[dict[str, int]]:
    """The shuffles and barriers of each kernel."""
    tables: list[list[dict[str, str]]] = []
    head: list[str] = []
    for row in csv.reader(io.StringIO(text)):
        if row[:1] == ["Address"]:
            head = row
            tables.append([])
        elif head and len(row) == len(head):
            tables[-1].append(dict(zip(head, row, strict=True)))
    # The tables of kernels of a program, unlike those of Triton, come twice.
    unique = [
        table
        for table, before in zip(tables, [[], *tables], strict=False)
        if table != before
    ]
    return [
        {name: _executed(table, opcode) for name, opcode in _OPCODES.items()}
        for table in unique
    ]


def _executed(table: list[dict[str, str]], opcode: str) -> int:
    pattern = re.compile(rf"\s*(?:@!?U?P\w+\s+)?{opcode}\b")
    return sum(
        _integer(line["Instructions Executed"])
        for line in table
        if pattern.match(line["Source"])
    )


def _integer(text: str) -> int:
    return round(float(text.replace(",", "") or 0))


def _simulated(code: KernelCode) -> dict[str, int]:
    simulation = simulate(code.ptx, code.launch, range(code.launch.blocks))
    assert simulation.is_complete  # a branch on loaded data is a guess, as in erf
    outside = [each for each in simulation.accesses if each.space == "global"]
    counts = {
        "bank conflicts": sum(each.bank_conflicts for each in simulation.accesses)
    }
    for name in _METRICS.keys() - counts.keys():
        is_store, quantity = "store" in name, name.rpartition(" ")[2]
        counts[name] = sum(
            getattr(each, quantity) for each in outside if each.is_store == is_store
        )
    for name, opcodes in _PTX_OPCODES.items():
        counts[name] = _executions(code, simulation, opcodes)
    return {name: counts[name] for name in QUANTITIES}


def _executions(
    code: KernelCode, simulation: Simulation, opcodes: tuple[str, ...]
) -> int:
    return sum(
        count
        for instruction, count in zip(
            code.ptx.instructions, simulation.warp_executed, strict=True
        )
        if instruction.opcode.startswith(opcodes)
    )


def _code_of(subject: Subject) -> KernelCode:
    major, minor = torch.cuda.get_device_capability()
    architecture = parse_architecture(f"sm_{major}{minor}")
    if subject.handicap:
        return compiled(subject.handicap, "cuda", architecture.number)
    inspect = {"cuda": inspect_cuda, "triton": inspect_triton}[subject.side]
    op = OPS[subject.op]
    return inspect(op, launcher_arguments(op, subject.case), architecture)


def _arguments(subject: Subject) -> tuple[Any, ...]:
    op = OPS[subject.op]
    inputs = make_arguments(op, subject.case, "cuda")
    return op.arguments(op.allocate(*inputs), *inputs)


def _launch_all() -> None:
    """Launches every subject, the first time outside of Nsight Compute's view."""
    for subject in subjects():
        if subject.handicap:
            _launch_handicap(subject.handicap)
            continue
        op, arguments = OPS[subject.op], _arguments(subject)
        stream = torch.cuda.current_stream().cuda_stream
        for is_on in (False, True):
            with _profiled(is_on=is_on):
                if subject.side == "cuda":
                    native.launch(prebuilt.load("_cuda"), op, arguments, stream)
                else:
                    triton.launcher(op)(*arguments)


@contextlib.contextmanager
def _profiled(*, is_on: bool) -> Iterator[None]:
    """Shows Nsight Compute the launches within."""
    torch.cuda.synchronize()
    if is_on:
        torch.cuda.profiler.start()
    yield
    torch.cuda.synchronize()
    if is_on:
        torch.cuda.profiler.stop()


def _launch_handicap(kernel: Kernel) -> None:
    """Compiles a kernel of the bank into a program of its own library, and runs it."""
    major, minor = torch.cuda.get_device_capability()
    source = f"""
        #include "{FOLDER / "cuda" / kernel.name}.cu"
        extern "C" int run(float* out, const float* x) {{
            {kernel.name}<<<{kernel.grid[0]}, 128>>>(out, x);
            return cudaDeviceSynchronize();
        }}
    """
    home = toolchain.find_cuda_home()
    assert home is not None
    runtime = toolchain.cuda_runtime_folder(home)
    with tempfile.TemporaryDirectory() as folder:
        library = Path(folder) / "kernel.so"
        command = [
            *(f"{home}/bin/nvcc", f"-arch=sm_{major}{minor}", "-std=c++20", "-O3"),
            *("-shared", "-Xcompiler=-fPIC", "-x", "cu", "-", "-o", str(library)),
            *("-cudart=none", "-L", str(runtime), "-lcudart_static"),
            *("-lrt", "-ldl", "-lpthread"),
        ]
        subprocess.run(command, input=source, text=True, check=True)
        run = ctypes.CDLL(str(library)).run
        run.argtypes = [ctypes.c_void_p, ctypes.c_void_p]
        out, x = (torch.ones(n, dtype=t, device="cuda") for n, t in kernel.tensors)
        with _profiled(is_on=True):
            assert run(out.data_ptr(), x.data_ptr()) == 0


def file_of(gpu_name: str) -> Path:
    """The file of a GPU's counts."""
    return store.folder_of(gpu_name) / "nsight-compute" / "counts.json"


def read(file: Path) -> list[Count]:
    """Reads the counts of a GPU from the repository."""
    content = json.loads(file.read_text())
    return [
        Count(**{**each, "shape": tuple(each["shape"])}) for each in content["counts"]
    ]


def write(counts: list[Count]) -> Path:
    """Writes the counts of a GPU to the repository."""
    ops = sorted({each.kernel for each in counts} & OPS.keys())
    content = {
        "ops": ops,
        "environment": {
            **environment.collect(),
            source_hash.KEY: source_hash.hashes(*ops),
        },
        "counts": [asdict(each) for each in counts],
    }
    file = file_of(torch.cuda.get_device_name())
    file.parent.mkdir(exist_ok=True)
    store.replace(file, (json.dumps(content, indent=1) + "\n").encode())
    return file


if __name__ == "__main__":
    if sys.argv[1:] == ["--launch"]:
        _launch_all()
    else:
        sys.stdout.write(f"{write(measure())}\n")
