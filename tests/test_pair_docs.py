"""docs/own-kernels.md: every way that it shows is tried as it stands there."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import needs_interpreter

from bindings import child_process, toolchain
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


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with the files of the page."""
    for name in ("mine.cu", "mine.py", "bare.cu"):
        (tmp_path / name).write_text(_blocks(name)[0])
    return tmp_path


def _run(folder: Path, command: list[str]) -> str:
    done = subprocess.run(
        command,
        cwd=folder,
        env=child_process.environment({"COLUMNS": "200"}),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def _compare(folder: Path, line: str) -> str:
    python, *words = shlex.split(line)
    assert python == "python"
    return _run(folder, [sys.executable, *words])


def test_two_files_and_a_line(folder: Path) -> None:
    output = _compare(folder, _blocks("Two files and a line")[0])
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
    python, option, module, *words = shlex.split(blocks[1])
    assert (python, option, module) == ("python", "-m", "compare")
    assert cli.main(words) == 0
    assert "passed" in capsys.readouterr().out


def test_without_nvcc_all_but_the_code_of_cuda(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for module in (cuda, toolchain):
        monkeypatch.setattr(module, "find_cuda_home", lambda: None)
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.chdir(folder)
    (folder / "pair.py").write_text(_blocks("A description")[0])
    files = sorted(folder.rglob("*"))
    question = ["--inputs", "randn(5, 30)", "--reference", "torch.softmax:dim=-1"]
    for words, row in ((["mine.cu", *question], ""), (["pair.py"], r"- +\d")):
        assert cli.main(words) == 0
        output = capsys.readouterr().out
        has_code = bool(re.search(rf"PTX / SASS / executed +{row}", output))
        assert has_code == (words[0] == "pair.py")
        assert "no code of mine.cu: there is no nvcc here; install" in output
    assert sorted(folder.rglob("*")) == files


def test_in_python(folder: Path) -> None:
    (folder / "test_mine.py").write_text(_blocks("In Python")[0])
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    assert "1 passed" in _run(folder, [*command, "test_mine.py"])
