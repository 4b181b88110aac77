"""docs/own-kernels.md: every way that it shows is tried as it stands there."""

from __future__ import annotations

import re
import runpy
import shlex
from pathlib import Path

import pytest
from common import needs_interpreter

from bindings import toolchain
from bindings.sources import ROOT
from compare import cli
from compare.code import cuda

_TEXT = (ROOT / "docs/own-kernels.md").read_text("utf-8")

pytestmark = needs_interpreter


def _blocks(heading: str) -> list[str]:
    """The code below a heading."""
    section = re.split(rf"^## {re.escape(heading)}$", _TEXT, flags=re.MULTILINE)[1]
    section = re.split(r"^## ", section, flags=re.MULTILINE)[0]
    return re.findall(r"^```\w+\n(.*?)^```$", section, re.MULTILINE | re.DOTALL)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the files of the page, which are compiled once for all tests."""
    made = tmp_path_factory.mktemp("page")
    for name in ("mine.cu", "mine.py", "bare.cu"):
        (made / name).write_text(_blocks(name)[0])
    return made


def _words(line: str) -> list[str]:
    """What a command line of the page gives `compare`."""
    python, option, module, *words = shlex.split(line)
    assert (python, option, module) == ("python", "-m", "compare")
    return words


def test_two_files_and_a_line(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.chdir(folder)
    assert cli.main(_words(_blocks("Two files and a line")[0])) == 0
    output = capsys.readouterr().out
    assert re.search(r"parity with float64\s+passed\s+passed", output)
    assert re.search(r"races and bounds\s+clean", output)


@pytest.mark.parametrize("number", [0, 2])
def test_a_description(
    folder: Path,
    number: int,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    blocks = _blocks("A description")
    (folder / "pair.py").write_text(blocks[number])
    monkeypatch.chdir(folder)
    assert cli.main(_words(blocks[1])) == 0
    assert "passed" in capsys.readouterr().out


def test_without_nvcc_all_but_the_code_of_cuda(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for module in (cuda, toolchain):
        monkeypatch.setattr(module, "find_cuda_home", lambda: None)
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.chdir(folder)
    # Of other numbers in both: the page's own are tried above, and take their time.
    smaller = _blocks("A description")[0].replace(
        "rows=37, cols=300", "rows=5, cols=30"
    )
    (folder / "pair.py").write_text(smaller)
    files = sorted(folder.rglob("*"))
    question = ["--inputs", "randn(5, 30)", "--reference", "torch.softmax:dim=-1"]
    for words, row in ((["mine.cu", *question], ""), (["pair.py"], r"- +\d")):
        assert cli.main(words) == 0
        output = capsys.readouterr().out
        has_code = bool(re.search(rf"PTX / SASS / executed +{row}", output))
        assert has_code == (words[0] == "pair.py")
        assert "no code of mine.cu: there is no nvcc here; install" in output
    assert sorted(folder.rglob("*")) == files


def test_in_python(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    path = folder / "test_mine.py"
    path.write_text(_blocks("In Python")[0])
    runpy.run_path(str(path))["test_softmax"]()
