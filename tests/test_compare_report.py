"""Reports: the JSON schema, and the renderers at any width."""

from __future__ import annotations

import dataclasses
import io
import json
import math
from types import NoneType
from typing import Any

import launches
import pytest
import torch
from rich.console import Console

from bindings.trial import Traffic
from compare.assembly.listing import parse_ptx, parse_sass
from compare.cli import main
from compare.code import findings
from compare.code.kernel_code import KernelCode, Side
from compare.code.words import LANGUAGE_NAMES
from compare.judge.acceptance import Errors
from compare.judge.cases import Case
from compare.judge.parity import Parity, Skipped
from compare.ptx_simulator import Launch, TensorArgument
from compare.report import code_views, terminal
from compare.report.comparison import Report, all_to_json, to_json
from compare.timing.times import (
    CaseTimes,
    Ceiling,
    Comparison,
    Timing,
)

PTX = """
.visible .entry {name}(
    .param .u64 {name}_param_0
)
{{
    ld.param.u64 %rd1, [{name}_param_0];
    ld.global.{load} %r1, [%rd1];
    add.f32 %r2, %r1, %r1;
    st.global.f32 [%rd1], %r2;
    ret;
}}
"""
SASS = """
        /*0000*/ LDG.E R0, [R2.64] ;
        /*0010*/ FADD R0, R0, R0 ;
        /*0020*/ STG.E [R2.64], R0 ;
        /*0030*/ EXIT ;
"""
# Text that is markup to rich, and a command to a terminal.
HOSTILE = "[bold red]x[/] [link=http://x]y \x1b[31mred\x1b]0;title\x07 \u202e"


def _code(side: Side, load: str) -> KernelCode:
    ptx = parse_ptx(PTX.format(name=f"{side}_kernel", load=load))
    sass = parse_sass(SASS, ptx)
    return KernelCode(
        side=side,
        language=side,
        name=LANGUAGE_NAMES[side],
        arch="sm_90a",
        kernel=f"{side}_kernel",
        title=f"{side}_kernel<{HOSTILE}>",
        kernels=(f"{side}_kernel<{HOSTILE}>",),
        number=0,
        compiler="nvcc",
        elements=512,
        registers=16,
        spill_store_bytes=0,
        spill_load_bytes=4,
        stack_bytes=0,
        static_shared_bytes=0,
        ptx=ptx,
        read_sass=lambda: sass,
        launch=Launch(
            (4, 1, 1),
            (128, 1, 1),
            (1 << 44,),
            (TensorArgument("x", 0, 1 << 44, 16),),
            dynamic_shared_bytes=64,
        ),
    )


def _timing(us: float) -> Timing:
    return Timing(
        *(us, 0.9 * us, 1.1 * us, 0.95 * us, 1.05 * us, 640, "graph"),
        *(4.5, None, 41250.25 / us, 10.0 / us),
    )


def _report(**changes: Any) -> Report:
    cuda, triton = _code("cuda", "f32"), _code("triton", "v4.b32")
    parity = Parity("gpu", Errors(1e-7, 1e-8), Errors(1e-6, 1e-6))
    environment = {
        "python": "3.13",
        "torch": "2.13",
        "triton": None,
        "nvcc": "13.0",
        "driver": None,
        "gpus": [HOSTILE],
    }
    made = Report(
        op="softmax",
        environment=environment,
        case=Case((1823, 781), torch.float32, params={"dim": -1}),
        backends=("cuda", "triton"),
        parity={
            "cuda": parity,
            "triton": dataclasses.replace(
                parity, error=Errors(math.nan, math.inf), problem=HOSTILE
            ),
            "torch": parity,
        },
        times=CaseTimes(
            case=Case((1823, 781), torch.float32, params={"dim": -1}),
            traffic=Traffic(1000, 1000),
            ceiling=Ceiling("1:1", 10.0, 4125.0, HOSTILE),
            timings={
                "cuda": _timing(12.5),
                "triton": Skipped(HOSTILE),
                "torch": _timing(25.0),
            },
            comparisons=(Comparison("cuda", "torch", 0.5, 0.49, 0.51, "faster"),),
            gpu_state=None,
        ),
        codegen={"cuda": cuda, "triton": triton},
        findings=findings.find(cuda, triton),
    )
    return dataclasses.replace(made, **changes)


# The schema: a type, or the least that a dictionary has to hold. Each of these may be
# "skipped" instead.
NUMBER = (int, float)
PARITY = {"passed": bool, "max_error": NUMBER, "allowed": NUMBER, "ran_on": str}
TIMING = dict.fromkeys(
    ("median_us", "p20_us", "p80_us", "host_us", "gb_per_s", "fraction"), NUMBER
)
CODEGEN = {
    "arch": str,
    "registers": int,
    "spill_bytes": int,
    "shared_bytes": int,
    "occupancy": {"fraction": NUMBER, "blocks_per_sm": int, "limited_by": list},
    "executed_per_thread": NUMBER,
    "emulated_blocks": int,
    "is_exact": bool,
    "global_bytes": int,
    "sectors": int,
    "fewest_sectors": int,
    "bank_conflicts": int,
    "memory": list,
    "trace": list,
    "out_of_bounds": list,
    "ptx_instructions": int,
    "sass_instructions": int,
    "mix": dict,
}
CASE = {
    "case": {
        "shape": list,
        "dtype": str,
        "layout": str,
        "params": dict,
        "direction": str,
    },
    "parity": {"cuda": PARITY, "triton": PARITY, "torch": {"max_error": NUMBER}},
    "timing": {"cuda": TIMING, "triton": TIMING, "torch": TIMING},
    "codegen": {"cuda": CODEGEN, "triton": CODEGEN},
    "findings": list,
    "violations": list,
}
FINDING = {
    "rule": str,
    "topic": str,
    "text": str,
    "side": (str, NoneType),
    "weight": NUMBER,
    "language": str,
    "evidence": list,
}
EVIDENCE = {
    "side": str,
    "place": (str, NoneType),
    "index": int,
    "instruction": str,
}
ENVIRONMENT = {"python": str, "platform": str, "torch": str, "date": str, "gpus": list}


def _check(value: Any, schema: Any, where: str) -> None:
    if not isinstance(schema, dict):
        assert isinstance(value, schema), f"{where}: {value!r}"
        return
    assert isinstance(value, dict), where
    if "skipped" in value:
        assert isinstance(value["skipped"], str), where
        return
    for name, part in schema.items():
        assert name in value, f"{where}: {name} is missing"
        _check(value[name], part, f"{where}.{name}")


def _check_cases(cases: Any) -> None:
    assert isinstance(cases, list)
    for case in cases:
        _check(case, CASE, "case")
        for finding in case["findings"]:
            _check(finding, FINDING, "finding")
            for evidence in finding["evidence"]:
                _check(evidence, EVIDENCE, "evidence")
                assert evidence["side"] in ("cuda", "triton")
                assert finding["side"] in ("cuda", "triton", None)


@pytest.mark.parametrize(
    "line",
    [
        "softmax --shape 5x67",
        "gelu --shape 7x131 --dtype float16 --param approximate=tanh --arch sm_80",
        "add --shape 1003 --dtype bfloat16 --arch sm_120",
        "gelu --shape 3 --backend triton",
    ],
)
def test_json_of_one_op(line: str, capsys: pytest.CaptureFixture[str]) -> None:
    launches.compile_what_commands_show()
    assert main([*line.split(), "--json", "-"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["schema_version"] == 1
    assert document["op"] == line.split()[0]
    _check(document["environment"], ENVIRONMENT, "environment")
    _check_cases(document["cases"])
    (case,) = document["cases"]
    is_bfloat16, is_on_gpu = "bfloat16" in line, bool(document["environment"]["gpus"])
    if "--backend triton" in line:
        assert case["parity"]["cuda"] == {"skipped": "not asked for by --backend"}
    else:
        assert case["parity"]["cuda"]["passed"]
        assert case["parity"]["cuda"]["ran_on"] == ("gpu" if is_on_gpu else "emulator")
    assert case["parity"]["triton"]["passed"]
    where = "compiled for sm_90a, simulated" if is_bfloat16 else "interpreter"
    assert case["parity"]["triton"]["ran_on"] == ("gpu" if is_on_gpu else where)


def test_json_of_all_ops(capsys: pytest.CaptureFixture[str]) -> None:
    report = _report()
    document = json.loads(json.dumps(all_to_json([report, report]), allow_nan=False))
    assert document["schema_version"] == 1
    assert [each["op"] for each in document["ops"]] == ["softmax", "softmax"]
    assert "environment" in document


def test_json_of_a_gpu_and_of_a_failure() -> None:
    document = json.loads(json.dumps(to_json(_report()), allow_nan=False))
    (case,) = document["cases"]
    assert case["timing"]["cuda"]["median_us"] == 12.5
    assert case["timing"]["triton"] == {"skipped": HOSTILE}
    assert case["parity"]["triton"]["passed"] is False
    assert case["parity"]["triton"]["max_error"] is None  # JSON has no NaN
    assert case["case"]["shape"] == [1823, 781]
    load = case["codegen"]["triton"]["mix"]["ptx"]["global load"]
    assert load == {"count": 1, "by_access_bytes": {"16": 1}}
    assert case["codegen"]["cuda"]["spill_bytes"] == 4


def test_violations_of_the_contract_on_code() -> None:
    violation = "CUDA, sm_90a, k<float>: bytes that a thread spills: expected 0, found"
    report = _report(violations=(f"{violation} 8",))
    (case,) = to_json(report)["cases"]
    assert case["violations"] == [f"{violation} 8"]
    shown = " ".join(_render(200, report, is_terminal=False).split())
    assert shown.count(f"the op's contract on code is broken: {violation} 8") == 2


def test_a_report_passes_unless_something_failed() -> None:
    assert not _report().passed
    assert _report(parity={"cuda": Skipped("no reason")}).passed


def _render(width: int, report: Report, is_terminal: bool = True) -> str:
    file = io.StringIO()
    console = Console(
        file=file, width=width, highlight=False, force_terminal=is_terminal
    )
    terminal.show(report, console)
    code_views.show_diff(report, console)
    code_views.show_listings(report, "ptx", console)
    code_views.show_listings(report, "sass", console)
    terminal.show_all([report, report], console)
    return file.getvalue()


@pytest.mark.parametrize("width", [1, 20, 60, 100, 200])
def test_renderers_fit_any_width(width: int) -> None:
    lines = _render(width, _report(), is_terminal=False).splitlines()
    # In a narrow console a table of figures is as wide as its longest words.
    assert max(map(len, lines)) <= max(width, 75)


def test_renderers_show_text_as_it_is() -> None:
    shown = _render(200, _report())
    assert "[bold red]x[/] [link=http://x]y" in shown
    assert "\x07" not in shown
    assert "\x1b]" not in shown
    assert "\u202e" not in shown


def test_renderers_without_code() -> None:
    skipped = {"cuda": Skipped("no nvcc"), "triton": Skipped("no triton")}
    shown = _render(100, _report(codegen=skipped, findings=()))
    assert "no nvcc" in shown
    assert "there is no code of both sides to show" in shown
    assert "there is no PTX to show" in shown


def test_listings_of_one_side() -> None:
    report = _report(codegen={"cuda": _code("cuda", "f32"), "triton": Skipped("no")})
    file = io.StringIO()
    code_views.show_listings(report, "ptx", Console(file=file, width=100))
    assert "ld.global.f32" in file.getvalue()
    assert "Triton" not in file.getvalue()


def test_the_report_fits_on_a_screen(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    launches.compile_what_commands_show()
    monkeypatch.setenv("COLUMNS", "100")
    assert main(["softmax", "--shape", "1823x781"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) <= 54
    assert max(map(len, lines)) <= 100


def test_figures_of_a_gpu_are_shown() -> None:
    shown = _render(100, _report())
    for figure in ("12.50", "11.25 to 13.75", "3,300.02", "16 / 4", "64"):
        assert figure in shown


def test_colours_can_be_turned_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    shown = _render(100, _report())
    assert "\x1b[36m" not in shown
