"""`compare record`: runs that are kept in the repository, and what comes of them."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import torch

from bindings.registry import OPS
from bindings.sources import ROOT
from compare import bench, fusion, ladder, plot, records
from compare.cases import Case
from compare.errors import UnavailableError
from compare.options import DEFAULT_BACKENDS, PEERS
from compare.report import readme
from compare.report.readme import EXAMPLE

_DTYPES = ("float32", "bfloat16")


def record(ops: Sequence[str], progress: Callable[[str], None]) -> list[Path]:
    """Measures ops on this GPU, with every peer that can be imported.

    Args:
        ops: Their names.
        progress: Is told, from time to time, what is going on.

    Returns:
        The files that were written: records, plots, README.

    Raises:
        CompareError: It cannot be done, or a result was wrong; nothing is written then.
    """
    plot.require_matplotlib()
    if not os.access(records.FOLDER, os.W_OK):
        raise UnavailableError(f"{records.FOLDER} is no folder that can be written")
    results = []
    for name in ops:
        request = bench.Request(
            op=name,
            shapes=None,
            dtypes=_DTYPES,
            params=None,
            backends=DEFAULT_BACKENDS,
            peers=PEERS,
            sweep=True,
        )
        result = bench.bench(request, progress)
        if failures := bench.failures(result, DEFAULT_BACKENDS):
            raise UnavailableError(f"nothing is recorded of {name}: {failures[0]}")
        results.append(result)
    example = _run_example(progress) if EXAMPLE in ops else ""
    climbed = [
        ladder.measure_rungs(op, ladder.default_case(op), progress)
        for op in map(OPS.__getitem__, ops)
    ]
    fused = [
        fusion.measure(op, Case(op.sweep_shapes[-1], torch.bfloat16), progress)
        for op in map(OPS.__getitem__, ops)
        if op.flops and op.optional_inputs
    ]
    files = [records.write(each) for each in results]
    files += map(ladder.write, climbed)
    files += map(fusion.write, fused)
    if example:
        files.append(files[0].parent / f"compare-{EXAMPLE}.txt")
        records.replace(files[-1], example.encode())
    return [*files, *redraw(progress)]


def redraw(progress: Callable[[str], None]) -> list[Path]:
    """Writes plots and README again from what is recorded, and returns the files.

    Raises:
        CompareError: A record cannot be read, or matplotlib is missing.
    """
    progress("drawing plots and rewriting the README")
    return readme.redraw()


def _run_example(progress: Callable[[str], None]) -> str:
    progress(f"running python -m compare {EXAMPLE}")
    done = subprocess.run(
        [sys.executable, "-m", "compare", EXAMPLE],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise UnavailableError(f"python -m compare {EXAMPLE} failed: {done.stderr}")
    return "".join(f"{line.rstrip()}\n" for line in done.stdout.splitlines())
