"""What the README says about speed is what a recorded run says."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text()
RECORD = ROOT / "records/2026-11-20-nvidia-h200.json"
COMPARISON = ROOT / "records/2026-11-20-nvidia-h200-compare-softmax.json"


def _row(op: str, case: dict[str, Any]) -> str:
    shape = "x".join(map(str, case["case"]["shape"]))
    approximate = case["case"]["params"].get("approximate", "none")
    name = op if approximate == "none" else f"{op} ({approximate})"
    timing = case["timing"]
    times = [f"{timing[side]['median_us']:.1f}" for side in ("cuda", "triton", "torch")]
    rates = [f"{timing[side]['gb_per_s']:.0f}" for side in ("cuda", "triton")]
    return (
        " | ".join([f"| {name}", shape, case["case"]["dtype"], *times, *rates]) + " |"
    )


def test_times_are_those_of_the_record() -> None:
    record = json.loads(RECORD.read_text())
    rows = [_row(each["op"], case) for each in record["ops"] for case in each["cases"]]
    names = tuple(f"| {each['op']} " for each in record["ops"])
    assert [line for line in README.splitlines() if line.startswith(names)] == rows
    environment = record["environment"]
    for word in (environment["gpus"][0], environment["torch"], environment["triton"]):
        assert word in README
    assert environment["date"][:10] in README


def test_comparison_is_that_of_the_record() -> None:
    record = json.loads(COMPARISON.read_text())
    lines = README.splitlines()
    timing = record["cases"][0]["timing"].values()
    medians = [f"{each['median_us']:,.2f}" for each in timing]
    rates = [f"{each['gb_per_s']:,.2f}" for each in timing]
    assert ["median", "us", *medians] in [line.split() for line in lines]
    assert ["GB/s", *rates] in [line.split() for line in lines]
    for finding in record["cases"][0]["findings"][:5]:
        assert finding["text"].split(":")[0] in README


def test_files_that_it_links_to_exist() -> None:
    links = [part.split(")")[0] for part in README.split("](")[1:]]
    assert links
    for link in links:
        assert (ROOT / link).exists(), link
