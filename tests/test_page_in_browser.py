"""The page in a browser: highlights, pins, and that it loads nothing."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pages
import pytest
from pages import CUDA, LOAD, TRITON, line_of

from bindings.registry import OPS
from bindings.toolchain import find_cuda_home
from compare.records import store
from compare.report.page import Cell, Extras, Panel, render
from compare.timing.times import Bench

pytest.importorskip(
    "playwright", reason="needs playwright: pip install -e '.[browser]'"
)

from playwright.sync_api import Browser, Locator

from compare.report.page.screenshots import SCHEMES, find_browser, open_browser

pytestmark = [
    pytest.mark.skipif(find_browser() is None, reason="needs a Chromium"),
    pytest.mark.skipif(find_cuda_home() is None, reason="needs nvcc"),
]

SIDES = ("cuda", "triton")
MAX = line_of(TRITON, "row_max = tl.max")

# A helper that instructions of line LOAD were inlined from.
VEC, REDUCE = "csrc/common/vec.cuh", "csrc/common/reduce.cuh"
SHUFFLE = line_of(REDUCE, "__shfl_xor_sync")

# The text with the least contrast to its background.
LEAST_CONTRAST = """
() => {
    const canvas = new OffscreenCanvas(1, 1);
    const context = canvas.getContext("2d", { willReadFrequently: true });
    const rgba = (colour) => {
        context.clearRect(0, 0, 1, 1);
        context.fillStyle = colour;
        context.fillRect(0, 0, 1, 1);
        return [...context.getImageData(0, 0, 1, 1).data];
    };
    const luminance = (colour) => {
        const [r, g, b] = colour.slice(0, 3).map((each) => {
            const x = each / 255;
            return x <= 0.04045 ? x / 12.92 : ((x + 0.055) / 1.055) ** 2.4;
        });
        return 0.2126 * r + 0.7152 * g + 0.0722 * b;
    };
    const behind = (element) => {
        for (; element; element = element.parentElement) {
            const colour = rgba(getComputedStyle(element).backgroundColor);
            if (colour[3] === 255) return colour;
        }
        throw new Error("nothing is behind it");
    };
    const hasText = (element, part) => {
        if (part) {
            const { content } = getComputedStyle(element, part);
            return !["none", "normal"].includes(content);
        }
        const nodes = [...element.childNodes];
        return nodes.some((node) => node.nodeType === 3 && node.data.trim());
    };
    let least = { ratio: 21 };
    for (const element of document.body.querySelectorAll("*")) {
        if (!element.checkVisibility() || element.matches("script, legend")) continue;
        for (const part of [null, "::before", "::after"]) {
            if (!hasText(element, part)) continue;
            const { color } = getComputedStyle(element, part);
            const [ink, paper] = [rgba(color), behind(element)].map(luminance);
            const ratio = (Math.max(ink, paper) + 0.05) / (Math.min(ink, paper) + 0.05);
            if (ratio >= least.ratio) continue;
            least = { ratio, part, html: element.outerHTML.slice(0, 200) };
        }
    }
    return least;
}
"""

# The rows of a list that are inside of their pane.
IN_SIGHT = """
(rows) => rows.filter((row) => {
    if (!row.checkVisibility()) return false;
    const inner = row.getBoundingClientRect();
    const outer = row.closest(".scroller").getBoundingClientRect();
    return inner.top >= outer.top - 1 && inner.bottom <= outer.bottom + 1;
}).length
"""


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """A Chromium."""
    with open_browser() as opened:
        yield opened


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A page of every op."""
    folder = tmp_path_factory.mktemp("pages")
    panel = Panel(
        "memory",
        "Memory",
        ("argument", "of"),
        ((Cell("x", places=(f"{CUDA}:{LOAD}",)), Cell("load", "section=load")),),
    )
    for name in OPS:
        report = dataclasses.replace(
            pages.real_report(name), recorded=store.find(name, Bench)
        )
        html = render(report, Extras(panels=(panel,)))
        (folder / f"{name}.html").write_text(html, encoding="utf-8")
    return {name: folder / f"{name}.html" for name in OPS}


class Reader:
    """A reader of a page.

    Attributes:
        page: The browser's.
        complaints: The browser's errors and warnings, and the page's requests.
    """

    def __init__(self, browser: Browser, file: Path, **options: Any) -> None:
        """Opens a window, with no page in it yet."""
        viewport = {"width": 1280, "height": 900}
        options = {"viewport": viewport, "reduced_motion": "reduce"} | options
        self.page = browser.new_page(**options)
        self.page.set_default_timeout(5000)
        self.complaints: list[str] = []
        self._file = file
        complain = self.complaints.append
        self.page.on("console", lambda message: complain(message.text))
        self.page.on("pageerror", lambda error: complain(str(error)))
        self.page.on("request", lambda request: complain(request.url))

    def open(self, fragment: str = "") -> Reader:
        """Loads the page anew."""
        address = self._file.as_uri()
        self.page.goto("about:blank")
        self.page.goto(f"{address}#{fragment}" if fragment else address)
        self.complaints = [
            each for each in self.complaints if each.partition("#")[0] != address
        ]
        return self

    def source(self, file: str, line: int) -> Locator:
        """A line of a source."""
        return self.page.locator(f"[data-file='{file}'] li:nth-child({line})")

    def place(self, place: str) -> Locator:
        """A line of a source, named as in "csrc/softmax/twin.cuh:40"."""
        file, _, line = place.rpartition(":")
        return self.source(file, int(line))

    def rows(
        self, side: str, selector: str = "li[data-c]", code: str = "ptx"
    ) -> Locator:
        """Instructions of a listing."""
        return self.page.locator(
            f"[data-side={side}] [data-language={code}] {selector}"
        )

    def lit(self, name: str) -> dict[str, int]:
        """The number of highlighted instructions of each side's PTX."""
        return {side: self.rows(side, f"li.{name}").count() for side in SIDES}

    def choose(self, value: str) -> None:
        """Selects PTX or SASS, or the colours."""
        self.page.locator(f"label:has([value={value}])").click()

    @property
    def code(self) -> str:
        """The code in the listings, "ptx" or "sass"."""
        return str(self.page.locator("body").get_attribute("data-code"))

    @property
    def pinned(self) -> str:
        """The page's text on the pinned line."""
        return str(self.page.locator("#pinned").inner_text())

    @property
    def fragment(self) -> str:
        """The address's fragment."""
        return str(self.page.url).partition("#")[2]


@pytest.fixture
def reader(browser: Browser, files: dict[str, Path]) -> Iterator[Reader]:
    """A reader of the page of softmax, who must end without complaints."""
    opened = Reader(browser, files["softmax"]).open()
    yield opened
    opened.page.close()
    assert opened.complaints == []


def in_sight(rows: Locator) -> bool:
    """Whether one of the rows is inside of its pane."""
    return bool(rows.evaluate_all(IN_SIGHT))


def attributes(rows: Locator, name: str) -> list[str | None]:
    """An attribute of each of the rows."""
    script = "(rows, name) => rows.map((row) => row.getAttribute(name))"
    found: list[str | None] = rows.evaluate_all(script, name)
    return found


def classes(row: Locator) -> list[str]:
    """The classes of a row."""
    return (row.get_attribute("class") or "").split()


@pytest.mark.parametrize("name", OPS)
def test_page_asks_for_nothing(
    browser: Browser, files: dict[str, Path], name: str
) -> None:
    # What every kernel has.
    reader = Reader(browser, files[name]).open("category=integer+%2F+address")
    assert all(reader.lit("pin").values())
    reader.page.close()
    assert reader.complaints == []


def test_policy_is_obeyed(
    browser: Browser, files: dict[str, Path], tmp_path: Path
) -> None:
    evil = (
        "<script>window.evil = 1</script><img src=x onerror='window.evil = 2'>"
        "<link rel=stylesheet href=https://example.invalid/x.css>"
        "<p style='color: red'>"
    )
    file = tmp_path / "evil.html"
    html = files["softmax"].read_text(encoding="utf-8")
    file.write_text(html.replace("</main>", f"{evil}</main>"), encoding="utf-8")
    reader = Reader(browser, file).open()
    assert reader.page.evaluate("window.evil") is None
    assert sum("Content Security Policy" in each for each in reader.complaints) >= 4
    reader.page.close()


# ---- hovering ----


def test_hovering_a_line_lights_its_instructions(reader: Reader) -> None:
    line = reader.source(CUDA, LOAD)
    line.hover()
    hot = reader.rows("cuda", "li.hot")
    assert hot.count() == int(line.locator("i").first.inner_text())
    assert {*attributes(hot, "data-n")} == {str(LOAD)}
    assert reader.lit("hot")["triton"] == 0
    for origin in {*attributes(hot, "data-o")}:
        assert "hot-soft" in classes(reader.place(f"csrc/common/{origin}"))
    reader.page.mouse.move(5, 5)
    assert reader.lit("hot") == {"cuda": 0, "triton": 0}


def test_hovering_an_instruction_lights_its_lines(reader: Reader) -> None:
    row = reader.rows("cuda", ".load").first
    row.hover()
    inner = f"csrc/common/{row.get_attribute('data-o')}"
    assert "hot" in classes(reader.place(inner))
    assert "hot-soft" in classes(reader.source(CUDA, LOAD))
    title = row.get_attribute("title") or ""
    first, *_, last = title.split(" \N{LEFTWARDS ARROW} ")
    assert (first, last) == (inner, f"{CUDA}:{LOAD}")
    sass = reader.rows("cuda", "li.hot-soft", code="sass").all_inner_texts()
    assert any("LDG" in text for text in sass)


# ---- pinning ----


def test_sections_are_linked(reader: Reader) -> None:
    reader.source(CUDA, LOAD).click()
    for file in (CUDA, TRITON):
        lines = reader.page.locator(f"[data-file='{file}'] li.within")
        ends = line_of(file, "-- load: "), line_of(file, "-- max: ")
        assert attributes(lines, "data-n") == [*map(str, range(*ends))]
    line = line_of(TRITON, "x = load_row(")
    assert {*attributes(reader.rows("triton", "li.within"), "data-n")} == {str(line)}
    reader.source(TRITON, line_of(TRITON, "-- max: ")).click()
    assert reader.fragment == "section=max"
    assert in_sight(reader.source(CUDA, line_of(CUDA, "-- max: ")))
    assert all(reader.lit("pin").values())


def test_a_category_marks_both_columns(reader: Reader) -> None:
    link = reader.page.locator("#mix a", has_text="shuffle / vote")
    counts = [int(each) for each in link.locator("xpath=../../td").all_inner_texts()]
    link.click()
    assert reader.lit("pin") == {"cuda": counts[0], "triton": counts[1]}
    assert link.get_attribute("aria-current") == "true"
    for side in SIDES:
        marked = reader.rows(side, "li.pin")
        assert all("shfl." in text for text in marked.all_inner_texts())
        assert in_sight(marked)
    assert f"CUDA {counts[0]}" in reader.pinned
    link.click()
    assert reader.lit("pin") == {"cuda": 0, "triton": 0}
    assert reader.fragment == ""


def test_a_width_marks_its_accesses_alone(
    browser: Browser, files: dict[str, Path]
) -> None:
    reader = Reader(browser, files["add"]).open()
    reader.page.locator("#mix a", has_text="global load, 16 bytes").click()
    for side in SIDES:
        loads, marked = reader.rows(side, ".load"), reader.rows(side, "li.pin")
        assert {*attributes(loads, "data-w")} == {"4", "16"}
        assert {*attributes(marked, "data-w")} == {"16"}
    reader.page.close()


def test_a_finding_marks_its_instructions(reader: Reader) -> None:
    findings = pages.real_report("softmax").findings
    for number, finding in enumerate(findings, start=1):
        link = reader.page.locator(f"#findings a[href='#finding={number}']")
        if not finding.cuda and not finding.triton:
            assert link.count() == 0
            continue
        link.click()
        for side, indices in (("cuda", finding.cuda), ("triton", finding.triton)):
            rows = reader.rows(side, code=finding.language)
            marks = attributes(rows, "aria-selected")
            marked = [index for index, mark in enumerate(marks) if mark]
            assert marked == sorted(indices), finding.text
            marked_rows = reader.rows(side, "li.pin", code=finding.language)
            assert marked_rows.count() == len(indices)
            assert not indices or in_sight(marked_rows)
        assert reader.code == finding.language
        assert finding.text in reader.pinned


def test_stepping_through_the_findings(reader: Reader) -> None:
    known = attributes(reader.page.locator("#findings .of"), "href")
    reader.open(str(known[0])[1:])
    seen = []
    for _ in range(len(known) + 1):
        seen.append("#" + reader.fragment.partition("&")[0])
        reader.page.get_by_label("the next one").click()
    assert seen == [*known, known[0]]


@pytest.mark.parametrize(
    "fragment",
    [
        f"line={CUDA}:{LOAD}",
        f"line={TRITON}:{MAX}&code=sass",
        "section=store",
        "category=fp+math",
        "category=global%20load&bytes=4",
        "finding=1",
        "instructions=triton:ptx:3,5,8",
        "instructions=cuda:sass:7",
    ],
)
def test_a_link_opens_pinned(reader: Reader, fragment: str) -> None:
    reader.open(fragment)
    marked = reader.page.locator(".listing li.pin")
    assert {*attributes(marked, "aria-selected")} == {"true"}
    assert in_sight(marked)
    assert reader.code == ("sass" if "sass" in fragment else "ptx")
    assert reader.page.locator(f"input[value={reader.code}]").is_checked()
    assert reader.page.locator("#unpin").is_visible()


@pytest.mark.parametrize(
    "fragment",
    [
        f"line={CUDA}:9999",
        "line=",
        "finding=99",
        "finding=x",
        "toString=1",
        "section='\"]",
        "instructions=cuda:ptx:1,99999",
        "instructions=cuda",
        "instructions=cuda:ptx:length",
        "instructions=constructor:name:0",
        "category=&code=x",
        "%",
        "times",
    ],
)
def test_a_link_to_nothing_does_nothing(reader: Reader, fragment: str) -> None:
    reader.open(fragment)
    assert reader.page.locator(".pin").count() == 0
    assert reader.page.locator("#unpin").is_hidden()


def test_the_address_follows_and_is_followed(reader: Reader) -> None:
    reader.source(CUDA, LOAD).click()
    assert reader.fragment == f"line={CUDA}:{LOAD}"
    reader.choose("sass")
    assert reader.fragment == f"line={CUDA}:{LOAD}&code=sass"
    for step, text in (
        ("location.hash = 'section=max'", "max"),
        ("history.back()", f":{LOAD}"),
    ):
        reader.page.evaluate(step)
        reader.page.locator("#pinned", has_text=text).wait_for()
    assert reader.lit("pin")["cuda"] > 0
    assert reader.code == "sass"


def test_escape_unpins(reader: Reader) -> None:
    reader.open("finding=1")
    reader.page.keyboard.press("Escape")
    assert reader.page.locator(".pin, .pin-soft, [aria-current]").count() == 0
    assert reader.fragment == ""


def test_the_other_code(reader: Reader) -> None:
    reader.open(f"line={CUDA}:{LOAD}")
    line = reader.source(CUDA, LOAD)
    ptx, sass = (reader.rows("cuda", "li.pin", code=code) for code in ("ptx", "sass"))
    assert (in_sight(ptx), in_sight(sass)) == (True, False)
    before = line.inner_text()
    reader.choose("sass")
    assert (in_sight(ptx), in_sight(sass)) == (False, True)
    assert line.inner_text() != before  # another count


def test_tabs(reader: Reader) -> None:
    own, helper = reader.source(CUDA, LOAD), reader.source(REDUCE, SHUFFLE)
    assert (own.is_visible(), helper.is_visible()) == (True, False)
    reader.page.get_by_role("tab", name="reduce.cuh").click()
    assert (own.is_visible(), helper.is_visible()) == (False, True)
    helper.click()
    assert reader.lit("pin")["cuda"] > 0
    # The file of a pinned line is opened, but one of an instruction's will do.
    reader.open(f"line={REDUCE}:{SHUFFLE}")
    assert in_sight(helper)
    reader.open()
    reader.rows("cuda", ".load").first.click()
    assert in_sight(own)


def test_links_of_panels(reader: Reader) -> None:
    reader.page.locator("#memory a", has_text="load").click()
    assert reader.fragment == "section=load"
    assert all(reader.lit("pin").values())
    reader.page.locator("#memory a", has_text="twin.cuh").click()
    assert reader.fragment == f"line={CUDA}:{LOAD}"


def test_selecting_text_pins_nothing(reader: Reader) -> None:
    row = reader.source(CUDA, LOAD)
    row.evaluate("(row) => getSelection().selectAllChildren(row)")
    assert "load_row<VEC_SIZE," in reader.page.evaluate("getSelection().toString()")
    row.dispatch_event("click")
    assert reader.fragment == ""


# ---- keyboard ----


def test_keyboard_alone(reader: Reader) -> None:
    page = reader.page
    name = "(e => e.ariaLabel || e.name || e.textContent)(document.activeElement)"
    seen = [""]
    while seen[-1] != "CUDA PTX":
        page.keyboard.press("Tab")
        seen.append(page.evaluate(name))
        assert len(seen) < 60
    # In the order of the page, with one stop for each list.
    stops = [seen.index(each) for each in ("theme", "code", "twin.cuh", CUDA)]
    assert stops == sorted(stops)
    assert stops[-1] == len(seen) - 2
    for _ in range(3):
        page.keyboard.press("ArrowDown")
    listing = reader.rows("cuda", "").first
    active = listing.locator(".active")
    assert active.get_attribute("id") == listing.get_attribute("aria-activedescendant")
    assert reader.lit("hot") == {"cuda": 1, "triton": 0}
    assert page.locator(".source li.hot").count() == 1
    page.keyboard.press("Enter")
    assert reader.fragment == "instructions=cuda:ptx:3"
    page.keyboard.press("End")
    assert "ret" in active.inner_text()
    assert in_sight(active)
    page.keyboard.press("Home")
    assert in_sight(active)
    page.keyboard.press("Escape")
    assert reader.fragment == ""


def test_arrow_keys_open_tabs(reader: Reader) -> None:
    reader.page.get_by_role("tab", name="twin.cuh").focus()
    reader.page.keyboard.press("ArrowRight")
    assert reader.source("csrc/common/math.cuh", 1).is_visible()
    reader.page.keyboard.press("ArrowLeft")
    assert reader.source(CUDA, LOAD).is_visible()
    tabs = reader.page.locator("[data-side=cuda] [role=tab]")
    assert attributes(tabs, "tabindex").count("0") == 1


def test_focus_is_visible(reader: Reader) -> None:
    for selector in ("#findings a", "[role=tab]", ".source .lines", "#mix a"):
        element = reader.page.locator(selector).first
        element.focus()
        reader.page.keyboard.press("Shift+Tab")
        reader.page.keyboard.press("Tab")
        style = element.evaluate("(element) => getComputedStyle(element).outlineStyle")
        assert style == "solid", selector


def test_roles(reader: Reader) -> None:
    lists = reader.page.locator(".lines")
    assert {*attributes(lists, "role")} == {"listbox"}
    labels = attributes(lists, "aria-label")
    assert len({*labels}) == len(labels)
    assert reader.page.locator(".lines > li:not([role=option])").count() == 0
    assert reader.page.locator("[role=status]").count() == 1


# ---- looks ----


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize(
    "fragment", ["", "finding=4", f"line={CUDA}:{pages.MAX}", "section=max"]
)
def test_contrast(
    browser: Browser, files: dict[str, Path], scheme: str, fragment: str
) -> None:
    reader = Reader(browser, files["softmax"], color_scheme=scheme).open(fragment)
    reader.source(TRITON, MAX).hover()
    least = reader.page.evaluate(LEAST_CONTRAST)
    assert least["ratio"] >= 4.5, least
    reader.page.close()


def test_the_switch_of_colours(browser: Browser, files: dict[str, Path]) -> None:
    def paper(reader: Reader) -> str:
        script = "getComputedStyle(document.body).backgroundColor"
        return str(reader.page.evaluate(script))

    light = Reader(browser, files["add"], color_scheme="light").open()
    dark = Reader(browser, files["add"], color_scheme="dark").open()
    colours = paper(light), paper(dark)
    assert colours[0] != colours[1]
    for reader in (light, dark):
        for theme, colour in zip(("light", "dark"), colours, strict=True):
            reader.choose(theme)
            assert paper(reader) == colour
        reader.page.close()


@pytest.mark.parametrize("width", [360, 390, 768, 1024, 1280, 1920])
def test_nothing_is_wider_than_the_window(
    browser: Browser, files: dict[str, Path], width: int
) -> None:
    viewport = {"width": width, "height": 800}
    reader = Reader(browser, files["add"], viewport=viewport).open()
    assert reader.page.evaluate("document.documentElement.scrollWidth") <= width
    tops = [
        reader.page.locator(f"[data-side={side}]").evaluate("(side) => side.offsetTop")
        for side in SIDES
    ]
    assert (tops[0] < tops[1]) == (width < 760)  # one below the other
    reader.page.close()


def test_screenshots(files: dict[str, Path], tmp_path: Path) -> None:
    module = "compare.report.page.screenshots"
    command = [sys.executable, "-m", module, str(files["add"]), "--pin", "finding=1"]
    subprocess.run([*command, "--output", str(tmp_path)], check=True, timeout=60)
    light, dark = ((tmp_path / f"add-{each}.png").read_bytes() for each in SCHEMES)
    assert light.startswith(b"\x89PNG")
    assert dark.startswith(b"\x89PNG")
    assert light != dark
