"""The PTX simulator's counts agree with a real GPU's counters, within 2 %."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import nsight_compute
import pytest
from common import needs_gpu_to_itself
from nsight_compute import QUANTITIES, Count

from bindings.sources import ROOT
from compare.records import store

WITHIN = 0.02

_ANY_KERNEL = "import torch; torch.ones(1, device='cuda')"

RECORDS = sorted(store.FOLDER.glob("*/nsight-compute/counts.json"))


def assert_equal(count: Count) -> None:
    for name in QUANTITIES:
        simulated, measured = count.simulated[name], count.measured[name]
        assert simulated == pytest.approx(measured, rel=WITHIN), (name, count)


@pytest.mark.parametrize("file", RECORDS, ids=lambda path: path.parts[-3])
def test_recorded_counts_agree(file: Path) -> None:
    counts = nsight_compute.read(file)
    wanted = [
        (each.handicap.name if each.handicap else each.op, each.side, each.case.shape)
        for each in nsight_compute.subjects()
    ]
    assert [(each.kernel, each.side, each.shape) for each in counts] == wanted
    for count in counts:
        assert_equal(count)
    # Counts of 0 agree trivially, so every quantity has to occur.
    for name in QUANTITIES:
        assert any(each.measured[name] for each in counts), name
    clean, conflicting = counts[-2:]
    assert (
        clean.measured["bank conflicts"] == 0 < conflicting.measured["bank conflicts"]
    )


def test_docs_say_what_is_recorded() -> None:
    """The docs say how many launches agree exactly, and link to the counts."""
    commands = (ROOT / "docs/commands.md").read_text()
    for file in RECORDS:
        counts = nsight_compute.read(file)
        assert all(each.simulated == each.measured for each in counts)
        assert f"For {len(counts)} launches of" in commands
        assert f"(../{file.relative_to(ROOT)})" in commands
    assert RECORDS


@needs_gpu_to_itself
def test_counts_agree_on_this_gpu() -> None:
    try:
        ncu = nsight_compute.find_ncu()
    except FileNotFoundError as error:
        pytest.skip(str(error))
    tried = subprocess.run(
        [
            ncu,
            "--metrics",
            "sm__cycles_active.sum",
            sys.executable,
            "-c",
            "import torch; torch.ones(1, device='cuda')",
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    if tried.returncode:
        pytest.skip(f"ncu cannot read the counters here: {tried.stdout[-300:]}")
    for count in nsight_compute.measure():
        assert_equal(count)
