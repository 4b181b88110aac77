"""`compare doctor` never raises."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

import pytest
from common import needs_interpreter

from bindings.sources import ROOT
from compare.cli import main
from compare.commands import doctor


def _doctor(*arguments: str, **environment: str) -> str:
    """The output of `compare doctor` in an otherwise empty environment."""
    done = subprocess.run(
        [sys.executable, "-m", "compare", "doctor", *arguments],
        cwd=ROOT,
        # Where the packages are is the one thing that a call cannot do without.
        env={"PYTHONPATH": os.environ.get("PYTHONPATH", ""), **environment},
        capture_output=True,
        text=True,
        check=True,
    )
    assert "Traceback" not in done.stderr  # torch may have its own say there
    return done.stdout


@needs_interpreter
def test_doctor_tells_what_there_is(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor"]) == 0
    shown = capsys.readouterr().out
    assert sys.executable in shown
    assert "works   CUDA kernels on the CPU, in the emulator" in shown
    assert "works   Triton kernels on the CPU, in its interpreter" in shown


def test_doctor_in_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["schema_version"] == 1
    assert document["facts"]["torch"]
    for each in document["capabilities"]:
        assert bool(each["reason"]) == bool(each["remedy"]) == (not each["works"])


def test_doctor_without_home_path_and_cache(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    # No folder can be made below a file.
    shown = _doctor(XDG_CACHE_HOME=str(file / "cache"), TRITON_CACHE_DIR=str(file))
    assert "works   CUDA kernels on the CPU, in the emulator" in shown
    assert f"{file}/cache/twin-kernels, CANNOT be made" in shown
    assert "so      set TRITON_CACHE_DIR, now " in shown
    assert "CANNOT  PTX and SASS of the Triton side" in shown


@pytest.mark.parametrize(
    "program",
    [
        "raise ImportError('libcudart.so.13: cannot open shared object file')",
        "raise OSError('a library is broken')",
        "import no_such_package",
        "1 / 0",
        "",
    ],
)
def test_doctor_with_a_broken_torch(program: str, tmp_path: Path) -> None:
    (tmp_path / "torch.py").write_text(program)
    shown = _doctor(PYTHONPATH=str(tmp_path), PATH=os.environ["PATH"])
    assert "CANNOT  CUDA kernels on the CPU, in the emulator" in shown
    assert "because" in shown


def test_whatever_a_probe_raises_is_its_result(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def failing(error: Exception) -> Callable[[], NoReturn]:
        def probe() -> NoReturn:
            raise error

        return probe

    errors = [ValueError(), KeyError("x"), RuntimeError("[bold]\x1b[31m"), OSError(2)]
    monkeypatch.setattr(
        doctor, "_FACTS", tuple((str(each), failing(each)) for each in errors)
    )
    monkeypatch.setattr(
        doctor, "_CAPABILITIES", tuple(("it", failing(each), "buy") for each in errors)
    )
    assert main(["doctor"]) == 0
    shown = capsys.readouterr().out
    assert "because ValueError\n" in shown
    assert "because RuntimeError: [bold][31m\n" in shown
    assert main(["doctor", "--json"]) == 0


def test_doctor_with_a_cache_that_takes_no_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(dir: Path) -> NoReturn:
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(tempfile, "TemporaryFile", refuse)
    assert f"{tmp_path}/twin-kernels, CANNOT be made" in doctor._caches()
    found = doctor._try("load_inline", doctor._build, "reinstall")
    assert not found.works
    assert "Read-only file system" in found.reason
    assert "XDG_CACHE_HOME" in found.remedy


def test_doctor_tells_of_an_ignored_toolkit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = doctor._nvcc()
    monkeypatch.setenv("CUDA_HOME", str(tmp_path))
    monkeypatch.delenv("CUDA_PATH", raising=False)
    assert (
        doctor._nvcc().splitlines()[-1].startswith(f"CUDA_HOME={tmp_path} is ignored")
    )
    assert before.partition(",")[0] in doctor._nvcc() or "CUDA_HOME" in before


def test_doctor_lists_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "_CAPABILITIES", ())
    monkeypatch.setenv("TRITON_INTERPRET", "0")
    assert "TRITON_INTERPRET=0" in doctor.examine().facts["environment"]
