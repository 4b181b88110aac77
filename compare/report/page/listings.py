"""Listings, row by row."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

from markupsafe import Markup

from compare.assembly.classify import CATEGORIES, OTHER
from compare.assembly.control_flow import find_loops
from compare.assembly.listing import Instruction, Listing
from compare.assembly.normalize import normalize
from compare.report.page.lexers import highlight_listing
from compare.report.page.links import Chain, Chains

# As many colours as one can tell apart: a class of page.css for each.
_FAMILIES = {
    "load": (
        "global load",
        "generic memory",
        "atomic",
        "async copy",
        "tensor copy",
        "cache hint",
    ),
    "store": ("global store",),
    "shared": ("shared load", "shared store", "local memory"),
    "sync": ("shuffle / vote", "barrier", "mbarrier", "fence / wait"),
    "special": ("tensor core", "special function", "division", "float64"),
    "math": ("fp math", "conversion"),
    "control": ("compare / select", "branch / control"),
    "plain": ("integer / address", "parameter / constant", "move", OTHER),
}
FAMILY_OF = {
    category: family
    for family, categories in _FAMILIES.items()
    for category in categories
}

_INDENT = "  "


@dataclass(frozen=True)
class Row:
    """A line of a listing.

    Attributes:
        html: The line.
        family: Its category's; empty for a label.
        category: The place of its category in CATEGORIES.
        chain: The number of its chain.
        line: The line of the op's own file that it is from; empty if of none.
        origin: Where it was inlined from, such as "vec.cuh:41"; empty if from nowhere.
        access_bytes: Moved for one thread; 0 if nothing.
        ptx_index: SASS only: the PTX instruction that it was made from.
        executed: How often a thread executes it, where that is known.
        is_foreign: Whether it comes from a file of CUDA or Triton.
    """

    html: Markup
    family: str = ""
    category: int = 0
    chain: int = 0
    line: str = ""
    origin: str = ""
    access_bytes: int = 0
    ptx_index: int | None = None
    executed: str = ""
    is_foreign: bool = False


def listing_rows(
    listing: Listing,
    chains: Chains,
    main_file: str,
    ptx: Listing,
    executed: Sequence[float] | None,
) -> list[Row]:
    """The lines of a listing, names normalised and loops indented.

    Args:
        listing: PTX, or the SASS that was made from it.
        chains: Where the instructions of this side come from.
        main_file: The op's own file.
        ptx: The PTX in either case.
        executed: How often a thread executes each instruction, where that is known.
    """
    depths = Counter(index for loop in find_loops(listing) for index in loop.body)
    ptx_indices = {
        each.text_line: each.index
        for each in reversed(ptx.instructions)  # the first of a line
    }
    counts = [""] * len(listing.instructions)
    if executed:
        pairs = zip(listing.instructions, executed, strict=True)
        counts = [times(count) for _, count in pairs]
    lines: list[str] = []
    owners: list[Instruction | None] = []
    for normal in normalize(listing):
        lines += [f"{label}:" for label in normal.labels]
        owners += [None] * len(normal.labels)
        lines.append(_INDENT * (depths[normal.index] + 1) + normal.text)
        owners.append(listing.instructions[normal.index])
    rows = []
    highlighted = highlight_listing(lines, listing.language)
    for html, owner in zip(highlighted, owners, strict=True):
        if owner is None:
            rows.append(Row(html))
            continue
        number = chains.number_of(owner)
        chain = chains.all[number]
        rows.append(
            Row(
                html,
                family=FAMILY_OF[owner.category],
                category=CATEGORIES.index(owner.category),
                chain=number,
                line=_own_line(chain, main_file),
                origin=_origin(chain, main_file),
                access_bytes=owner.access_bytes,
                ptx_index=ptx_indices.get(owner.ptx_line),
                executed=counts[owner.index],
                is_foreign=chain.is_foreign,
            )
        )
    return rows


def _own_line(chain: Chain, main_file: str) -> str:
    lines = (each.rpartition(":") for each in chain.places)
    return next((line for file, _, line in lines if file == main_file), "")


def _origin(chain: Chain, main_file: str) -> str:
    innermost = next((each for each in chain.places if "/" in each), "")
    if innermost.rpartition(":")[0] == main_file:
        return ""
    return PurePosixPath(innermost).name


def times(count: float) -> str:
    """How often something is executed, which is a fraction where threads differ."""
    if count == round(count) or count >= 100:
        return f"{count:,.0f}"
    return f"{count:.3g}"
