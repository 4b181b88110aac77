"""The page of a pair of other people's files in a browser, tried as that of an op."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from common import needs_interpreter

from bindings.sources import ROOT
from bindings.toolchain import find_cuda_home
from compare.pairs import pair, plan
from compare.pairs.own_report import OwnReport
from compare.report.page import render
from compare.report.page.simulated import extras_of

pytest.importorskip(
    "playwright", reason="needs playwright: pip install -e '.[browser]'"
)

from playwright.sync_api import Browser
from test_page_in_browser import LEAST_CONTRAST, SIDES, Reader, attributes

from compare.report.page.screenshots import find_browser, open_browser

pytestmark = [
    pytest.mark.skipif(find_browser() is None, reason="needs a Chromium"),
    pytest.mark.skipif(find_cuda_home() is None, reason="needs nvcc"),
    needs_interpreter,
]


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """A Chromium."""
    with open_browser() as opened:
        yield opened


@pytest.fixture(scope="module")
def report() -> OwnReport:
    """A report on a torch extension and a Triton module."""
    description = ROOT / "tests/pairs/descriptions/softmax.py"
    (request,) = plan.plan([str(description)], "", "").requests
    return pair.compare(request, lambda _: None)


@pytest.fixture(scope="module")
def file(report: OwnReport, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Its page."""
    path = tmp_path_factory.mktemp("page") / "pair.html"
    path.write_text(render(report, extras_of(report)), encoding="utf-8")
    return path


@pytest.fixture
def reader(browser: Browser, file: Path) -> Iterator[Reader]:
    """A reader of the page, who must end without complaints: it loads nothing."""
    opened = Reader(browser, file).open()
    yield opened
    opened.page.close()
    assert opened.complaints == []


@pytest.mark.parametrize(
    ("source", "side", "text"),
    [
        ("softmax_extension.cu", "cuda", "m = fmaxf(m, x[i]);"),
        ("softmax.py", "triton", "tl.load("),
    ],
)
def test_hovering_a_line_lights_its_instructions(
    reader: Reader, source: str, side: str, text: str
) -> None:
    line = reader.page.locator(f"[data-file='{source}'] li", has_text=text).first
    line.hover()
    hot = reader.rows(side, "li.hot")
    assert hot.count() == int(line.locator("i").first.inner_text()) > 0
    assert {*attributes(hot, "data-n")} == {line.get_attribute("data-n")}


def test_a_category_marks_both_columns(reader: Reader) -> None:
    reader.page.locator("#mix a", has_text="shuffle / vote").click()
    assert all(reader.lit("pin").values())


def test_every_finding_marks_its_instructions(
    browser: Browser, file: Path, report: OwnReport
) -> None:
    reader = Reader(browser, file)
    for number, finding in enumerate(report.findings, start=1):
        reader.open(f"finding={number}")
        for side, indices in zip(SIDES, (finding.cuda, finding.triton), strict=True):
            marked = reader.rows(side, "li.pin", code=finding.language)
            assert marked.count() == len({*indices})
    assert reader.complaints == []
    reader.page.close()


def test_every_term_of_a_finding_leads_to_its_meaning(reader: Reader) -> None:
    links = attributes(reader.page.locator("#findings a[href^='#']"), "href")
    terms = {each[1:] for each in links if each and "=" not in each}  # the rest pins
    assert terms
    for term in terms:
        assert reader.page.locator(f"[id='{term}']").count() == 1, term


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_contrast(browser: Browser, file: Path, scheme: str) -> None:
    reader = Reader(browser, file, color_scheme=scheme).open("finding=1")
    least = reader.page.evaluate(LEAST_CONTRAST)
    assert least["ratio"] >= 4.5, least
    reader.page.close()


@pytest.mark.parametrize("width", [360, 768, 1920])
def test_nothing_is_wider_than_the_window(
    browser: Browser, file: Path, width: int
) -> None:
    viewport = {"width": width, "height": 800}
    reader = Reader(browser, file, viewport=viewport).open()
    assert reader.page.evaluate("document.documentElement.scrollWidth") <= width
    reader.page.close()
