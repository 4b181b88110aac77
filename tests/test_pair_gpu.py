"""A user's own files on the GPU: compiled for it, called there, and timed in turns."""

from __future__ import annotations

import ctypes
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from common import needs_gpu, needs_gpu_to_itself
from pairs.planted import KERNELBENCH

from bindings import build_cache, toolchain
from bindings.sources import ROOT
from bindings.trial import Traffic
from compare.errors import BuildFailedError
from compare.judge.cases import Case
from compare.judge.parity import Skipped
from compare.pairs import (
    cuda_side,
    cuda_source,
    gpu,
    gpu_module,
    inline_cuda,
    pair,
    plan,
)
from compare.pairs.own_report import OwnReport
from compare.timing.times import (
    CaseTimes,
    Ceiling,
    Timing,
    as_json,
    part_from_json,
)

_BANK = ROOT / "tests/pairs"
_PAIRS = sorted(_BANK.glob("descriptions/*.py"))
_FOLDERS = sorted(path.parent for path in _BANK.glob("gpu_mode/*/task.yml"))

needs_nvcc = pytest.mark.skipif(toolchain.find_cuda_home() is None, reason="needs nvcc")


def _compared(*words: str | Path) -> OwnReport:
    """Compares files, of the bank or by full path; NAME=VALUE sets a constant."""
    settings = [each for each in map(str, words) if "=" in each]
    files = [str(_BANK / each) for each in words if str(each) not in settings]
    (request,) = plan.plan(files, "", "", settings).requests
    request = replace(request, shows_code=False, measures=True)
    return pair.compare(request, lambda _: None)


# ---- Without a GPU -------------------------------------------------------------------


@needs_nvcc
@pytest.mark.parametrize(("file", "name"), [("saxpy_bare", "saxpy"), ("row_scan", "")])
def test_a_file_is_compiled_unchanged(file: str, name: str) -> None:
    source = cuda_source.read(_BANK / f"cuda/{file}.cu")
    target = cuda_side.find_target(source, name)
    library = ctypes.CDLL(str(gpu_module.build(source, [target], (9, 0))))
    for function in ("own_call", "own_fault", "own_keep", "own_drop", "own_configure"):
        assert hasattr(library, function)


@needs_nvcc
def test_an_error_names_the_users_line(tmp_path: Path) -> None:
    text = (_BANK / "cuda/row_scan.cu").read_text()
    path = tmp_path / "mine.cu"
    path.write_text(text.replace("__syncthreads();", "__syncthreads() of;", 1))
    number = text[: text.index("__syncthreads();")].count("\n") + 1
    source = cuda_source.read(path)
    target = cuda_side.find_target(source, "")
    with pytest.raises(BuildFailedError, match=rf"^mine\.cu:{number}: nvcc cannot"):
        gpu_module.build(source, [target], (9, 0))


@needs_nvcc
def test_two_texts_may_each_have_a_name_for_themselves() -> None:
    home = toolchain.find_cuda_home()
    assert home
    texts = tuple(
        f"static int number() {{ return {i}; }}\n"
        f'extern "C" int number_{i}() {{ return number(); }}\n'
        for i in range(2)
    )
    made = build_cache.CudaLibrary("two_texts", texts, (), (), (), home)
    library = ctypes.CDLL(str(build_cache.shared_library(made)))
    assert (library.number_0(), library.number_1()) == (0, 1)


def test_the_texts_of_load_inline_are_two() -> None:
    found = inline_cuda.read(_BANK / "kernelbench/solution_3.py")
    texts = gpu_module._texts(found.kernels, found.targets, found.wrappers)
    own_names = [each.count("static int divide_up(") for each in texts]
    entries = [each.count("own_entries[]") for each in texts]
    assert (own_names, entries) == ([1, 1], [0, 1])


def test_times_come_back_from_the_worker() -> None:
    timing = Timing(1.0, 0.9, 1.1, 0.95, 1.05, 30, "graph", 5.0, None, 100.0, 0.5)
    times = CaseTimes(
        case=Case((3, 5), torch.bfloat16),
        timings={"cuda": timing, "triton": Skipped("why")},
        traffic=Traffic(30, 30),
        ceiling=Ceiling("1:1", 0.5, 200.0, "cudaMemcpy"),
        comparisons=(),
        gpu_state=None,
    )
    assert part_from_json(as_json(times), CaseTimes) == times


def test_without_a_gpu_nothing_is_said_of_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if torch.cuda.is_available():
        torch.cuda.init()  # fails if it finds out later that there is no GPU
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    report = _compared("descriptions/scale_add.py")
    assert gpu.ON_GPU not in report.checks
    assert report.times == Skipped("times need a GPU")


# ---- On a GPU ------------------------------------------------------------------------


def _assert_right(report: OwnReport) -> None:
    assert report.passed, report.checks
    for name in report.backends:
        assert report.checks[gpu.ON_GPU][name].mood == "good", report.checks


@needs_gpu
@pytest.mark.usefixtures("no_times")
@pytest.mark.parametrize("path", [*_PAIRS, *_FOLDERS], ids=lambda path: path.stem)
def test_a_right_pair_is_right_on_the_gpu(path: Path) -> None:
    _assert_right(_compared(path))


@needs_gpu
@pytest.mark.usefixtures("no_times")
@pytest.mark.parametrize("asked", KERNELBENCH, ids=lambda asked: Path(asked[1]).stem)
def test_a_right_solution_is_right_on_the_gpu(asked: tuple[str, ...]) -> None:
    _assert_right(_compared(*asked))


@needs_gpu
@pytest.mark.usefixtures("no_times")
@pytest.mark.parametrize(
    ("file", "old", "new"),
    [
        ("cuda/softmax_extension.cu", "expf(", "-expf("),
        ("triton/softmax.py", "tl.exp(", "tl.exp2("),
    ],
)
def test_a_wrong_file_is_wrong_there_and_has_no_time(
    file: str, old: str, new: str, tmp_path: Path
) -> None:
    folder = Path(shutil.copytree(_BANK, tmp_path / "bank"))
    text = (folder / file).read_text()
    assert old in text
    (folder / file).write_text(text.replace(old, new, 1))
    report = _compared(folder / "descriptions/softmax.py")
    slot = "cuda" if file.endswith(".cu") else "triton"
    assert report.checks[gpu.ON_GPU][slot].problem
    assert report.times == Skipped(
        f"{report.names[slot]} has no right result on the GPU"
    )


@needs_gpu_to_itself
@pytest.mark.parametrize(
    "words",
    [("descriptions/softmax.py",), ("descriptions/saxpy.py",), *KERNELBENCH],
    ids=lambda words: Path(words[0]).stem,
)
def test_times_are_taken_in_turns(words: tuple[str, ...]) -> None:
    report = _compared(*words)
    assert isinstance(report.times, CaseTimes), report.times
    for name in (*report.backends, "torch", "torch.compile"):
        timing = report.timing(name)
        assert isinstance(timing, Timing), (name, timing)
        assert timing.median_us > 0
