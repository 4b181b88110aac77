"""The rungs of an op's ladder: what each step is, what it gains, and how long it takes.

A rung is a kernel of its own in both languages, in csrc/<op>_ladder and
triton_kernels/<op>_ladder; the last one is the op. Their code is looked at without a
GPU. Times are measured on one, or come from the record.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch

from bindings.op import Argument, Op
from bindings.registry import OPS
from bindings.sources import ROOT
from compare import environment, records
from compare.cases import Case
from compare.codegen import memory, model
from compare.codegen.architectures import Architecture
from compare.codegen.errors import CodegenUnavailable, CompilationFailed
from compare.codegen.model import KernelCode
from compare.errors import UnavailableError
from compare.parity import Skipped, prepare
from compare.study import launcher_arguments
from compare.timing import gpu_state, implementations
from compare.timing.measure import measure
from compare.timing.model import (
    Timing,
    case_from_json,
    case_to_json,
    timing_from_json,
    timing_to_json,
)
from compare.timing.turns import TimingError

SIDES: dict[str, Callable[..., KernelCode]] = {
    "cuda": model.inspect_cuda,
    "triton": model.inspect_triton,
}
SCHEMA_VERSION = 1

# What multiplies, the most powerful first: a kernel is named by what it has of these.
_MULTIPLIES = ("HGMMA", "HMMA", "FFMA")


@dataclass(frozen=True)
class Step:
    """One rung in one language.

    Attributes:
        kernel: Its title, with template arguments.
        instruction: What multiplies, such as "HMMA.16816.F32.BF16".
        registers: Of a thread.
        shared_bytes: Of a block.
        instructions_per_flop: That all threads execute.
        global_bytes: That all threads load from and store to global memory; None of
            copies by tensor maps, whose size no instruction says.
        shared_memory_bytes: The same of shared memory, by instructions of threads.
    """

    kernel: str
    instruction: str
    registers: int
    shared_bytes: int
    instructions_per_flop: float
    global_bytes: float | None
    shared_memory_bytes: float


@dataclass(frozen=True)
class Rung:
    """One rung.

    Attributes:
        name: Its name.
        what: What it changes, the first sentence of its source.
        steps: By language.
    """

    name: str
    what: str
    steps: Mapping[str, Step | Skipped]


@dataclass(frozen=True)
class Times:
    """How long the rungs take.

    Attributes:
        op: The name of the op.
        environment: Versions and devices.
        case: What they were measured on.
        timings: By rung and language.
    """

    op: str
    environment: dict[str, Any]
    case: Case
    timings: Mapping[str, Mapping[str, Timing | Skipped]]


@dataclass(frozen=True)
class Ladder:
    """What `compare <op> --ladder` finds out.

    Attributes:
        op: The name of the op.
        case: What the code was made for.
        architecture: What it was made for.
        rungs: From the first to the last.
        times: Measured here or recorded; None where neither is there.
        is_recorded: Whether they are from the record.
    """

    op: str
    case: Case
    architecture: str
    rungs: tuple[Rung, ...]
    times: Times | None
    is_recorded: bool


def climb(
    op_name: str,
    shape: tuple[int, ...] | None,
    dtype: str,
    architecture: Architecture,
    progress: Callable[[str], None],
) -> Ladder:
    """Looks at every rung of an op, and times it where there is a GPU.

    Args:
        op_name: The name of the op.
        shape: Of its case; by default the small one, or on a GPU the first that the op
            is judged by.
        dtype: Such as "bfloat16".
        architecture: What to generate code for.
        progress: Is told, from time to time, what is going on.

    Raises:
        CompareError: It cannot be done.
    """
    op = OPS[op_name]
    has_gpu = gpu_state.obstacle() is None
    case = Case(
        shape or (op.benchmark_shapes[0] if has_gpu else op.small_shape),
        getattr(torch, dtype),
    )
    rungs = []
    for name in op.rungs:
        progress(f"looking at the code of {name}")
        steps = {
            side: _step(op, name, case, architecture, inspect)
            for side, inspect in SIDES.items()
        }
        rungs.append(Rung(name, what_changed(op, name), steps))
    times = measure_rungs(op, case, progress) if has_gpu else find(op_name)
    return Ladder(op_name, case, architecture.name, tuple(rungs), times, not has_gpu)


def on_rung(op: Op, rung: str) -> Op:
    """The op as one of its rungs computes it."""
    number = 1 + op.rungs.index(rung)

    def arguments(*given: Any) -> tuple[Argument, ...]:
        return (*op.arguments(*given)[:-1], number)

    return replace(op, arguments=arguments)


def case_on(rung: str, case: Case) -> Case:
    """The case as a rung can serve it: of float32 tensor cores take tf32 alone."""
    if case.dtype != torch.float32 or rung in ("first", "tiled"):
        return case
    return replace(case, params={**case.params, "precision": "tf32"})


def what_changed(op: Op, rung: str) -> str:
    """What the rung's source in CUDA says of it first, without its line breaks."""
    path = ROOT / f"csrc/{op.source}_ladder/{rung}.cuh"
    if path.exists():
        paragraphs = re.findall(r"\A((?://.*\n)+?)(?://\n|(?!//))", path.read_text())
    else:  # the last one is the op itself
        text = (ROOT / f"csrc/{op.source}.cu").read_text()
        paragraphs = re.findall(r"^(// The last rung: (?:.*\n//)*.*\n)", text, re.M)
    return " ".join(re.sub(r"(?m)^//", "", paragraphs[0]).split())


def _step(
    op: Op,
    rung: str,
    case: Case,
    architecture: Architecture,
    inspect: Callable[..., KernelCode],
) -> Step | Skipped:
    step, case = on_rung(op, rung), case_on(rung, case)
    try:
        launched = launcher_arguments(step, case)
        code = inspect(step, launched, architecture).disassembled()
    except (CodegenUnavailable, CompilationFailed, RuntimeError, ValueError) as error:
        return Skipped(str(error).partition("\n")[0])
    assert op.flops
    emulation, totals = code.emulation, memory.totals(code.emulation)
    whole = emulation.total_blocks / emulation.blocks
    n_threads = emulation.total_blocks * emulation.threads
    shared = (
        each.bytes
        for each in memory.movements(emulation)
        if each.argument == memory.SHARED
    )
    return Step(
        kernel=code.title,
        instruction=_what_multiplies(code),
        registers=code.registers,
        shared_bytes=code.shared_bytes,
        instructions_per_flop=emulation.executed_per_thread
        * n_threads
        / op.flops(case.shape),
        global_bytes=totals.global_bytes * whole if totals.sectors else None,
        shared_memory_bytes=sum(shared) * whole,
    )


def _what_multiplies(code: KernelCode) -> str:
    opcodes = [each.opcode for each in code.sass.instructions]
    for kind in _MULTIPLIES:
        found = [each for each in opcodes if each.startswith(kind)]
        if found:
            return max(found, key=found.count)
    return "none"


# ---- Times ---------------------------------------------------------------------------


def measure_rungs(op: Op, case: Case, progress: Callable[[str], None]) -> Times:
    """Times every rung, both languages in turns.

    Raises:
        UnavailableError: It cannot be measured.
    """
    timings: dict[str, dict[str, Timing | Skipped]] = {}
    try:
        for rung in op.rungs:
            progress(f"timing {rung}")
            prepared = prepare(op, case_on(rung, case), "cuda")
            found = implementations.find(on_rung(op, rung), tuple(SIDES), ())
            timings[rung] = dict(measure(prepared, found).timings)
    except (TimingError, torch.OutOfMemoryError) as error:
        raise UnavailableError(str(error)) from error
    return Times(op.name, environment.collect(), case, timings)


def write(times: Times, folder: Path = records.FOLDER) -> Path:
    """Keeps times in place of those that were kept.

    Raises:
        UnavailableError: The file cannot be written.
    """
    document = to_json(times)
    return records.write_beside(times.environment, "ladder", times.op, document, folder)


def find(op: str, folder: Path = records.FOLDER) -> Times | None:
    """The newest times that are kept.

    Raises:
        UsageError: A file is something else.
    """
    files = folder.glob(f"*/ladder/{op}.json")
    found = (records.read_beside(file, from_json) for file in files)
    return max(found, key=lambda each: str(each.environment["date"]), default=None)


def to_json(times: Times) -> dict[str, Any]:
    """Plain values, for json.dump."""
    return {
        "schema_version": SCHEMA_VERSION,
        "op": times.op,
        "environment": times.environment,
        "case": case_to_json(times.case),
        "timing": {
            rung: {side: timing_to_json(each) for side, each in sides.items()}
            for rung, sides in times.timings.items()
        },
    }


def from_json(document: Mapping[str, Any]) -> Times:
    """What to_json has made plain.

    Raises:
        ValueError: It is of another schema.
    """
    if document.get("schema_version") != SCHEMA_VERSION:
        raise ValueError(f"expected schema_version {SCHEMA_VERSION}")
    return Times(
        document["op"],
        document["environment"],
        case_from_json(document["case"]),
        {
            rung: {side: timing_from_json(each) for side, each in sides.items()}
            for rung, sides in document["timing"].items()
        },
    )


def ladder_to_json(ladder: Ladder) -> dict[str, Any]:
    """The whole report as JSON types."""
    return {
        "schema_version": SCHEMA_VERSION,
        "op": ladder.op,
        "case": case_to_json(ladder.case),
        "architecture": ladder.architecture,
        "rungs": [
            {
                "name": rung.name,
                "what": rung.what,
                "steps": {
                    side: {"skipped": step.reason}
                    if isinstance(step, Skipped)
                    else asdict(step)
                    for side, step in rung.steps.items()
                },
            }
            for rung in ladder.rungs
        ],
        "times": ladder.times and to_json(ladder.times),
        "is_recorded": ladder.is_recorded,
    }
