"""Recorded times in Markdown: tables, their origins and notes, and plots."""

from __future__ import annotations

import re
import statistics
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from compare.judge.parity import Skipped
from compare.printable import printable
from compare.records import drawn, fusions, store
from compare.records.drawn import Drawn
from compare.records.fusions import Fusion
from compare.report import plots
from compare.report.recorded import age, median, medians_of, shares, timed_in
from compare.report.tables import markdown
from compare.report.text import NONE
from compare.timing.names import BACKENDS, NAMES
from compare.timing.times import Bench, CaseTimes, StartTime

_OLDER = "†"
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")  # in what compilers say
ABOUT_TIMES = """\
Medians in microseconds, of inputs that no cache holds, the implementations taking
turns. The ratio is the time of the faster of ours to that of the fastest peer, with
what its 95 % interval says: "same" is within 1.5 %. The ceiling is the fastest that the
same GPU, in the same run, read and wrote as many bytes in the same proportion."""
_ABOUT_FUSIONS = """\
What a fused epilogue costs: products with and without one took turns, and the
percentage is what is left of the rate of the same language's own plain product, with
its 95 % interval."""
_ABOUT_DRAWN = """\
sizes from 1 to 16,384, log-uniform, a third of them with a size that is no multiple of
8, operands of all four layouts, bfloat16;"""
_ABOUT_OLDER = f"{_OLDER} of older code: the sources have changed since."
_ABOUT_PLOTS = "Bandwidth or arithmetic over size; the dashed line is the ceiling."
_ABOUT_STARTS = """\
What a call costs the host, the median over these cases: the public call, which
allocates its output, and the bare launcher. Then, in a process of its own: the first
call with filled caches, how much longer it takes with empty ones, and nvcc over the
op's source."""


def records_of(gpu: str) -> str:
    """Where the records of a GPU are, seen from the root."""
    return f"records/{store.folder_of(gpu).name}"


def times_of(benches: list[Bench], folder: Path = store.FOLDER) -> str:
    """The times of some ops on one GPU: origins, tables and notes."""
    gpu = store.gpu(benches[0])
    marks = {bench.op: mark_of(bench) for bench in benches}

    def is_of_these(kept: Fusion | Drawn) -> bool:
        return store.gpu(kept) == gpu and kept.op in marks

    fused = [*filter(is_of_these, store.read_all(Fusion, folder))]
    of_drawn = filter(is_of_these, store.read_all(Drawn, folder))
    paragraphs = [
        _origins(benches),
        _ABOUT_OLDER if any(marks.values()) else "",
        _times_table(benches, marks),
        _notes(benches),
        fusions_of(fused),
        *map(drawn_of, of_drawn),
        _starts([bench for bench in benches if bench.start], marks),
    ]
    return "\n\n".join(filter(None, paragraphs))


def _paragraph(text: str) -> str:
    return textwrap.fill(text, 88, break_long_words=False, break_on_hyphens=False)


def _origins(benches: list[Bench]) -> str:
    """The GPU and the versions that figures depend on, with links to the records."""
    gpu = store.gpu(benches[0])
    links: dict[str, list[str]] = {}
    for bench in benches:
        link = f"[{bench.op}]({records_of(gpu)}/{bench.op}.json)"
        links.setdefault(_environment(bench), []).append(link)
    return "\n\n".join(
        _paragraph(f"**{printable(gpu)}**, {environment}; recorded: {', '.join(each)}.")
        for environment, each in links.items()
    )


def _environment(bench: Bench) -> str:
    environment = bench.environment
    names = ("driver", "torch", "triton", "nvcc")
    versions = {
        **{name: environment.get(name) for name in names},
        **environment.get("packages", {}),
    }
    parts = [f"{name} {version}" for name, version in versions.items() if version]
    parts.append(_commit(environment))
    return printable(", ".join((*parts, store.date(bench))))


def _commit(environment: Mapping[str, Any]) -> str:
    commit = environment.get("commit")
    return f"commit {commit}" if commit else "no commit"


def mark_of(bench: Bench) -> str:
    """The sign behind figures of older code; nothing behind others."""
    return _OLDER if age(bench) else ""


def _times_table(benches: list[Bench], marks: Mapping[str, str]) -> str:
    timed = timed_in([each for bench in benches for each in bench.cases])
    names = [name for name in NAMES if name in ("cuda", "triton", *timed)]
    head = (
        *("op", "shape", "dtype"),
        *(NAMES[name] for name in names),
        *("ours : fastest peer", "CUDA / Triton, % of the ceiling"),
    )
    rows = [
        (
            f"{_op_name(bench, each)}{marks[bench.op]}",
            each.case.shape_name,
            each.case.dtype_name,
            *(median(each, name) for name in names),
            _verdict(each),
            shares(bench, each),
        )
        for bench in benches
        for each in bench.cases
    ]
    return markdown(head, 3, rows)


def _starts(benches: list[Bench], marks: Mapping[str, str]) -> str:
    if not benches:
        return ""
    head = (
        *("op", "implementation", "call, µs", "launcher, µs"),
        *("first call, ms", "compile, s", "build, s"),
    )
    rows = []
    for bench in benches:
        op = f"{bench.op}{marks[bench.op]}"
        for name in NAMES:
            timed = [
                timing for each in bench.cases if (timing := store.timing(each, name))
            ]
            start = bench.start.get(name)
            if not timed:
                continue
            first = [NONE] * 3
            if isinstance(start, StartTime):
                first = [
                    f"{start.first_call_ms:,.0f}",
                    *map(_seconds, (start.compile_s, start.build_s)),
                ]
            call = _typical([each.host_us for each in timed])
            launcher = _typical([each.launcher_us for each in timed])
            rows.append((op, NAMES[name], call, launcher, *first))
    return f"{_ABOUT_STARTS}\n\n{markdown(head, 2, rows)}"


def fusions_of(measured: list[Fusion]) -> str:
    """The costs of epilogues, and which records they are from."""
    rows = []
    for each in measured:
        for epilogue in next(iter(each.times.values())):
            sides = [_rate_of_plain(each, side, epilogue) for side in fusions.SIDES]
            case = each.case.shape_name, each.case.dtype_name
            rows.append((each.op, *case, epilogue, *sides))
    if not rows:
        return ""
    names = (NAMES[side] for side in fusions.SIDES)
    head = ("op", "shape", "dtype", "epilogue", *names)
    origins = printable("; ".join(map(_origin, measured)))
    about = f"{_ABOUT_FUSIONS}\n({origins})"
    return f"{about}\n\n{markdown(head, 4, rows)}"


def drawn_of(found: Drawn) -> str:
    """How both languages do at shapes that were drawn, and a link to the plot."""
    sides = []
    for side in drawn.SIDES:
        summary = drawn.summarize(found, side)
        sides.append(
            f"{NAMES[side]} {summary.mean:.3f} in the geometric mean, at least "
            f"{summary.low:.2f} at 95 % of them, {summary.least:.2f} at all"
        )
    plot = f"{records_of(store.gpu(found))}/{found.KIND}/{found.op}-drawn.svg"
    return _paragraph(
        f"The speed at {len(found.products)} products that were drawn ({_ABOUT_DRAWN} "
        f"{NAMES[drawn.PEER]} = 1; [plot]({plot})): {'; '.join(sides)} "
        f"({printable(_origin(found))})."
    )


def _origin(each: Fusion | Drawn) -> str:
    parts = (_commit(each.environment), store.date(each), age(each))
    return f"{each.op}: {', '.join(filter(None, parts))}"


def _rate_of_plain(each: Fusion, side: str, epilogue: str) -> str:
    microseconds = f"{each.times[side][epilogue].median_us:,.1f}"
    rate = each.rates[side].get(epilogue)
    if rate is None:
        return microseconds
    low, high = 100 * rate.low, 100 * rate.high
    return f"{microseconds}, {100 * rate.ratio:.1f} % ({low:.1f} to {high:.1f})"


def _notes(benches: list[Bench]) -> str:
    """Caveats of peers, and why figures are missing."""
    lines = []
    for name in NAMES:
        notes: dict[str, list[str]] = {}
        for bench in benches:
            if name in bench.notes:
                notes.setdefault(bench.notes[name], []).append(bench.op)
            skipped: dict[str, list[str]] = {}
            for each in bench.cases:
                if isinstance(timing := each.timings.get(name), Skipped):
                    cases = skipped.setdefault(f"not timed: {timing.reason}", [])
                    cases.append(_case_name(bench, each))
            for note, cases in skipped.items():
                is_general = len(cases) == len(bench.cases)
                notes.setdefault(note, []).extend([bench.op] if is_general else cases)
        for note, where in notes.items():
            said = printable(_COLOURS.sub("", note))
            said = textwrap.shorten(said, 200, placeholder=" …")
            lines.append(f"- {NAMES[name]} ({', '.join(where)}): {said}")
    return "\n".join(lines)


def about_plots(benches: Sequence[Bench]) -> str:
    """The text above all plots."""
    older = dict.fromkeys(each.op for each in benches if each.sweep and mark_of(each))
    note = f"Of older code: {', '.join(older)}." if older else ""
    return "\n".join(filter(None, (_ABOUT_PLOTS, _paragraph(note))))


def plots_of(benches: list[Bench]) -> str:
    """A row for each op and its parameters, its dtypes side by side."""
    rows: dict[str, list[str]] = {}
    for bench in benches:
        if not bench.sweep:
            continue
        for each in plots.plots(bench):
            file = f"{records_of(store.gpu(bench))}/{each.name}.svg"
            shown, over = each.scales.shown, each.scales.over
            text = printable(f"{shown} of {each.what} over {over}, {each.where}")
            rows.setdefault(each.what.rpartition(" ")[0], []).append(
                f"![{text}]({file})"
            )
    width = max(map(len, rows.values()), default=0)
    return markdown([""] * width, width, rows.values()) if rows else ""


def _op_name(bench: Bench, times: CaseTimes) -> str:
    return " ".join((bench.op, *store.unusual_params(bench.op, times.case.params)))


def _case_name(bench: Bench, times: CaseTimes) -> str:
    case = times.case
    return f"{_op_name(bench, times)} {case.shape_name} {case.dtype_name}"


def _typical(values: Sequence[float | None]) -> str:
    known = [each for each in values if each is not None]
    return f"{statistics.median(known):,.1f}" if known else NONE


def _seconds(value: float | None) -> str:
    return NONE if value is None else f"{value:,.1f}"


def _verdict(times: CaseTimes) -> str:
    """How the faster of ours does beside the fastest peer."""
    medians = medians_of(times)
    ours = [name for name in medians if name in BACKENDS]
    peers = [name for name in medians if name not in BACKENDS]
    if not (ours and peers):
        return NONE
    best, rival = (min(each, key=medians.__getitem__) for each in (ours, peers))
    if not (comparison := times.comparison(best, rival)):
        return NONE
    return (
        f"{NAMES[best]} : {NAMES[rival]} {comparison.ratio:.2f}, {comparison.outcome}"
    )
