"""`compare study`: two sources side by side, views of their code, tables of them."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator
from pathlib import Path

import launches
import pytest

from bindings.op import Op
from bindings.registry import OPS
from bindings.sources import ROOT
from bindings.toolchain import find_cuda_home
from bindings.trials import TRIALS
from compare.cli import main
from compare.code import cuda
from compare.report import collect_code
from compare.report.tables import Grid, to_csv, to_markdown

LONG = "softmax_long_kernel"

needs_nvcc = pytest.mark.skipif(find_cuda_home() is None, reason="needs nvcc")


@pytest.fixture(autouse=True)
def _wide(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "220")
    monkeypatch.setenv("NO_COLOR", "1")


def _shape(op: Op) -> tuple[int, ...]:
    """What is shown by default, or less where long loops would take a while."""
    trial = TRIALS[op.name]
    return trial.small_shape if trial.flops else trial.large_shape


def _of_cuda(source: str) -> Iterator[launches.Launch]:
    for op in (each for each in OPS.values() if each.source == source):
        request = collect_code.Request(op.name, _shape(op), "float32", {})
        case = request.case(())
        shown = collect_code.choose(request, case, launches.HOPPER)
        yield shown["cuda"].op, case, launches.HOPPER


launches.announce_of_source(_of_cuda)


@pytest.mark.parametrize("name", OPS)
def test_sources_stand_beside_each_other(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    op = OPS[name]
    backward = ["--backward"] if op.forward else []
    shape = "x".join(map(str, _shape(op)))
    small = ["--shape", shape] if TRIALS[op.name].flops else []
    if find_cuda_home() is not None:
        launches.compile_with_nvcc(op.source, launches.HOPPER)
    assert main(["study", op.source, *backward, *small]) == 0
    shown = capsys.readouterr().out
    sections = re.findall(r"// -- (\w+):", shown)
    assert len(sections) > 1
    for section in sections:
        # On one line, or on the next where one side wraps.
        assert re.search(rf"// -- {section}:.*# -- {section}:", shown), section
    # The twin, in files of the same name, by kernels of the same name.
    panes = re.search(
        r"CUDA: csrc/(\S+)\.cuh?, (\w+) +Triton: triton_kernels/\1", shown
    )
    assert panes
    assert shown.count(panes[2]) >= 2
    assert re.search(rf"^{name}  {shape} float32 .* code for sm_90a?$", shown, re.M)


def test_sources_are_shown_where_there_is_no_nvcc(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cuda, "find_cuda_home", lambda: None)
    assert main(["study", "softmax", "--shape", "2x100000"]) == 0
    shown = capsys.readouterr().out
    assert "no code of CUDA: there is no nvcc here" in shown
    assert re.search(r"CUDA: csrc/softmax/long\.cuh, softmax_long_kernel +Trit", shown)
    assert re.search(r"// -- store:.*# -- store:", shown)


def test_long_rows_have_another_kernel(capsys: pytest.CaptureFixture[str]) -> None:
    launches.compile_what_commands_show()
    assert main(["study", "softmax", "--shape", "2x100000"]) == 0
    shown = capsys.readouterr().out
    assert "csrc/softmax/long.cuh, softmax_long_kernel" in shown
    assert "triton_kernels/softmax/long.py, softmax_long_kernel" in shown
    for side in ("CUDA", "Triton"):
        taken = f"a call at this shape takes softmax_long_kernel in {side}, where the "
        assert f"{taken}twin has no kernel" in shown
    assert f"softmax_long_kernel: {TRIALS['softmax'].other_kernels[LONG]}" in shown


def test_a_rung_by_its_name(capsys: pytest.CaptureFixture[str]) -> None:
    launches.compile_what_commands_show()
    assert main(["study", "softmax", "--rung", "first"]) == 0
    shown = capsys.readouterr().out
    assert "CUDA: csrc/softmax/first.cuh, softmax_first_kernel" in shown
    assert "Triton: triton_kernels/softmax/first.py, softmax_first_kernel" in shown
    assert "a call at this shape takes softmax_kernel in CUDA\n" in shown
    assert main(["study", "softmax", "--rung", "last"]) == 2
    assert "rung must be one of first, twin, got 'last'" in capsys.readouterr().err
    assert main(["study", "softmax", "--rung", "twin", "--shape", "2x100000"]) == 2
    error = capsys.readouterr().err
    assert "the rung 'twin' has no kernel for this call" in error


@needs_nvcc
def test_memory_is_counted_for_an_element(capsys: pytest.CaptureFixture[str]) -> None:
    launches.compile_what_commands_show()
    assert main(["study", "softmax", "--memory", "--shape", "16384x4096"]) == 0
    shown = capsys.readouterr().out
    for what in ("stores to out", "loads of x"):
        rows = re.findall(rf"^(CUDA|Triton): {what} +16 +4\.000 +8\.0 ", shown, re.M)
        assert rows == ["CUDA", "Triton"], what


def test_line_numbers_are_those_of_the_file(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["study", "gelu"]) == 0
    lines = (ROOT / "csrc/unary/twin.cuh").read_text().splitlines()
    shown = re.findall(r"^ +(\d+) (// -- \w+: \S+)", capsys.readouterr().out, re.M)
    assert shown
    for number, text in shown:
        assert text in lines[int(number) - 1]


@needs_nvcc
def test_views(capsys: pytest.CaptureFixture[str]) -> None:
    launches.compile_what_commands_show()
    views = ["--mix", "--diff", "--ptx", "--sass"]
    assert main(["study", "softmax", "--shape", "64x781", *views]) == 0
    shown = capsys.readouterr().out
    for text in ("spilled bytes", "global load, 4 bytes", "PTX, aligned by", "SASS"):
        assert text in shown
    assert "template <typename T" not in shown


@needs_nvcc
def test_tables_in_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    markdown, cells = tmp_path / "tables.md", tmp_path / "tables.csv"
    line = f"study add --markdown {markdown} --csv {cells} --arch sm_80"
    assert main(line.split()) == 0
    assert capsys.readouterr().out == ""
    assert "| architecture | sm_80 | sm_80 |" in markdown.read_text()
    rows = list(csv.DictReader(io.StringIO(cells.read_text())))
    registers = [row for row in rows if row["row"] == "registers"]
    assert [row["column"] for row in registers] == ["CUDA", "Triton"]
    assert all(0 < int(row["value"]) < 256 for row in registers)


def test_cells_keep_their_bars_and_commas() -> None:
    grid = Grid("g", ("", "a|b"), (("row, one", 'x|y\\ "z"'),))
    assert r"| row, one | x\|y\\" in to_markdown([grid])
    (row,) = csv.DictReader(io.StringIO(to_csv([grid])))
    assert row == {
        "table": "g",
        "row": "row, one",
        "column": "a|b",
        "value": 'x|y\\ "z"',
    }
