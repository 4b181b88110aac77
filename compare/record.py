"""`compare record`: runs that are kept in the repository, and what comes of them."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from bindings.sources import ROOT
from compare import bench, records
from compare.errors import UnavailableError
from compare.options import PEERS
from compare.report import readme

_OURS = ("cuda", "triton")
_DTYPES = ("float32", "bfloat16")
# What the README shows as an example.
_EXAMPLE = "softmax"


def record(ops: Sequence[str], progress: Callable[[str], None]) -> list[Path]:
    """Measures ops on this GPU, with every peer that can be imported.

    Args:
        ops: Their names.
        progress: Is told, from time to time, what is going on.

    Returns:
        The files that were written: records, plots, README.

    Raises:
        CompareError: It cannot be done, or a result was wrong.
    """
    files = []
    for name in ops:
        request = bench.Request(
            op=name,
            shapes=None,
            dtypes=_DTYPES,
            params=None,
            backends=_OURS,
            peers=PEERS,
            sweep=True,
        )
        result = bench.bench(request, progress)
        if failures := bench.failures(result, _OURS):
            raise UnavailableError(f"nothing is recorded of {name}: {failures[0]}")
        files.append(records.write(result))
        if name == _EXAMPLE:
            progress(f"running python -m compare {name}")
            files.append(_record_example(files[-1].parent))
    return [*files, *redraw(progress)]


def redraw(progress: Callable[[str], None]) -> list[Path]:
    """Writes plots and README again from what is recorded, and returns the files.

    Raises:
        CompareError: A record cannot be read, or matplotlib is missing.
    """
    progress("drawing plots and rewriting the README")
    return readme.redraw()


def _record_example(folder: Path) -> Path:
    done = subprocess.run(
        [sys.executable, "-m", "compare", _EXAMPLE],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    file = folder / f"compare-{_EXAMPLE}.txt"
    lines = [line.rstrip() for line in done.stdout.splitlines()]
    file.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return file
