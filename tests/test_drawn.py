"""Products of drawn shapes: what is drawn, how it is kept, told and plotted."""

from __future__ import annotations

import contextlib
from collections import Counter
from pathlib import Path

import pytest
import torch
from benches import GPU, make_bench
from common import needs_gpu_to_itself

from bindings.ops.matmul import OP
from compare.code import cache
from compare.judge.cases import Case, make_arguments
from compare.records import drawn, store
from compare.records.drawn import LARGEST_SIZE, LAYOUTS, MOST_FLOPS, Drawn, Product
from compare.report import drawn_plot, results
from compare.timing import benchmark, compiling, gpu_state
from compare.timing.unfinished import Unfinished


def made(speeds: list[float]) -> Drawn:
    """Times of CUDA that are so much shorter than PyTorch's; Triton's are the same."""
    cases = drawn.draw(len(speeds))
    return Drawn(
        op="matmul",
        environment=make_bench("matmul").environment,
        seed=drawn.SEED,
        products=tuple(
            Product(case, {"cuda": 12.0 / speed, "triton": 12.0, "torch": 12.0})
            for case, speed in zip(cases, speeds, strict=True)
        ),
    )


def test_what_is_drawn() -> None:
    cases = drawn.draw()
    assert len(cases) == len(set(map(repr, cases))) == drawn.N_PRODUCTS
    sizes = [each.shape for each in cases]
    assert all(1 <= size <= LARGEST_SIZE for each in sizes for size in each)
    assert all(2 * m * n * k <= MOST_FLOPS for m, n, k in sizes)
    n_unaligned = sum(any(size % 8 for size in each) for each in sizes)
    assert n_unaligned == drawn.N_PRODUCTS // 3
    layouts = Counter(each.layout for each in cases)
    assert layouts.keys() == {*LAYOUTS}
    assert min(layouts.values()) > drawn.N_PRODUCTS / 8
    # As many small sizes as large ones, but for those that would be too much at once.
    small = [sum(each[i] <= 128 for each in sizes) / len(sizes) for i in range(3)]
    assert all(0.4 < share < 0.65 for share in small)


def test_a_seed_draws_the_same_again() -> None:
    assert drawn.draw(20) == drawn.draw(20) == drawn.draw()[:20]
    assert drawn.draw(20, seed=1) != drawn.draw(20)


def test_layouts_are_of_single_operands() -> None:
    found = set()
    for case in drawn.draw(40):
        m, n, k = case.shape
        if min(m, n, k) == 1:
            continue
        a, b, *_ = make_arguments(OP, case, "meta")
        assert (a.shape, b.shape) == ((m, k), (k, n))
        assert a.dtype == torch.bfloat16
        strides = a.stride(1) == 1, b.stride(1) == 1
        assert {
            (True, True): "contiguous",
            (False, True): "transposed 0",
            (True, False): "transposed 1",
            (False, False): "transposed",
        }[strides] == case.layout
        found.add(strides)
    assert len(found) == 4


def test_a_summary() -> None:
    speeds = [0.5] * 10 + [2.0] * 10
    summary = drawn.summarize(made(speeds), "cuda")
    assert summary.mean == pytest.approx(1.0)
    assert summary.low == summary.least == pytest.approx(0.5)
    assert drawn.summarize(made([0.5, *[2.0] * 19]), "cuda").low == pytest.approx(2.0)
    assert drawn.summarize(made(speeds), "triton").least == pytest.approx(1.0)


def test_it_is_kept_told_and_plotted(tmp_path: Path) -> None:
    found = made([0.8, 1.25, 1.0, 9.0])
    file = store.write(found, tmp_path)
    assert file == tmp_path / "nvidia-h200/drawn/matmul.json"
    assert store.read(file, Drawn) == found

    text = " ".join(results.times_of([make_bench("matmul")], tmp_path).split())
    assert "CUDA 1.732 in the geometric mean, at least 0.80 at 95 % of them" in text
    assert "Triton 1.000 in the geometric mean" in text
    assert "](records/nvidia-h200/drawn/matmul-drawn.svg)" in text
    assert GPU in text
    others = results.times_of([make_bench("softmax")], tmp_path)
    assert "products that were drawn" not in others

    svg, png = drawn_plot.draw(found, file.parent)
    assert svg.name == "matmul-drawn.svg"
    assert png.stat().st_size > 1000
    assert "4 drawn products" in svg.read_text()
    assert drawn_plot.draw(found, tmp_path)[0].read_bytes() == svg.read_bytes()


def test_what_was_cut_off_goes_on(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(cache, "_folder", lambda: tmp_path)
    monkeypatch.setattr(compiling, "compile_ahead", lambda *_: None)
    monkeypatch.setattr(gpu_state, "measuring", contextlib.nullcontext)
    monkeypatch.setattr(benchmark, "free_memory", lambda: None)
    measured: list[Case] = []

    def medians(_op: object, case: Case) -> dict[str, float]:
        if len(measured) == 3:
            raise KeyboardInterrupt
        measured.append(case)
        return {"cuda": 1.0, "triton": 2.0, "torch": case.shape[0]}

    def measure() -> Drawn:
        unfinished = Unfinished("matmul", make_bench().environment, Product)
        found = drawn.measure(OP, lambda _: None, 5, unfinished=unfinished)
        unfinished.forget()
        return found

    monkeypatch.setattr(drawn, "_medians", medians)
    with pytest.raises(KeyboardInterrupt):
        measure()
    measured.clear()
    products = measure().products
    assert measured == drawn.draw(5)[3:]
    assert [each.case for each in products] == drawn.draw(5)
    assert [each.median_us["torch"] for each in products] == [
        each.shape[0] for each in drawn.draw(5)
    ]


@needs_gpu_to_itself
def test_it_is_measured() -> None:
    found = drawn.measure(OP, lambda _: None, 4)
    assert [each.case for each in found.products] == drawn.draw(4)
    for each in found.products:
        assert each.median_us.keys() == {"cuda", "triton", "torch"}
        assert all(us > 0 for us in each.median_us.values())
