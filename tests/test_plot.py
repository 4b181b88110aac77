"""Plots show what was measured, look the same everywhere, and say what they are of."""

from __future__ import annotations

import itertools
import re
import struct
import sys
import xml.etree.ElementTree as ElementTree
from dataclasses import replace
from pathlib import Path

import matplotlib
import pytest
import torch
from benches import TOO_LONG, make_bench, make_case

from compare.errors import UnavailableError, UsageError
from compare.report import plots
from compare.report.plots import Line, Plot
from compare.timing.names import NAMES
from compare.timing.times import Bench, MatmulRate, Timing

NAME = "softmax-float32"


def _line(drawn: Plot, implementation: str) -> Line:
    (found,) = (each for each in drawn.lines if each.implementation == implementation)
    return found


def test_a_plot_for_each_dtype_and_choice_of_parameters() -> None:
    sweep = [
        make_case((1 << n,), dtype, params={"approximate": approximate})
        for approximate in ("none", "tanh")
        for dtype in (torch.float32, torch.bfloat16)
        for n in (12, 20)
    ]
    bench = replace(make_bench("gelu"), sweep=tuple(sweep))
    assert [(each.name, each.what) for each in plots.plots(bench)] == [
        ("gelu-float32", "gelu float32"),
        ("gelu-bfloat16", "gelu bfloat16"),
        ("gelu-float32-approximate-tanh", "gelu approximate=tanh float32"),
        ("gelu-bfloat16-approximate-tanh", "gelu approximate=tanh bfloat16"),
    ]


def test_points_are_those_of_the_sweep() -> None:
    bench = make_bench()
    drawn = plots.plots(replace(bench, sweep=bench.sweep[::-1]))[1]
    cases = [each for each in bench.sweep if each.case.dtype == torch.float32]
    assert drawn.name == NAME
    assert drawn.positions == tuple(2 * 4 * 4096 * 4**n for n in range(9))
    assert drawn.ceiling == tuple(each.ceiling.gb_per_s for each in cases)
    line = _line(drawn, "triton")
    for index, each in enumerate(cases):
        timing = each.timings["triton"]
        assert isinstance(timing, Timing)
        n_bytes = drawn.positions[index]
        assert line.medians[index] == pytest.approx(n_bytes / timing.median_us / 1e3)
        assert line.lows[index] == pytest.approx(n_bytes / timing.p80_us / 1e3)
        assert line.highs[index] == pytest.approx(n_bytes / timing.p20_us / 1e3)


def test_what_tensor_cores_bound_is_drawn_by_arithmetic(tmp_path: Path) -> None:
    lengths = (4096, 512, 2048)
    sweep = tuple(
        make_case((16384 // n, n, n, 16, 16, 128), torch.bfloat16) for n in lengths
    )
    rate = MatmulRate(700.0, None)
    bench = replace(make_bench("attention"), sweep=sweep, matmul={"bfloat16": rate})
    (drawn,) = plots.plots(bench)
    assert drawn.positions == (512, 2048, 4096)
    timing = sweep[0].timings["cuda"]
    assert isinstance(timing, Timing)
    flops = 4 * 4 * 16 * 4096**2 * 128
    assert _line(drawn, "cuda").medians[2] == pytest.approx(
        flops / timing.median_us / 1e6
    )
    assert drawn.ceiling == (700.0,) * 3
    svg, _ = plots.draw(bench, tmp_path)
    shown = re.findall(r"<!-- (.*?) -->", svg.read_text(), re.DOTALL)
    for expected in ("keys", "TFLOP/s: median, and p20 to p80", "2,048", "4,096"):
        assert expected in shown
    assert "torch.matmul, 8192 x 8192 x 8192" in shown
    (without,) = plots.plots(replace(bench, matmul={}))
    assert without.ceiling == ()


def test_what_was_skipped_is_a_gap_or_left_out() -> None:
    sweep = tuple(
        make_case((n, 4096), skipped={"liger": TOO_LONG} if n == 64 else None)
        for n in (16, 64, 256)
    )
    (drawn,) = plots.plots(replace(make_bench(), sweep=sweep))
    names = [each.implementation for each in drawn.lines]
    assert names == ["cuda", "triton", "torch", "torch.compile", "unfused", "liger"]
    line = _line(drawn, "liger")
    for values in (line.medians, line.lows, line.highs):
        assert [each is None for each in values] == [False, True, False]
    assert None not in _line(drawn, "cuda").medians


def test_without_a_sweep_there_is_nothing_to_draw(tmp_path: Path) -> None:
    bench = replace(make_bench(), sweep=())
    command = "python -m compare bench softmax --sweep --json FILE"
    with pytest.raises(UsageError, match=f"no sweep of softmax.*{command}"):
        plots.draw(bench, tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_without_matplotlib_it_says_what_mends_that(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(UnavailableError, match=r"pip install -e '\.\[plots\]'"):
        plots.draw(make_bench(), tmp_path)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The files of a bench, by name."""
    folder = tmp_path_factory.mktemp("plots")
    return {file.name: file for file in plots.draw(make_bench(), folder)}


def test_files_of_a_bench(files: dict[str, Path]) -> None:
    stems = ("softmax-float32", "softmax-bfloat16")
    assert list(files) == [
        f"{stem}.{suffix}" for stem in stems for suffix in ("svg", "png")
    ]
    assert {file.name for file in files[f"{NAME}.svg"].parent.iterdir()} == set(files)


def test_each_file_tells_what_it_was_drawn_from(files: dict[str, Path]) -> None:
    digests = [each.digest for each in plots.plots(make_bench())]
    assert len(set(digests)) == 2
    for drawn in plots.plots(make_bench()):
        for suffix in plots.FORMATS:
            content = files[f"{drawn.name}.{suffix}"].read_bytes()
            assert [each.encode() in content for each in digests] == [
                each == drawn.digest for each in digests
            ]


def test_digest_is_of_every_figure_that_is_drawn() -> None:
    bench = make_bench()
    first, *others = bench.sweep
    timing, ceiling = first.timings["cuda"], first.ceiling
    assert isinstance(timing, Timing)
    other_median = replace(timing, median_us=1.01 * timing.median_us)
    other_p80 = replace(timing, p80_us=1.01 * timing.p80_us)
    changed = [
        replace(first, timings={**first.timings, "cuda": other_median}),
        replace(first, timings={**first.timings, "cuda": other_p80}),
        replace(first, timings={**first.timings, "cuda": TOO_LONG}),
        replace(first, ceiling=replace(ceiling, gb_per_s=1.01 * ceiling.gb_per_s)),
    ]
    benches = [
        bench,
        make_bench(gpu="NVIDIA H100"),
        make_bench(date="2026-11-21T00:00:00+00:00"),
        *(replace(bench, sweep=(each, *others)) for each in changed),
    ]
    digests = [plots.plots(each)[0].digest for each in benches]
    assert len(set(digests)) == len(benches)
    host = replace(timing, host_us=99.0)
    unseen = replace(first, timings={**first.timings, "cuda": host})
    again = plots.plots(replace(bench, sweep=(unseen, *others)))[0]
    assert again.digest == digests[0]


def test_it_is_drawn_alike_whatever_the_user_has_set(
    files: dict[str, Path], tmp_path: Path
) -> None:
    with matplotlib.rc_context({"font.size": 30, "axes.facecolor": "red"}):
        before = matplotlib.rcParams.copy()
        again = plots.draw(make_bench(), tmp_path)
        assert matplotlib.rcParams.copy() == before
    assert "matplotlib.pyplot" not in sys.modules
    for file in again:
        assert file.read_bytes() == files[file.name].read_bytes(), file.name


def test_text_of_a_plot(files: dict[str, Path]) -> None:
    text = files[f"{NAME}.svg"].read_text()
    shown = re.findall(r"<!-- (.*?) -->", text, re.DOTALL)
    for expected in (
        *("softmax float32", "NVIDIA H200, 2026-11-20"),
        *("CUDA", "Triton", "PyTorch", "torch.compile", "PyTorch unfused", "Liger"),
        *("ceiling, reads to writes 1:1", "32 KiB", "2 MiB", "1 GiB", "4,000", "0"),
        "fewest bytes that the op has to move",
    ):
        assert expected in shown
    assert "quack" not in shown


def test_svg_is_a_file_of_text_like_others(files: dict[str, Path]) -> None:
    text = files[f"{NAME}.svg"].read_text()
    assert not re.search(r"[ \t]$", text, re.MULTILINE)
    assert text.endswith(">\n")
    assert not text.endswith("\n\n")
    assert "<dc:date>" not in text
    assert (
        "matplotlib"
        not in text.lower().partition("<metadata>")[2].partition("</metadata>")[0]
    )
    ElementTree.fromstring(text)


def test_png_has_150_dots_per_inch(files: dict[str, Path]) -> None:
    content = files[f"{NAME}.png"].read_bytes()
    _, found, chunk = content.partition(b"pHYs")
    assert found
    dots_per_metre = struct.unpack(">II", chunk[:8])
    assert dots_per_metre == (5906, 5906)


def test_every_implementation_has_a_look_of_its_own() -> None:
    assert plots.STYLES.keys() == NAMES.keys()
    for first, second in itertools.combinations(plots.STYLES.values(), 2):
        assert first[0] != second[0]
        assert first[1] != second[1]


@pytest.mark.parametrize("powers", [[0], [3], [0, 1], [0, 4, 9], [9, 28]])
def test_any_range_of_sizes_can_be_drawn(powers: list[int], tmp_path: Path) -> None:
    sweep = tuple(make_case((2**n,), torch.bfloat16) for n in powers)
    svg, _ = plots.draw(replace(make_bench("add"), sweep=sweep), tmp_path)
    labels = re.findall(r"<!-- \d+ (?:B|KiB|MiB|GiB) -->", svg.read_text())
    assert 1 <= len(labels) <= 7


@pytest.fixture
def hostile_bench() -> Bench:
    """A bench whose names come from an untrusted file."""
    sweep = tuple(
        make_case((n, 64), params={"dim": "../../<b>$x$&\x1b"}) for n in (1, 64)
    )
    bench = make_bench(op="../x", gpu="<T4>&\x1b[31m $\\y$")
    return replace(bench, sweep=sweep)


def test_names_from_a_file_stay_text(hostile_bench: Bench, tmp_path: Path) -> None:
    files = plots.draw(hostile_bench, tmp_path / "plots")
    assert [file.parent for file in files] == [tmp_path / "plots"] * 2
    assert sorted((tmp_path / "plots").iterdir()) == sorted(files)
    text = files[0].read_text()
    ElementTree.fromstring(text)
    assert "\x1b" not in text
    assert "$\\y$" in text
