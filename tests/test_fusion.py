"""The cost of a fused epilogue: measured in turns, kept, and stated in the README."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from benches import GPU
from common import needs_gpu

from bindings.registry import OPS
from compare.errors import UnavailableError, UsageError
from compare.judge import parity
from compare.judge.cases import Case
from compare.records import fusions, store
from compare.records.fusions import PLAIN, SIDES, Fusion
from compare.report import results
from compare.timing import implementations, turns
from compare.timing.turns import Times, TimingError

OP = OPS["matmul"]
CASE = Case((64, 64, 64), torch.bfloat16)


def test_epilogues_are_the_variants_with_an_optional_input() -> None:
    found = fusions.epilogues(OP)
    assert next(iter(found)) == PLAIN
    assert found["bias + gelu"] == {"bias": True, "activation": "gelu"}
    assert all(params.get("bias") for name, params in found.items() if name != PLAIN)


def measured(
    monkeypatch: pytest.MonkeyPatch, times: dict[str, Times | TimingError]
) -> Fusion:
    """A measurement on the CPU, with these times by name."""
    monkeypatch.setattr(
        fusions, "prepare", lambda op, case, _: parity.prepare(op, case, "cpu")
    )
    entry = SimpleNamespace(turn=None, wrong_output=lambda prepared: "")
    monkeypatch.setattr(fusions, "Entry", lambda *_: entry)
    monkeypatch.setattr(implementations, "find", lambda *_: dict.fromkeys(SIDES))
    monkeypatch.setattr(turns, "take_turns", lambda racing, min_replays: times)
    found = fusions.measure(OP, CASE, lambda _: None)
    return replace(found, environment={**found.environment, "gpus": [GPU]})


def times_of(**slower: float) -> dict[str, Times | TimingError]:
    """100 us for a plain product, and so many more for each with an epilogue."""
    more = {PLAIN: 0.0, "bias + gelu": slower["gelu"], "bias + relu": slower["relu"]}
    return {
        f"{side} {name}": Times((99 + each, 100 + each, 101 + each), 3, "graph")
        for side in SIDES
        for name, each in more.items()
    }


def test_a_rate_is_that_of_the_own_plain_product(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = measured(monkeypatch, times_of(gelu=25, relu=0))
    for side in SIDES:
        assert found.rates[side].keys() == {"bias + gelu", "bias + relu"}
        assert found.times[side]["bias + gelu"].median_us == 125
        gelu, relu = (found.rates[side][f"bias + {each}"] for each in ("gelu", "relu"))
        assert (gelu.first, gelu.second) == (f"{side} none", f"{side} bias + gelu")
        assert (gelu.ratio, gelu.outcome) == (0.8, "faster")
        assert (relu.ratio, relu.outcome) == (1, "same")


def test_what_cannot_be_timed_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    times = times_of(gelu=1, relu=1)
    times["triton bias + relu"] = TimingError("it hides")
    with pytest.raises(UnavailableError, match=r"triton bias \+ relu: it hides"):
        measured(monkeypatch, times)


def test_it_is_kept_and_found(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    found = measured(monkeypatch, times_of(gelu=25, relu=0))
    file = store.write(found, tmp_path)
    assert file == store.folder_of(GPU, tmp_path) / "fusion/matmul.json"
    assert store.read_all(Fusion, tmp_path) == [found]
    file.write_text("{}")
    with pytest.raises(UsageError, match=r"matmul\.json holds no fusion"):
        store.read_all(Fusion, tmp_path)


def test_the_readme_says_it(monkeypatch: pytest.MonkeyPatch) -> None:
    found = measured(monkeypatch, times_of(gelu=25, relu=0))
    lines = results.fusions_of([found]).splitlines()
    assert "| matmul | 64x64x64 | bfloat16 | none | 100.0 | 100.0 |" in lines
    (gelu,) = (line for line in lines if "gelu" in line)
    cells = [cell.strip() for cell in gelu.strip("|").split("|")]
    assert cells[3] == "bias + gelu"
    assert [cell.partition(" (")[0] for cell in cells[4:]] == 2 * ["125.0, 80.0 %"]
    assert results.fusions_of([]) == ""


@needs_gpu
def test_products_take_turns_on_a_gpu() -> None:
    said: list[Any] = []
    found = fusions.measure(OP, Case((512, 512, 512), torch.bfloat16), said.append)
    assert said
    for side in SIDES:
        assert found.times[side].keys() == fusions.epilogues(OP).keys()
        assert all(0 < each.ratio < 2 for each in found.rates[side].values())
