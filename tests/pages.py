"""Reports for tests of pages: on real code, and on a made-up kernel."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import torch

from bindings.registry import OPS
from bindings.sources import ROOT
from bindings.trials import TRIALS
from compare.assembly.listing import parse_ptx, parse_sass
from compare.code import findings
from compare.code.architectures import ARCHITECTURES
from compare.code.kernel_code import KernelCode, Side, inspect_cuda, inspect_triton
from compare.code.words import LANGUAGE_NAMES
from compare.judge.acceptance import Errors
from compare.judge.cases import Case, launcher_arguments
from compare.judge.parity import Parity, Skipped
from compare.ptx_simulator import Launch, TensorArgument
from compare.report.comparison import Report

PARITY = Parity("emulator", Errors(1e-7, 1e-8), Errors(1e-6, 1e-6))

CUDA, TRITON = "csrc/softmax/twin.cuh", "triton_kernels/softmax/twin.py"


def line_of(file: str, text: str) -> int:
    """The first line of a file of the project that has this text in it."""
    lines = (ROOT / file).read_text(encoding="utf-8").split("\n")
    return next(n for n, line in enumerate(lines, start=1) if text in line)


ENTRY = line_of(CUDA, " softmax_kernel(")
TILE = line_of(CUDA, "-- tile: ")
LOAD = line_of(CUDA, "load_row<VEC_SIZE")
MAX = line_of(CUDA, "const float row_max")
SUM = line_of(CUDA, "const float row_sum")

# Of softmax_kernel, in another copy of the project; the last place is in none. TILE is
# a line of another file here, where no section begins.
PTX = f"""
.file 1 "/elsewhere/csrc/softmax/twin.cuh"
.file 2 "/elsewhere/csrc/common/vec.cuh"
.file 3 "/usr/include/vendor.hpp"
.visible .entry softmax_kernel(
    .param .u64 softmax_kernel_param_0
)
{{
    .reg .pred %p<3>;
    .reg .f32 %f<6>;
    .reg .b64 %rd<2>;
    .loc 1 {ENTRY} 0
    ld.param.u64 %rd1, [softmax_kernel_param_0];
    .loc 1 {LOAD} 0
    .loc 2 {TILE} 0, function_name $a, inlined_at 1 {LOAD} 0
    ld.global.v4.f32 {{%f1, %f2, %f3, %f4}}, [%rd1];
    .loc 1 {MAX} 0
    .loc 3 5 0, function_name $b, inlined_at 1 {MAX} 0
    shfl.sync.bfly.b32 %f5|%p1, %f1, 16, 31, -1;
$again:
    .loc 1 {SUM} 0
    add.f32 %f1, %f1, %f5;
    @%p2 bra $again;
    .loc 1 99999 0
    st.global.f32 [%rd1], %f1;
    ret;
}}
"""
SASS = f"""
        //## File "/elsewhere/csrc/softmax/twin.cuh", line {LOAD}
        //## File ".nv_debug_ptx_txt", line 16
        /*0000*/ LDG.E.128 R0, [R2.64] ;
        //## File "/elsewhere/csrc/softmax/twin.cuh", line {SUM}
        //## File ".nv_debug_ptx_txt", line 22
        /*0010*/ FADD R0, R0, R0 ;
        /*0020*/ STG.E [R2.64], R0 ;
        /*0030*/ EXIT ;
"""


@functools.cache
def real_code(op_name: str, side: Side) -> KernelCode:
    """The compiled code of one side of an op, in its smaller default case."""
    op = OPS[op_name]
    arguments = launcher_arguments(op, Case(TRIALS[op.name].small_shape))
    inspect = inspect_cuda if side == "cuda" else inspect_triton
    return inspect(op, arguments, ARCHITECTURES[90])


def made_up_code(side: Side, **changes: Any) -> KernelCode:
    """The code of a made-up kernel, which needs no nvcc."""
    ptx = parse_ptx(PTX)
    sass = parse_sass(SASS, ptx)
    real = real_code("softmax", "triton")
    made_up: dict[str, Any] = {
        "side": side,
        "language": side,
        "name": LANGUAGE_NAMES[side],
        "title": "softmax_kernel<float>",
        "kernels": ("softmax_kernel<float>",),
        "ptx": ptx,
        "read_sass": lambda: sass,
        "launch": Launch(
            (1, 1, 1), (128, 1, 1), (1 << 44,), (TensorArgument("x", 0, 1 << 44, 16),)
        ),
    }
    code = dataclasses.replace(real, **made_up | changes)
    stopped = dataclasses.replace(real.simulation, is_complete=False)
    vars(code)["simulation"] = stopped  # of which nothing is said
    return code


def report(
    op_name: str, cuda: KernelCode, triton: KernelCode, **changes: Any
) -> Report:
    """A report on code that was not run."""
    environment: dict[str, Any] = {
        "python": "3.13",
        "torch": "2.13",
        "triton": "3.9",
        "nvcc": "13.0",
        "driver": None,
        "gpus": [],
        "date": "2026-11-20T10:00:00+00:00",
    }
    made = Report(
        op=op_name,
        environment=environment,
        case=Case(TRIALS[op_name].small_shape, torch.float32),
        backends=("cuda", "triton"),
        parity=dict.fromkeys(("cuda", "triton", "torch"), PARITY),
        times=Skipped("times need a GPU"),
        codegen={"cuda": cuda, "triton": triton},
        findings=findings.find(cuda, triton),
    )
    return dataclasses.replace(made, **changes)


def real_report(op_name: str) -> Report:
    """A report on an op's own kernels."""
    return report(op_name, real_code(op_name, "cuda"), real_code(op_name, "triton"))


def made_up_report(**changes: Any) -> Report:
    """A report on the made-up kernel."""
    return report("softmax", made_up_code("cuda"), made_up_code("triton"), **changes)
