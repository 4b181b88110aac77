"""A flame graph as an SVG image, which needs nothing but a viewer.

The root is on top, and what a box asked for stands below it. A box is as wide as the
time of all that stands below it.
"""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from compare.printable import printable
from compare.timing.gpu_trace import Frame, short_name

_WIDTH = 1200.0
_MARGIN = 10.0
_ROW = 22.0
_HEADER = 34.0
_LEGEND = 34.0
_FONT_SIZE = 12
_CHARACTER = 0.602 * _FONT_SIZE  # the width of one, in fonts with one width for all
_MIN_CHARACTERS = 3

# Light enough for black text, and told apart with any kind of colour vision.
_COLORS = {
    "all": "#e0e0e0",
    "implementation": "#ffd28a",
    "annotation": "#f3ecc2",
    "op": "#a6d3f2",
    "launch": "#d9c2e9",
    "kernel": "#f7ad8f",
}


@dataclass
class _Box:
    layer: str
    name: str
    us: float = 0.0
    children: dict[Frame, _Box] = field(default_factory=dict)


@dataclass(frozen=True)
class _Place:
    box: _Box
    left: float
    width: float
    row: int


def draw(title: str, stacks: Iterable[tuple[Sequence[Frame], float]]) -> str:
    """Draws stacks, equal ones as one box.

    Args:
        title: What was measured.
        stacks: From the outside in, each with the microseconds spent at its end.

    Returns:
        The text of an SVG file.

    Raises:
        ValueError: No time was spent at all.
    """
    root = _merged(stacks)
    if root.us <= 0:
        raise ValueError("there is no time to draw")
    places = list(_places(root, _MARGIN, (_WIDTH - 2 * _MARGIN) / root.us))
    bottom = _HEADER + _ROW * (1 + max(place.row for place in places))
    height = bottom + _LEGEND
    image = ElementTree.Element(
        "svg",
        {
            "xmlns": "http://www.w3.org/2000/svg",
            "viewBox": f"0 0 {_WIDTH:g} {height:g}",
            "width": f"{_WIDTH:g}",
            "height": f"{height:g}",
            "font-family": "monospace",
            "font-size": str(_FONT_SIZE),
        },
    )
    _rectangle(image, 0, 0, _WIDTH, height, "#ffffff")
    _text(image, _MARGIN, _HEADER - 12, f"{title}: width is time on the GPU")
    for place in places:
        _draw_box(image, place, root.us)
    _draw_legend(image, bottom + 10, {place.box.layer for place in places})
    ElementTree.indent(image)
    return ElementTree.tostring(image, encoding="unicode") + "\n"


def _merged(stacks: Iterable[tuple[Sequence[Frame], float]]) -> _Box:
    root = _Box("all", "all")
    for stack, us in stacks:
        box = root
        box.us += us
        for frame in stack:
            box = box.children.setdefault(frame, _Box(frame.layer, frame.name))
            box.us += us
    return root


def _places(box: _Box, left: float, scale: float, row: int = 0) -> Iterator[_Place]:
    yield _Place(box, left, box.us * scale, row)
    for child in box.children.values():
        yield from _places(child, left, scale, row + 1)
        left += child.us * scale


def _draw_box(image: ElementTree.Element, place: _Place, total_us: float) -> None:
    box, top = place.box, _HEADER + _ROW * place.row
    group = ElementTree.SubElement(image, "g")
    # Shown where the pointer rests on the box.
    ElementTree.SubElement(group, "title").text = printable(
        f"{box.layer}: {box.name}\n{box.us:,.2f} us, {box.us / total_us:.1%}"
    )
    rectangle = _rectangle(
        group, place.left, top, place.width, _ROW, _COLORS[box.layer]
    )
    rectangle.set("stroke", "#ffffff")
    rectangle.set("stroke-width", "0.5")
    if label := _clipped(_label(box), place.width):
        _text(group, place.left + 3, top + 15, label)


def _label(box: _Box) -> str:
    if box.layer == "kernel":
        return short_name(box.name)
    is_sum = box.layer in ("all", "implementation")
    return f"{box.name} {box.us:,.1f} us" if is_sum else box.name


def _clipped(label: str, width: float) -> str:
    """As much of a label as the width has room for."""
    n_characters = int((width - 6) / _CHARACTER)
    if len(label) <= n_characters:
        return label
    if n_characters < _MIN_CHARACTERS:
        return ""
    return f"{label[: n_characters - 1]}…"


def _draw_legend(image: ElementTree.Element, top: float, layers: set[str]) -> None:
    left = _MARGIN
    for layer, color in _COLORS.items():
        if layer in layers and layer != "all":
            _rectangle(image, left, top, 14, 14, color)
            _text(image, left + 20, top + 11, layer)
            left += 20 + _CHARACTER * len(layer) + 24


def _rectangle(
    parent: ElementTree.Element,
    left: float,
    top: float,
    width: float,
    height: float,
    color: str,
) -> ElementTree.Element:
    places = {"x": left, "y": top, "width": width, "height": height}
    attributes = {name: f"{value:.3f}" for name, value in places.items()}
    return ElementTree.SubElement(parent, "rect", {**attributes, "fill": color})


def _text(parent: ElementTree.Element, left: float, baseline: float, text: str) -> None:
    place = {"x": f"{left:.3f}", "y": f"{baseline:.3f}"}
    ElementTree.SubElement(parent, "text", place).text = printable(text)
