"""Pictures of a page, for the README.

python -m compare softmax --html softmax.html
python -m compare.report.page.screenshots softmax.html --pin finding=1 --output docs

It drives a Chromium that is installed, through playwright: pip install -e '.[browser]'.
"""

from __future__ import annotations

import argparse
import contextlib
import shutil
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal

from playwright.sync_api import Browser, sync_playwright

_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
SCHEMES: tuple[Literal["light", "dark"], ...] = ("light", "dark")


def main(arguments: Sequence[str] | None = None) -> None:
    """Draws a page in light and in dark colours."""
    parser = argparse.ArgumentParser(description="Draw a page of compare as PNG.")
    parser.add_argument("page", type=Path, help="what --html FILE wrote")
    parser.add_argument(
        "--pin", default="", help="the fragment to open it with, such as finding=4"
    )
    parser.add_argument(
        "--output", type=Path, default=Path(), help="the folder for the pictures"
    )
    parser.add_argument("--width", type=int, default=1280)
    parser.add_argument("--height", type=int, default=800)
    options = parser.parse_args(arguments)
    with open_browser() as browser:
        for scheme in SCHEMES:
            page = browser.new_page(
                viewport={"width": options.width, "height": options.height},
                color_scheme=scheme,
                reduced_motion="reduce",
            )
            page.goto(f"{options.page.resolve().as_uri()}#{options.pin}")
            file = options.output / f"{options.page.stem}-{scheme}.png"
            page.screenshot(path=file)
            sys.stdout.write(f"{file}\n")


def find_browser() -> str | None:
    """The path of a Chromium, if one is installed."""
    return next((path for name in _NAMES if (path := shutil.which(name))), None)


@contextlib.contextmanager
def open_browser() -> Iterator[Browser]:
    """A Chromium without a window.

    Raises:
        FileNotFoundError: None is installed.
    """
    path = find_browser()
    if path is None:
        raise FileNotFoundError(f"there is no browser: none of {', '.join(_NAMES)}")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path)
        yield browser
        browser.close()


if __name__ == "__main__":
    main()
