"""From what the sides of a pair did to the report on it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from torch import Tensor

from compare.assembly import places
from compare.code import findings
from compare.code.kernel_code import KernelCode, Side
from compare.judge.acceptance import UNKNOWN
from compare.judge.parity import Parity, Skipped
from compare.pairs import judging
from compare.pairs.calls import Outcome
from compare.pairs.gpu import OnGpu
from compare.pairs.judging import Judged
from compare.pairs.own_report import SLOTS, OwnReport, why_no_times
from compare.pairs.question import Question
from compare.pairs.side import Room
from compare.report.comparison import NOT_ASKED_FOR
from compare.report.own_pair import OwnPair
from compare.timing import environment
from compare.timing.times import CaseTimes


def names_of_files(rooms: Sequence[Room]) -> dict[Path, str]:
    """What the files are called whose code is compared."""
    return places.distinct_names(path for room in rooms for path in room.sources)


def judge(
    asked: Question,
    rooms: Sequence[Room],
    outcomes: Mapping[Side, list[Outcome] | Skipped],
) -> dict[Side, Judged | Skipped]:
    """Judges each side by the reference, or without one both by each other.

    Args:
        asked: What the sides were asked.
        rooms: The sides.
        outcomes: By side how its calls ended, or why there are none.
    """
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


def report_on(
    rooms: Sequence[Room],
    asked: Question,
    outcomes: Mapping[Side, list[Outcome] | Skipped],
    judged: Mapping[Side, Judged | Skipped],
    codes: Mapping[Side, KernelCode | Skipped],
) -> OwnReport:
    """The report on sides that were called.

    Args:
        rooms: The sides.
        asked: What they were asked.
        outcomes: By side how its calls ended.
        judged: By side the verdict on that.
        codes: By side the code that is shown.
    """
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
    report = bare_report(rooms, codes)
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


def bare_report(
    rooms: Sequence[Room], codes: Mapping[Side, KernelCode | Skipped]
) -> OwnReport:
    """What is known without inputs: the files and their code."""
    shown = names_of_files(rooms)
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


def with_gpu(report: OwnReport, on_gpu: OnGpu) -> OwnReport:
    """The report with what the GPU says."""
    parity = dict(report.parity)
    if isinstance(on_gpu.times, CaseTimes):
        for name in on_gpu.times.timings.keys() - parity.keys():
            parity[name] = Parity("gpu", UNKNOWN, UNKNOWN)
    checks = {**report.checks, **on_gpu.checks}
    return replace(report, parity=parity, checks=checks, times=on_gpu.times)


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
