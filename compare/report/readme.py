"""The figures of README and docs: tables, plots and an example, made from the records.

A page has a pair of comments for each of its sections, and what stands between them is
generated.
"""

from __future__ import annotations

import re
import statistics
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from bindings.registry import OPS
from bindings.sources import ROOT
from compare.code import rungs
from compare.errors import UsageError
from compare.judge.parity import Skipped
from compare.parameters import read_ops
from compare.printable import printable
from compare.records import fusions, rung_times, store
from compare.records.fusions import Fusion
from compare.report import ladder, plots
from compare.report.recorded import age, with_article
from compare.report.terminal import case_name
from compare.timing import rates
from compare.timing.names import BACKENDS, NAMES
from compare.timing.times import Bench, CaseTimes, StartTime, Timing

EXAMPLE = "softmax"
# The pages, and which sections each has.
PAGES = {
    "README.md": ("ladder", "ops", "comparison", "summary"),
    "docs/results.md": ("times", "plots"),
}

_NONE = "-"
_OLDER = "†"
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")  # in what compilers say
_ABOUT_COMPARISON = """\
Without a GPU the kernels run on the CPU, and the times are those on record."""
_ABOUT_SUMMARY = """\
How many times as fast as the fastest of PyTorch, torch.compile and the libraries beside
it: the geometric mean over the recorded shapes, and the lowest of them."""
_ABOUT_TIMES = """\
Medians in microseconds, of inputs that no cache holds, the implementations taking
turns. The ratio is the time of the faster of ours to that of the fastest peer, with
what its 95 % interval says: "same" is within 1.5 %. The ceiling is the fastest that the
same GPU, in the same run, read and wrote as many bytes in the same proportion."""
_ABOUT_FUSIONS = """\
What a fused epilogue costs: products with and without one took turns, and the
percentage is what is left of the rate of the same language's own plain product, with
its 95 % interval."""
_ABOUT_OLDER = f"{_OLDER} of older code: the sources have changed since."
_ABOUT_PLOTS = "Bandwidth over size; the dashed line is the ceiling."
_ABOUT_STARTS = """\
What a call costs the host, the median over these cases: the public call, which
allocates its output, and the bare launcher. Then, in a process of its own: the first
call with filled caches, how much longer it takes with empty ones, and nvcc over the
op's source."""


def render(benches: Sequence[Bench], folder: Path = store.FOLDER) -> dict[str, str]:
    """The generated sections by name; their links lead from the root.

    Args:
        benches: What is recorded.
        folder: Where it is recorded, and the example's output too.

    Raises:
        UsageError: Nothing is recorded, or not the example.
    """
    if not benches:
        raise UsageError(
            "nothing is recorded yet: python -m compare record measures on a GPU"
        )
    by_gpu: dict[str, list[Bench]] = {}
    for bench in benches:
        by_gpu.setdefault(store.gpu(bench), []).append(bench)
    return {
        "ops": _ops(),
        "ladder": _ladder(folder),
        "comparison": _comparisons(by_gpu, folder),
        "summary": _summary(by_gpu),
        "times": "\n\n".join(
            (_ABOUT_TIMES, *(_times(each, folder) for each in by_gpu.values()))
        ),
        "plots": "\n\n".join(
            filter(None, (_about_plots(benches), *map(_plots, by_gpu.values())))
        ),
    }


def rewrite(page: str, text: str, sections: Mapping[str, str]) -> str:
    """A page with its sections generated anew.

    Args:
        page: One of PAGES.
        text: What it says now.
        sections: All that `render` returned.

    Raises:
        ValueError: The page lacks one of its sections, or has it twice.
    """
    up = "../" * page.count("/")
    lines = text.splitlines()
    for name in PAGES[page]:
        first = _find(page, lines, f"<!-- generated: {name} -->")
        last = _find(page, lines, f"<!-- end of {name} -->")
        if last < first:
            raise ValueError(f"{page}: the end of {name} comes before its beginning")
        section = re.sub(r"\]\((?!https?:|#)", f"]({up}", sections[name])
        lines[first + 1 : last] = ["", *section.splitlines(), ""]
    return "\n".join(lines) + "\n"


def redraw(folder: Path = store.FOLDER, root: Path = ROOT) -> list[Path]:
    """Draws all plots, beside their records, and rewrites the pages.

    Args:
        folder: Where the records are.
        root: Where the pages are.

    Returns:
        The files that were written.

    Raises:
        UsageError: Nothing is recorded, or not the example, or a file is no record.
        UnavailableError: There is no matplotlib, or a file cannot be written.
    """
    benches = store.read_all(folder)
    sections = render(benches, folder)
    try:
        texts = {
            root / page: rewrite(page, (root / page).read_text("utf-8"), sections)
            for page in PAGES
        }
    except (OSError, ValueError) as error:
        raise UsageError(f"{root} has a page that is not rewritten: {error}") from error
    files = []
    for bench in benches:
        if bench.sweep:
            files += plots.draw(bench, store.folder_of(store.gpu(bench), folder))
    for file, text in texts.items():
        store.replace(file, text.encode())
    return [*files, *texts]


def _find(page: str, lines: list[str], marker: str) -> int:
    if (count := lines.count(marker)) != 1:
        raise ValueError(f"{page}: expected one line {marker!r}, found {count}")
    return lines.index(marker)


def _ops() -> str:
    """All ops, with their two sources."""
    rows = [
        (
            f"`{op.signature}`",
            op.summary.removesuffix("."),
            "forward, backward" if op.has_gradient else "forward",
            f"[CUDA](csrc/{op.name}) [Triton](triton_kernels/{op.name})",
        )
        for op in read_ops().values()
        if not op.forward
    ]
    return _table(("op", "computes", "directions", "sources"), 4, rows)


def _ladder(folder: Path) -> str:
    """The rungs of the example: their sources, and what each gains."""
    op = OPS[EXAMPLE]
    times = rung_times.find(EXAMPLE, folder)
    timings = times.timings if times else {}

    def cell(rung: str, side: str) -> str:
        timing, first = (timings.get(e, {}).get(side) for e in (rung, op.rungs[0]))
        if not isinstance(timing, Timing) or not isinstance(first, Timing):
            return _NONE
        gain = first.kernel.median_us / timing.kernel.median_us
        return f"{timing.kernel.median_us:,.1f}, {gain:.2f}x"

    rows = [
        (
            f"[{rung}](csrc/{EXAMPLE}/{rung}.cuh) "
            f"([Triton](triton_kernels/{EXAMPLE}/{rung}.py))",
            ladder.what_changed(op.on_rung(rung), {}).partition(": ")[2],
            *(cell(rung, side) for side in rungs.SIDES),
        )
        for rung in op.rungs
    ]
    headers = ("rung", "what it changes", *(f"{NAMES[e]} us" for e in rungs.SIDES))
    table = _table(headers, 2, rows)
    if times is None:
        return f"{table}\n\nThe times of the rungs are not recorded yet."
    gpu, date = times.environment["gpus"][0], str(times.environment["date"])[:10]
    older = age(times.environment, EXAMPLE)
    where = ", ".join(filter(None, (f"{with_article(str(gpu))}", date, older)))
    return f"{table}\n\nMedians of {case_name(times.case)} on {where}."


def _comparisons(by_gpu: Mapping[str, list[Bench]], folder: Path) -> str:
    file_name = f"compare-{EXAMPLE}.txt"
    blocks = []
    for gpu, benches in by_gpu.items():
        file = store.folder_of(gpu, folder) / file_name
        if file.is_file():
            # rich fills every line with spaces, which nobody sees.
            output = map(str.rstrip, printable(file.read_text("utf-8")).splitlines())
            # One run writes it and the example's record.
            code = "".join(
                f", {age(each.environment, EXAMPLE)}"
                for each in benches
                if each.op == EXAMPLE and _mark(each)
            )
            link = f"{_folder(gpu)}/{file_name}"
            blocks.append(
                f"On {with_article(printable(gpu))} ([the run]({link}){code}):\n\n"
                f"```\n$ python -m compare {EXAMPLE}\n" + "\n".join(output) + "\n```"
            )
    if not blocks:
        raise UsageError(
            f"no {file_name} is recorded in {folder}: python -m compare record "
            f"{EXAMPLE} writes it on a GPU"
        )
    return "\n\n".join((*blocks, _ABOUT_COMPARISON))


def _summary(by_gpu: Mapping[str, list[Bench]]) -> str:
    """How ours do beside the fastest peer, a line for each GPU and kind of op."""
    rows = []
    for gpu, benches in by_gpu.items():
        for kind, bound_by_flops in (("bound by memory", False), ("matmul", True)):
            of_kind = [b for b in benches if bool(OPS[b.op].flops) == bound_by_flops]
            cases = [times for bench in of_kind for times in bench.cases]
            if not cases:
                continue
            older = sum(bool(_mark(bench)) for bench in of_kind)
            notes = f", {older} of them of older code" if older else ""
            what = f"{kind}: {len(of_kind)} recorded{notes}, {len(cases)} cases"
            rows.append((printable(gpu), what, *(_gain(cases, e) for e in rungs.SIDES)))
    table = _table(("GPU", "ops", *(NAMES[e] for e in rungs.SIDES)), 2, rows)
    return f"{table}\n\n{_ABOUT_SUMMARY}"


def _gain(cases: Sequence[CaseTimes], side: str) -> str:
    """`1.12x, 0.85x`: the mean and the lowest."""
    gains = []
    for times in cases:
        timed = {name: store.timing(times, name) for name in NAMES}
        peers = [
            each.kernel.median_us
            for name, each in timed.items()
            if each and name not in BACKENDS
        ]
        if (own := timed[side]) and peers:
            gains.append(min(peers) / own.kernel.median_us)
    if not gains:
        return _NONE
    return f"{statistics.geometric_mean(gains):.2f}x, {min(gains):.2f}x"


def _folder(gpu: str) -> str:
    """Where the records of a GPU are, seen from the root."""
    return f"records/{store.folder_of(gpu).name}"


def _times(benches: list[Bench], folder: Path) -> str:
    """All that is said of the times on one GPU."""
    marks = {bench.op: _mark(bench) for bench in benches}
    paragraphs = [
        _origins(benches),
        _ABOUT_OLDER if any(marks.values()) else "",
        _times_table(benches, marks),
        _notes(benches),
        _fusions(fusions.read_all(store.folder_of(store.gpu(benches[0]), folder))),
        _starts([bench for bench in benches if bench.start], marks),
    ]
    return "\n\n".join(filter(None, paragraphs))


def _paragraph(text: str) -> str:
    return textwrap.fill(text, 88, break_long_words=False, break_on_hyphens=False)


def _origins(benches: list[Bench]) -> str:
    """What the figures depend on, and where they come from."""
    gpu = store.gpu(benches[0])
    links: dict[str, list[str]] = {}
    for bench in benches:
        link = f"[{bench.op}]({_folder(gpu)}/{bench.op}.json)"
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


def _mark(bench: Bench) -> str:
    """What marks figures of older code."""
    return _OLDER if age(bench.environment, bench.op) else ""


def _times_table(benches: list[Bench], marks: Mapping[str, str]) -> str:
    rows = [(bench, each) for bench in benches for each in bench.cases]
    names = [
        name
        for name in NAMES
        if name in ("cuda", "triton")
        or any(store.timing(each, name) for _, each in rows)
    ]
    head = (
        *("op", "shape", "dtype"),
        *(NAMES[name] for name in names),
        *("ours : fastest peer", "CUDA / Triton, % of the ceiling"),
    )
    return _table(
        head,
        3,
        (
            (
                f"{_op_name(bench, each)}{marks[bench.op]}",
                _shape(each),
                _dtype(each),
                *(_figure(store.timing(each, name), _median_us) for name in names),
                _verdict(each),
                " / ".join(
                    _figure(store.timing(each, name), partial(_percent, bench, each))
                    for name in ("cuda", "triton")
                ),
            )
            for bench, each in rows
        ),
    )


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
            hosts = [
                timing.host
                for each in bench.cases
                if (timing := store.timing(each, name))
            ]
            start = bench.start.get(name)
            if not hosts:
                continue
            first = [_NONE] * 3
            if isinstance(start, StartTime):
                first = [
                    f"{start.first_call_ms:,.0f}",
                    *map(_seconds, (start.compile_s, start.build_s)),
                ]
            call = _typical([each.call_us for each in hosts])
            launcher = _typical([each.launcher_us for each in hosts])
            rows.append((op, NAMES[name], call, launcher, *first))
    return f"{_ABOUT_STARTS}\n\n{_table(head, 2, rows)}"


def _fusions(measured: list[Fusion]) -> str:
    """What epilogues cost, and where that comes from."""
    rows = []
    for each in measured:
        for epilogue in next(iter(each.times.values())):
            sides = [_rate_of_plain(each, side, epilogue) for side in fusions.SIDES]
            shape = "x".join(map(str, each.case.shape))
            dtype = str(each.case.dtype).removeprefix("torch.")
            rows.append((each.op, shape, dtype, epilogue, *sides))
    if not rows:
        return ""
    head = (
        "op",
        "shape",
        "dtype",
        "epilogue",
        *(NAMES[side] for side in fusions.SIDES),
    )
    origins = printable("; ".join(map(_origin, measured)))
    about = f"{_ABOUT_FUSIONS}\n({origins})"
    return f"{about}\n\n{_table(head, 4, rows)}"


def _origin(each: Fusion) -> str:
    date = str(each.environment["date"])[:10]
    parts = (_commit(each.environment), date, age(each.environment, each.op))
    return f"{each.op}: {', '.join(filter(None, parts))}"


def _rate_of_plain(each: Fusion, side: str, epilogue: str) -> str:
    microseconds = f"{each.times[side][epilogue].median_us:,.1f}"
    rate = each.rates[side].get(epilogue)
    if rate is None:
        return microseconds
    low, high = 100 * rate.low, 100 * rate.high
    return f"{microseconds}, {100 * rate.ratio:.1f} % ({low:.1f} to {high:.1f})"


def _notes(benches: list[Bench]) -> str:
    """What a peer overwrites or skips, and why a figure is not there."""
    notes: dict[tuple[str, str], list[str]] = {}
    for bench in benches:
        for name, note in bench.notes.items():
            notes.setdefault((name, note), []).append(bench.op)
        skipped: dict[tuple[str, str], list[str]] = {}
        for each in bench.cases:
            for name, timing in each.timings.items():
                if isinstance(timing, Skipped):
                    key = name, f"not timed: {timing.reason}"
                    skipped.setdefault(key, []).append(_case_name(bench, each))
        for key, cases in skipped.items():
            is_general = len(cases) == len(bench.cases)
            notes.setdefault(key, []).extend([bench.op] if is_general else cases)
    order = list(NAMES)
    return "\n".join(
        f"- {NAMES[name]} ({', '.join(where)}): "
        f"{textwrap.shorten(printable(_COLOURS.sub('', note)), 200, placeholder=' …')}"
        for (name, note), where in sorted(
            notes.items(), key=lambda each: order.index(each[0][0])
        )
    )


def _about_plots(benches: Sequence[Bench]) -> str:
    older = dict.fromkeys(each.op for each in benches if each.sweep and _mark(each))
    note = f"Of older code: {', '.join(older)}." if older else ""
    return "\n".join(filter(None, (_ABOUT_PLOTS, _paragraph(note))))


def _plots(benches: list[Bench]) -> str:
    """A row for each op and its parameters, its dtypes side by side."""
    rows: dict[str, list[str]] = {}
    for bench in benches:
        if not bench.sweep:
            continue
        for each in plots.plots(bench):
            file = f"{_folder(store.gpu(bench))}/{each.name}.svg"
            text = printable(f"bandwidth of {each.what} over size, {each.where}")
            rows.setdefault(each.what.rpartition(" ")[0], []).append(
                f"![{text}]({file})"
            )
    width = max(map(len, rows.values()), default=0)
    return _table([""] * width, width, rows.values()) if rows else ""


def _table(head: Sequence[str], n_words: int, rows: Iterable[Sequence[str]]) -> str:
    """A table whose first columns are words, and the others figures."""
    rule = ["---"] * n_words + ["--:"] * (len(head) - n_words)
    return "\n".join(f"| {' | '.join(row)} |" for row in (head, rule, *rows))


def _op_name(bench: Bench, times: CaseTimes) -> str:
    return " ".join((bench.op, *store.unusual_params(bench.op, times.case.params)))


def _shape(times: CaseTimes) -> str:
    return "x".join(map(str, times.case.shape))


def _dtype(times: CaseTimes) -> str:
    return str(times.case.dtype).removeprefix("torch.")


def _case_name(bench: Bench, times: CaseTimes) -> str:
    return f"{_op_name(bench, times)} {_shape(times)} {_dtype(times)}"


def _figure(timing: Timing | None, of: Callable[[Timing], float]) -> str:
    return f"{of(timing):,.1f}" if timing else _NONE


def _median_us(timing: Timing) -> float:
    return timing.kernel.median_us


def _percent(bench: Bench, times: CaseTimes, timing: Timing) -> float:
    return 100 * rates.share_of_ceiling(bench, times, timing)


def _typical(values: Sequence[float | None]) -> str:
    known = [each for each in values if each is not None]
    return f"{statistics.median(known):,.1f}" if known else _NONE


def _seconds(value: float | None) -> str:
    return _NONE if value is None else f"{value:,.1f}"


def _verdict(times: CaseTimes) -> str:
    """How the faster of ours does beside the fastest peer."""
    medians = {
        name: timing.kernel.median_us
        for name in NAMES
        if (timing := store.timing(times, name))
    }
    ours = [name for name in medians if name in BACKENDS]
    peers = [name for name in medians if name not in BACKENDS]
    if not (ours and peers):
        return _NONE
    best, rival = (min(each, key=medians.__getitem__) for each in (ours, peers))
    if not (comparison := times.comparison(best, rival)):
        return _NONE
    return (
        f"{NAMES[best]} : {NAMES[rival]} {comparison.ratio:.2f}, {comparison.outcome}"
    )
