"""The command line: its answers without torch, and its exit codes."""

from __future__ import annotations

import dataclasses
import errno
import io
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from types import ModuleType
from typing import Any, NoReturn

import pytest
import torch
from common import needs_interpreter
from triton.backends.nvidia.compiler import get_ptxas

from bindings import backends
from bindings.backends import prebuilt
from bindings.errors import BuildError, UnsupportedError
from bindings.registry import OPS
from bindings.sources import ROOT
from bindings.toolchain import find_cuda_home
from bindings.trial import CodeContract
from bindings.trials import TRIALS
from compare.cli import main
from compare.code import kernel_code, tools
from compare.code.architectures import ARCHITECTURES
from compare.code.cuda import find_ptxas
from compare.errors import CodegenUnavailable, CompilationFailed, UnavailableError
from compare.judge import requirements
from compare.judge.cases import Case
from compare.parameters import Parameter, parse_parameter, read_ops
from compare.report import collect, terminal
from compare.report.collect_code import Request
from compare.timing import gpu_state

FORWARD = [op.name for op in OPS.values() if not op.forward]
COMMANDS = ", ".join([*FORWARD, "all", "bench", "docs", "doctor"])
BAD_COMMAND_LINES = {
    "": f"say what to compare: one of {COMMANDS}",
    "sofmax": "there is no op or command 'sofmax'; did you mean softmax?",
    "xyzzy": f"there is no op or command 'xyzzy'; it has {COMMANDS}",
    "[bold]x": "there is no op or command '[bold]x'",
    "softmax --dtype int32": "--dtype: invalid choice: 'int32' (choose from",
    "softmax --shape 4x": "--shape: '4x' is no shape: join sizes by x, such as",
    "softmax --shape x": "--shape: 'x' is no shape",
    "softmax --shape -3": "--shape: '-3' is no shape",
    "matmul --shape 4x8": "--shape: matmul takes MxNxK, or a batch of them as BxMxNxK",
    "bench matmul --shape 4x8x2 4": "--shape: matmul takes MxNxK, or a batch of them",
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
    "softmax --json /": "--json: / is a folder",
    "softmax --json=": "--json: an empty name; give it a file, or - for stdout",
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
    assert [line.split()[0] for line in lines] == FORWARD
    assert all(line.endswith(".") for line in lines)


def test_help_says_what_a_parameter_is(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["gelu", "--help"])
    assert ended.value.code == 0
    assert "approximate=none (str)" in capsys.readouterr().out


def test_sources_tell_the_parameters() -> None:
    ops = read_ops()
    assert list(ops) == list(OPS)
    assert ops["softmax"].parameters == {"dim": Parameter("int", -1)}
    assert parse_parameter(ops["softmax"], "dim=0") == ("dim", 0)
    assert parse_parameter(ops["gelu"], "approximate=a=b") == ("approximate", "a=b")
    assert parse_parameter(ops["sum"], "dim=0,-1") == ("dim", (0, -1))
    assert parse_parameter(ops["sum"], "dim=") == ("dim", ())


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
    def talkative(*arguments: object, **options: object) -> NoReturn:
        sys.stdout.write("// PTX of a kernel that does not compile\n")
        raise CodegenUnavailable("no reason", "no remedy")

    monkeypatch.setattr(kernel_code, "inspect_triton", talkative)
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


def test_a_broken_contract_is_told(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    file = tmp_path / "report.json"
    contract = CodeContract(shapes=((64, 1024),), access_bytes=8)
    trial = dataclasses.replace(TRIALS["softmax"], code_contract=contract)
    monkeypatch.setitem(TRIALS, "softmax", trial)
    line = "softmax --backend triton --arch sm_80 --json"
    broken = "Triton, sm_80, softmax_kernel["
    # A contract holds for one shape, not for another.
    for shape, expected in (("64x1024", 2), ("64x512", 0)):
        assert main([*line.split(), str(file), "--shape", shape]) == 0
        (case,) = json.loads(file.read_text())["cases"]
        assert len(case["violations"]) == expected
        assert all(each.startswith(broken) for each in case["violations"])
        shown = " ".join(capsys.readouterr().out.split())
        assert shown.count(f"contract on code is broken: {broken}") == expected


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
    assert "GB of memory, and " in capsys.readouterr().err


def test_memory_of_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (10**9, 10**11))
    gpu = torch.device("cuda")
    requirements.check_memory(OPS["add"], Case((5_000_000,)), gpu)
    with pytest.raises(UnavailableError, match=r"2 GB of memory, and the GPU has 1:"):
        requirements.check_memory(OPS["add"], Case((10_000_000,)), gpu)


@pytest.mark.parametrize(
    "error", [BuildError("g++ says no"), CompilationFailed("nvcc refused it", "log")]
)
def test_failed_build(
    error: Exception,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def inspect(*arguments: object, **options: object) -> NoReturn:
        raise error

    monkeypatch.setattr(kernel_code, "inspect_cuda", inspect)
    assert main(["softmax", "--shape", "5x67", "--backend", "cuda"]) == 4
    assert str(error) in capsys.readouterr().err


def test_torch_that_cannot_be_imported(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delitem(sys.modules, "compare.report.collect")
    monkeypatch.delattr("compare.report.collect")
    monkeypatch.setitem(sys.modules, "bindings.registry", None)
    assert main(["softmax", "--shape", "5x67"]) == 3
    assert "python -m compare doctor says what mends it" in capsys.readouterr().err


def test_torch_that_breaks_while_it_is_imported(tmp_path: Path) -> None:
    (tmp_path / "torch.py").write_text("raise RuntimeError('no such driver')")
    done = _shell("compare softmax", PYTHONPATH=str(tmp_path))
    assert done.returncode == 3
    assert "(RuntimeError: no such driver): python -m compare doctor" in done.stderr


def test_interruption(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def compare(*arguments: Any) -> NoReturn:
        raise KeyboardInterrupt

    monkeypatch.setattr(collect, "compare", compare)
    assert main(["softmax"]) == 130
    assert capsys.readouterr().err.endswith("compare: interrupted\n")


@pytest.mark.parametrize("line", ["list", "softmax --shape 5x67 --backend cuda"])
def test_reader_who_leaves_early(line: str) -> None:
    pipe = subprocess.Popen(
        [sys.executable, "-m", "compare", *line.split()],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert pipe.stdout is not None
    pipe.stdout.close()
    _, complaint = pipe.communicate()
    assert (pipe.returncode, complaint) == (0, b"")


def _shell(command: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Runs a shell command, whose `compare` is the one under test."""
    return subprocess.run(
        [
            "bash",
            "-c",
            f'compare() {{ "{sys.executable}" -m compare "$@"; }}; {command}',
        ],
        cwd=ROOT,
        env=os.environ | environment,
        capture_output=True,
        text=True,
        check=False,
    )


def test_closed_stdout() -> None:
    done = _shell("compare list >&-")
    assert (done.returncode, done.stderr) == (0, "")


def test_full_disks() -> None:
    done = _shell("compare list >/dev/full")
    assert done.returncode == 3
    assert done.stderr.startswith("compare: a disk is full: ")
    assert done.stderr.count("\n") == 1


def test_json_on_a_full_disk(capsys: pytest.CaptureFixture[str]) -> None:
    line = "softmax --shape 5x67 --backend cuda --json /dev/full"
    assert main(line.split()) == 3
    assert capsys.readouterr().err.startswith(
        "compare: --json: /dev/full cannot be written (No space left on device)"
    )


def test_json_file_is_tried_before_the_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(*arguments: object, **options: object) -> NoReturn:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(tempfile, "TemporaryFile", refuse)
    assert main(["softmax", "--json", str(tmp_path / "new")]) == 3
    assert "new cannot be written (Permission denied)" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_characters_that_stdout_does_not_know(monkeypatch: pytest.MonkeyPatch) -> None:
    written = io.BytesIO()
    # As Python opens it where PYTHONIOENCODING is ascii.
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(written, encoding="ascii"))
    assert main(["softmax", "--shape", "5x67", "--backend", "cuda"]) == 0
    sys.stdout.flush()
    assert b" ? torch " in written.getvalue()


def test_an_error_of_its_own(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(collect, "compare", lambda *arguments: 1 / 0)
    assert main(["softmax"]) == 70
    assert "ZeroDivisionError" in capsys.readouterr().err


def test_syntax_error_in_a_kernel(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "kernel.py"
    file.write_text("import torch\ndef f(:\n")

    def compare(*arguments: Any) -> NoReturn:
        compile(file.read_text(), str(file), "exec")
        raise AssertionError

    monkeypatch.setattr(collect, "compare", compare)
    assert main(["softmax"]) == 4
    assert capsys.readouterr().err == f"compare: {file}:2: invalid syntax\n"


@pytest.mark.parametrize(
    ("side", "name", "value"),
    [
        ("cuda", "TWIN_EMULATOR_ORDER", "sideways"),
        ("cuda", "TWIN_EMULATOR_WORKERS", "0"),
        pytest.param(
            "triton", "TWIN_INTERPRETER_TIMEOUT", "abc", marks=needs_interpreter
        ),
    ],
)
def test_settings_that_make_no_sense(
    side: str,
    name: str,
    value: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setenv(name, value)
    assert main(["softmax", "--shape", "5x67", "--backend", side]) == 3
    complaint = capsys.readouterr().err
    assert name in complaint
    assert repr(value) in complaint


@pytest.mark.parametrize(
    ("side", "shown_as", "name"),
    [
        ("cuda", "CUDA", "TWIN_EMULATOR_STEP_LIMIT"),
        pytest.param(
            "triton", "Triton", "TWIN_INTERPRETER_TIMEOUT", marks=needs_interpreter
        ),
    ],
)
def test_limits_are_told_apart_from_wrong_kernels(
    side: str,
    shown_as: str,
    name: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setenv(name, {"TWIN_EMULATOR_STEP_LIMIT": "1"}.get(name, "0.0001"))
    # More work than a worker finishes before this process looks, on any machine.
    assert main(["softmax", "--shape", "3000x1025", "--backend", side]) == 1
    shown = capsys.readouterr().out
    assert f"{shown_as} did not finish: softmax: " in shown
    assert "NOT FINISHED" in shown
    assert "is wrong" not in shown


def test_backends_add_up(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, ...]] = []

    def compare(request: Request, progress: object) -> NoReturn:
        asked.append(request.backends)
        raise UnavailableError("enough")

    monkeypatch.setattr(collect, "compare", compare)
    for line in ("", "--backend triton --backend cuda", "--backend cuda cuda_inline"):
        assert main(["softmax", *line.split()]) == 3
    assert asked == [("cuda", "triton"), ("triton", "cuda"), ("cuda", "cuda_inline")]


@pytest.mark.parametrize(
    ("program", "mode"),
    [("exit 1", 0o755), ("exit 1", 0o644), ("exit 0", 0o755), ("echo nothing", 0o755)],
)
def test_broken_nvcc(
    program: str, mode: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("bin/nvcc", "include/cuda_runtime.h"):
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).write_text(f"#!/bin/sh\n{program}\n")
    (tmp_path / "bin/nvcc").chmod(mode)
    monkeypatch.setenv("CUDA_HOME", str(tmp_path))
    file = tmp_path / "report.json"
    line = ["softmax", "--shape", "5x67", "--backend", "cuda", "--json", str(file)]
    assert main(line) == 0
    report = json.loads(file.read_text())
    assert report["environment"]["nvcc"] is None
    assert "nvcc" in report["cases"][0]["codegen"]["cuda"]["skipped"]


@pytest.mark.skipif(find_cuda_home() is None, reason="needs nvcc")
@pytest.mark.parametrize(
    "line",
    [
        "softmax --shape 5x67 --backend triton --json -",
        "softmax --shape 5x67 --backend triton --html -",
        "study softmax --shape 5x67 --csv -",
    ],
)
def test_one_assembler_for_both_sides(
    line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    # TRITON_PTXAS_PATH may have Triton run nvcc's anyway.
    own, nvccs = (
        f", ptxas {tools.version_of(path)}"
        for path in (Path(get_ptxas(80).path), find_ptxas(ARCHITECTURES[80]))
    )
    for wanted, options in ((own, []), (nvccs, ["--same-ptxas"])):
        assert main([*line.split(), "--arch", "sm_80", *options]) == 0
        named = capsys.readouterr().out
        assert {each for each in (own, nvccs) if each in named} == {wanted}


def test_an_nvcc_without_an_assembler(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("bin/nvcc", "include/cuda_runtime.h"):
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).touch()
    monkeypatch.setenv("CUDA_HOME", str(tmp_path))
    line = "softmax --shape 5x67 --backend triton --same-ptxas --json -"
    assert main(line.split()) == 0
    report = json.loads(capsys.readouterr().out)
    skipped = report["cases"][0]["codegen"]["triton"]["skipped"]
    assert skipped.startswith(f"nvcc has no assembler, there is no {tmp_path}/bin/ptxa")


def test_triton_without_a_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "file/cache"))
    line = "softmax --shape 7x91 --backend triton --arch sm_86 --json -"
    assert main(line.split()) == 0
    report = json.loads(capsys.readouterr().out)
    assert "set TRITON_CACHE_DIR" in report["cases"][0]["codegen"]["triton"]["skipped"]


@pytest.mark.parametrize("command", ["bench softmax", "profile softmax", "record"])
def test_times_need_a_gpu(
    command: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert main(command.split()) == 3
    sentence = f"times need a GPU, and torch {torch.__version__} finds none here"
    assert capsys.readouterr() == ("", f"compare: {sentence}\n")


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("bench", "the following arguments are required: op"),
        ("bench softmaxx", "op: invalid choice: 'softmaxx'"),
        ("bench softmax --shape 64 4x", "--shape: '4x' is no shape"),
        ("bench softmax --dtype int32", "--dtype: invalid choice: 'int32'"),
        ("bench softmax --peers nobody", "--peers: invalid choice: 'nobody'"),
        ("bench softmax --param dim=a", "--param: dim of softmax is of type int"),
        ("bench softmax --json no/such/file", "--json: there is no folder no/such"),
        ("record softmaxx", f"there is no op 'softmaxx'; it has {', '.join(OPS)}"),
        ("plot softmaxx", f"there is no op 'softmaxx'; it has {', '.join(OPS)}"),
        ("routes", "the following arguments are required: op"),
        ("profile softmax --shape 0x3", "--shape: a tensor of shape 0x3 is empty"),
    ],
)
def test_command_lines_of_the_timing_lab_that_make_no_sense(
    line: str, complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(line.split()) == 2
    assert capsys.readouterr().err.startswith(f"compare: {complaint}")


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("study", "the following arguments are required: op"),
        ("study softmax --arch sm_1", "--arch: "),
        ("study softmax --csv - --mix", "--mix and --csv - would both write to stdout"),
        ("study softmax --csv - --markdown -", "--markdown - and --csv - would both"),
        ("study softmax --csv no/such/file", "--csv: there is no folder no/such"),
        ("study softmax --shape 3 --param dim=1", "softmax: "),
    ],
)
def test_study_of_what_makes_no_sense(
    line: str, complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(line.split()) == 2
    assert capsys.readouterr().err.startswith(f"compare: {complaint}")


@pytest.mark.parametrize("command", ["softmax", "study softmax"])
def test_a_kernel_that_nobody_launches(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*command.split(), "--shape", "4x8", "--kernel", "2"]) == 2
    assert capsys.readouterr().err.startswith(
        "compare: --kernel: the CUDA side of softmax launches one kernel here; "
        "there is no --kernel 2"
    )


@pytest.mark.parametrize("columns", ["0", "", "wide"])
def test_a_width_that_is_none_is_not_taken(
    columns: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    assert terminal.make_console().width == 100


def test_help_names_what_a_shape_consists_of(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit):
        main(["matmul", "--help"])
    assert "MxNxK" in capsys.readouterr().out


@pytest.mark.parametrize(
    "line",
    ["softmax --shape 5x67", "study softmax --shape 5x67 --memory --mix --trace"],
)
def test_a_narrow_terminal_breaks_no_word(
    line: str,
    no_times: None,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    words = {}
    for columns in (200, 40):
        monkeypatch.setenv("COLUMNS", str(columns))
        assert main(line.split()) == 0
        words[columns] = set(capsys.readouterr().out.split())
    assert words[200] <= words[40]


def test_all_shows_no_times_where_there_are_none(
    beside_other_tests: None, capsys: pytest.CaptureFixture[str]
) -> None:
    report = collect.compare(
        Request("add", (33,), "float32", {}, backends=("cuda",)), lambda _: None
    )
    terminal.show_all([report], terminal.make_console())
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    timed = [] if gpu_state.obstacle() else ["time", "GB/s"]
    wanted = ["op", "case", "backend", "parity", *timed, "registers", "PTX", "SASS"]
    assert wanted in lines


def test_what_stands_out_comes_first(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "500")
    shown = {}
    for options in ([], ["--all-findings"]):
        assert main(["softmax", "--shape", "5x67", *options]) == 0
        text = capsys.readouterr().out
        lines = text[text.index("What differs") :].splitlines()
        shown[len(options)] = [" ".join(line.split()) for line in lines]
    short, whole = shown[0], shown[1]
    assert short.index("What differs") < short.index("What is alike")
    assert len(whole) > len(short)
    assert " more with --all-findings; " in short[-1]
    assert "more" not in whole[-1]
    assert set(short[:-1]) <= set(whole)
