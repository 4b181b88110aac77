"""A plot of drawn products: the speed of both languages beside PyTorch's, over size."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import TYPE_CHECKING

from compare.printable import printable
from compare.records import drawn, store
from compare.records.drawn import Drawn
from compare.report import plots
from compare.timing.names import NAMES
from compare.timing.times import to_json

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_LOWEST, _HIGHEST = 0.25, 4.0  # beyond, points lie on the edge


def draw(found: Drawn, folder: Path) -> list[Path]:
    """Draws it, as SVG and as PNG, and returns the files.

    Raises:
        UnavailableError: There is no matplotlib, or a file cannot be written.
    """
    what = f"{found.op}, {len(found.products)} drawn products"
    text = json.dumps(to_json(found), sort_keys=True)
    digest = f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"
    name = f"{found.op}-drawn"
    contents = plots.contents(lambda figure: _fill(figure, found, what), what, digest)
    files = {folder / f"{name}.{suffix}": each for suffix, each in contents.items()}
    for file, content in files.items():
        store.replace(file, content)
    return [*files]


def _fill(figure: Figure, found: Drawn, what: str) -> None:
    axes = figure.add_subplot()
    where = f"{store.gpu(found)}, {store.date(found)}"
    axes.set_title(printable(f"{what}\n{where}"), loc="left")
    axes.set_xlabel("multiplications and additions")
    axes.set_ylabel(f"time of {NAMES[drawn.PEER]} : ours")
    axes.grid(color="#DDDDDD", linewidth=0.6)
    axes.set_axisbelow(True)
    flops = [drawn.flops_of(found.op, each.case) for each in found.products]
    for side in reversed(drawn.SIDES):
        colour, marker, _ = plots.STYLES[side]
        speeds = [
            min(max(speed, _LOWEST), _HIGHEST) for speed in drawn.speeds_of(found, side)
        ]
        axes.scatter(flops, speeds, s=9, color=colour, marker=marker, label=NAMES[side])
    axes.axhline(1, color="#333333", linestyle="dashed", linewidth=1)
    axes.set_xscale("log", base=10)
    axes.set_yscale("log", base=2)
    axes.set_ylim(_LOWEST, _HIGHEST)
    axes.set_yticks([0.25, 0.5, 1, 2, 4], ["0.25", "0.5", "1", "2", "4"])
    axes.legend()
