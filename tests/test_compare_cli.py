"""The command line: what it answers without torch, and how it ends."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any, NoReturn

import pytest

from bindings import backends
from bindings.backends import prebuilt
from bindings.errors import BuildError, UnsupportedError
from bindings.registry import OPS
from bindings.sources import ROOT
from compare import run
from compare.cli import main
from compare.codegen import model
from compare.codegen.errors import CodegenUnavailable, CompilationFailed
from compare.parameters import Parameter, parse_parameter, read_ops

BAD_COMMAND_LINES = {
    "": "say what to compare: one of add, gelu, softmax, all, list, doctor",
    "sofmax": "there is no op or command 'sofmax'; did you mean softmax?",
    "xyzzy": "there is no op or command 'xyzzy'; it has add, gelu, softmax, all, list",
    "[bold]x": "there is no op or command '[bold]x'",
    "softmax --dtype int32": "--dtype: invalid choice: 'int32' (choose from",
    "softmax --shape 4x": "--shape: '4x' is no shape: join sizes by x, such as",
    "softmax --shape x": "--shape: 'x' is no shape",
    "softmax --shape -3": "--shape: '-3' is no shape",
    "softmax --shape ٣": "--shape: '٣' is no shape",
    "softmax --shape 0x3": "--shape: a tensor of shape 0x3 is empty",
    "softmax --arch sm_1": "--arch: unknown architecture 'sm_1': choose one of sm_80",
    "softmax --param x=1": "--param: softmax has no parameter 'x', it has only dim",
    "softmax --param dim=a": "--param: dim of softmax is of type int, which 'a' is not",
    "gelu --param approximate": "--param: 'approximate' is not written as name=value",
    "add --param a=1": "--param: add has no parameter 'a', it has none",
    "softmax --backend torch": "--backend: invalid choice: 'torch' (choose from",
    "softmax --diff --json -": "--diff and --json - would both write to stdout",
    "softmax --json missing/x": "--json: there is no folder missing",
    "softmax --unknown": "unrecognized arguments: --unknown",
    "softmax gelu": "unrecognized arguments: gelu",
    "all --shape 3": "unrecognized arguments: --shape 3",
    "list --json": "unrecognized arguments: --json",
}


@pytest.mark.parametrize("line", BAD_COMMAND_LINES)
def test_usage_errors(line: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(line.split()) == 2
    written = capsys.readouterr()
    assert written.out == ""
    assert written.err.startswith("compare: " + BAD_COMMAND_LINES[line])
    assert written.err.count("\n") == 1


def test_light_commands_import_nothing_heavy() -> None:
    lines = ["--help", "softmax --help", "list", *BAD_COMMAND_LINES]
    program = f"""
import contextlib, io, sys
from compare.cli import main
for line in {lines!r}:
    with contextlib.suppress(SystemExit), contextlib.redirect_stdout(io.StringIO()):
        main(line.split())
print(sorted({{"torch", "triton", "numpy", "rich"}} & set(sys.modules)))
"""
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == "[]"


def test_list_names_every_op(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == list(OPS)
    assert all(line.endswith(".") for line in lines)


def test_help_says_what_a_parameter_is(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["gelu", "--help"])
    assert ended.value.code == 0
    assert "approximate=none (str)" in capsys.readouterr().out


def test_sources_tell_the_parameters() -> None:
    ops = read_ops()
    assert list(ops) == list(OPS)
    assert ops["softmax"].parameters == {"dim": Parameter("dim", "int", -1)}
    assert parse_parameter(ops["softmax"], "dim=0") == ("dim", 0)
    assert parse_parameter(ops["gelu"], "approximate=a=b") == ("approximate", "a=b")


def test_wrong_values_of_parameters_are_usage_errors(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["gelu", "--shape", "9", "--param", "approximate=cubic"]) == 2
    assert "gelu: approximate is 'cubic', expected" in capsys.readouterr().err
    assert main(["softmax", "--shape", "9", "--param", "dim=1"]) == 2
    assert "softmax: dim is 1, expected a value from -1 to 0" in capsys.readouterr().err


def test_json_is_all_that_is_on_stdout(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def talkative(*arguments: object) -> NoReturn:
        sys.stdout.write("// PTX of a kernel that does not compile\n")
        raise CodegenUnavailable("no reason", "no remedy")

    monkeypatch.setattr(model, "inspect_triton", talkative)
    assert main(["softmax", "--shape", "5x67", "--json", "-"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["cases"][0]["codegen"]["triton"]["skipped"]


def test_json_file_comes_beside_the_screen(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "report.json"
    assert main(["gelu", "--shape", "99", "--json", str(file)]) == 0
    assert json.loads(file.read_text())["op"] == "gelu"
    assert "parity with float64" in capsys.readouterr().out


def test_failed_parity(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(backends, "run", lambda name, op, out, *rest: out.fill_(0.5))
    assert main(["softmax", "--shape", "5x67", "--backend", "cuda"]) == 1
    shown = capsys.readouterr().out
    assert "FAILED" in shown
    assert "CUDA is wrong: the largest error is" in shown


def test_missing_module(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def load(name: str) -> ModuleType:
        raise UnsupportedError(f"bindings.{name} is not built; run pip install -e .")

    monkeypatch.setattr(prebuilt, "load", load)
    assert main(["softmax", "--shape", "5x67"]) == 3
    written = capsys.readouterr()
    assert written.err.strip().endswith("is not built; run pip install -e .")
    assert written.out == ""


def test_too_little_memory(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["softmax", "--shape", "999999999x999999999"]) == 3
    assert "of memory, and this machine has" in capsys.readouterr().err


@pytest.mark.parametrize(
    "error", [BuildError("g++ says no"), CompilationFailed("nvcc refused it", "log")]
)
def test_failed_build(
    error: Exception,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def inspect(*arguments: object) -> NoReturn:
        raise error

    monkeypatch.setattr(model, "inspect_cuda", inspect)
    assert main(["softmax", "--shape", "5x67", "--backend", "cuda"]) == 4
    assert str(error) in capsys.readouterr().err


def test_torch_that_cannot_be_imported(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delitem(sys.modules, "compare.run")
    monkeypatch.delattr("compare.run")
    monkeypatch.setitem(sys.modules, "bindings.registry", None)
    assert main(["softmax", "--shape", "5x67"]) == 3
    assert "python -m compare doctor says what mends it" in capsys.readouterr().err


def test_interruption(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def compare(*arguments: Any) -> NoReturn:
        raise KeyboardInterrupt

    monkeypatch.setattr(run, "compare", compare)
    assert main(["softmax"]) == 130
    assert capsys.readouterr().err.endswith("compare: interrupted\n")


def test_reader_who_leaves_early() -> None:
    pipe = subprocess.Popen(
        [sys.executable, "-m", "compare", "list"],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert pipe.stdout is not None
    pipe.stdout.close()
    _, complaint = pipe.communicate()
    assert complaint == b""
