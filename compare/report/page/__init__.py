"""Reports as a page: one HTML file that loads nothing and links all that it shows."""

from __future__ import annotations

import base64
import hashlib
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup

from compare.assembly.classify import CATEGORIES
from compare.printable import printable
from compare.report import glossary
from compare.report.comparison import Report
from compare.report.figures import figures, notes
from compare.report.page.instruction_mix import category_rows, mix_columns, section_rows
from compare.report.page.panels import Extras, Panel, grid_panel, recorded_times
from compare.report.page.sides import SideView, view_sides
from compare.report.tables import Cell, remarks
from compare.report.terminal import environment_line
from compare.timing.times import Bench

__all__ = ["Around", "Cell", "Extras", "Panel", "render"]

FOLDER = Path(__file__).parent


@dataclass(frozen=True)
class Around:
    """The site that a page is part of."""

    links: tuple[tuple[str, str], ...]  # texts and addresses
    glossary: str  # its address


def render(
    report: Report, extras: Extras | None = None, around: Around | None = None
) -> str:
    """The page of an op in one case; outside of a site it explains its terms itself."""
    extras = extras or Extras()
    meanings = glossary.explanations()
    sentences = [glossary.parts(e.text, e.rule, meanings) for e in report.findings]
    terms = {part.term for parts in sentences for part in parts if part.term}
    sides = view_sides(report, extras)
    columns = mix_columns(sides, extras.executed)
    sections = dict.fromkeys(name for each in sides for name in each.kernel.sections)
    panels = [*extras.panels]
    if report.own:
        panels += (grid_panel(i, each) for i, each in enumerate(report.own.grids))
    if isinstance(report.recorded, Bench) and report.case:
        panels.insert(0, recorded_times(report.recorded, report.case))
    template = environment(FOLDER).get_template("template.html.j2")
    return template.render(
        css=Markup("\n").join(map(asset, ("base.css", "page.css"))),
        js=asset("page.js"),
        theme=asset("theme.js"),
        op=report.op,
        title=report.op if report.own else f"{report.op}: CUDA C++ beside Triton",
        case_name=report.what,
        environment_line=environment_line(report.environment),
        date=str(report.environment.get("date", ""))[:10],
        arch=next((side.code.arch for side in sides if side.code), None),
        around=around,
        glossary=around.glossary if around else "",
        terms={} if around else {e: meanings[e] for e in meanings if e in terms},
        findings=list(zip(report.findings, sentences, strict=True)),
        implementations=[*map(report.called, report.implementations)],
        figure_rows=figures(report),
        notes=[*remarks(report), *notes(report)],
        is_recorded=isinstance(report.recorded, Bench),
        columns=columns,
        groups=Counter(each.group for each in columns),
        category_rows=list(category_rows(columns)),
        section_rows=section_rows(columns, sections) if sections else [],
        sides=sides,
        panels=panels,
        data=_data(report, sides, sections),
    )


def _data(
    report: Report, sides: Sequence[SideView], sections: Iterable[str]
) -> dict[str, Any]:
    """The data of the page's script that the page itself does not show."""
    return {
        "categories": CATEGORIES,
        "names": {side.key: printable(side.name) for side in sides},
        # By side its file, and the first and the last line there.
        "sections": {
            name: {
                side.key: (
                    side.kernel.file,
                    side.kernel.sections[name].start,
                    side.kernel.sections[name].stop - 1,
                )
                for side in sides
                if name in side.kernel.sections
            }
            for name in sections
        },
        "chains": {
            side.key: [
                {"places": list(map(printable, each.places)), "section": each.section}
                for each in side.chains.all
            ]
            for side in sides
        },
        "findings": [
            {
                "text": printable(each.text),
                "code": each.language,
                "cuda": each.cuda,
                "triton": each.triton,
            }
            for each in report.findings
        ],
    }


def asset(name: str) -> Markup:
    """A style or a script of this folder, to be put into a page."""
    return Markup((FOLDER / name).read_text(encoding="utf-8"))


def _hash(text: str) -> str:
    """The name by which a content security policy allows an element."""
    digest = hashlib.sha256(text.encode()).digest()
    return f"sha256-{base64.b64encode(digest).decode()}"


def environment(*folders: Path) -> jinja2.Environment:
    """Templates of these folders, which show text as it is and obey none of it."""
    made = jinja2.Environment(
        loader=jinja2.FileSystemLoader(folders),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_printable,
    )
    made.filters |= {"anchor": glossary.anchor, "hash": _hash}
    return made


def _printable(value: object) -> object:
    # Compilers' and drivers' words may hold control characters, which escaping keeps.
    return value if isinstance(value, Markup) else printable(value)
