"""The rungs of an op's ladder: what each step is, what it gains, and how long it takes.

A rung is a file with a kernel in both languages, in csrc/<op> and triton_kernels/<op>:
the first, the textbook's; the twin; and what lies between. What a call takes comes
last. Their code is looked at without a GPU. Times are measured on one, or come from the
record.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from rich.console import Console
from rich.padding import Padding

from bindings.errors import UnsupportedError
from bindings.op import Op
from bindings.registry import OPS
from bindings.sources import ROOT
from bindings.trials import TRIALS
from compare.assembly.places import file_of
from compare.code import kernel_code, memory
from compare.code.architectures import Architecture
from compare.code.kernel_code import KernelCode, Side
from compare.code.rungs import SIDES, name_of
from compare.errors import CodegenUnavailable, CompilationFailed
from compare.judge.cases import Case, launcher_arguments
from compare.judge.parity import Skipped
from compare.ptx_simulator.simulation import Launch, Simulation
from compare.records import rung_times, store
from compare.records.rung_times import Times
from compare.report import online_softmax
from compare.report.comparison import case_name
from compare.report.online_softmax import Story
from compare.report.recorded import age, where
from compare.report.tables import Grid
from compare.report.text import NONE, plain, print_head, print_note, print_rows
from compare.timing import gpu_state, times
from compare.timing.names import NAMES
from compare.timing.times import Timing, as_json

_INSPECT: dict[Side, Callable[..., KernelCode]] = {
    "cuda": kernel_code.inspect_cuda,
    "triton": kernel_code.inspect_triton,
}

# How an op gets to one row of its result, where that is a story.
_STORIES: dict[str, Callable[[Case], Story | None]] = {"attention": online_softmax.tell}

_NO_CODE = (CodegenUnavailable, CompilationFailed, UnsupportedError, ValueError)

# Instructions that multiply, the most powerful first: a kernel's is the first it has.
_MULTIPLIES = ("HGMMA", "HMMA", "FFMA")


@dataclass(frozen=True)
class Step:
    """One rung in one language: all of its launches together."""

    kernels: tuple[str, ...]  # their names, in the order of the launches
    lines: int  # those of the files that they stand in
    instruction: str  # that multiplies; empty where the op is bound by memory
    registers: int  # a thread's, the most of all launches
    shared_bytes: int  # a block's, likewise
    # Executed by all threads, for each multiplication and addition of the op, or else
    # for each element that it has to read or write. None where a loop depends on data,
    # so that the simulator has stopped it.
    instructions: float | None
    # Moved by all threads; None for copies by tensor maps, which tell no size.
    global_bytes: float | None
    shared_memory_bytes: float  # moved by instructions of threads


@dataclass(frozen=True)
class Rung:
    """One rung."""

    name: str  # CALL for what a call takes
    what: str  # the first sentences of its source, on what it changes
    steps: Mapping[str, Step | Skipped]  # by language


@dataclass(frozen=True)
class Ladder:
    """The rungs of an op, as `compare <op> --ladder` shows them."""

    op: str
    case: Case
    architecture: str
    rungs: tuple[Rung, ...]
    times: Times | None
    is_recorded: bool  # rather than measured here
    story: Story | None = None


def climb(
    op_name: str,
    shape: tuple[int, ...] | None,
    dtype: str | None,
    architecture: Architecture,
    progress: Callable[[str], None],
    params: Mapping[str, Any] | None = None,
) -> Ladder:
    """Looks at every rung of an op, and times it where there is a GPU.

    The default shape is the one whose times are recorded or, without a GPU, of an op
    whose loops are long, the small one. The default dtype is float32 or, of an op that
    is bound by arithmetic, bfloat16: tensor cores know no float32. The story of a row
    is of the small shape, unless another one is asked for.

    Raises:
        CompareError: It cannot be done.
    """
    op = OPS[op_name]
    has_gpu = gpu_state.obstacle() is None
    default = rung_times.default_case(op)
    trial = TRIALS[op.name]
    small = trial.small_shape if trial.flops and not has_gpu else default.shape
    case = replace(
        default,
        shape=shape or small,
        dtype=getattr(torch, dtype) if dtype else default.dtype,
        params=params or default.params,
    )
    rungs = []
    runs: Runs = {}
    for name, on_rung in rung_times.rungs_of(op).items():
        progress(f"looking at the code of {name}")
        steps: dict[str, Step | Skipped] = {
            side: _step(on_rung, side, case, architecture, runs) for side in SIDES
        }
        rungs.append(Rung(name, what_changed(on_rung, steps), steps))
    times = (
        rung_times.measure_rungs(op, case, progress)
        if has_gpu
        else store.find(op_name, Times)
    )
    tell = _STORIES.get(op_name)
    told = replace(case, shape=shape or trial.small_shape)
    return Ladder(
        *(op_name, case, architecture.name, tuple(rungs), times, not has_gpu),
        story=tell(told) if tell else None,
    )


def what_changed(op: Op, steps: Mapping[str, Step | Skipped]) -> str:
    """The first sentences of a rung's source in CUDA, without line breaks."""
    if not op.rung:
        made = [each.kernels for each in steps.values() if isinstance(each, Step)]
        taken = dict.fromkeys(itertools.chain.from_iterable(made))
        return f"What a call takes at this shape: {', '.join(taken)}."
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


# By PTX and launch: a call mostly makes the launches of the twin.
Runs = dict[tuple[str, Launch], Simulation]


def _step(
    op: Op, side: Side, case: Case, architecture: Architecture, runs: Runs
) -> Step | Skipped:
    case, trial = rung_times.case_on(op, case), TRIALS[op.name]
    inspect = _INSPECT[side]
    try:
        launched = launcher_arguments(op, case)
        codes = [inspect(op, launched, architecture)]
        codes += (
            inspect(op, launched, architecture, number=number)
            for number in range(1, len(codes[0].kernels))
        )
        multiplies = _what_multiplies(codes) if trial.flops else ""
    except _NO_CODE as error:
        return Skipped(str(error).partition("\n")[0])
    traffic = trial.traffic(case.shape, case.dtype.itemsize).total_bytes
    work = (
        trial.flops(case.shape, case.params)
        if trial.flops
        else traffic / case.dtype.itemsize
    )
    kernels = tuple(name_of(code.title) for code in codes)
    files = {file_of(side, op.source, kernel) for kernel in kernels}
    executed = in_global = in_shared = 0.0
    is_known = is_complete = True
    for code in codes:
        key = code.ptx.text, code.launch
        run = runs[key] = runs.get(key) or code.simulation
        moved = memory.totals(run)
        is_known = is_known and bool(moved.sectors)
        is_complete = is_complete and run.is_complete
        whole = run.total_blocks / run.blocks  # where only some blocks are simulated
        executed += run.executed_per_thread * run.total_blocks * run.threads
        in_global += whole * moved.global_bytes
        in_shared += whole * sum(
            each.bytes
            for each in memory.movements(run)
            if each.argument == memory.SHARED
        )
    return Step(
        kernels=kernels,
        lines=sum(len((ROOT / file).read_text().splitlines()) for file in files),
        instruction=multiplies,
        registers=max(code.registers for code in codes),
        shared_bytes=max(code.shared_bytes for code in codes),
        instructions=executed / work if is_complete else None,
        global_bytes=in_global if is_known else None,
        shared_memory_bytes=in_shared,
    )


def _what_multiplies(codes: Sequence[KernelCode]) -> str:
    opcodes = [
        each.opcode for code in codes for each in code.disassembled().sass.instructions
    ]
    for kind in _MULTIPLIES:
        found = [each for each in opcodes if each.startswith(kind)]
        if found:
            return max(found, key=found.count)
    return "none"


def to_json(ladder: Ladder) -> dict[str, Any]:
    """The whole report as JSON types."""
    return {
        "schema_version": rung_times.Times.SCHEMA_VERSION,
        "op": ladder.op,
        "case": as_json(ladder.case),
        "architecture": ladder.architecture,
        "rungs": as_json(ladder.rungs),
        "times": ladder.times and times.to_json(ladder.times),
        "is_recorded": ladder.is_recorded,
        "story": as_json(ladder.story),
    }


# ---- As a table ---------------------------------------------------------------------


def grid(ladder: Ladder) -> Grid:
    """A row for each rung in each language; its first columns are words."""
    flops = TRIALS[ladder.op].flops
    header = (
        *("rung", "language", "kernel", *(["multiplies by"] if flops else [])),
        *("lines", "registers", "shared\nbytes"),
        f"instructions\nper {'FLOP' if flops else 'element'}",
        *("global\nMiB", "shared\nMiB", "median us", "TFLOP/s" if flops else "gain"),
    )
    rows = []
    for rung in ladder.rungs:
        for side, step in rung.steps.items():
            took = ("needs a GPU", "")
            if ladder.times:
                took = (NONE, NONE)
                if not _is_of_other_kernels(ladder, rung):
                    took = measured(ladder.times, rung.name, side)
            figures = _figures(step) if isinstance(step, Step) else (NONE,) * 8
            kernel, multiplies, *cells = figures
            words = (rung.name, NAMES[side], kernel, *([multiplies] if flops else []))
            rows.append((*words, *cells, *took))
    return Grid("ladder", header, tuple(rows), n_words=4 if flops else 3)


def _is_of_other_kernels(ladder: Ladder, rung: Rung) -> bool:
    """Whether the recorded call was another one, and may have chosen others."""
    assert ladder.times
    return rung.name == rung_times.CALL and ladder.times.case != ladder.case


def notes(ladder: Ladder) -> Iterator[str]:
    """Which code is missing, and why."""
    for rung in ladder.rungs:
        for side, step in rung.steps.items():
            if isinstance(step, Skipped):
                yield f"no code of {rung.name} in {NAMES[side]}: {step.reason}"


def origin(ladder: Ladder) -> str:
    """Where times from a record come from; nothing of those measured here."""
    if not ladder.times or not ladder.is_recorded:
        return ""
    older = filter(None, [age(ladder.times)])
    recorded = ", ".join((f"recorded on {where(ladder.times)}", *older))
    return f"Times of {case_name(ladder.times.case)}, {recorded}"


def _figures(step: Step) -> tuple[str, ...]:
    return (
        ", ".join(step.kernels),
        ".".join(step.instruction.split(".")[:2]),  # and not the types
        str(step.lines),
        str(step.registers),
        f"{step.shared_bytes:,}",
        NONE if step.instructions is None else f"{step.instructions:.3f}",
        NONE if step.global_bytes is None else f"{step.global_bytes / 2**20:,.2f}",
        f"{step.shared_memory_bytes / 2**20:,.2f}",
    )


def measured(times: Times, rung: str, side: str) -> tuple[str, str]:
    """The time, and the rate, or how many times as fast as the first rung it is."""
    timing, first = (times.timings.get(e, {}).get(side) for e in (rung, "first"))
    if not isinstance(timing, Timing):
        return NONE, NONE
    if flops := TRIALS[times.op].flops:
        work = flops(times.case.shape, times.case.params)
        rate = f"{work / timing.median_us / 1e6:,.1f}"
    elif isinstance(first, Timing):
        rate = f"{first.median_us / timing.median_us:.2f}x"
    else:
        rate = NONE
    return f"{timing.median_us:,.1f}", rate


# ---- On a terminal ------------------------------------------------------------------


def show(ladder: Ladder, console: Console) -> None:
    """Prints what each rung changes, a line for each in both languages, and a row."""
    what = f"{case_name(ladder.case)}  code for {ladder.architecture}"
    print_head(console, ladder.op, what)
    for number, rung in enumerate(ladder.rungs, 1):
        console.print()
        console.print(plain(f"{number}  {rung.name}", "bold"))
        console.print(Padding(plain(rung.what), (0, 0, 0, 3)))
    console.print()
    # The words of the rows say what the first two columns are.
    made = grid(ladder)
    header = ("", "", *made.header[2:])
    print_rows(console, header, made.rows, n_words=made.n_words, gap=1)
    for note in notes(ladder):
        print_note(console, note)
    if text := origin(ladder):
        console.print(plain(text, "dim"))
    if ladder.story:
        _show_story(ladder.story, console)


def _show_story(story: Story, console: Console) -> None:
    console.print()
    made = online_softmax.grid(story)
    print_head(console, made.name, online_softmax.title(story))
    if made.rows:
        print_rows(console, made.header, made.rows)
    for note in online_softmax.notes(story):
        console.print(plain(note))
