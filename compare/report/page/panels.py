"""What the page shows besides code: figures, and tables that may point into the code.

A target is the fragment of a link: "line=csrc/softmax/softmax.cu:65", "section=load",
"category=fp math", "instructions=cuda:ptx:3,4,5", "finding=2". `fragment` writes one.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlencode

from compare.code.kernel_code import KernelCode, Side
from compare.judge.parity import Parity, Skipped
from compare.records import store
from compare.report import recorded
from compare.report.comparison import CaseReport, Report
from compare.report.tables import remarks
from compare.timing.names import NAMES
from compare.timing.times import Bench

NONE = "-"


@dataclass(frozen=True)
class Cell:
    """A cell of a table.

    Attributes:
        text: What it says.
        target: What a click on it pins; empty for nothing.
        places: Lines that it speaks of, such as "csrc/softmax/softmax.cu:69".
        is_code: Whether it is set like code, with its blanks.
        mood: "good", "bad" or "unsure", which colour it; or empty.
    """

    text: str
    target: str = ""
    places: tuple[str, ...] = ()
    is_code: bool = False
    mood: str = ""


@dataclass(frozen=True)
class Column:
    """A column of a table.

    Attributes:
        name: Its heading.
        is_number: Whether it holds numbers, which stand at the right.
    """

    name: str
    is_number: bool = False


@dataclass(frozen=True)
class Panel:
    """A table below the code.

    Attributes:
        name: Its anchor.
        title: Its heading.
        columns: The first one names the rows.
        rows: As many cells as columns in each.
        note: A sentence below the heading.
    """

    name: str
    title: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[Cell, ...], ...]
    note: str = ""


@dataclass(frozen=True)
class Extras:
    """What a page shows where it is known.

    Attributes:
        executed: How often a thread executes each instruction of a side's PTX.
        panels: Tables.
    """

    executed: Mapping[Side, Sequence[float]] = field(default_factory=dict)
    panels: tuple[Panel, ...] = ()


def fragment(**what: object) -> str:
    """The target that pins what a keyword says: category="fp math"."""
    return urlencode(what, safe="/:,")


# ---- figures ----


def figures(case: CaseReport) -> tuple[tuple[str, list[Cell]], ...]:
    """How the implementations did, a row for each thing that is known of one."""
    return (*_parity_rows(case), *_time_rows(case), *_code_rows(case))


def implementations(case: CaseReport) -> tuple[str, ...]:
    """What has a column in the table of figures."""
    return (*case.backends, "torch")


def notes(report: Report, case: CaseReport) -> Iterator[str]:
    """What a call takes, what failed, and what was skipped, and why."""
    yield from remarks(report.op, case)
    for name in case.backends:
        parity = case.parity[name]
        if isinstance(parity, Parity) and not parity.passed:
            verb = "is wrong" if parity.is_finished else "did not finish"
            yield f"{NAMES[name]} {verb}: {parity.problem}"
    names = implementations(case)
    timings = {name: case.timing(name) for name in names}
    for what, results in (
        ("parity", case.parity),
        ("code", case.codegen),
        ("times", timings),
    ):
        skipped: dict[str, list[str]] = {}
        for name in names:
            if isinstance(each := results.get(name), Skipped):
                skipped.setdefault(each.reason, []).append(NAMES[name])
        for reason, who in skipped.items():
            whose = "" if len(who) == len(names) else f" of {' and '.join(who)}"
            yield f"No {what}{whose}: {reason}"
    if isinstance(report.recorded, Skipped):
        yield f"No recorded times: {report.recorded.reason}"


def _parity_rows(case: CaseReport) -> Iterator[tuple[str, list[Cell]]]:
    names = implementations(case)
    results = [case.parity[name] for name in names]
    if all(isinstance(each, Skipped) for each in results):
        return
    yield (
        "ran on",
        [Cell(NONE if isinstance(each, Skipped) else each.ran_on) for each in results],
    )
    yield "parity with float64", [_verdict(case, name) for name in names]
    yield (
        "max error, relative",
        [
            Cell(NONE if isinstance(each, Skipped) else _error(each.error.max))
            for each in results
        ],
    )
    yield (
        "allowed",
        [
            Cell(
                NONE
                if isinstance(each, Skipped) or name == "torch"
                else _error(each.allowed.max)
            )
            for name, each in zip(names, results, strict=True)
        ],
    )


def _verdict(case: CaseReport, name: str) -> Cell:
    parity = case.parity[name]
    if isinstance(parity, Skipped):
        return Cell("skipped", mood="unsure")
    if name == "torch":
        return Cell("")
    if not parity.is_finished:
        return Cell("NOT FINISHED", mood="bad")
    return Cell("passed", mood="good") if parity.passed else Cell("FAILED", mood="bad")


def _error(error: float) -> str:
    return NONE if math.isnan(error) else f"{error:.2e}"


def _time_rows(case: CaseReport) -> Iterator[tuple[str, list[Cell]]]:
    timings = [case.timing(name) for name in implementations(case)]
    if all(isinstance(each, Skipped) for each in timings):
        return

    def row(name: str, text: str) -> tuple[str, list[Cell]]:
        return name, [
            Cell(NONE if isinstance(each, Skipped) else text.format(each))
            for each in timings
        ]

    yield row("median µs", "{0.median_us:,.2f}")
    yield row("20 % to 80 %", "{0.p20_us:,.2f} to {0.p80_us:,.2f}")
    yield row("host µs", "{0.host_us:,.2f}")
    yield row("GB/s", "{0.gb_per_s:,.0f}")
    yield row("share of the ceiling", "{0.fraction:.1%}")


def _code_rows(case: CaseReport) -> Iterator[tuple[str, list[Cell]]]:
    codes = [code_of(case, name) for name in implementations(case)]
    if not any(codes):
        return
    for name, text in (
        ("registers", "{0.registers}"),
        ("occupancy", "{0.occupancy.fraction:.0%}"),
        ("spilled bytes", "{0.spill_bytes}"),
        ("shared memory, bytes", "{0.shared_bytes:,}"),
        ("blocks", "{0.blocks:,}"),
        ("threads of a block", "{0.threads_per_block}"),
        ("elements per thread", "{0.elements_per_thread:.3g}"),
        ("PTX instructions", "{0.ptx_mix.total:,}"),
        ("SASS instructions", "{0.sass_mix.total:,}"),
    ):
        yield name, [Cell(text.format(code) if code else "") for code in codes]


def code_of(case: CaseReport, implementation: str) -> KernelCode | None:
    """The generated code of an implementation, if there is some."""
    # Both ways of building the CUDA side compile the same sources.
    side = "cuda" if implementation == "cuda_inline" else implementation
    code = case.codegen.get(side)
    return code if isinstance(code, KernelCode) else None


# ---- times on record ----


def recorded_times(bench: Bench, case: CaseReport) -> Panel:
    """The times of every recorded shape, labelled as such."""
    dtype_name = str(case.case.dtype).removeprefix("torch.")
    document = recorded.to_json(bench, dtype_name, case.case.params)
    cases = document["cases"]
    versions = ", ".join(
        f"{name} {version}"
        for name in ("torch", "triton", "nvcc", "commit")
        if (version := bench.environment.get(name))
    )
    where = f"recorded on {recorded.with_article(document['gpu'])}"
    title = f"Times {where}, {store.date(bench)}"
    if not cases:
        unusual = store.unusual_params(bench.op, case.case.params)
        words = " ".join((bench.op, *unusual, dtype_name))
        return Panel("times", title, (), (), f"None of {words} are on record.")
    names = [
        name
        for name in NAMES
        if any("median_us" in each["timing"].get(name, {}) for each in cases)
    ]
    return Panel(
        name="times",
        title=title,
        columns=(Column("median µs"), *(Column(NAMES[name], True) for name in names)),
        rows=tuple(
            (
                Cell("x".join(map(str, each["case"]["shape"]))),
                *(_recorded_time(each["timing"].get(name, {})) for name in names),
            )
            for each in cases
        ),
        note=(
            f"Not measured here, but with {versions}: {document['file']}. In brackets"
            " the share of the ceiling, the fastest that this GPU read and wrote as"
            " many bytes."
        ),
    )


def _recorded_time(timing: Mapping[str, Any]) -> Cell:
    if "median_us" not in timing:
        return Cell(NONE)
    return Cell(f"{timing['median_us']:,.1f} ({timing['fraction']:.0%})")
