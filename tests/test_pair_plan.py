"""What a command line on own files asks for, and what of it is kept or fails."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
import torch

from compare import cli, pair
from compare.code.kernel_code import Side
from compare.commands import own_files
from compare.errors import (
    BuildFailedError,
    CompareError,
    UnavailableError,
    UsageError,
)
from compare.judge.parity import Parity, Skipped
from compare.pairs import kept_reports, own_report, plan, question, reporting
from compare.pairs import pair as pairs
from compare.pairs.calls import Call, Outcome
from compare.pairs.entry import Entry
from compare.pairs.pair import Request
from compare.pairs.question import AS_GIVEN, Asked, Problem, Question
from compare.timing import environment

KERNEL = """\
import triton


@triton.jit
def kernel(x):
    pass


def twice(x):
    kernel[(1,)](x)
"""
MODEL = "class Model:\n    pass\n\n\ndef get_inputs():\n    return []\n"
SOLUTION = "class ModelNew:\n    pass\n"
CUDA = "__global__ void k(float* x) {}\nvoid f(float* x) { k<<<1, 1>>>(x); }\n"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working folder, with a file of each kind."""
    monkeypatch.chdir(tmp_path)
    texts = {
        "mine.py": KERNEL,
        "mine.cu": CUDA,
        "problem.py": MODEL,
        "solution.py": SOLUTION,
        "broken.py": "def f(:\n",
        "helper.py": "def help():\n    pass\n",
    }
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
    return tmp_path


# ---- the command line ----


@pytest.mark.parametrize(
    ("arguments", "files"),
    [
        (["--inputs", "randn(3)", "mine.cu"], ["mine.cu"]),
        (["--kernel=2", "--diff", "mine.cu", "mine.py"], ["mine.cu", "mine.py"]),
        (["sanitize", "--inputs", "randn(3)", "mine.cu"], ["mine.cu"]),
        (["study", "--time-limit", "5", "mine.py:twice"], ["mine.py:twice"]),
        (["mine.cu", "--inputs", "randn(3)", "mine.py"], ["mine.cu", "mine.py"]),
    ],
)
def test_options_may_stand_before_files(
    arguments: Sequence[str], files: Sequence[str]
) -> None:
    options = cli.parse(arguments)
    assert options.files == files
    assert options.command == (arguments[0] if arguments[0].isalpha() else "")


@pytest.mark.parametrize(
    "words",
    [
        ["--output", "./folder", "softmax"],
        ["--json", "mine.py", "softmax"],
        ["--help", "mine.py"],
        ["--inputs"],
        [],
    ],
)
def test_an_op_is_no_file(words: Sequence[str]) -> None:
    assert own_files.first_word(words) in ("", "softmax")


def test_views_of_two_files_are_none_of_a_table(
    capsys: pytest.CaptureFixture[str],
) -> None:
    for option in (["--html", "x.html"], ["--diff"], ["--ptx"], ["--sass"]):
        words = ["mine.cu", "mine.py", "solution.py", *option]
        assert cli.main(words) == UsageError.exit_code
        assert f"compare: {option[0]}: a table of" in capsys.readouterr().err


def test_a_command_that_is_no_use_for_any_file_is_refused(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    paths = [tmp_path / name for name in ("a.py", "b.py", "c.py")]
    for path in paths:
        path.write_text(KERNEL)
    refused = {"a.py", "b.py", "c.py"}

    def compare(request: Request, *_: object) -> own_report.OwnReport:
        if request.entries[0].path.name in refused:
            raise UsageError("say what to call it with")
        return own_report.failed([], Skipped("not here"))

    monkeypatch.setattr(pairs, "compare", compare)
    words = [str(path) for path in paths]
    assert cli.main(words) == UsageError.exit_code
    assert capsys.readouterr().err.endswith("compare: say what to call it with\n")
    refused.remove("b.py")
    assert cli.main(words) == 1
    assert "c.py is wrong: say what to call it with" in capsys.readouterr().out


def test_times_need_a_gpu(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert cli.main(["bench", "mine.cu"]) == UnavailableError.exit_code
    assert capsys.readouterr().err.startswith("compare: times need a GPU, and torch ")


# ---- plans ----


@pytest.mark.parametrize(
    ("words", "inputs", "said"),
    [
        (["problem.py", "solution.py"], "randn(3)", "makes its own"),
        (["problem.py", "solution.py", "mine.py"], "randn(3)", "makes its own"),
        (["solution.py"], "randn(3)", "makes its own"),
        (["solution.py"], "", "solution.py is a .*give its problem first"),
        (["mine.py", "solution.py"], "", "give its problem first"),
        (["problem.py"], "", "give a solution"),
        (["mine.py", "gone.py"], "", "there is no file gone.py"),
    ],
)
def test_what_makes_no_sense(words: Sequence[str], inputs: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        plan.plan(words, inputs, "")


def test_a_description_names_a_side(folder: Path) -> None:
    (folder / "pair.py").write_text("def inputs():\n    pass\n")
    with pytest.raises(UsageError, match=r"pair\.py .*names neither side"):
        plan.plan(["pair.py"], "", "")


def test_one_broken_file_of_a_folder_is_a_row(folder: Path) -> None:
    (folder / "problem.py").unlink()
    (folder / "pair.py").write_text("cuda = 'gone.cu'\n\n\ndef inputs():\n    pass\n")
    made = f"{SOLUTION}load_inline('m', '', str(1))\n\n\ndef get_inputs():\n    pass\n"
    (folder / "made.py").write_text(made)
    requests = plan.plan([str(folder)], "", "").requests
    rows = {each.entries[0].path.name: each for each in requests}
    assert rows.keys() == {
        *("broken.py", "made.py", "mine.cu", "mine.py", "pair.py", "solution.py")
    }
    obstacles = {name: each.obstacle for name, each in rows.items() if each.obstacle}
    assert obstacles.keys() == {"broken.py", "made.py", "pair.py", "solution.py"}
    assert str(obstacles["pair.py"]) == "pair.py: there is no file gone.cu"
    with pytest.raises(BuildFailedError, match=r"^broken.py:1: SyntaxError"):
        pairs.compare(rows["broken.py"], lambda _: None)
    report = own_files._compared_or_failed(rows["made.py"], lambda _: None, [])
    assert report.passed
    assert not report.was_tried  # nobody knows whether it is wrong


@pytest.mark.parametrize(
    ("words", "setting", "said"),
    [
        (
            "problem.py solution.py",
            "m=4",
            r"problem\.py has no constant 'm'; it has n$",
        ),
        ("problem.py solution.py", "n", "'n' is no NAME=VALUE"),
        ("problem.py solution.py", "n=4x", "'n=4x' is no NAME=VALUE"),
        ("mine.py", "n=4", "only a problem of KernelBench's"),
    ],
)
def test_constants_that_a_problem_has_not(
    words: str, setting: str, said: str, folder: Path
) -> None:
    (folder / "problem.py").write_text(f"n: int = 8\n{MODEL}")
    with pytest.raises(UsageError, match=f"--set: {said}"):
        plan.plan(words.split(), "", "", [setting])


def test_a_reference_in_a_file_that_is_not_there() -> None:
    problem = Problem("options", inputs="randn(3)", reference="~/gone.py:f")
    with pytest.raises(UsageError, match=r"--reference: there is no file ~/gone\.py"):
        question.files_of(problem)


def test_a_helper_that_is_named_is_taken() -> None:
    words = ["mine.cu", "mine.py", "helper.py"]
    assert len(plan.plan(words, "randn(3)", "").requests) == 3


def test_a_failed_row_reads_no_file(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("first line\nsecond line")

    monkeypatch.setattr(pairs, "compare", fail)
    request = Request((Entry(Path("gone.cu")),))
    report = own_files._compared_or_failed(request, lambda _: None, [])
    parity = report.parity["cuda"]
    assert isinstance(parity, Parity)
    assert parity.problem == "first line"
    assert not report.passed
    assert report.names == {"cuda": "gone.cu"}
    both = own_report.failed([Path("a/x.py"), Path("b/x.py")], Skipped("why"))
    assert both.names == {"cuda": "a/x.py", "triton": "b/x.py"}


# ---- what is kept ----


def _key(problem: Problem | None = None, paths: Sequence[str] = ("mine.cu",)) -> str:
    files = [Path(each) for each in paths]
    return kept_reports.key_of("", problem, files, environment.collect()) or ""


def test_a_key_depends_on_what_a_file_may_use(folder: Path) -> None:
    (folder / "below").mkdir()
    (folder / ".hidden").mkdir()
    (folder / "named.inl").write_text("1")
    for file in ("below/x.h", "named.inl", "mine.py", ".hidden/x.h", "notes.txt"):
        before = _key(paths=["mine.cu", "named.inl"])
        (folder / file).write_text("another text")
        is_the_same = _key(paths=["mine.cu", "named.inl"]) == before
        assert is_the_same == (file in (".hidden/x.h", "notes.txt")), file


def test_a_key_depends_on_the_reference_and_on_the_folder(
    folder: Path,
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    other = tmp_path_factory.mktemp("other") / "reference.py"
    other.write_text("def f(x):\n    return x\n")
    problem = Problem("options", inputs="randn(3)", reference=f"{other}:f")
    keys = {_key(problem)}
    other.write_text("def f(x):\n    return 2 * x\n")
    keys.add(_key(problem))
    monkeypatch.chdir(other.parent)
    keys.add(_key(problem, [str(folder / "mine.cu")]))
    assert len(keys) == 3


def test_odd_files_and_many(folder: Path) -> None:
    (folder / ".#k.cu").symlink_to("nowhere")
    (folder / "x.py").mkdir()
    assert _key()
    for number in range(kept_reports._MOST_FILES):
        (folder / f"{number}.h").touch()
    assert not _key()


def test_nothing_is_kept_that_depends_on_other_files(folder: Path) -> None:
    for inputs in ("torch.load('x.pt')", "open('x')", "from_numpy(np.fromfile ('x'))"):
        assert not _key(Problem("options", inputs=inputs))
    assert _key(Problem("options", inputs="randn(3)"))
    (folder / "pair.py").write_text("x = tl.load(y), load_inline(z), reopen(w)\n")
    assert _key(Problem("description", folder / "pair.py"))
    (folder / "pair.py").write_text("x = np.load('x.npy')\n")
    assert not _key(Problem("description", folder / "pair.py"))


# ---- comparisons ----


def test_files_have_one_name_each(folder: Path) -> None:
    (folder / "kernels").mkdir()
    (folder / "kernels/mine.cu").write_text(CUDA)
    (folder / "two.cu").write_text('#include "kernels/mine.cu"\n')
    (folder / "kernels/two.cu").write_text(CUDA)
    entries = (Entry(Path("two.cu")), Entry(Path("kernels/two.cu")))
    rooms = pairs._rooms(Request(entries), is_program=False)
    names = {*reporting.names_of_files(rooms).values()}
    assert names == {f"{folder.name}/two.cu", "kernels/two.cu", "mine.cu"}
    assert {each.place.name for each in rooms} < names


def test_without_the_other_there_is_nothing_to_be_held_to() -> None:
    entries = (Entry(Path("mine.cu")), Entry(Path("mine.py")))
    request = Request(entries)
    rooms = pairs._rooms(request, is_program=False)
    x = torch.zeros(3)
    calls = (Asked(Call(AS_GIVEN, (x,)), (), ()),)
    asked = Question(calls, (), ("x",), is_deterministic=True, dtype=x.dtype)
    outcomes: dict[Side, list[Outcome] | Skipped]
    for other in (Skipped("no asm"), [Outcome(refusal="mine.cu:1: no")]):
        outcomes = {"cuda": other, "triton": [Outcome((x,))]}
        judged = reporting.judge(asked, rooms, outcomes)
        report = reporting.report_on(rooms, asked, outcomes, judged, codes={})
        assert report.parity["triton"] == Skipped(
            "there is no reference, and no result of mine.cu"
        )
    outcomes = {slot: [Outcome((x,))] for slot in own_report.SLOTS}
    assert not reporting._why_not_compared(asked, rooms, outcomes)


# ---- compare.pair ----


def test_python_objects(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Question] = []

    def keep(request: Request, _: object, question: Question) -> None:
        asked.append(question)

    monkeypatch.setattr(pairs, "compare", keep)
    state = torch.random.get_rng_state()
    x = torch.randn(3, generator=torch.Generator())
    pair("mine.py", inputs=x, reference=lambda x: x + torch.rand(3))
    assert torch.equal(torch.random.get_rng_state(), state)
    (given,) = asked[0].as_given.call.inputs
    assert torch.equal(given, x)
    for limit in (0, -1.0, float("nan"), float("inf")):
        with pytest.raises(CompareError, match="time_limit"):
            pair("mine.py", inputs=x, time_limit=limit)
