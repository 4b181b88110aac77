"""From two files, or one, to a report: what `compare mine.cu mine.py` does."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent import futures
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from compare.background import start
from compare.code.architectures import (
    DEFAULT_ARCHITECTURE,
    Architecture,
    parse_architecture,
)
from compare.code.kernel_code import KernelCode, Side
from compare.errors import CompareError, UsageError
from compare.judge.acceptance import UNKNOWN
from compare.judge.parity import Parity, Skipped
from compare.pairs import entry as entries
from compare.pairs import gpu, kept_reports, question, reporting, sandbox
from compare.pairs.calls import Outcome
from compare.pairs.entry import Entry
from compare.pairs.own_report import SLOTS, OwnReport
from compare.pairs.question import Problem, Question
from compare.pairs.sandbox import DEFAULT_LIMITS, Limits
from compare.pairs.side import CudaRoom, Place, Room, code_or_reason, room_of
from compare.report.comparison import NOT_ASKED_FOR
from compare.report.own_pair import register_sources
from compare.timing import environment

_NO_INPUTS = (
    "say what to call it with: --inputs, such as --inputs 'randn(1823, 781)', or a "
    "description with a function inputs()"
)


@dataclass(frozen=True)
class Request:
    """What to compare, and how.

    Attributes:
        entries: One or two functions.
        problem: What they are called with; None for programs that call themselves.
        description: A file with a function `launch`, if there is one.
        architecture: What code is generated for.
        kernel: The launch whose code is shown, counted from 0.
        shows_code: Whether code is generated.
        measures: Whether they also run on the GPU, if there is one, and are timed.
        limits: On each process that runs the user's code.
        obstacle: Why it cannot be compared at all, if it cannot.
    """

    entries: tuple[Entry, ...]
    problem: Problem | None = None
    description: Path | None = None
    architecture: Architecture = field(
        default_factory=lambda: parse_architecture(DEFAULT_ARCHITECTURE)
    )
    kernel: int = 0
    shows_code: bool = True
    measures: bool = False
    limits: Limits = DEFAULT_LIMITS
    obstacle: CompareError | None = None


def compare(
    request: Request,
    progress: Callable[[str], None],
    asked: Question | None = None,
) -> OwnReport:
    """Runs and inspects the user's functions, each in processes of its own.

    Args:
        request: What to compare, and how.
        progress: Is told what is going on.
        asked: What the functions are called with, where that is known already.

    Raises:
        CompareError: It cannot be done.
    """
    if request.obstacle:
        raise request.obstacle
    if asked is None:
        request = replace(request, problem=request.problem or _problem_of(request))
    rooms = _rooms(request, is_program=not request.problem and not asked)
    programs = [
        each for each in rooms if isinstance(each, CudaRoom) and each.is_program
    ]
    if not request.problem and not asked and len(programs) < len(rooms):
        raise UsageError(_NO_INPUTS)
    if asked is not None:
        return _compared(request, rooms, start(lambda: asked), progress)
    paths = sorted({p.resolve() for e in rooms for p in (*e.place.files, *e.sources)})
    problem, facts = request.problem, environment.collect()
    # Whoever has times taken wants those of today.
    is_timed = request.measures and gpu.is_here()
    key = None
    if not is_timed:
        key = kept_reports.key_of(_words(request), problem, paths, facts)
    if key and (report := kept_reports.find(key)):
        return report
    if request.problem:
        computed = start(question.ask, request.problem, request.limits)
        report = _compared(request, rooms, computed, progress)
    else:
        report = _report_on_programs(request, programs, progress)
    if key and report.passed:
        kept_reports.keep(key, report)
    return report


def _words(request: Request) -> str:
    """All that was asked for, without the limits, on which no result depends."""
    return repr(replace(request, limits=DEFAULT_LIMITS))


def _compared(
    request: Request,
    rooms: Sequence[Room],
    computed: Future[Question],
    progress: Callable[[str], None],
) -> OwnReport:
    progress("compiling, and computing the float64 reference")
    sandbox.prepare()
    prepared = {room.place.slot: start(room.prepare) for room in rooms}
    # A side runs as soon as it can, whatever the other still has to compile.
    examined = {
        room.place.slot: start(
            _examine, room, prepared[room.place.slot], computed, request
        )
        for room in rooms
    }
    first: list[Future[Any]] = [*prepared.values(), computed]
    futures.wait(first)
    is_ready = not any(each.exception() for each in first)
    if is_ready:
        progress("running " + " and ".join(room.place.name for room in rooms))
    measures = is_ready and request.measures and gpu.is_here()
    built = {
        room.place.slot: start(gpu.side_of, room, computed.result())
        for room in rooms
        if measures
    }
    _wait([*first, *examined.values()])
    asked = computed.result()
    found = {slot: each.result() for slot, each in examined.items()}
    outcomes = {slot: outcome for slot, (outcome, _) in found.items()}
    codes = {slot: code for slot, (_, code) in found.items()}
    judged = reporting.judge(asked, rooms, outcomes)
    report = reporting.report_on(rooms, asked, outcomes, judged, codes)
    if not measures:
        return report
    progress("running and timing on the GPU")
    return reporting.with_gpu(report, gpu.examine(rooms, asked, request.problem, built))


def _examine(
    room: Room, prepared: Future[None], computed: Future[Question], request: Request
) -> tuple[list[Outcome] | Skipped, KernelCode | Skipped]:
    """Calls a function, and generates code where that is wanted."""
    prepared.result()
    asked = computed.result()
    if not request.shows_code:
        return room.answer(asked), NOT_ASKED_FOR
    return room.examine(asked, request.architecture, request.kernel)


# ---- What is compared ----------------------------------------------------------------


def _rooms(request: Request, *, is_program: bool) -> list[Room]:
    paths = [each.path for each in request.entries]
    files = {*paths, request.description, request.problem and request.problem.path}
    known = tuple(sorted(path.resolve() for path in files if path))
    slots = SLOTS if len(paths) > 1 else (request.entries[0].language,)
    rooms = [
        room_of(
            Place(
                e,
                slot,
                e.path.name,
                request.problem,
                is_program,
                request.description,
                known,
                request.limits,
            )
        )
        for e, slot in zip(request.entries, slots, strict=True)
    ]
    # What a file is called depends on all files that are shown.
    register_sources(reporting.names_of_files(rooms))
    for room, name in zip(rooms, _names_of_sides(rooms), strict=True):
        room.place = replace(room.place, name=name)
    return rooms


def _names_of_sides(rooms: Sequence[Room]) -> list[str]:
    """What the sides are called: by the file, and by the function if it is one file.

    Raises:
        UsageError: Both are the same function.
    """
    shown = reporting.names_of_files(rooms)
    names = [shown[room.sources[0]] for room in rooms]
    if len(set(names)) < len(names):
        functions = [room.place.entry.name for room in rooms]
        names = [f"{n}:{f}" if f else n for n, f in zip(names, functions, strict=True)]
    if len(set(names)) < len(names):
        raise UsageError(f"{names[0]} and itself: nothing to compare")
    return names


def _problem_of(request: Request) -> Problem | None:
    """The problem of a file that has inputs of its own; None if nobody says any."""
    for each in request.entries:
        if entries.has_function(each.path, "inputs"):
            return Problem("description", each.path)
        if entries.has_function(each.path, "get_inputs"):
            return Problem("kernelbench", each.path)
    return None


# ---- Running -------------------------------------------------------------------------


def _wait(at_work: Sequence[Future[Any]]) -> None:
    """Waits for all, and raises the first error.

    None is left at work: it has a process, and a folder that it removes at its end.
    """
    futures.wait(at_work)
    for each in at_work:
        each.result()


def _report_on_programs(
    request: Request, rooms: Sequence[CudaRoom], progress: Callable[[str], None]
) -> OwnReport:
    """Of programs, which make their inputs and check their results themselves."""
    progress("running " + " and ".join(room.place.name for room in rooms))
    codes: dict[Side, KernelCode | Skipped] = {}
    parity: dict[str, Parity | Skipped] = {}
    for room in rooms:
        slot = room.place.slot
        room.prepare()
        outcome = room.run_program()
        codes[slot] = code_or_reason(room, None, request.architecture, request.kernel)
        if isinstance(outcome, Skipped):
            parity[slot] = outcome
        else:
            problem = outcome.problem or outcome.refusal
            parity[slot] = Parity(room.ran_on, UNKNOWN, UNKNOWN, problem)
    report = reporting.bare_report(rooms, codes)
    assert report.own
    return replace(
        report,
        parity=parity | {slot: NOT_ASKED_FOR for slot in SLOTS if slot not in parity},
        parity_row="main() runs without a fault",
        own=replace(report.own, what="main()"),
    )
