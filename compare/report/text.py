"""Text for rich, made safe."""

from __future__ import annotations

from rich.text import Text

from compare.printable import printable


def plain(value: object, style: str = "") -> Text:
    """The value in one style, without rich taking brackets in it for markup."""
    return Text(printable(value), style)
