"""Names of architectures, and that asking for one costs no heavy import."""

from __future__ import annotations

import subprocess
import sys

import pytest

from bindings.sources import ROOT
from compare.code.architectures import ARCHITECTURES, parse_architecture


@pytest.mark.parametrize("text", ["sm_90", "sm_90a", "90", "9.0", " SM_90 "])
def test_every_way_to_write_it(text: str) -> None:
    assert parse_architecture(text) is ARCHITECTURES[90]


@pytest.mark.parametrize("text", ["sm_1", "", "hopper", "sm_91", "9", "sm_90b"])
def test_unknown_ones_are_refused_with_the_choices(text: str) -> None:
    with pytest.raises(ValueError, match=r"choose one of sm_80, sm_86, .*sm_120"):
        parse_architecture(text)


def test_targets_are_those_that_both_compilers_take() -> None:
    targets = [each.target for each in ARCHITECTURES.values()]
    assert targets == ["sm_80", "sm_86", "sm_89", "sm_90a", "sm_100a", "sm_120a"]


def test_neither_torch_nor_triton_is_imported() -> None:
    program = (
        "import sys, compare.code.architectures;"
        "print([name for name in ('torch', 'triton') if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        cwd=ROOT,
        check=True,
    )
    assert done.stdout.strip() == "[]"
