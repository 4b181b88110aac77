"""Other people's files: none that is right is blamed, and each fault is named.

By default a right file of each style and a planted fault of each kind are tried, among
them some of each style. TWIN_WHOLE_BANK=1 tries all.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from common import needs_interpreter
from pairs.planted import KERNELBENCH, PLANTED, Planted

from bindings import toolchain
from bindings.sources import ROOT
from compare.code.kernel_code import KernelCode
from compare.errors import CompareError
from compare.judge.parity import Parity
from compare.pairs import pair, plan, question
from compare.pairs.own_report import OwnReport
from compare.pairs.pair import Request
from compare.pairs.question import Question
from compare.report.figures import notes

_IS_WHOLE = bool(os.environ.get("TWIN_WHOLE_BANK"))
_BANK = ROOT / "tests/pairs"


def _files(pattern: str) -> list[str]:
    """Files and folders of the bank, in an order that every process has."""
    return sorted(str(path.relative_to(_BANK)) for path in _BANK.glob(pattern))


_RIGHT = [
    *((each,) for each in _files("descriptions/*.py")),
    *((str(Path(each).parent),) for each in _files("gpu_mode/*/task.yml")),
    *((each,) for each in _files("cuda/program_*.cu")),
    *KERNELBENCH,
]

# A right file of each style: a torch extension and a Triton module, a host function, a
# bare kernel, a program, solutions of KernelBench's in both languages, and a submission
# of gpu-mode's. The code of some is generated, too.
_STANDING = {
    "descriptions/softmax.py": True,
    "descriptions/scale_add.py": False,
    "descriptions/saxpy.py": False,
    "cuda/program_vector_add.cu": True,
    "kernelbench/problem_1.py": False,
    "kernelbench/problem_2.py": True,
    "gpu_mode/vectoradd": True,
}
# Where a fault of each kind is planted, so that there is one in each style.
_PLANTED_IN = {
    "race": "cuda/softmax_extension.cu",
    "out of bounds": "cuda/program_vector_add.cu",
    "mask": "gpu_mode/vectoradd/submission.py",
    "uninitialised": "cuda/histogram.cu",
    "offset": "cuda/gelu_vectorized.cu",
    "strided": "triton/row_sum_heuristics.py",
    "specials": "kernelbench/solution_2.py",
    "large": "triton/softmax.py",
    "dtype": "triton/gelu_cuda_device.py",
    "stale": "cuda/histogram.cu",
    "nondeterministic": "descriptions/column_sum.py",
    "deadlock": "cuda/row_max_template.cu",
    "unwritten": "cuda/scale_add.cu",
    "wrong": "gpu_mode/grayscale/submission.py",
    "precision": "triton/softmax.py",
    "input written": "cuda/saxpy_bare.cu",
}

pytestmark = needs_interpreter


def _chosen_files() -> list[tuple[str, ...]]:
    """The right files that are tried."""
    return [each for each in _RIGHT if _IS_WHOLE or each[0] in _STANDING]


def _chosen_faults() -> list[Planted]:
    """The faults that are tried: by default the first of its kind in its file."""
    if _IS_WHOLE:
        return PLANTED
    firsts = {(each.kind, each.file): each for each in reversed(PLANTED)}
    return [firsts[place] for place in _PLANTED_IN.items()]


_questions: dict[Sequence[str], Question] = {}


def _say_nothing(_: str) -> None:
    pass


def _request(folder: Path, asked: Sequence[str]) -> Request:
    words = [str(folder / each) for each in asked if "=" not in each]
    settings = [each for each in asked if "=" in each]
    (request,) = plan.plan(words, "", "", settings).requests
    return request


def _question(asked: Sequence[str]) -> Question | None:
    """What the files of the bank are called with; computed once."""
    request = _request(_BANK, asked)
    if request.problem is None:
        return None
    if asked not in _questions:
        _questions[asked] = question.ask(request.problem)
    return _questions[asked]


def test_every_kind_of_fault_is_tried() -> None:
    assert {each.kind for each in PLANTED} == _PLANTED_IN.keys()
    assert {each[0] for each in _RIGHT} >= _STANDING.keys()


@pytest.mark.parametrize(
    "asked", _chosen_files(), ids=lambda asked: Path(asked[0]).stem
)
def test_no_right_file_is_blamed(asked: tuple[str, ...]) -> None:
    shows_code = _STANDING.get(asked[0], True)
    request = replace(_request(_BANK, asked), shows_code=shows_code)
    report = pair.compare(request, _say_nothing, _question(asked))
    assert report.passed, list(notes(report))
    assert all(isinstance(report.parity[each], Parity) for each in report.backends)
    has_nvcc = toolchain.find_cuda_home() is not None
    assert report.own
    if not shows_code:
        return
    for side, language in report.own.languages.items():
        if has_nvcc or language == "triton":
            assert isinstance(report.codegen[side], KernelCode), report.codegen[side]


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the bank that faults are planted in."""
    folder = tmp_path_factory.mktemp("bank") / "pairs"
    shutil.copytree(_BANK, folder)
    return folder


@pytest.fixture
def planted(copy: Path, request: pytest.FixtureRequest) -> Iterator[Planted]:
    """A fault, planted in the copy as long as the test runs."""
    fault: Planted = request.param
    path = copy / fault.file
    right = path.read_text()
    assert right.count(fault.old) == 1
    path.write_text(right.replace(fault.old, fault.new))
    yield fault
    path.write_text(right)


@pytest.mark.parametrize(
    "planted",
    _chosen_faults(),
    indirect=True,
    ids=lambda each: f"{Path(each.file).stem}-{each.kind.replace(' ', '_')}",
)
def test_a_planted_fault_is_named(planted: Planted, copy: Path) -> None:
    said = _said_of(planted, copy)
    fitting = [each for each in said if re.search(planted.said, each)]
    assert fitting, said
    if planted.line:
        path = copy / planted.file
        lines = path.read_text().splitlines()
        places = [
            f"{path.name}:{number}"
            for number, line in enumerate(lines, start=1)
            if planted.line in line
        ]
        assert any(re.search(rf"{each}\b", said) for each in places for said in fitting)


def _said_of(planted: Planted, copy: Path) -> list[str]:
    """What is said of the side whose file has the fault, or of the command line."""
    changes_the_question = planted.file.startswith("descriptions")
    asked = None if changes_the_question else _question(planted.asked)
    try:
        request = _only_side_of(_request(copy, planted.asked), copy / planted.file)
        report = pair.compare(replace(request, shows_code=False), _say_nothing, asked)
    except CompareError as error:
        return [str(error)]
    return _problems(report)


def _only_side_of(request: Request, file: Path) -> Request:
    entries = [
        each for each in request.entries if each.path.resolve() == file.resolve()
    ]
    return replace(request, entries=tuple(entries)) if entries else request


def _problems(report: OwnReport) -> list[str]:
    found = [e.problem for e in report.parity.values() if isinstance(e, Parity)]
    found += [each.problem for row in report.checks.values() for each in row.values()]
    return [each for each in found if each]
