"""The site: its links lead somewhere, its pages are whole, its colours can be read."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import posixpath
import re
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote

import pages
import pytest
import shared
from test_code_contracts import HAS_NVCC, needs_nvcc

from bindings.sources import ROOT
from compare import cli
from compare.code.architectures import ARCHITECTURES
from compare.errors import UsageError
from compare.judge.parity import Skipped
from compare.records import store
from compare.report import glossary, site
from compare.report.page import FOLDER, asset
from compare.report.site import documents
from compare.report.site.files import Files, relative
from compare.timing import gpu_state
from compare.timing.times import Bench

OPS = ("softmax", "softmax_backward", "add")


class Page(HTMLParser):
    """A page of a site.

    Attributes:
        elements: Each with its attributes.
        ids: All that a link can lead to.
        links: The targets that it links to or loads, by attribute.
        labelled: Whether each control has a name.
    """

    def __init__(self, file: Path) -> None:
        """Reads a file."""
        super().__init__()
        self.elements: list[tuple[str, dict[str, str]]] = []
        self._text: list[tuple[str, dict[str, str], list[str]]] = []
        self.unnamed: list[dict[str, str]] = []
        self.feed(file.read_text("utf-8"))
        self.ids = {found["id"] for _, found in self.elements if "id" in found}
        self.links = [
            (name, found[name])
            for _, found in self.elements
            for name in ("href", "src", "srcset")
            if name in found
        ]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Notes an element, and the control that its text may name."""
        found = {name: value or "" for name, value in attrs}
        self.elements.append((tag, found))
        if tag in ("a", "button", "label"):
            self._text.append((tag, found, []))
        elif tag == "input":
            assert self._text, "an input outside of a label"
            assert self._text[-1][0] == "label"

    def handle_data(self, data: str) -> None:
        """Notes text."""
        for _, _, text in self._text:
            text.append(data)

    def handle_endtag(self, tag: str) -> None:
        """Notes whether the control that ends has a name."""
        if self._text and self._text[-1][0] == tag:
            _, found, text = self._text.pop()
            if not ("".join(text).strip() or found.get("aria-label")):
                self.unnamed.append(found)

    def count(self, tag: str) -> int:
        """How many elements of a kind there are."""
        return sum(each == tag for each, _ in self.elements)


# A process colours each source once, which takes most of the time of a site.
_source_lines = functools.cache(documents.source_lines)


def _build(place: Path) -> None:
    reports = {
        name: dataclasses.replace(
            pages.real_report(name), recorded=store.find(name, Bench)
        )
        for name in OPS
    }
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gpu_state, "obstacle", lambda: "these tests time nothing")
        patch.setattr(documents, "source_lines", _source_lines)
        site.build(place, reports, ARCHITECTURES[90], lambda what: None)


@pytest.fixture(scope="module")
def folder() -> Path:
    """A site of three ops with their code, whose kernels were not run."""
    if not HAS_NVCC:
        pytest.skip("needs nvcc")
    return shared.once("site", _build)


@pytest.fixture(scope="module")
def read(folder: Path) -> dict[str, Page]:
    """Its pages by address."""
    return {
        file.relative_to(folder).as_posix(): Page(file)
        for file in sorted(folder.rglob("*.html"))
    }


def test_every_link_leads_somewhere(folder: Path, read: dict[str, Page]) -> None:
    broken = []
    for address, page in read.items():
        for _, link in page.links:
            if link.startswith("data:,"):
                continue
            target, _, fragment = link.partition("#")
            where = posixpath.normpath(
                posixpath.join(posixpath.dirname(address), unquote(target))
                if target
                else address
            )
            # With a "=" it is no anchor but what the page's script marks.
            is_anchor = fragment and "=" not in fragment
            if not (folder / where).is_file() or (
                is_anchor and fragment not in read[where].ids
            ):
                broken.append(f"{address}: {link}")
    assert broken == []


def test_pages_are_whole(read: dict[str, Page]) -> None:
    for address, page in read.items():
        assert page.count("title") == page.count("h1") == page.count("main") == 1, (
            address
        )
        assert ("html", {"lang": "en"}) in page.elements, address
        assert page.unnamed == [], address
        assert any(found.get("class") == "skip" for _, found in page.elements)
        for tag, found in page.elements:
            assert tag != "img" or found["alt"], address
        ids = [found["id"] for _, found in page.elements if "id" in found]
        assert len(ids) == len({*ids}), address


def test_nothing_is_loaded_from_elsewhere(folder: Path, read: dict[str, Page]) -> None:
    for address, page in read.items():
        for name, link in page.links:
            assert not re.match("[a-z]+:|/", link) or link == "data:,", (address, name)
    css = (folder / "site.css").read_text()
    assert not re.search("url\\(|@import|&", css)
    assert css.startswith(asset("base.css"))


def test_sizes(folder: Path) -> None:
    sizes = {file: file.stat().st_size for file in folder.rglob("*") if file.is_file()}
    assert max(sizes.values()) < 2e6
    code = sum(n for file, n in sizes.items() if folder / "code" in file.parents)
    assert code < 20e6 * len(OPS) / 13  # of 24 ops, some share pages
    assert sum(sizes.values()) - code < 11e6  # sources, docs, records


def test_every_page_is_reached_from_the_first(read: dict[str, Page]) -> None:
    reached, new = set(), {site.HOME}
    while new:
        reached |= new
        new = {
            posixpath.normpath(posixpath.join(posixpath.dirname(each), target))
            for each in new
            for _, link in read[each].links
            if (target := link.partition("#")[0]).endswith(".html")
        } - reached
    assert reached == read.keys()


def test_what_is_there(folder: Path, read: dict[str, Page]) -> None:
    for op in OPS:
        text = (folder / f"ops/{op}.html").read_text()
        assert "NVIDIA H200" in text
        assert 'class="term"' in text
        assert {"ladder", "times", "plots"} <= read[f"ops/{op}.html"].ids
        assert ("story" in read[f"ops/{op}.html"].ids) == (op == "attention")
        code = read[f"code/{op}.html"]
        assert "bench" in code.ids
        assert "terms" not in code.ids  # the site has them
        assert any("docs/glossary.html#" in link for _, link in code.links)
    documents = {f"docs/{file.stem}.html" for file in ROOT.glob("docs/*.md")}
    assert documents <= read.keys()
    assert {glossary.anchor(each) for each in glossary.read()} <= (
        read["docs/glossary.html"].ids
    )
    assert (folder / "records/nvidia-h200/add-float32.svg").is_file()


def test_it_is_the_same_every_time(folder: Path, tmp_path: Path) -> None:
    _build(tmp_path)
    files = sorted(each for each in tmp_path.rglob("*") if each.is_file())
    assert files
    for file in files:
        first = folder / file.relative_to(tmp_path)
        assert file.read_bytes() == first.read_bytes()


@needs_nvcc
def test_what_is_missing_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The docs and sources are as those of the site above.
    monkeypatch.setattr(site._Site, "write_linked", lambda _: None)
    report = pages.real_report("add")
    no_code = {**report.codegen, "cuda": Skipped("nvcc is on holiday")}
    built = site.build(
        tmp_path / "site",
        {
            "add": dataclasses.replace(report, codegen=no_code, findings=()),
            "softmax": Skipped("the emulator is not built"),
        },
        ARCHITECTURES[80],
        lambda what: None,
        records=tmp_path,
    )
    assert built.missing["no code of CUDA: nvcc is on holiday"] == ["add"]
    assert built.missing["nothing was compared: the emulator is not built"] == [
        "softmax"
    ]
    why = "no recorded times: python -m compare record measures on a GPU"
    assert built.missing[why] == ["add", "softmax"]
    assert "nvcc is on holiday" in (tmp_path / "site/ops/add.html").read_text()
    softmax = (tmp_path / "site/ops/softmax.html").read_text()
    assert "Nothing was compared: the emulator is not built" in softmax
    assert "None are recorded" in softmax
    assert "code for sm_80" in softmax
    assert not (tmp_path / "site/code/softmax.html").exists()


def test_a_folder_that_is_not_empty_is_refused(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("")
    for command in (["site", str(tmp_path)], ["all", "--html", str(tmp_path)]):
        with pytest.raises(UsageError, match="needs an empty folder"):
            cli.parse(command)
    options = cli.parse(["site", str(tmp_path / "new"), "--arch", "sm_80"])
    assert options.arch.name == "sm_80"


# ---- documents ----


def test_markdown() -> None:
    files = Files()
    text = (
        "# A `title`\n\n[add](../csrc/add) <!-- unseen -->\n\n| a | b |\n|--|--:|\n"
        "| [x](#y) | [doc](measuring.md#records) |\n\n```cuda\nint x = 1 < 2;\n```\n"
    )
    assert documents.title(text) == "A title"
    html = documents.render(text, "docs/x.md", "docs/x.html", files)
    assert '<h1 id="a-title">' in html
    assert 'href="../source/csrc/add/index.html"' in html
    assert 'href="measuring.html#records"' in html
    assert 'href="#y"' in html
    assert "unseen" not in html
    assert '<span class="h-m">1</span> &lt;' in html
    assert [*files.linked] == ["csrc/add", "docs/measuring.md"]


@pytest.mark.parametrize("link", ["nowhere.md", "../../etc/passwd"])
def test_a_link_that_leads_nowhere(link: str) -> None:
    with pytest.raises(FileNotFoundError, match="which is not there"):
        documents.render(f"[x]({link})", "docs/x.md", "docs/x.html", Files())


@pytest.mark.parametrize(
    ("address", "page", "link"),
    [
        ("index.html", "docs/x.html", "../index.html"),
        ("docs/y.html#z", "docs/x.html", "y.html#z"),
        ("docs/y.html", "index.html", "docs/y.html"),
    ],
)
def test_links_are_relative(address: str, page: str, link: str) -> None:
    assert relative(address, page) == link


# ---- colours ----


def _luminance(colour: str) -> float:
    channels = (int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5))
    r, g, b = (
        x / 12.92 if x <= 0.04045 else ((x + 0.055) / 1.055) ** 2.4 for x in channels
    )
    return 0.2126 * r + 0.7152 * g + 0.0722 * b


INKS = (
    *("ink", "quiet", "link", "good", "bad"),
    *("comment", "keyword", "string", "number", "function"),
)


def test_colours_can_be_read() -> None:
    css = asset("base.css")
    pattern = r"--([\w-]+): light-dark\((#\w{6}), (#\w{6})\)"
    colours = {name: both for name, *both in re.findall(pattern, css)}
    for scheme, ink, paper in itertools.product((0, 1), INKS, ("paper", "sheet")):
        lights = [_luminance(colours[name][scheme]) for name in (ink, paper)]
        ratio = (max(lights) + 0.05) / (min(lights) + 0.05)
        assert ratio >= 4.5, (ink, paper, scheme, ratio)
    # No other colour is named: what is not one of these cannot be dark where it should.
    own = (FOLDER.parent / "site/site.css").read_text()
    assert {*re.findall(r"#[0-9a-f]{3,6}\b", own)} <= {"#fff"}
