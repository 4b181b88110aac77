"""The rungs of an op's ladder: what each step is, what it gains, and how long it takes.

A rung is a file with a kernel in both languages, in csrc/<op> and triton_kernels/<op>:
the first, the textbook's; the twin; and what lies between. What a call takes comes
last. Their code is looked at without a GPU. Times are measured on one, or come from the
record.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch

from bindings.errors import UnsupportedError
from bindings.op import Op
from bindings.registry import OPS
from bindings.sources import ROOT
from compare.assembly.places import file_of
from compare.code import kernel_code, memory
from compare.code.architectures import Architecture
from compare.code.kernel_code import KernelCode, Side
from compare.errors import CodegenUnavailable, CompilationFailed, UnavailableError
from compare.judge.cases import Case, launcher_arguments
from compare.judge.parity import Skipped, prepare
from compare.records import environment, store
from compare.rungs import TWIN, name_of
from compare.timing import gpu_state, implementations
from compare.timing.measure import measure
from compare.timing.times import (
    Timing,
    case_from_json,
    case_to_json,
    timing_from_json,
    timing_to_json,
)
from compare.timing.turns import TimingError

SIDES: dict[Side, Callable[..., KernelCode]] = {
    "cuda": kernel_code.inspect_cuda,
    "triton": kernel_code.inspect_triton,
}
SCHEMA_VERSION = 2

# What multiplies, the most powerful first: a kernel is named by what it has of these.
_MULTIPLIES = ("HGMMA", "HMMA", "FFMA")
# What a call takes, as the reports name it; among an op's rungs it has no name.
CALL = "call"


@dataclass(frozen=True)
class Step:
    """One rung in one language: all of its launches together.

    Attributes:
        kernels: Their names, in the order of the launches.
        lines: Of the files that they stand in.
        instruction: What multiplies, such as "HMMA.16816.F32.BF16"; empty of an op that
            is bound by memory.
        registers: Of a thread, the most of all launches.
        shared_bytes: Of a block, likewise.
        instructions: That all threads execute, for each multiplication and addition of
            the op, or for each element that it has to read or write.
        global_bytes: That all threads load from and store to global memory; None of
            copies by tensor maps, whose size no instruction says.
        shared_memory_bytes: The same of shared memory, by instructions of threads.
    """

    kernels: tuple[str, ...]
    lines: int
    instruction: str
    registers: int
    shared_bytes: int
    instructions: float
    global_bytes: float | None
    shared_memory_bytes: float


@dataclass(frozen=True)
class Rung:
    """One rung.

    Attributes:
        name: Its name, CALL for what a call takes.
        what: What it changes, the first sentences of its source.
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
        rungs: From the first to what a call takes.
        times: Measured here or recorded; None where neither is there.
        is_recorded: Whether they are from the record.
    """

    op: str
    case: Case
    architecture: str
    rungs: tuple[Rung, ...]
    times: Times | None
    is_recorded: bool


def rungs_of(op: Op) -> dict[str, Op]:
    """The op on each of its rungs, by name, and as a call computes it."""
    return {**{name: op.on_rung(name) for name in op.rungs}, CALL: op}


def default_case(op: Op) -> Case:
    """What a ladder is climbed on, and its times are recorded of."""
    if op.flops:  # tensor cores, which the last rungs are about, know no float32
        return Case(op.benchmark_shapes[0], torch.bfloat16, direction=op.direction)
    return Case(op.large_shape, direction=op.direction)


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
        shape: Of its case; by default the one whose times are recorded, or without a
            GPU, of an op whose loops are long, the small one.
        dtype: Such as "bfloat16".
        architecture: What to generate code for.
        progress: Is told, from time to time, what is going on.

    Raises:
        CompareError: It cannot be done.
    """
    op = OPS[op_name]
    has_gpu = gpu_state.obstacle() is None
    default = op.small_shape if op.flops and not has_gpu else default_case(op).shape
    case = Case(shape or default, getattr(torch, dtype), direction=op.direction)
    rungs = []
    for name, on_rung in rungs_of(op).items():
        progress(f"looking at the code of {name}")
        steps: dict[str, Step | Skipped] = {
            side: _step(on_rung, side, case, architecture, inspect)
            for side, inspect in SIDES.items()
        }
        rungs.append(Rung(name, what_changed(on_rung, steps), steps))
    times = measure_rungs(op, case, progress) if has_gpu else find(op_name)
    return Ladder(op_name, case, architecture.name, tuple(rungs), times, not has_gpu)


def case_on(op: Op, case: Case) -> Case:
    """The case as a rung can serve it: of float32 tensor cores take tf32 alone."""
    if case.dtype != torch.float32 or op.rung != "tensor_cores":
        return case
    return replace(case, params={**case.params, "precision": "tf32"})


def what_changed(op: Op, steps: Mapping[str, Step | Skipped]) -> str:
    """What the rung's source in CUDA says of it first, without its line breaks."""
    if not op.rung:
        taken = [each.kernels[0] for each in steps.values() if isinstance(each, Step)]
        return f"What a call takes at this shape: {', '.join(dict.fromkeys(taken))}."
    names = (f"{op.direction}_{op.rung}.cuh", f"{op.rung}.cuh")
    own = [ROOT / f"csrc/{op.source}/{name}" for name in names]
    path = next((each for each in own if each.exists()), None)
    if path is None:  # a kernel that several ops launch
        step = steps["cuda"]
        if isinstance(step, Skipped):
            return ""
        path = ROOT / file_of("cuda", op.source, step.kernels[0])
    comment = re.match(r"(?://.*\n)+?(?=//\n|(?!//))", path.read_text())
    assert comment, path
    return " ".join(re.sub(r"(?m)^//", "", comment[0]).split())


def _step(
    op: Op,
    side: str,
    case: Case,
    architecture: Architecture,
    inspect: Callable[..., KernelCode],
) -> Step | Skipped:
    case = case_on(op, case)
    try:
        launched = launcher_arguments(op, case)
        codes = [inspect(op, launched, architecture)]
        codes += [
            inspect(op, launched, architecture, number=number)
            for number in range(1, len(codes[0].kernels))
        ]
        multiplies = _what_multiplies(codes[0].disassembled()) if op.flops else ""
    except (
        CodegenUnavailable,
        CompilationFailed,
        UnsupportedError,
        ValueError,
    ) as error:
        return Skipped(str(error).partition("\n")[0])
    traffic = op.traffic(case.shape, case.dtype.itemsize).total_bytes
    work = op.flops(case.shape) if op.flops else traffic / case.dtype.itemsize
    kernels = tuple(name_of(code.title) for code in codes)
    files = {file_of(side, op.source, kernel) for kernel in kernels}
    simulations = [code.simulation for code in codes]
    totals = [memory.totals(each) for each in simulations]
    wholes = [each.total_blocks / each.blocks for each in simulations]
    return Step(
        kernels=kernels,
        lines=sum(len((ROOT / file).read_text().splitlines()) for file in files),
        instruction=multiplies,
        registers=max(code.registers for code in codes),
        shared_bytes=max(code.shared_bytes for code in codes),
        instructions=sum(
            each.executed_per_thread * each.total_blocks * each.threads
            for each in simulations
        )
        / work,
        global_bytes=sum(
            each.global_bytes * whole
            for each, whole in zip(totals, wholes, strict=True)
        )
        if all(each.sectors for each in totals)
        else None,
        shared_memory_bytes=sum(
            each.bytes * whole
            for simulation, whole in zip(simulations, wholes, strict=True)
            for each in memory.movements(simulation)
            if each.argument == memory.SHARED
        ),
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
        for rung, on_rung in rungs_of(op).items():
            progress(f"timing {rung}")
            prepared = prepare(on_rung, case_on(on_rung, case), "cuda")
            found = implementations.find(on_rung, tuple(SIDES), ())
            timings[rung] = dict(measure(prepared, found).timings)
    except (TimingError, torch.OutOfMemoryError) as error:
        raise UnavailableError(str(error)) from error
    return Times(op.name, environment.collect(), case, timings)


def write(times: Times, folder: Path = store.FOLDER) -> Path:
    """Keeps times in place of those that were kept.

    Raises:
        UnavailableError: The file cannot be written.
    """
    document = to_json(times)
    return store.write_beside(times.environment, "ladder", times.op, document, folder)


def find(op: str, folder: Path = store.FOLDER) -> Times | None:
    """The newest times that are kept.

    Raises:
        UsageError: A file is something else.
    """
    files = folder.glob(f"*/ladder/{op}.json")
    found = (store.read_beside(file, from_json) for file in files)
    return max(found, key=lambda each: str(each.environment["date"]), default=None)


def gains_of(
    timings: Mapping[str, Mapping[str, Timing | Skipped]],
) -> dict[Side, float]:
    """By language, how many times as fast as the twin a call is.

    Args:
        timings: By rung and language.
    """
    found: dict[Side, float] = {}
    for side in SIDES:
        twin, call = (timings.get(rung, {}).get(side) for rung in (TWIN, CALL))
        if isinstance(twin, Timing) and isinstance(call, Timing):
            found[side] = twin.kernel.median_us / call.kernel.median_us
    return found


def recorded_gains(op: Op, case: Case) -> dict[Side, float]:
    """The same from the record, if that is of the case."""
    times = find(op.name)
    return gains_of(times.timings) if times and times.case == case else {}


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
