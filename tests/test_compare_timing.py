"""Times: that the harness measures what it says, on a GPU, and its logic anywhere."""

from __future__ import annotations

import time
from collections.abc import Callable
from types import SimpleNamespace

import pytest
import torch
from conftest import needs_gpu

from bindings.backends import prebuilt
from bindings.registry import OPS
from compare import timing
from compare.cases import LAYOUTS, Case
from compare.parity import Prepared, Skipped, prepare
from compare.timing import Timing


class _Clock:
    """Stands for an event."""

    def record(self) -> None:
        self.ms = 1e3 * time.perf_counter()

    def synchronize(self) -> None:
        pass

    def elapsed_time(self, end: _Clock) -> float:
        return end.ms - self.ms


@pytest.fixture
def _no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Puts the CPU in the place of the GPU: calls are replayed one after the other."""

    def capture(launch: Callable[[int], None], n_sets: int, n_calls: int) -> object:
        def replay() -> None:
            for call in range(n_calls):
                launch(call % n_sets)

        return SimpleNamespace(replay=replay)

    cpu_module = prebuilt.load("_cpu")
    stream = SimpleNamespace(cuda_stream=0)
    monkeypatch.setattr(prebuilt, "load", lambda name: cpu_module)
    monkeypatch.setattr(timing, "_capture", capture)
    monkeypatch.setattr(timing, "_event", _Clock)
    monkeypatch.setattr(timing, "_WARM_UP_MS", 1.0)
    monkeypatch.setattr(timing, "_MEASURE_MS", 1.0)
    monkeypatch.setattr(timing, "_COLD_BYTES", 64 * 1024)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda: stream)


def _prepared(
    shape: tuple[int, ...] = (16, 781), layout: str = "contiguous"
) -> Prepared:
    return prepare(OPS["softmax"], Case(shape, layout=layout))


@pytest.mark.usefixtures("_no_gpu")
def test_figures_of_a_timing() -> None:
    prepared = _prepared()
    times = timing._measure(prepared, ["cuda", "torch"])
    assert list(times) == ["cuda", "torch"]
    for each in times.values():
        assert isinstance(each, Timing)
        assert 0 < each.p20_us <= each.median_us <= each.p80_us
        assert each.host_us > 0
        n_bytes = 2 * 16 * 781 * 4
        assert each.gb_per_s == pytest.approx(n_bytes / each.median_us / 1e3)
        assert each.calls >= timing._MIN_REPLAYS


@pytest.mark.usefixtures("_no_gpu")
def test_no_time_for_an_output_that_was_not_written(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    empty = SimpleNamespace(replay=lambda: None)
    monkeypatch.setattr(timing, "_capture", lambda *arguments: empty)
    times = timing._measure(_prepared(), ["cuda"])
    assert isinstance(times["cuda"], Skipped)
    assert "what was timed computed nonsense: 12496 of" in times["cuda"].reason


@pytest.mark.parametrize("layout", LAYOUTS)
def test_sets_are_alike_and_lie_apart(layout: str) -> None:
    prepared = _prepared((64, 1024), layout)
    sets = timing._make_sets(prepared)
    assert len({x.untyped_storage().data_ptr() for x, _ in sets}) == len(sets)
    for x, _ in sets:
        assert torch.equal(x, prepared.tensors[0])
        assert x.stride() == prepared.tensors[0].stride()
        assert x.storage_offset() == prepared.tensors[0].storage_offset()


def test_sets_outgrow_the_caches() -> None:
    sets = timing._make_sets(_prepared((512, 1024)))
    n_bytes = sum(2 * x.nbytes for x, _ in sets)
    assert n_bytes >= timing._COLD_BYTES
    assert len(timing._make_sets(_prepared((2, 3)))) == timing._MAX_SETS


def test_obstacles(monkeypatch: pytest.MonkeyPatch) -> None:
    gpu = torch.device("cuda")
    assert timing.obstacle(torch.device("cpu")) == "times need a GPU"
    assert timing.obstacle(gpu) is None
    monkeypatch.setenv("CUDA_LAUNCH_BLOCKING", "1")
    assert str(timing.obstacle(gpu)).startswith("CUDA_LAUNCH_BLOCKING is set")


@needs_gpu
def test_times_agree_with_a_stopwatch() -> None:
    # Large enough that nothing but memory counts, however it is measured.
    prepared = prepare(OPS["add"], Case((1 << 27,)), "cuda")
    times = timing.measure(prepared, ["cuda", "triton", "torch"])
    x, y = prepared.tensors
    torch.cuda.synchronize()
    began = time.perf_counter()
    for _ in range(100):
        torch.add(x, y)
    torch.cuda.synchronize()
    stopwatch_us = 1e6 * (time.perf_counter() - began) / 100
    own = times["torch"]
    assert isinstance(own, Timing)
    assert own.median_us == pytest.approx(stopwatch_us, rel=0.05)
    for each in times.values():
        assert isinstance(each, Timing)
        assert each.median_us == pytest.approx(own.median_us, rel=0.5)
        assert each.p80_us < 1.1 * each.p20_us
