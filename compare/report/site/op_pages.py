"""The page of an op, and its row on the first page."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup

from bindings.registry import OPS
from compare.assembly.places import file_of
from compare.code.rungs import SIDES
from compare.judge.parity import Parity, Skipped
from compare.parameters import OpSummary
from compare.report import glossary, ladder, online_softmax, readme, results
from compare.report.comparison import Report, case_name
from compare.report.figures import figures, notes
from compare.report.ladder import Ladder, Rung, Step
from compare.report.online_softmax import Story
from compare.report.site import documents
from compare.report.site.files import Files, relative
from compare.report.tables import remarks
from compare.report.terminal import environment_line
from compare.report.text import NONE
from compare.timing.names import NAMES
from compare.timing.times import Bench

_MOST_FINDINGS = 5  # the page of its code has all of them


@dataclass(frozen=True)
class Known:
    """Everything that the site says of an op."""

    summary: OpSummary
    report: Report | Skipped  # of its twin
    ladder: Ladder | Skipped
    benches: Sequence[Bench]  # one of each GPU


def address(op: str) -> str:
    """The address of an op's page."""
    return f"ops/{op}.html"


def code_address(op: str) -> str:
    """The address of the page of its code."""
    return f"code/{op}.html"


def values(known: Known, files: Files) -> dict[str, Any]:
    """The values of the template of an op's page."""
    op, page = known.summary, address(known.summary.name)
    times = [results.times_of([each]) for each in known.benches]
    other = op.forward or (f"{op.name}_backward" if op.has_gradient else "")
    source = OPS[op.name].source
    folders = {"cuda": f"csrc/{source}", "triton": f"triton_kernels/{source}"}
    return {
        "op": op,
        "other": relative(address(other), page) if other in OPS else "",
        "sources": [
            (NAMES[side], relative(files.address(folder), page))
            for side, folder in folders.items()
        ],
        "glossary": relative(files.address(glossary.FILE), page),
        **_of_report(known.report),
        **_of_ladder(known.ladder, page, files),
        "times": _prose(times and [results.ABOUT_TIMES, *times], page, files),
        "plots": _prose([results.plots_of([e]) for e in known.benches], page, files),
    }


def row(known: Known) -> dict[str, Any]:
    """An op's row on the first page."""
    op, made = known.summary, known.ladder
    cases = [times for bench in known.benches for times in bench.cases]
    return {
        "name": op.name,
        "address": address(op.name),
        "code": code_address(op.name) if isinstance(known.report, Report) else "",
        "summary": op.summary.removesuffix("."),
        "parity": _verdict(known.report),
        "rungs": str(len(made.rungs)) if isinstance(made, Ladder) else NONE,
        "gains": [readme.gain(cases, side) for side in SIDES],
        "is_older": any(results.mark_of(bench) for bench in known.benches),
    }


def missing(known: Known) -> Iterator[tuple[str, str]]:
    """The parts that are missing, each with its reason."""
    if isinstance(known.report, Skipped):
        yield "nothing was compared", known.report.reason
    else:
        for side, code in known.report.codegen.items():
            if isinstance(code, Skipped):
                yield f"no code of {NAMES[side]}", code.reason
    if isinstance(known.ladder, Skipped):
        yield "no ladder", known.ladder.reason
    else:
        for note in ladder.notes(known.ladder):
            what, _, why = note.partition(": ")
            yield what, why
    if not known.benches:
        yield "no recorded times", "python -m compare record measures on a GPU"


def _of_report(report: Report | Skipped) -> dict[str, Any]:
    if isinstance(report, Skipped):
        return {"code": "", "why_no_code": report.reason}
    terms = glossary.explanations()
    return {
        "code": relative(code_address(report.op), address(report.op)),
        "case_name": report.what,
        "environment": environment_line(report.environment),
        "findings": [
            (each.topic, glossary.parts(each.text, each.rule, terms))
            for each in report.findings[:_MOST_FINDINGS]
        ],
        "n_more": max(0, len(report.findings) - _MOST_FINDINGS),
        "implementations": [NAMES[name] for name in report.implementations],
        "figure_rows": figures(report),
        "notes": [*remarks(report), *notes(report)],
    }


def _of_ladder(made: Ladder | Skipped, page: str, files: Files) -> dict[str, Any]:
    if isinstance(made, Skipped):
        return {"ladder": None, "why_no_ladder": made.reason}
    return {
        "ladder": made,
        "ladder_case": case_name(made.case),
        "rungs": [
            (each.name, each.what, _sources(made.op, each, page, files))
            for each in made.rungs
        ],
        "grid": ladder.grid(made),
        "ladder_notes": [*ladder.notes(made), *filter(None, [ladder.origin(made)])],
        "story": made.story and _of_story(made.story),
    }


def _of_story(story: Story) -> dict[str, Any]:
    return {
        "title": online_softmax.title(story),
        "grid": online_softmax.grid(story),
        "notes": online_softmax.notes(story),
    }


def _sources(op: str, rung: Rung, page: str, files: Files) -> list[tuple[str, str]]:
    """The files of a rung's kernels, by language."""
    return [
        (
            f"{NAMES[side]}: {file.rpartition('/')[2]}",
            relative(files.address(file), page),
        )
        for side, step in rung.steps.items()
        if isinstance(step, Step)
        for file in sorted({file_of(side, OPS[op].source, e) for e in step.kernels})
    ]


def _prose(texts: Sequence[str], page: str, files: Files) -> Markup:
    """Markdown as in README and docs, for a page of the site."""
    return documents.render("\n\n".join(texts), "README.md", page, files)


def _verdict(report: Report | Skipped) -> str:
    """The verdict on the implementations: right, wrong, or not tried."""
    if isinstance(report, Skipped):
        return NONE
    tried = {name: report.parity[name] for name in report.backends}
    if all(isinstance(each, Parity) and each.passed for each in tried.values()):
        return "passed"
    words = (
        f"{NAMES[name]} {'passed' if each.passed else 'FAILED'}"
        for name, each in tried.items()
        if isinstance(each, Parity)
    )
    return ", ".join(words) or "not tried"
