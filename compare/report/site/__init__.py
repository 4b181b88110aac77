"""The site: every op, its ladder, times and code, and the docs, in files that link.

It is read from a folder or a server alike, and loads nothing from elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from compare.code.architectures import (
    DEFAULT_ARCHITECTURE,
    Architecture,
    parse_architecture,
)
from compare.errors import CompareError, UnavailableError
from compare.judge.parity import Skipped
from compare.parameters import read_ops
from compare.records import store
from compare.report import glossary, ladder, page
from compare.report.comparison import Report
from compare.report.page.simulated import extras_of
from compare.report.site import documents, op_pages
from compare.report.site.files import Files, is_copied, relative
from compare.report.site.op_pages import Known
from compare.repository import ROOT
from compare.timing.times import Bench

HOME = "index.html"
_FOLDER = Path(__file__).parent
_NAVIGATION = ("README.md", "docs/reading.md", "docs/results.md", glossary.FILE)


@dataclass(frozen=True)
class Built:
    """A site that was written."""

    sizes: Mapping[str, int]  # in bytes, by address
    missing: Mapping[str, Sequence[str]]  # what is not there and why: which ops lack it


def build(
    folder: Path,
    reports: Mapping[str, Report | Skipped],
    architecture: Architecture | None,
    progress: Callable[[str], None],
    records: Path = store.FOLDER,
) -> Built:
    """Writes the site into a folder, which is made if it is not there.

    The reports are of each op's default case; the ladders' code is made for the
    architecture, by default the usual one.

    Raises:
        CompareError: A file cannot be written, or something kept cannot be read.
    """
    if not (ROOT / glossary.FILE).exists():
        raise UnavailableError(f"there are no docs in {ROOT}: a checkout has them")
    architecture = architecture or parse_architecture(DEFAULT_ARCHITECTURE)
    benches = store.read_all(Bench, records)
    site = _Site(folder)
    everything = []
    for number, (name, report) in enumerate(reports.items(), 1):
        progress(f"{number} of {len(reports)}: the ladder of {name}")
        known = Known(
            read_ops()[name],
            report,
            _climb(name, architecture),
            [bench for bench in benches if bench.op == name],
        )
        everything.append(known)
        site.write_op(known)
    progress("writing the docs")
    site.write_home(everything)
    site.write_linked()
    lacking: dict[str, list[str]] = {}
    for known in everything:
        for what, why in op_pages.missing(known):
            lacking.setdefault(f"{what}: {why}", []).append(known.summary.name)
    return Built(site.sizes, lacking)


def _climb(op: str, architecture: Architecture) -> ladder.Ladder | Skipped:
    try:
        return ladder.climb(op, None, None, architecture, lambda what: None)
    except CompareError as error:
        return Skipped(str(error))


class _Site:
    def __init__(self, folder: Path) -> None:
        self.sizes: dict[str, int] = {}
        self._folder = folder
        self._files = Files()
        self._templates = page.environment(_FOLDER, page.FOLDER)
        styles = (page.FOLDER / "base.css", _FOLDER / "site.css")
        css = "".join(each.read_text("utf-8") for each in styles)
        self._write("site.css", css.encode())
        self._write("theme.js", page.asset("theme.js").encode())

    def write_op(self, known: Known) -> None:
        """An op's page, and that of its code."""
        name = known.summary.name
        self._page(
            op_pages.address(name),
            "op.html.j2",
            title=name,
            **op_pages.values(known, self._files),
        )
        if isinstance(known.report, Skipped):
            return
        address = op_pages.code_address(name)
        links = [(name, op_pages.address(name)), *self._links()]
        around = page.Around(
            tuple((text, relative(each, address)) for text, each in links),
            relative(self._files.address(glossary.FILE), address),
        )
        html = page.render(known.report, extras_of(known.report), around)
        self._write(address, html.encode())

    def write_home(self, everything: Sequence[Known]) -> None:
        """The first page: every op, and the docs."""
        address = self._files.address
        texts = ["README.md", *sorted(f"docs/{e.name}" for e in ROOT.glob("docs/*.md"))]
        self._page(
            HOME,
            "home.html.j2",
            title="Twin Kernels",
            rows=[op_pages.row(known) for known in everything],
            documents=[
                (documents.title((ROOT / each).read_text("utf-8")), address(each))
                for each in texts
            ],
        )

    def write_linked(self) -> None:
        """Everything that is linked to, and what that links to in turn."""
        written: set[str] = set()
        while wanted := [each for each in self._files.linked if each not in written]:
            for path in wanted:
                self._write_linked(path)
                written.add(path)
        # Only now is it known which of a folder's files the site has.
        for path in [*self._files.linked]:
            if (ROOT / path).is_dir():
                self._write_linked(path)

    def _write_linked(self, path: str) -> None:
        address = self._files.address(path)
        if (ROOT / path).is_dir():
            entries = self._files.entries(path)
            links = [(name, each and relative(each, address)) for name, each in entries]
            self._page(address, "folder.html.j2", title=path, entries=links)
        elif is_copied(path):
            self._write(address, (ROOT / path).read_bytes())
        else:
            text = (ROOT / path).read_text("utf-8")
            if path.endswith(".md"):
                html = documents.render(text, path, address, self._files)
                title = documents.title(text)
                self._page(address, "document.html.j2", title=title, html=html)
            else:
                lines = documents.source_lines(text, path)
                self._page(address, "source.html.j2", title=path, lines=lines)

    def _links(self) -> Iterator[tuple[str, str]]:
        """The links of every page: their texts and addresses."""
        yield "Twin Kernels", HOME
        for path in _NAVIGATION:
            name = path.rpartition("/")[2].removesuffix(".md")
            yield name, self._files.address(path)

    def _page(self, address: str, template: str, **values: Any) -> None:
        html = self._templates.get_template(template).render(
            links=[(text, relative(each, address)) for text, each in self._links()],
            css=relative("site.css", address),
            theme=relative("theme.js", address),
            **values,
        )
        self._write(address, html.encode())

    def _write(self, address: str, content: bytes) -> None:
        store.replace(self._folder / address, content)
        self.sizes[address] = len(content)
