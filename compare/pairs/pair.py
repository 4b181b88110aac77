"""From two files, or one, to a report: what `compare mine.cu mine.py` does."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent import futures
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from torch import Tensor

from compare.assembly import places
from compare.background import start
from compare.code import findings
from compare.code.architectures import (
    DEFAULT_ARCHITECTURE,
    Architecture,
    parse_architecture,
)
from compare.code.kernel_code import KernelCode, Side
from compare.errors import UsageError
from compare.judge.acceptance import UNKNOWN
from compare.judge.parity import Parity, Skipped
from compare.pairs import entry as entries
from compare.pairs import judging, kept_reports, question
from compare.pairs.calls import Outcome
from compare.pairs.entry import Entry
from compare.pairs.judging import Judged
from compare.pairs.own_report import SLOTS, OwnReport, why_no_times
from compare.pairs.question import Problem, Question
from compare.pairs.sandbox import DEFAULT_LIMITS, Limits
from compare.pairs.side import CudaRoom, Place, Room, code_or_reason, room_of
from compare.report.comparison import NOT_ASKED_FOR
from compare.report.own_pair import OwnPair, register_sources
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
        limits: On each process that runs the user's code.
        obstacle: Why it cannot be compared at all; empty if it can.
    """

    entries: tuple[Entry, ...]
    problem: Problem | None = None
    description: Path | None = None
    architecture: Architecture = field(
        default_factory=lambda: parse_architecture(DEFAULT_ARCHITECTURE)
    )
    kernel: int = 0
    shows_code: bool = True
    limits: Limits = DEFAULT_LIMITS
    obstacle: str = ""


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
        raise UsageError(request.obstacle)
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
    prepared = [start(room.prepare) for room in rooms]
    _wait([*prepared, computed])
    asked = computed.result()
    progress("running " + " and ".join(room.place.name for room in rooms))
    examined = {
        room.place.slot: start(_examine, room, asked, request) for room in rooms
    }
    _wait([*examined.values()])
    found = {slot: each.result() for slot, each in examined.items()}
    outcomes = {slot: outcome for slot, (outcome, _) in found.items()}
    codes = {slot: code for slot, (_, code) in found.items()}
    judged = _judged(asked, rooms, outcomes)
    return _report(request, rooms, asked, outcomes, judged, codes)


def _examine(
    room: Room, asked: Question, request: Request
) -> tuple[list[Outcome] | Skipped, KernelCode | Skipped]:
    """Calls a function, and generates code where that is wanted."""
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
    register_sources(_names(rooms))
    for room, name in zip(rooms, _names_of_sides(rooms), strict=True):
        room.place = replace(room.place, name=name)
    return rooms


def _names(rooms: Sequence[Room]) -> dict[Path, str]:
    """What the files are called whose code is compared."""
    return places.distinct_names(path for room in rooms for path in room.sources)


def _names_of_sides(rooms: Sequence[Room]) -> list[str]:
    """What the sides are called: by the file, and by the function if it is one file.

    Raises:
        UsageError: Both are the same function.
    """
    shown = _names(rooms)
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


def _judged(
    asked: Question,
    rooms: Sequence[Room],
    outcomes: Mapping[Side, list[Outcome] | Skipped],
) -> dict[Side, Judged | Skipped]:
    by_slot = {room.place.slot: room for room in rooms}
    if asked.has_reference or _why_not_compared(asked, rooms, outcomes):
        found: dict[Side, Judged | Skipped] = {}
        for slot, each in outcomes.items():
            room = by_slot[slot]
            found[slot] = (
                each
                if isinstance(each, Skipped)
                else judging.judge(asked.in_orders(room.orders), each, room.ran_on)
            )
        return found
    orders = set(rooms[0].orders) & set(rooms[1].orders)
    common = asked.in_orders(orders)
    kept = []
    for room in rooms:
        own = outcomes[room.place.slot]
        assert not isinstance(own, Skipped)
        pairs = zip(asked.in_orders(room.orders).calls, own, strict=True)
        kept.append([outcome for call, outcome in pairs if call.call.order in orders])
    ran_on = (rooms[0].ran_on, rooms[1].ran_on)
    both = judging.agree(common, kept[0], kept[1], ran_on)
    return {room.place.slot: each for room, each in zip(rooms, both, strict=True)}


def _why_not_compared(
    asked: Question,
    rooms: Sequence[Room],
    outcomes: Mapping[Side, list[Outcome] | Skipped],
) -> str:
    """Why sides without a reference cannot be held to each other; empty if they can."""
    if len(rooms) < len(SLOTS):
        return "there is no --reference to hold it to"
    for room in rooms:
        outcome = outcomes[room.place.slot]
        calls = asked.in_orders(room.orders).calls
        if isinstance(outcome, Skipped) or not all(
            each.outputs
            for call, each in zip(calls, outcome, strict=True)
            if not call.check
        ):
            return f"there is no reference, and no result of {room.place.name}"
    return ""


# ---- Reports -------------------------------------------------------------------------


def _report(
    request: Request,
    rooms: Sequence[Room],
    asked: Question,
    outcomes: Mapping[Side, list[Outcome] | Skipped],
    judged: Mapping[Side, Judged | Skipped],
    codes: Mapping[Side, KernelCode | Skipped],
) -> OwnReport:
    checks: dict[str, dict[str, Any]] = {}
    parity: dict[str, Parity | Skipped] = {}
    for slot, each in judged.items():
        if isinstance(each, Skipped):
            parity[slot] = each
            continue
        parity[slot] = each.parity
        for name, check in each.checks.items():
            checks.setdefault(name, {})[slot] = check
    why_not = "" if asked.has_reference else _why_not_compared(asked, rooms, outcomes)
    if why_not:
        parity = {
            slot: Skipped(why_not) if isinstance(each, Parity) and each.passed else each
            for slot, each in parity.items()
        }
    given = asked.as_given.call.inputs
    results = next(
        (e[0].outputs for e in outcomes.values() if not isinstance(e, Skipped)), ()
    )
    tensors = [each for each in (*given, *results) if isinstance(each, Tensor)]
    largest = max(tensors, key=lambda each: each.nbytes, default=None)
    report = _bare_report(request, rooms, codes)
    assert report.own
    return replace(
        report,
        parity=parity | {slot: NOT_ASKED_FOR for slot in SLOTS if slot not in parity},
        checks=checks,
        notes=asked.notes,
        parity_row=(
            "parity with float64" if asked.has_reference else "agree with each other"
        ),
        own=replace(
            report.own,
            what=_what(asked.names, given),
            traffic_bytes=sum(each.nbytes for each in tensors),
            element_bytes=largest.element_size() if largest is not None else 4,
        ),
    )


def _bare_report(
    request: Request, rooms: Sequence[Room], codes: Mapping[Side, KernelCode | Skipped]
) -> OwnReport:
    """What is known without inputs: the files and their code."""
    shown = _names(rooms)
    known = [each for each in codes.values() if isinstance(each, KernelCode)]
    return OwnReport(
        op=" and ".join(room.place.name for room in rooms),
        environment=environment.collect(),
        case=None,
        backends=tuple(room.place.slot for room in rooms),
        parity=dict.fromkeys(SLOTS, NOT_ASKED_FOR),
        times=why_no_times(),
        codegen={slot: codes.get(slot, NOT_ASKED_FOR) for slot in SLOTS},
        findings=findings.find(*known) if len(known) == len(SLOTS) else (),
        names={room.place.slot: room.place.name for room in rooms},
        own=OwnPair(
            what="",
            files={room.place.slot: shown[room.sources[0]] for room in rooms},
            languages={room.place.slot: room.place.entry.language for room in rooms},
            texts={name: _text(path) for path, name in shown.items()},
            grids=tuple(grid for room in rooms for grid in room.grids),
        ),
    )


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
    report = _bare_report(request, rooms, codes)
    assert report.own
    return replace(
        report,
        parity=parity | {slot: NOT_ASKED_FOR for slot in SLOTS if slot not in parity},
        parity_row="main() runs without a fault",
        own=replace(report.own, what="main()"),
    )


def _what(names: Sequence[str], inputs: Sequence[Any]) -> str:
    """Such as "x (1823, 781) float32, eps 1e-05"."""
    parts = []
    for name, each in zip(names, inputs, strict=False):
        if isinstance(each, Tensor):
            dtype = str(each.dtype).removeprefix("torch.")
            parts.append(f"{name} {tuple(each.shape)} {dtype}")
        else:
            parts.append(f"{name} {each!r}")
    return ", ".join(parts)


def _text(path: Path) -> str:
    return path.read_text("utf-8", errors="replace")
