"""`compare record`: runs that are kept in the repository, and what comes of them."""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

import torch

from bindings.registry import OPS
from bindings.sources import ROOT
from bindings.trials import TRIALS
from compare import repository
from compare.errors import UnavailableError, UsageError
from compare.judge.cases import Case
from compare.records import drawn, fusions, rung_times, source_hash, store
from compare.records.drawn import Drawn, Product
from compare.report import plots, readme
from compare.report.readme import EXAMPLE
from compare.timing import benchmark, environment, gpu_state
from compare.timing.names import DEFAULT_BACKENDS, PEERS
from compare.timing.times import Bench, CaseTimes
from compare.timing.unfinished import Unfinished

Measured = TypeVar("Measured", Bench, rung_times.Times, fusions.Fusion, Drawn)

# Their shapes say little about others.
_DRAWN = ("matmul",)
# Docs draw these; bench --sweep measures any other.
_SWEPT = ("add", "gelu", "attention", "attention_backward")


def record(ops: Sequence[str], progress: Callable[[str], None]) -> list[Path]:
    """Measures ops on this GPU, with every peer that can be imported.

    Each record is written as soon as it is measured: those after it may fail. What is
    measured of one that was cut off on the same day is not measured again.

    Returns:
        The files that were written: records, plots, pages.

    Raises:
        CompareError: It cannot be done, or a result was wrong: nothing is written then
            of what failed and what comes after it.
    """
    plots.require_matplotlib()
    if not os.access(store.FOLDER, os.W_OK):
        raise UnavailableError(f"{store.FOLDER} is no folder that can be written")
    if obstacle := gpu_state.obstacle():
        raise UnavailableError(obstacle)
    require_committed_kernels()
    # Taken now, with the sources as imported: later edits are not measured.
    hashes = {name: source_hash.hashes(name) for name in ops}
    requests = [
        benchmark.Request(
            op=name,
            shapes=None,
            dtypes=TRIALS[name].timed_dtypes,
            params=None,
            backends=DEFAULT_BACKENDS,
            peers=PEERS,
            sweep=name in _SWEPT,
            starts=name == EXAMPLE,
        )
        for name in ops
    ]
    benchmark.compile_ahead(requests, progress)
    files: list[Path] = []
    for request in requests:
        files += _record(request, hashes[request.op], progress)
    progress("drawing plots and rewriting README and docs")
    return [*files, *readme.redraw()]


def _record(
    request: benchmark.Request,
    hashes: Mapping[str, str],
    progress: Callable[[str], None],
) -> list[Path]:
    """Measures one op: its times and those of its rungs, and what fusing gains."""

    def with_hashes(measured: Measured) -> Measured:
        environment = {**measured.environment, source_hash.KEY: hashes}
        return dataclasses.replace(measured, environment=environment)

    op = OPS[request.op]
    facts = {**environment.collect(), source_hash.KEY: hashes}
    unfinished = Unfinished(op.name, facts, CaseTimes)
    result = benchmark.bench(request, progress, unfinished)
    if failures := benchmark.failures(result, DEFAULT_BACKENDS):
        unfinished.forget()  # the next run may do better
        raise UnavailableError(f"nothing is recorded of {op.name}: {failures[0]}")
    # One run writes the example and its record.
    example = _run_example(progress) if op.name == EXAMPLE else ""
    files = [store.write(with_hashes(result))]
    if example:
        files.append(files[0].parent / f"compare-{EXAMPLE}.txt")
        store.replace(files[-1], example.encode())
    climbed = rung_times.measure_rungs(op, rung_times.default_case(op), progress)
    files.append(store.write(with_hashes(climbed)))
    trial = TRIALS[op.name]
    if trial.flops and trial.optional_inputs:
        case = Case(trial.sweep_shapes[-1], torch.bfloat16)
        fused = fusions.measure(op, case, progress)
        files.append(store.write(with_hashes(fused)))
    if op.name in _DRAWN:
        products = Unfinished(op.name, facts, Product)
        found = drawn.measure(op, progress, unfinished=products)
        files.append(store.write(with_hashes(found)))
        products.forget()
    unfinished.forget()
    return files


def require_committed_kernels() -> None:
    """Sees to it that the commit that a record names has the kernels that it is of.

    Raises:
        UsageError: The work tree has others. Without git there is no commit to name.
    """
    if changed := repository.changed_kernels():
        others = f" and {len(changed) - 1} more" if changed[1:] else ""
        raise UsageError(
            "commit the kernels first, because a record names the commit that has them "
            f"(not committed: {changed[0]}{others})"
        )


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
