"""The programs in examples/ run, and judge what they compute."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import decoder
import pytest
import torch

from bindings.sources import ROOT
from compare.judge import acceptance
from compare.timing.names import NAMES


def test_the_decoder_learns_as_pytorch_does(tmp_path: Path) -> None:
    words = ["--steps", "2"]  # in both languages
    if importlib.util.find_spec("matplotlib"):
        words += ["--plot", str(tmp_path / "x.png")]
    done = subprocess.run(
        [sys.executable, str(ROOT / "examples/decoder.py"), *words],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    judged = [line.partition(": ") for line in done.stdout.splitlines()]
    assert [name for name, _, _ in judged] == [NAMES[each] for each in decoder.BACKENDS]
    for _, _, verdict in judged:
        assert verdict.endswith("; as near to float64 as PyTorch in float32")
    assert "--plot" not in words or (tmp_path / "x.png").stat().st_size > 10_000


def test_a_picture_that_cannot_be_drawn_is_refused_before_training(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["decoder", "--plot", "x.png"])
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    with pytest.raises(SystemExit, match="2"):
        decoder.main()
    assert "--plot needs matplotlib: pip install" in capsys.readouterr().err


@pytest.mark.parametrize("backend", decoder.BACKENDS)
def test_the_decoder_learns_in_one_language(
    backend: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["decoder", "--backend", backend, "--steps", "1"])
    monkeypatch.setattr(decoder, "BATCH", 1)
    assert decoder.main() == 0
    assert capsys.readouterr().out.startswith(f"{NAMES[backend]}: ")


def test_a_decoder_of_lower_precision_is_told() -> None:
    curves = [
        decoder.train(decoder.TORCH, d, "cpu", 2)
        for d in (torch.float64, torch.float32)
    ]
    exact, own = curves
    rounding = decoder.TORCH._replace(
        attention=lambda q, k, v: decoder.TORCH.attention(q, k, v).bfloat16().float()
    )
    losses = decoder.train(rounding, torch.float32, "cpu", 2)
    expected = acceptance.Expected(exact, own)
    assert acceptance.judge(own, expected).passed
    assert not acceptance.judge(losses, expected).passed


def test_the_decoder_of_float64_learns() -> None:
    losses = decoder.train(decoder.TORCH, torch.float64, "cpu", 30)
    assert losses[-5:].mean() < losses[0] - 1.5
