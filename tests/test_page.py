"""The HTML page of a report, without a browser."""

from __future__ import annotations

import base64
import dataclasses
import functools
import hashlib
import json
import math
import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import launches
import pages
import pytest
from pygments.token import Error

from bindings.op import Op
from bindings.registry import OPS
from bindings.sources import ROOT
from bindings.toolchain import find_cuda_home
from bindings.trials import TRIALS
from compare.assembly.classify import CATEGORIES, Language
from compare.assembly.listing import Frame, parse_ptx
from compare.assembly.normalize import normalize
from compare.code import tools, triton_offline
from compare.code.findings import Finding
from compare.code.kernel_code import KernelCode, Side, planned_kernels
from compare.code.rungs import SIDES, name_of
from compare.judge.acceptance import Errors
from compare.judge.parity import Parity, Skipped
from compare.printable import printable
from compare.records import store
from compare.report import collect_code
from compare.report.comparison import Report
from compare.report.page import Cell, Extras, Panel, lexers, links, render
from compare.report.page.listings import FAMILY_OF, times
from compare.timing.times import Bench

needs_nvcc = pytest.mark.skipif(find_cuda_home() is None, reason="needs nvcc")

HOSTILE = (
    "</script><script>alert(1)</script><img src=x onerror=alert(2)> '\" & {{ 7 * 7 }} "
    "http://x \x1b[31mred\x1b]0;title\x07 \u202e \x00"
)
VOID = {"meta", "link", "input"}


class Page(HTMLParser):
    """The elements of a page; fails on wrong nesting and on missing names.

    Attributes:
        elements: Of each: its name, its attributes, and the text in it.
    """

    def __init__(self, html: str) -> None:
        """Reads a page."""
        super().__init__()
        self.elements: list[tuple[str, dict[str, str], list[str]]] = []
        self._open: list[int] = []
        self.feed(html)
        self.close()
        assert not self._open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Opens an element."""
        names = [name for name, _ in attrs]
        assert len({*names}) == len(names), f"{tag}: {names}"
        self.elements.append((tag, {name: value or "" for name, value in attrs}, []))
        if tag not in VOID:
            self._open.append(len(self.elements) - 1)

    def handle_endtag(self, tag: str) -> None:
        """Closes the one that was opened last."""
        opened = self.elements[self._open.pop()][0]
        assert opened == tag, f"<{opened}> is closed by </{tag}>"

    def handle_data(self, data: str) -> None:
        """Adds text to all that are open."""
        for number in self._open:
            self.elements[number][2].append(data)

    def handle_decl(self, decl: str) -> None:
        """Accepts HTML 5 only."""
        assert decl == "doctype html"

    def all(self, tag: str, **attributes: str) -> list[tuple[dict[str, str], str]]:
        """The attributes and texts of the elements that have these."""
        return [
            (found, "".join(text))
            for name, found, text in self.elements
            if name == tag and attributes.items() <= found.items()
        ]

    @property
    def data(self) -> Any:
        """The data of the page's script."""
        ((_, text),) = self.all("script", id="data")
        return json.loads(text)

    def rows(self, side: str, language: Language) -> list[tuple[dict[str, str], str]]:
        """The instructions of a listing."""
        name = {"cuda": "CUDA", "triton": "Triton"}[side]
        label = f"{name} {language.upper()}"
        found: list[tuple[dict[str, str], str]] = []
        is_inside = False
        for tag, attributes, text in self.elements:
            if tag == "ol":
                is_inside = attributes.get("aria-label") == label
            elif is_inside and tag == "li" and "data-c" in attributes:
                found.append((attributes, "".join(text).strip()))
        return found


def page_of(report: Any, extras: Extras | None = None) -> Page:
    return Page(render(report, extras))


# ---- of every op ----


# One whose kernels are in several files, one that writes several outputs, and another.
SHOWN = ["softmax", "matmul", "layer_norm_backward"]


@needs_nvcc
@pytest.mark.parametrize("name", SHOWN)
def test_page_of_an_op(name: str) -> None:
    op = OPS[name]
    report = pages.real_report(name)
    html = render(report)
    assert len(html.encode()) < 2_000_000
    assert str(ROOT) not in html
    assert str(Path.home()) not in html
    page = Page(html)
    for side, code in report.codegen.items():
        assert not isinstance(code, Skipped)
        for listing in (code.ptx, code.sass):
            rows = page.rows(side, listing.language)
            assert [text for _, text in rows] == [x.text for x in normalize(listing)]
            categories = [CATEGORIES[int(found["data-k"])] for found, _ in rows]
            assert categories == [each.category for each in listing.instructions]
            # All but what the compiler adds of itself is from a line of the op's file.
            assert sum("data-n" in found for found, _ in rows) > 0.95 * len(rows)
        # But a few, with which every kernel begins, have been PTX before.
        of_ptx = [
            each["data-p"] for each, _ in page.rows(side, "sass") if "data-p" in each
        ]
        assert len(of_ptx) >= len(code.sass.instructions) - 5
        assert all(int(index) < len(code.ptx.instructions) for index in of_ptx)
    assert_links(op, page)


def assert_links(op: Op, page: Page) -> None:
    """Checks that every link has its target."""
    data = page.data
    counts = {
        (side, language): len(page.rows(side, language))
        for side in ("cuda", "triton")
        for language in ("ptx", "sass")
    }
    for finding in data["findings"]:
        for side in ("cuda", "triton"):
            assert all(i < counts[side, finding["code"]] for i in finding[side])
    files = {found["data-file"] for found, _ in page.all("ol") if "data-file" in found}
    for side in data["chains"]:
        folder = {"cuda": "csrc", "triton": "triton_kernels"}[side]
        own = tuple(f"{folder}/{each}/" for each in (op.source, "glu", "norm", "unary"))
        assert any(file.startswith(own) for file in files)
    assert any("/common/" in file for file in files)
    # Every section has lines in both sources, and instructions on both sides.
    assert list(data["sections"])
    for section, places in data["sections"].items():
        assert len(places) == 2
        for chains in data["chains"].values():
            assert any(each["section"] == section for each in chains)
    # A place in a file that is shown is in its text.
    lengths = {file: (ROOT / file).read_text().count("\n") for file in files}
    places = {
        p for side in data["chains"].values() for each in side for p in each["places"]
    }
    for file, _, line in (place.rpartition(":") for place in places):
        assert "/" not in file or 1 <= int(line) <= lengths[file]


# ---- what a page may contain ----


def test_page_loads_nothing() -> None:
    html = render(pages.made_up_report())
    page = Page(html)
    for tag, attributes, _ in page.elements:
        assert not attributes.keys() & {"src", "style", "action", "srcset"}
        assert not any(name.startswith("on") for name in attributes), (tag, attributes)
        assert "://" not in "".join(attributes.values())
    for found, _ in [*page.all("a"), *page.all("link")]:
        assert found["href"].startswith(("#", "data:,"))
    (css,) = page.all("style")
    assert "url(" not in css[1]
    assert "@import" not in css[1]
    assert "://" not in html


def test_policy_allows_what_is_there_and_nothing_else() -> None:
    page = page_of(pages.made_up_report())
    policies = [found["content"] for found, _ in page.all("meta") if "content" in found]
    rules = dict(each.split(maxsplit=1) for each in policies[0].split("; "))
    assert rules["default-src"] == "'none'"
    for tag, rule in (("style", "style-src"), ("script", "script-src")):
        hashes = []
        for found, text in page.all(tag):
            if "type" not in found:  # else data
                digest = hashlib.sha256(text.encode()).digest()
                hashes.append(f"'sha256-{base64.b64encode(digest).decode()}'")
        assert rules[rule].split() == hashes != []


def test_ids_are_unique_and_found() -> None:
    panel = Panel("memory", "Memory", ("argument",), ((Cell("out"),),))
    page = page_of(pages.made_up_report(), Extras(panels=(panel,)))
    ids = [found["id"] for _, found, _ in page.elements if "id" in found]
    assert len({*ids}) == len(ids)
    for _, found, _ in page.elements:
        for name in ("aria-controls", "aria-labelledby"):
            assert name not in found or found[name] in ids


def test_text_stays_text() -> None:
    code = pages.made_up_code("triton", title=HOSTILE, compiler=HOSTILE)
    finding = Finding(HOSTILE, HOSTILE, "ptx", (0,), (1,), "", None, 0.0)
    report = pages.made_up_report(
        codegen={"cuda": Skipped(HOSTILE), "triton": code},
        parity={
            "cuda": Skipped(HOSTILE),
            "triton": dataclasses.replace(pages.PARITY, problem=HOSTILE),
            "torch": pages.PARITY,
        },
        findings=(finding,),
        times=Skipped(HOSTILE),
    )
    environment = report.environment | {"gpus": [HOSTILE]}
    report = dataclasses.replace(
        report, environment=environment, recorded=Skipped(HOSTILE)
    )
    evil = f'"><b>{HOSTILE}'
    cells = (Cell(HOSTILE, target=evil, places=(evil,), is_code=True),)
    panel = Panel("panel", HOSTILE, (HOSTILE,), (cells,), HOSTILE)
    html = render(report, Extras(panels=(panel,)))
    page = Page(html)
    assert len(page.all("script")) == 3
    assert not page.all("img")
    assert not page.all("b", **{"": ""})
    assert not any(
        name.startswith("on") for _, each, _ in page.elements for name in each
    )
    assert page.data["findings"][0]["text"] == printable(HOSTILE)
    shown = "".join(text for _, text in page.all("html"))
    assert shown.count(printable(HOSTILE)) >= 14
    assert all(each.isprintable() or each == "\n" for each in html)


def test_listings_of_hostile_code() -> None:
    text = pages.PTX.replace("%f1, %f1, %f5", "%f1, <b>, \x1b&\u202e")
    code = pages.made_up_code("cuda", ptx=parse_ptx(text))
    page = page_of(pages.made_up_report(codegen={"cuda": code, "triton": Skipped("")}))
    assert "add.f32 %r0, <b>, &" in [text for _, text in page.rows("cuda", "ptx")]


# ---- what a page shows ----


def test_where_instructions_come_from() -> None:
    page = page_of(pages.made_up_report())
    rows = [found for found, _ in page.rows("cuda", "ptx")]
    chains = [page.data["chains"]["cuda"][int(each["data-c"])] for each in rows]
    helper, load, row_max, row_sum = (
        f"csrc/softmax/twin.cuh:{line}"
        for line in (pages.ENTRY, pages.LOAD, pages.MAX, pages.SUM)
    )
    vec = f"vec.cuh:{pages.TILE}"
    assert [each["places"] for each in chains] == [
        [helper],
        [f"csrc/common/{vec}", load],
        ["vendor.hpp:5", row_max],
        [row_sum],
        [row_sum],
        ["twin.cuh:99999"],  # which is no line of the file that is here
        ["twin.cuh:99999"],
    ]
    sections = ["", "load", "max", "sum", "sum", "", ""]
    assert [each["section"] for each in chains] == sections
    lines = [helper, load, row_max, row_sum, row_sum, "", ""]
    assert [each.get("data-n", "") for each in rows] == [
        line.rpartition(":")[2] for line in lines
    ]
    assert [each.get("data-o", "") for each in rows] == ["", vec, *[""] * 5]
    is_foreign = [False, False, True, False, False, True, True]
    assert ["foreign" in each["class"] for each in rows] == is_foreign
    # The Triton side knows nothing of CUDA's files.
    places = [each["places"] for each in page.data["chains"]["triton"]]
    assert [vec, load.rpartition("/")[2]] in places
    indices = [each.get("data-p") for each, _ in page.rows("cuda", "sass")]
    assert indices == ["1", "3", "3", "3"]


def test_lines_know_their_instructions() -> None:
    page = page_of(pages.made_up_report())
    lines = {
        found["data-n"]: text for found, text in page.all("li") if "data-n" in found
    }
    source = (ROOT / "triton_kernels/softmax/twin.py").read_text().split("\n")
    shown = [
        text for found, text in page.all("ol", **{"data-file": "csrc/softmax/twin.cuh"})
    ]
    assert "50" in lines
    assert shown[0].count("\n") >= (ROOT / "csrc/softmax/twin.cuh").read_text().count(
        "\n"
    )
    triton = page.all("ol", **{"data-file": "triton_kernels/softmax/twin.py"})[0][1]
    assert [line for line in triton.split("\n") if line.strip()] == [
        line for line in source if line.strip()
    ]


def test_loops_are_indented() -> None:
    html = render(pages.made_up_report())
    assert re.search(r'> {4}<span class="h-k">add\.f32</span>', html)
    assert re.search(r'> {2}<span class="h-k">st\.global\.f32</span>', html)


def test_figures_and_notes() -> None:
    failed = Parity("gpu", Errors(math.nan, math.nan), pages.PARITY.allowed, "all is 0")
    unfinished = dataclasses.replace(failed, problem="too long", is_finished=False)
    html = render(
        pages.made_up_report(
            backends=("cuda", "cuda_inline", "triton"),
            parity={
                "cuda": failed,
                "cuda_inline": Skipped("no ninja"),
                "triton": unfinished,
                "torch": pages.PARITY,
            },
        )
    )
    for text in (
        *("FAILED", "CUDA is wrong: all is 0", "no parity of CUDA inline: no ninja"),
        *("NOT FINISHED", "Triton did not finish: too long"),
        "times need a GPU",
    ):
        assert text in html


def test_what_nothing_was_run_of() -> None:
    nothing = Skipped("nothing is run")
    parity = dict.fromkeys(("cuda", "triton", "torch"), nothing)
    page = page_of(pages.made_up_report(parity=parity, times=nothing))
    shown = page.all("body")[0][1]
    assert shown.count("nothing is run") == 2
    assert "parity with float64" not in shown


def test_sides_without_code() -> None:
    page = page_of(
        pages.made_up_report(
            codegen={"cuda": Skipped("no nvcc"), "triton": Skipped("no triton")},
            findings=(),
        )
    )
    shown = page.all("body")[0][1]
    assert "No code: no nvcc" in shown
    assert "No code: no triton" in shown
    assert "Findings need the code of both sides" in shown
    assert not page.all("table", id="mix")
    assert page.all(
        "ol", **{"data-file": "csrc/softmax/twin.cuh"}
    )  # the source is there


def test_recorded_times_say_where_they_are_from() -> None:
    bench = store.find("softmax", Bench)
    assert bench is not None
    report = dataclasses.replace(pages.made_up_report(), recorded=bench)
    shown = page_of(report).all("section", id="times")[0][1]
    assert store.gpu(bench) in shown
    assert store.date(bench) in shown
    assert "Not measured here" in shown
    assert report.case
    case = dataclasses.replace(report.case, params={"dim": 0})
    other = page_of(dataclasses.replace(report, case=case))
    assert "None of softmax dim=0 float32" in other.all("section", id="times")[0][1]


def test_extras() -> None:
    executed = [1.0, 1.0, 1.0, 32.0, 32.0, 0.5, 1.0]
    target = "instructions=cuda:ptx:1,2"
    page = page_of(
        pages.made_up_report(),
        Extras(
            executed={"cuda": executed},
            panels=(
                Panel(
                    "memory",
                    "Memory",
                    ("argument", "sectors"),
                    (
                        (
                            Cell("x", target, ("csrc/softmax/twin.cuh:40",)),
                            Cell("1,024"),
                        ),
                    ),
                    "By the emulator.",
                ),
            ),
        ),
    )
    counts = [text for found, text in page.all("i") if not found]
    assert [text[:-1] for text in counts] == ["1", "1", "1", "32", "32", "0.5", "1"]
    assert "executed" in page.all("table", id="mix")[0][1]
    panel = page.all("section", id="memory")[0][1]
    assert all(text in panel for text in ("Memory", "1,024", "By the emulator."))
    assert page.all("a", href=f"#{target}")
    ((_, text),) = page.all("a", href="#line=csrc/softmax/twin.cuh%3A40")
    assert text == "twin.cuh:40"


def test_executed_counts_fit_the_listing() -> None:
    with pytest.raises(ValueError, match="shorter"):
        render(pages.made_up_report(), Extras(executed={"cuda": [1.0] * 6}))


# ---- parts ----


def test_every_category_has_a_colour() -> None:
    assert FAMILY_OF.keys() == {*CATEGORIES}
    css = (ROOT / "compare/report/page/page.css").read_text()
    for family in {*FAMILY_OF.values()}:
        assert f".{family} {{ --family: var(--{family}); }}" in css


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0"), (32, "32"), (1024, "1,024"), (0.25, "0.25"), (512.5, "512")],
)
def test_how_often(count: float, text: str) -> None:
    assert times(count) == text


def _requests(op: Op) -> Iterator[collect_code.Request]:
    """What is asked of an op, in vectors of both widths."""
    trial = TRIALS[op.name]
    shapes = (trial.small_shape, trial.large_shape, *trial.benchmark_shapes)
    if trial.flops:  # where loops are long one tile of each tells as much
        shapes = (trial.small_shape, (128, 256, 128))
    for shape in dict.fromkeys(shapes):
        # Of bfloat16 first, whose packed vectors have more that is from no single line.
        for dtype in ("bfloat16", "float32"):
            yield collect_code.Request(
                op.name, shape, dtype, {}, launches.HOPPER, shows_sass=False
            )


def _kernels_of(request: collect_code.Request) -> dict[str, launches.Launch]:
    """By the names of the kernels that are shown, their launches."""
    case = request.case(())
    found = {}
    for side, shown in collect_code.choose(request, case, launches.HOPPER).items():
        launch = (shown.op, case, launches.HOPPER)
        arguments = launches.arguments_of(launch)
        titles = planned_kernels(side, shown.op, arguments, launches.HOPPER)
        found[f"{side} {name_of(titles[0])}"] = launch
    return found


@functools.cache
def _shown_of(source: str) -> tuple[list[collect_code.Request], list[launches.Launch]]:
    """Requests that show every kernel of a source, and what they launch of CUDA."""
    seen: set[str] = set()
    shown, of_cuda = [], []
    for op in (each for each in OPS.values() if each.source == source):
        for request in _requests(op):
            kernels = _kernels_of(request)
            # Each kernel once: the lines of its instances are the same.
            if kernels.keys() - seen:
                shown.append(request)
                seen |= kernels.keys()
                # Of both, since both sides of a request are compiled.
                of_cuda += [kernels[each] for each in kernels if each[:5] == "cuda "]
    return shown, of_cuda


launches.announce_of_source(lambda source: _shown_of(source)[1])


@pytest.fixture
def not_assembled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is read of Triton's machine code, so that it is not made."""
    monkeypatch.setattr(triton_offline.TritonLaunch, "cubin", b"")
    monkeypatch.setattr(tools, "resources_of", lambda *_: tools.Resources(0, 0, 0))


@needs_nvcc
@pytest.mark.parametrize("source", {each.source: 0 for each in OPS.values()})
def test_the_page_shows_what_is_launched(source: str, not_assembled: None) -> None:
    launches.compile_with_nvcc(source, launches.HOPPER)
    for request in _shown_of(source)[0]:
        report = collect_code.study(request, lambda what: None)
        for side in SIDES:
            code = report.codegen[side]
            assert isinstance(code, KernelCode), code
            _assert_sections_are_told(report, side, code)


def _assert_sections_are_told(report: Report, side: Side, code: KernelCode) -> None:
    kernel = links.kernel_of(report, side, report.kernels[side])
    instructions = code.ptx.instructions
    files = links.source_files(report, side, kernel, instructions)
    chains = links.Chains(
        kernel, {path: links.source_of(report, path) for path in files}
    )
    sections = [chains.of(each).section for each in instructions]
    # Some stand in no section: the parameters, and what serves all of them.
    # One may be empty: an addition of bfloat16 is made where the sum is packed.
    assert len(set(kernel.sections) - set(sections)) <= 1, code.title
    assert sections.count("") < len(sections) / 3, code.title


def test_a_kernel_that_is_not_there() -> None:
    for side in ("cuda", "triton"):
        with pytest.raises(LookupError, match="no_kernel stands in no file of "):
            links.find_kernel(side, "softmax", "no_kernel")
        assert not links.find_kernel(side, "softmax", "").lines


def test_highlighting_changes_no_text() -> None:
    lines = [
        "@!%p0 ld.global.v4.b32 {%r0, %r1, %r2, %r3}, [%rd0+16];",
        "L0:",
        "mov.u32 %r1, %tid.x;",
        "add.f32 %r1, %r2, 0f3F800000;",
        HOSTILE.replace("\n", " "),
        "",
    ]
    for language in ("ptx", "sass"):
        html = lexers.highlight_listing(lines, language)
        assert [Page(f"<p>{each}</p>").all("p")[0][1] for each in html] == [
            printable(each) for each in lines
        ]


def test_lexers_know_every_instruction() -> None:
    code = pages.real_code("softmax", "triton")
    for lexer, listing in ((lexers.PtxLexer, code.ptx), (lexers.SassLexer, code.sass)):
        text = "\n".join(each.text for each in normalize(listing))
        kinds = {kind for kind, _ in lexer().get_tokens(text)}
        assert Error not in kinds
        html = lexers.highlight_listing(text.split("\n"), listing.language)
        assert all(each.count('class="h-k"') == 1 for each in html)


def test_blank_lines_at_the_ends_of_a_source_count() -> None:
    for suffix in (".cu", ".py"):
        html = lexers.highlight_source("\n\n\tx = 1;\n\n", suffix)
        assert [Page(f"<p>{each}</p>").all("p")[0][1] for each in html] == [
            *("", "", "        x = 1;", "")
        ]


def test_frames_of_other_files_are_foreign() -> None:
    kernel = links.find_kernel("cuda", "softmax", "")
    chains = links.Chains(kernel, {kernel.file: links.read_source(kernel.file)})
    instruction = parse_ptx(pages.PTX).instructions[0]
    for file in ("/usr/include/cuda.h", "csrc/nothing.cu", "/x/csrc", "", "\0"):
        frames = (Frame(file, 1),)
        assert chains.of(dataclasses.replace(instruction, frames=frames)).is_foreign
    nothing = chains.of(dataclasses.replace(instruction, frames=()))
    assert nothing.is_foreign
    assert nothing.places == ()
