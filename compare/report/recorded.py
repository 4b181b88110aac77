"""Times that are on record, for where none can be measured."""

from __future__ import annotations

from typing import Any

from rich.console import Console

from bindings.sources import ROOT
from compare.code.rungs import SIDES
from compare.judge.cases import Case
from compare.records import source_hash, store
from compare.report.text import NONE, plain, print_rows
from compare.timing import rates
from compare.timing.names import NAMES
from compare.timing.times import Bench, CaseTimes, Document, as_json

_MOST_SHOWN = 4  # or a report would not fit on a screen


def show(bench: Bench, case: Case, console: Console) -> None:
    """The times of the first recorded shapes, or that there are none."""
    cases = fitting(bench, case)
    if not cases:
        text = f"No times of {what(bench, case)} are recorded on {where(bench)}."
        console.print(plain(text))
        return
    code = age(bench) or "not measured here"
    measured_with = versions(bench, "torch", "triton")
    heading = f"Recorded on {where(bench)} ({measured_with}), {code}"
    console.print(plain(heading, "bold"))
    names = timed_in(cases)
    # All eight implementations fit into 100 columns.
    heads = (NAMES[each].replace(" ", "\n").replace(".", ".\n") for each in names)
    rows = (
        (
            each.case.shape_name,
            *(median(each, name) for name in names),
            shares(bench, each),
        )
        for each in cases[:_MOST_SHOWN]
    )
    header = ("median us", *heads, "CUDA / Triton\n% of ceiling")
    print_rows(console, header, rows, gap=1)
    if n_more := len(cases[_MOST_SHOWN:]):
        console.print(plain(f"{n_more} more in docs/results.md"))


def to_json(bench: Bench, case: Case) -> dict[str, Any]:
    """All recorded times of the case's dtype and parameters, in plain values."""
    return {
        "gpu": store.gpu(bench),
        "date": bench.environment["date"],
        "commit": bench.environment.get("commit"),
        "of_older_code": list(source_hash.older_sides(bench.environment, bench.op)),
        "file": file_of(bench),
        "cases": [
            {
                "case": as_json(each.case),
                "ceiling": as_json(each.ceiling),
                "timing": as_json(each.timings),
            }
            for each in fitting(bench, case)
        ],
    }


def age(kept: Document) -> str:
    """A remark on a record whose sources have changed since; else nothing."""
    older = source_hash.older_sides(kept.environment, kept.op)
    if older == source_hash.SIDES:
        return "of older code"
    return f"of older {NAMES[older[0]]} code" if older else ""


def where(kept: Document) -> str:
    """Where and when it was measured: "an NVIDIA H200, 2026-11-25"."""
    return f"{with_article(store.gpu(kept))}, {store.date(kept)}"


def with_article(gpu: str) -> str:
    """An NVIDIA H200, but a Tesla T4."""
    return f"{'an' if gpu.startswith('NVIDIA') else 'a'} {gpu}"


def versions(bench: Bench, *names: str) -> str:
    """The known ones of these versions that it was measured with."""
    known = ((name, bench.environment.get(name)) for name in names)
    return ", ".join(f"{name} {version}" for name, version in known if version)


def file_of(bench: Bench) -> str:
    """Its file, seen from the root."""
    return str(store.file_of(bench).relative_to(ROOT))


def what(bench: Bench, case: Case) -> str:
    """The op, those of the case's parameters that are unusual, and the dtype."""
    unusual = store.unusual_params(bench.op, case.params)
    return " ".join((bench.op, *unusual, case.dtype_name))


def fitting(bench: Bench, case: Case) -> list[CaseTimes]:
    """The recorded times of a case's dtype and parameters, whatever the shape."""
    return [each for each in bench.cases if what(bench, each.case) == what(bench, case)]


def timed_in(cases: list[CaseTimes]) -> list[str]:
    """The implementations that one of the cases has times of."""
    timed = {name for each in cases for name in medians_of(each)}
    return [name for name in NAMES if name in timed]


def medians_of(times: CaseTimes) -> dict[str, float]:
    """The microseconds of each implementation that was timed, ours first."""
    timings = {name: store.timing(times, name) for name in NAMES}
    return {name: e.median_us for name, e in timings.items() if e}


def median(times: CaseTimes, name: str) -> str:
    """The median of an implementation, in microseconds."""
    medians = medians_of(times)
    return f"{medians[name]:,.1f}" if name in medians else NONE


def shares(bench: Bench, times: CaseTimes) -> str:
    """The shares of the ceiling that CUDA and Triton reach, in per cent."""
    timings = (store.timing(times, side) for side in SIDES)
    return " / ".join(
        f"{100 * rates.share_of_ceiling(bench, times, timing):.1f}" if timing else NONE
        for timing in timings
    )
