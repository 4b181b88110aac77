"""One side of the page: the sources of an op in one language, and their code."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import PurePosixPath

from markupsafe import Markup

from compare.assembly.classify import Language
from compare.assembly.listing import Listing
from compare.code.kernel_code import KernelCode, Side
from compare.judge.parity import Skipped
from compare.report.comparison import Report
from compare.report.page import links
from compare.report.page.lexers import highlight_source
from compare.report.page.links import Chains, Kernel
from compare.report.page.listings import Row, listing_rows
from compare.report.page.panels import Extras
from compare.timing.names import NAMES

_LANGUAGES: dict[Side, str] = {"cuda": "CUDA C++", "triton": "Triton"}


@dataclass(frozen=True)
class SourceLine:
    """A line of a source file.

    Attributes:
        html: The line.
        counts: The instructions that are from there.
        section: That begins here; else empty.
    """

    html: Markup
    counts: dict[Language, int]
    section: str


@dataclass(frozen=True)
class SourceFile:
    """A source file.

    Attributes:
        path: In the project.
        start: The line that is shown first.
        lines: All of it.
    """

    path: str
    start: int
    lines: list[SourceLine]


@dataclass(frozen=True)
class SideView:
    """One side of the page.

    Attributes:
        key: "cuda" or "triton".
        name: What the report calls it.
        language: That the sources are in.
        kernel: Where the kernel stands in the op's own file; None if unknown.
        files: The sources, the op's own file first.
        code: None where there is none.
        reason: Why there is none.
        rows: The listings.
        chains: Where the instructions come from.
    """

    key: Side
    name: str
    language: str
    kernel: Kernel | None
    files: list[SourceFile]
    code: KernelCode | None
    reason: str
    rows: dict[Language, list[Row]]
    chains: Chains

    @property
    def sections(self) -> dict[str, range]:
        """The lines of each section of the kernel."""
        return self.kernel.sections if self.kernel else {}


def view_sides(report: Report, extras: Extras) -> list[SideView]:
    """Both sides; of one without code, the source that its code would come from."""
    # Of a side without code the kernel that has the other's name.
    known = next(iter(report.kernels.values()), "")
    return [
        _view(
            side,
            report.op,
            report.kernels.get(side, known),
            report.codegen[side],
            extras,
        )
        for side in _LANGUAGES
    ]


def _view(
    side: Side, op: str, kernel_name: str, code: KernelCode | Skipped, extras: Extras
) -> SideView:
    listings: dict[Language, Listing] = (
        {} if isinstance(code, Skipped) else {"ptx": code.ptx, "sass": code.sass}
    )
    instructions = [e for listing in listings.values() for e in listing.instructions]
    main = links.main_file(side, op, kernel_name)
    texts = {
        path: links.read_source(path)
        for path in links.source_files(side, main, instructions)
    }
    kernel = links.find_kernel(side, texts[main], kernel_name)
    chains = Chains(side, main, texts, kernel)
    counts = {
        language: chains.counts(listing.instructions)
        for language, listing in listings.items()
    }
    rows = {
        language: listing_rows(
            listing,
            chains,
            main,
            ptx=listings["ptx"],
            executed=extras.executed.get(side) if language == "ptx" else None,
        )
        for language, listing in listings.items()
    }
    return SideView(
        key=side,
        name=NAMES[side],
        language=_LANGUAGES[side],
        kernel=kernel,
        files=[
            _source_file(path, text, kernel if path == main else None, counts)
            for path, text in texts.items()
        ],
        code=code if isinstance(code, KernelCode) else None,
        reason=code.reason if isinstance(code, Skipped) else "",
        rows=rows,
        chains=chains,
    )


def _source_file(
    path: str, text: str, kernel: Kernel | None, counts: dict[Language, Counter[str]]
) -> SourceFile:
    sections = kernel.sections.items() if kernel else ()
    section_at = {lines.start: name for name, lines in sections}
    return SourceFile(
        path=path,
        start=kernel.lines.start if kernel else 1,
        lines=[
            SourceLine(
                html,
                {language: each[f"{path}:{n}"] for language, each in counts.items()},
                section_at.get(n, ""),
            )
            for n, html in enumerate(
                highlight_source(text, PurePosixPath(path).suffix), start=1
            )
        ],
    )
