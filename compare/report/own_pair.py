"""What a report knows of a user's own files, where there is no op of the project."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from compare.assembly import places
from compare.code.kernel_code import Side

if TYPE_CHECKING:  # it imports reports, which hold these
    from compare.report.tables import Grid


@dataclass(frozen=True)
class OwnPair:
    """Two files, or one, of somebody's own.

    Attributes:
        what: The inputs, such as "x (1823, 781) float32".
        files: By side the main file, as places call it: "mine.cu".
        languages: By side what its kernels are written in.
        texts: Every file that is shown, by the name that places have for it, as it was
            when it was compiled.
        traffic_bytes: The fewest that a call has to move: its inputs and its outputs.
        element_bytes: Of an element of the largest tensor.
        grids: Tables that only these files have, such as configurations of autotuning.
    """

    what: str
    files: Mapping[Side, str]
    languages: Mapping[Side, Side]
    texts: Mapping[str, str]
    traffic_bytes: int | None = None
    element_bytes: int = 4
    grids: tuple[Grid, ...] = ()


def register_sources(paths: Iterable[Path]) -> dict[Path, str]:
    """Registers files under the shortest names that tell them apart.

    Returns:
        The names by path: "mine.cu", or "a/mine.cu" beside "b/mine.cu".
    """
    names = places.distinct_names(paths)
    for path, shown in names.items():
        places.register(path, shown)
    return names
