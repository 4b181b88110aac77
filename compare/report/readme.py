"""The figures of README and docs: tables, plots and an example, made from the records.

A page has a pair of comments for each of its sections, and what stands between them is
generated.
"""

from __future__ import annotations

import re
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path

from bindings.registry import OPS
from bindings.sources import ROOT
from bindings.trials import TRIALS
from compare.code import rungs
from compare.errors import UsageError
from compare.parameters import read_ops
from compare.printable import printable
from compare.records import rung_times, store
from compare.records.drawn import Drawn
from compare.report import drawn_plot, ladder, plots, results
from compare.report.comparison import case_name
from compare.report.recorded import age, medians_of, where, with_article
from compare.report.tables import markdown
from compare.report.text import NONE
from compare.timing.names import BACKENDS, NAMES
from compare.timing.times import Bench, CaseTimes

EXAMPLE = "softmax"
# The pages, and which sections each has.
PAGES = {
    "README.md": ("ladder", "ops", "comparison", "summary"),
    "docs/results.md": ("times", "plots"),
}

_ABOUT_COMPARISON = (
    "Without a GPU the kernels run on the CPU, at a smaller shape; "
    "times are those on record."
)
_ABOUT_SUMMARY = """\
Speed beside the fastest of PyTorch, torch.compile and the libraries beside it in the
same run: 1x is as fast, more is faster. The means over the cases are geometric."""


def render(benches: Sequence[Bench], folder: Path = store.FOLDER) -> dict[str, str]:
    """The generated sections by name, from a folder's benches and what is beside them.

    Their links lead from the root.

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
    times = (results.times_of(each, folder) for each in by_gpu.values())
    drawn = map(results.plots_of, by_gpu.values())
    return {
        "ops": _ops(),
        "ladder": _ladder(folder),
        "comparison": _comparisons(by_gpu, folder),
        "summary": _summary(by_gpu),
        "times": "\n\n".join((results.ABOUT_TIMES, *times)),
        "plots": "\n\n".join((results.about_plots(benches), *filter(None, drawn))),
    }


def rewrite(page: str, text: str, sections: Mapping[str, str]) -> str:
    """The text of one of PAGES with its sections, which `render` returned, anew.

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


def rewrite_pages(folder: Path = store.FOLDER, root: Path = ROOT) -> list[Path]:
    """Rewrites the pages below a root from the records of a folder, and returns them.

    Their plots are as they were drawn.

    Raises:
        UsageError: Nothing is recorded, or not the example, or a file is no record.
        UnavailableError: A file cannot be written.
    """
    sections = render(store.read_all(Bench, folder), folder)
    try:
        texts = {
            root / page: rewrite(page, (root / page).read_text("utf-8"), sections)
            for page in PAGES
        }
    except (OSError, ValueError) as error:
        raise UsageError(f"{root} has a page that is not rewritten: {error}") from error
    for file, text in texts.items():
        store.replace(file, text.encode())
    return [*texts]


def redraw(folder: Path = store.FOLDER, root: Path = ROOT) -> list[Path]:
    """Rewrites the pages, draws all plots beside their records, and returns the files.

    Raises:
        UsageError: As of rewrite_pages.
        UnavailableError: There is no matplotlib, or a file cannot be written.
    """
    pages = rewrite_pages(folder, root)
    files = [
        file
        for bench in store.read_all(Bench, folder)
        if bench.sweep
        for file in plots.draw(bench, store.folder_of(store.gpu(bench), folder))
    ]
    for found in store.read_all(Drawn, folder):
        files += drawn_plot.draw(found, store.file_of(found, folder).parent)
    return [*files, *pages]


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
    return markdown(("op", "computes", "directions", "sources"), 4, rows)


def _ladder(folder: Path) -> str:
    """The rungs of the example: their sources, and what each gains."""
    op = OPS[EXAMPLE]
    times = store.find(EXAMPLE, rung_times.Times, folder)

    def cell(rung: str, side: str) -> str:
        cells = ladder.measured(times, rung, side) if times else (NONE,)
        return NONE if NONE in cells else ", ".join(cells)

    rows = [
        (
            rung,
            f"[CUDA](csrc/{EXAMPLE}/{rung}.cuh) "
            f"[Triton](triton_kernels/{EXAMPLE}/{rung}.py)",
            ladder.what_changed(op.on_rung(rung), {}).partition(": ")[2],
            *(cell(rung, side) for side in rungs.SIDES),
        )
        for rung in op.rungs
    ]
    columns = (f"{NAMES[side]} us, gain" for side in rungs.SIDES)
    table = markdown(("rung", "sources", "what it does", *columns), 3, rows)
    if times is None:
        return f"{table}\n\nThe times of the rungs are not recorded yet."
    measured = ", ".join(filter(None, (where(times), age(times))))
    return f"{table}\n\nMedians of {case_name(times.case)} on {measured}."


def _comparisons(by_gpu: Mapping[str, list[Bench]], folder: Path) -> str:
    file_name = f"compare-{EXAMPLE}.txt"
    blocks = []
    for gpu, benches in by_gpu.items():
        file = store.folder_of(gpu, folder) / file_name
        if not file.is_file():
            continue
        # rich fills every line with spaces, which nobody sees.
        output = map(str.rstrip, printable(file.read_text("utf-8")).splitlines())
        # One run writes it and the example's record.
        ages = [age(each) for each in benches if each.op == EXAMPLE]
        origin = f"[the run]({results.records_of(gpu)}/{file_name})"
        blocks.append(
            f"On {with_article(printable(gpu))} "
            f"({', '.join(filter(None, (origin, *ages)))}):\n\n"
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
        kinds: dict[str, list[tuple[Bench, CaseTimes]]] = {}
        for bench in benches:
            for times in bench.cases:
                dtype = str(times.case.dtype).removeprefix("torch.")
                is_matmul = TRIALS[bench.op].flops
                kind = f"{bench.op} in {dtype}" if is_matmul else "bound by memory"
                kinds.setdefault(kind, []).append((bench, times))
        for kind, measured in sorted(kinds.items()):
            of_kind = {bench.op: bench for bench, _ in measured}
            older = sum(bool(results.mark_of(each)) for each in of_kind.values())
            notes = f", {older} of older code" if older else ""
            ops = f"{kind} ({len(of_kind)}{notes})"
            cases = [times for _, times in measured]
            gains = (gain(cases, side) for side in rungs.SIDES)
            rows.append((printable(gpu), ops, str(len(cases)), *gains))
    sides = (f"{NAMES[each]}: mean, worst" for each in rungs.SIDES)
    table = markdown(("GPU", "ops, by direction", "cases", *sides), 2, rows)
    return f"{table}\n\n{_ABOUT_SUMMARY}"


def gain(cases: Sequence[CaseTimes], side: str) -> str:
    """`1.12x, 0.85x`: the mean and the worst."""
    gains = []
    for times in cases:
        medians = medians_of(times)
        peers = [medians[name] for name in medians if name not in BACKENDS]
        if side in medians and peers:
            gains.append(min(peers) / medians[side])
    if not gains:
        return NONE
    return f"{statistics.geometric_mean(gains):.2f}x, {min(gains):.2f}x"
