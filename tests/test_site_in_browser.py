"""The site in a browser: no errors, and accessible by sight, touch and keyboard."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip(
    "axe_playwright_python", reason="needs axe: pip install -e '.[browser]'"
)
pytest.importorskip(
    "playwright", reason="needs playwright: pip install -e '.[browser]'"
)

import test_site
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page

from compare.report.page.screenshots import SCHEMES, find_browser, open_browser

pytestmark = pytest.mark.skipif(find_browser() is None, reason="needs a Chromium")

folder = test_site.folder

PAGES = (
    "index.html",
    "README.html",
    "docs/glossary.html",
    "docs/results.html",
    "ops/softmax.html",
    "code/softmax.html",
    "source/csrc/add/index.html",
    "source/csrc/add/twin.cuh.html",
)
# WCAG 2.2 at AA, and what axe counts as good practice.
RULES = ("wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice")


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """A Chromium."""
    with open_browser() as opened:
        yield opened


def in_window(browser: Browser, width: int, scheme: str) -> Page:
    context = browser.new_context(
        viewport={"width": width, "height": 800},
        color_scheme="dark" if scheme == "dark" else "light",
        reduced_motion="reduce",
        bypass_csp=True,  # of axe, which is no part of the page
    )
    return context.new_page()


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("width", [390, 1280])
def test_pages_are_accessible(
    browser: Browser, folder: Path, width: int, scheme: str
) -> None:
    page = in_window(browser, width, scheme)
    complaints: list[str] = []
    page.on("console", lambda message: complaints.append(message.text))
    page.on("pageerror", lambda error: complaints.append(str(error)))
    for address in PAGES:
        page.goto((folder / address).as_uri())
        assert page.evaluate("document.documentElement.scrollWidth") <= width, address
        # Without "preload" axe asks for no style sheet, which no file may.
        options = {"runOnly": [*RULES], "preload": False}
        found = Axe().run(page, options=options).response["violations"]
        assert [
            (each["id"], node["html"][:200]) for each in found for node in each["nodes"]
        ] == [], address
    assert complaints == []
    page.context.close()


def test_the_skip_link_comes_first(browser: Browser, folder: Path) -> None:
    page = in_window(browser, 1280, "light")
    for address in PAGES:
        page.goto((folder / address).as_uri())
        page.keyboard.press("Tab")
        focused = page.locator(":focus")
        assert focused.get_attribute("class") == "skip"
        box = focused.bounding_box()
        assert box is not None
        assert box["x"] >= 0
        focused.press("Enter")
        assert page.url.endswith(("#main", "#bench"))
    page.context.close()


def test_colours_stay_from_page_to_page(browser: Browser, folder: Path) -> None:
    page = in_window(browser, 1280, "light")
    script = "getComputedStyle(document.body).backgroundColor"
    page.goto((folder / "index.html").as_uri())
    light = page.evaluate(script)
    page.get_by_text("dark", exact=True).click()
    dark = page.evaluate(script)
    assert dark != light
    for address in ("docs/glossary.html", "code/softmax.html"):
        page.goto((folder / address).as_uri())
        assert page.evaluate(script) == dark
        assert page.locator("input[value=dark]").is_checked()
    page.context.close()


def test_a_finding_leads_to_the_glossary(browser: Browser, folder: Path) -> None:
    page = in_window(browser, 1280, "light")
    page.goto((folder / "code/softmax.html").as_uri())
    term = page.locator("#findings .term").first
    name = term.inner_text()
    term.click()
    assert page.locator("h1").inner_text() == "Glossary"
    assert page.locator(":target").inner_text().startswith(name.removesuffix("s"))
    page.go_back()
    page.locator("#findings li").first.click(position={"x": 4, "y": 4})
    assert page.url.endswith("#finding=1")
    page.context.close()
