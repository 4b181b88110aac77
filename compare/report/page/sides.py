"""One side of the page: the sources of an op in one language, and their code."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import PurePosixPath

from markupsafe import Markup

from compare.assembly.classify import Language
from compare.assembly.listing import Listing
from compare.code.kernel_code import KernelCode, Side
from compare.code.words import LANGUAGE_NAMES
from compare.judge.parity import Skipped
from compare.report.comparison import Report
from compare.report.page import links
from compare.report.page.lexers import LEXERS, highlight_source
from compare.report.page.links import Chains, Kernel
from compare.report.page.listings import Row, listing_rows
from compare.report.page.panels import Extras

_LANGUAGES: dict[Side, str] = {"cuda": "CUDA C++", "triton": "Triton"}
# What a file is coloured by whose suffix does not tell.
_LEXER_OF: dict[Side, str] = {"cuda": "cuda", "triton": "python"}


@dataclass(frozen=True)
class SourceLine:
    """A line of a source file."""

    html: Markup
    counts: dict[Language, int]  # the instructions that are from there
    section: str  # that begins here; else empty


@dataclass(frozen=True)
class SourceFile:
    """A source file."""

    path: str
    start: int  # the line that is shown first
    lines: list[SourceLine]


@dataclass(frozen=True)
class SideView:
    """One side of the page."""

    key: Side
    name: str
    heading: str  # the language that the sources are in; of own files the name, too
    kernel: Kernel
    files: list[SourceFile]  # the kernel's first
    code: KernelCode | None
    reason: str  # why there is no code
    rows: dict[Language, list[Row]]  # the listings
    chains: Chains  # where the instructions come from


def view_sides(report: Report, extras: Extras) -> list[SideView]:
    """Both sides; one without code shows the source that its code would come from."""
    names = report.kernels
    # A side of an op without code shows the kernel that has the other's name.
    known = "" if report.own else next(iter(names.values()), "")
    return [
        _view(side, report, names.get(side, known), extras)
        for side in (report.own.files if report.own else _LANGUAGES)
    ]


def _view(side: Side, report: Report, kernel_name: str, extras: Extras) -> SideView:
    code = report.codegen[side]
    listings: dict[Language, Listing] = (
        {} if isinstance(code, Skipped) else {"ptx": code.ptx, "sass": code.sass}
    )
    instructions = [e for listing in listings.values() for e in listing.instructions]
    kernel = links.kernel_of(report, side, kernel_name)
    files = links.source_files(report, side, kernel, instructions)
    texts = {path: links.source_of(report, path) for path in files}
    chains = Chains(kernel, texts)
    counts = {
        language: chains.counts(listing.instructions)
        for language, listing in listings.items()
    }
    executed = {"ptx": extras.executed.get(side)}
    language = report.own.languages[side] if report.own else side
    heading = _LANGUAGES[language]
    if report.own and report.called(side) != LANGUAGE_NAMES[language]:
        heading = f"{report.called(side)} ({heading})"
    return SideView(
        key=side,
        name=report.called(side),
        heading=heading,
        kernel=kernel,
        files=[
            _source_file(path, text, language, kernel, counts)
            for path, text in texts.items()
        ],
        code=code if isinstance(code, KernelCode) else None,
        reason=code.reason if isinstance(code, Skipped) else "",
        rows={
            language: listing_rows(
                listing, chains, listings["ptx"], executed.get(language)
            )
            for language, listing in listings.items()
        },
        chains=chains,
    )


def _source_file(
    path: str,
    text: str,
    language: Side,
    kernel: Kernel,
    counts: dict[Language, Counter[str]],
) -> SourceFile:
    is_own = path == kernel.file
    sections = kernel.sections.items() if is_own else ()
    section_at = {lines.start: name for name, lines in sections}
    suffix = PurePosixPath(path).suffix
    by = suffix if suffix in LEXERS else _LEXER_OF[language]
    highlighted = highlight_source(text, by)
    return SourceFile(
        path=path,
        start=kernel.lines.start if is_own else 1,
        lines=[
            SourceLine(
                html,
                {language: each[f"{path}:{n}"] for language, each in counts.items()},
                section_at.get(n, ""),
            )
            for n, html in enumerate(highlighted, start=1)
        ],
    )
