"""Compiling what a Triton launcher launches: pins what is used of Triton's inside."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from triton import knobs
from triton.runtime.driver import driver

from compare.codegen import tools
from compare.codegen.architectures import ARCHITECTURES, Architecture
from compare.codegen.errors import CodegenUnavailable, CompilationFailed
from compare.codegen.listing import parse_ptx
from compare.codegen.triton_offline import (
    TritonLaunch,
    assembler_log,
    compiler_name,
    record_launches,
)
from triton_kernels.add import add
from triton_kernels.softmax import softmax, softmax_kernel

KERNEL: Any = softmax_kernel  # mypy takes the decorated function for a plain one
AMPERE, HOPPER = ARCHITECTURES[80], ARCHITECTURES[90]


def launch_softmax(architecture: Architecture, n_cols: int = 512) -> TritonLaunch:
    x = torch.empty(100, n_cols, device="meta")
    arguments = (torch.empty_like(x), x, 100, n_cols, 100, 0, n_cols)
    (launch,) = record_launches(softmax, arguments, architecture)
    return launch


def test_a_launch_is_recorded_as_it_would_be_made() -> None:
    launch = launch_softmax(HOPPER)
    assert launch.kernel == "softmax_kernel"
    constants = "BLOCK_M=4, BLOCK_N=512, DIVISIBILITY=16, num_warps=4"
    assert launch.title == f"softmax_kernel[{constants}]"
    assert (launch.grid, launch.block) == ((25, 1, 1), (128, 1, 1))
    assert ".entry softmax_kernel(" in launch.ptx
    assert launch.cubin.startswith(b"\x7fELF")
    assert launch.dynamic_shared_bytes == 0 or launch.dynamic_shared_bytes >= 16


def test_a_kernel_that_is_already_compiled_is_recorded_again() -> None:
    first, second = launch_softmax(HOPPER), launch_softmax(HOPPER)
    assert second.compiled is first.compiled
    assert second.grid == first.grid


def test_architectures_do_not_get_into_each_others_way() -> None:
    targets = [
        line
        for architecture in (AMPERE, HOPPER, AMPERE)
        for line in launch_softmax(architecture).ptx.split("\n")
        if line.startswith(".target")
    ]
    assert targets == [".target sm_80", ".target sm_90a", ".target sm_80"]


@pytest.mark.parametrize(("offset", "widest"), [(0, 16), (1, 4)])
def test_the_alignment_of_views_is_seen(offset: int, widest: int) -> None:
    x = torch.empty(4096 + offset, device="meta")[offset:]
    out = torch.empty(4096, device="meta")
    (launch,) = record_launches(add, (out, x, x, 4096, 4096, 0, 1, 0, 1), HOPPER)
    loads = parse_ptx(launch.ptx).in_category("global load")
    assert max(each.access_bytes for each in loads) == widest


def test_the_driver_is_put_back() -> None:
    before = driver._active
    launch_softmax(HOPPER)
    assert driver._active is before
    real: Any = object()  # as on a machine with a GPU
    driver.set_active(real)
    try:
        launch_softmax(HOPPER)
        assert driver._active is real
    finally:
        driver._active = before


def refused(*arguments: Any) -> None:
    # Two thousand threads, where a block has a thousand at most.
    KERNEL[(1,)](
        *arguments,
        BLOCK_M=1,
        BLOCK_N=4096,
        DIVISIBILITY=16,
        num_warps=64,
        enable_fp_fusion=True,
    )


def test_a_kernel_that_triton_refuses(capsys: pytest.CaptureFixture[str]) -> None:
    before = driver._active
    x = torch.empty(1, 4096, device="meta")
    with (
        knobs.runtime.scope(),
        pytest.raises(
            CompilationFailed, match="cannot compile refused for sm_90a"
        ) as info,
    ):
        record_launches(refused, (x, x, 1, 4096, 1, 0, 4096), HOPPER)
    assert info.value.log
    assert driver._active is before
    assert capsys.readouterr().out == ""


def test_the_interpreter_is_no_compiler() -> None:
    with knobs.runtime.scope():
        knobs.runtime.interpret = True
        with pytest.raises(CodegenUnavailable, match="unset TRITON_INTERPRET"):
            launch_softmax(HOPPER)


def crowded(*arguments: Any) -> None:
    # 256 elements for every thread: more than there are registers.
    KERNEL[(1,)](
        *arguments,
        BLOCK_M=1,
        BLOCK_N=32768,
        DIVISIBILITY=16,
        num_warps=4,
        enable_fp_fusion=True,
    )


@pytest.mark.parametrize("architecture", [AMPERE, HOPPER], ids=lambda each: each.name)
def test_spills_are_told_in_bytes(
    architecture: Architecture, capsys: pytest.CaptureFixture[str]
) -> None:
    x = torch.empty(1, 32768, device="meta")
    arguments = (x, x, 1, 32768, 1, 0, 32768)
    (launch,) = record_launches(crowded, arguments, architecture)
    log = assembler_log(launch, architecture)
    report = tools.parse_assembler_report(log, launch.kernel)
    assert report.spill_store_bytes > 0
    assert report.spill_load_bytes > 0
    # The log is of the kernel at hand, not of one that other options made.
    code = tools.disassemble(launch.cubin, launch.kernel, architecture)
    assert f"Used {code.registers} registers" in log
    assert f"{code.stack_bytes} bytes stack frame" in log
    assert capsys.readouterr().out == ""


def test_the_compilers_name_tells_both_versions() -> None:
    assert compiler_name(HOPPER).startswith("triton 3.")
    assert ", ptxas 1" in compiler_name(HOPPER)
