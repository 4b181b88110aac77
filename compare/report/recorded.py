"""Times that are on record, for where none can be measured."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.table import Table

from bindings.sources import ROOT
from compare.records import source_hash, store
from compare.report.text import plain, print_table
from compare.timing import rates
from compare.timing.names import NAMES
from compare.timing.times import Bench, CaseTimes, Timing, as_json

_NONE = "-"
_MOST_SHOWN = 4  # or a report would not fit on a screen


def show(
    bench: Bench, dtype_name: str, params: Mapping[str, Any], console: Console
) -> None:
    """The times of the first recorded shapes, or that there are none."""
    where = f"recorded on {with_article(store.gpu(bench))}, {store.date(bench)}"
    cases = _fitting(bench, dtype_name, params)
    if not cases:
        words = (bench.op, *store.unusual_params(bench.op, params), dtype_name)
        console.print(plain(f"No times of {' '.join(words)} are {where}."))
        return
    versions = ", ".join(
        f"{name} {version}"
        for name in ("torch", "triton")
        if (version := bench.environment.get(name))
    )
    code = age(bench.environment, bench.op) or "not measured here"
    console.print(plain(f"Times {where} ({versions}), {code}", "bold"))
    names = [name for name in NAMES if any(store.timing(each, name) for each in cases)]
    # All eight implementations fit into 100 columns.
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style="bold")
    table.add_column("median us")
    for name in names:
        header = NAMES[name].replace(" ", "\n").replace(".", ".\n")
        table.add_column(header, justify="right")
    table.add_column("CUDA / Triton\n% of ceiling", justify="right")
    for each in cases[:_MOST_SHOWN]:
        timings = {name: store.timing(each, name) for name in NAMES}
        table.add_row(
            plain("x".join(map(str, each.case.shape))),
            *(plain(_median(timings[name])) for name in names),
            plain(
                f"{_share(bench, each, timings['cuda'])} / "
                f"{_share(bench, each, timings['triton'])}"
            ),
        )
    print_table(console, table)
    if n_more := len(cases[_MOST_SHOWN:]):
        console.print(plain(f"{n_more} more in docs/results.md"))


def to_json(bench: Bench, dtype_name: str, params: Mapping[str, Any]) -> dict[str, Any]:
    """The same in plain values; no cases where no times are recorded."""
    return {
        "gpu": store.gpu(bench),
        "date": bench.environment["date"],
        "commit": bench.environment.get("commit"),
        "of_older_code": list(source_hash.older_sides(bench.environment, bench.op)),
        "file": str(store.file_of(bench).relative_to(ROOT)),
        "cases": [
            {
                "case": as_json(each.case),
                "ceiling": as_json(each.ceiling),
                "timing": as_json(each.timings),
            }
            for each in _fitting(bench, dtype_name, params)
        ],
    }


def age(environment: Mapping[str, Any], op: str) -> str:
    """What to say of a record whose sources have changed since; else nothing.

    Args:
        environment: The record's.
        op: What it is of.
    """
    older = source_hash.older_sides(environment, op)
    if older == source_hash.SIDES:
        return "of older code"
    return f"of older {NAMES[older[0]]} code" if older else ""


def with_article(gpu: str) -> str:
    """An NVIDIA H200, but a Tesla T4."""
    return f"{'an' if gpu.startswith('NVIDIA') else 'a'} {gpu}"


def _fitting(
    bench: Bench, dtype_name: str, params: Mapping[str, Any]
) -> list[CaseTimes]:
    unusual = store.unusual_params(bench.op, params)
    return [
        each
        for each in bench.cases
        if str(each.case.dtype) == f"torch.{dtype_name}"
        and store.unusual_params(bench.op, each.case.params) == unusual
    ]


def _median(timing: Timing | None) -> str:
    return f"{timing.median_us:,.1f}" if timing else _NONE


def _share(bench: Bench, times: CaseTimes, timing: Timing | None) -> str:
    if timing is None:
        return _NONE
    return f"{100 * rates.share_of_ceiling(bench, times, timing):.1f}"
