"""Compiling the kernels of a Triton launcher; pins the internals of Triton in use."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch
from triton import knobs
from triton.backends.nvidia.compiler import (
    get_features,
    get_ptxas,
    get_ptxas_version,
)
from triton.runtime.driver import driver

from bindings.backends.triton import launcher
from bindings.registry import OPS
from bindings.sources import ROOT
from bindings.toolchain import find_cuda_home
from compare.assembly.listing import parse_ptx
from compare.code import tools, triton_assembler
from compare.code.architectures import ARCHITECTURES, Architecture
from compare.code.cuda import find_ptxas
from compare.code.triton_offline import (
    TritonLaunch,
    offline_driver,
    plan_launches,
    record_launches,
)
from compare.errors import CodegenUnavailable, CompilationFailed
from compare.judge.cases import Case, launcher_arguments
from triton_kernels.softmax.twin import softmax_kernel

softmax, add = launcher(OPS["softmax"]), launcher(OPS["add"])
KERNEL: Any = softmax_kernel  # mypy takes the decorated function for a plain one
AMPERE, HOPPER = ARCHITECTURES[80], ARCHITECTURES[90]
# Triton's own function, which `record_launches` replaces in its thread only.
OWN_PTXAS = Path(get_ptxas(AMPERE.number).path)

needs_nvcc = pytest.mark.skipif(find_cuda_home() is None, reason="needs nvcc")


def launch_softmax(
    architecture: Architecture, n_cols: int = 512, same_ptxas: bool = False
) -> TritonLaunch:
    x = torch.empty(100, n_cols, device="meta")
    arguments = (torch.empty_like(x), x, 100, n_cols, 100, 0, n_cols, 0)
    ptxas = find_ptxas(architecture) if same_ptxas else None
    (launch,) = record_launches(softmax, arguments, architecture, ptxas)
    return launch


def test_a_launch_is_recorded_as_it_would_be_made() -> None:
    launch = launch_softmax(HOPPER)
    assert launch.kernel == "softmax_kernel"
    constants = "BLOCK_M=4, BLOCK_N=512, N_TILES=1, DIVISIBILITY=16, num_warps=4"
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
    (launch,) = record_launches(add, (out, x, x, 4096, 4096, 0, 1, 0, 1, 0), HOPPER)
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
        N_TILES=1,
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
        x = torch.empty(1, 4096, device="meta")
        with pytest.raises(CodegenUnavailable, match="unset TRITON_INTERPRET"):
            plan_launches(softmax, (x, x, 1, 4096, 1, 0, 4096), HOPPER)


def crowded(*arguments: Any) -> None:
    # 256 elements for every thread: more than there are registers.
    KERNEL[(1,)](
        *arguments,
        BLOCK_M=1,
        BLOCK_N=32768,
        N_TILES=1,
        DIVISIBILITY=16,
        num_warps=4,
        enable_fp_fusion=True,
    )


@pytest.mark.parametrize(
    ("architecture", "same_ptxas"),
    [
        (AMPERE, False),
        (HOPPER, False),
        pytest.param(AMPERE, True, marks=needs_nvcc),
    ],
)
def test_spills_are_told_in_bytes(
    architecture: Architecture, same_ptxas: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    x = torch.empty(1, 32768, device="meta")
    arguments = (x, x, 1, 32768, 1, 0, 32768)
    ptxas = find_ptxas(architecture) if same_ptxas else None
    (launch,) = record_launches(crowded, arguments, architecture, ptxas)
    log = launch.assembler_log
    report = tools.parse_assembler_report(log, launch.kernel)
    assert report.spill_store_bytes > 0
    assert report.spill_load_bytes > 0
    # The log is of the kernel at hand, not of one that other options made.
    resources = tools.resources_of(launch.cubin, launch.kernel, architecture)
    assert f"Used {resources.registers} registers" in log
    assert f"{resources.stack_bytes} bytes stack frame" in log
    assert capsys.readouterr().out == ""


def test_the_compilers_name_tells_both_versions() -> None:
    compiler = launch_softmax(HOPPER).compiler
    assert compiler.startswith("triton 3.")
    assert ", ptxas 1" in compiler


# ---- The assembler -------------------------------------------------------------------


@pytest.mark.parametrize("order", [(False, True, False), (True, False, True)])
def test_what_is_not_assembled_is_not_taken_for_machine_code(
    order: tuple[bool, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    x = torch.empty(100, 512, device="meta")
    arguments = (torch.empty_like(x), x, 100, 512, 100, 0, 512, 0)
    forget_kernels()
    expected = ""
    for is_forgotten in (False, True):
        for assembles in order:
            if is_forgotten:
                forget_kernels()
            with offline_driver(HOPPER, assembles=assembles) as launches:
                softmax(*arguments)
            (launch,) = launches
            expected = expected or launch.ptx
            assert launch.ptx == expected
            assert bool(launch.compiled.asm["cubin"]) == assembles
            assert launch.cubin.startswith(b"\x7fELF")


def check_assembler(launch: TritonLaunch, same_ptxas: bool) -> None:
    """Checks that the code comes from the requested assembler, and names it."""
    # On Ampere, which both know. TRITON_PTXAS_PATH may have Triton run nvcc's anyway.
    nvccs, own = map(tools.version_of, (find_ptxas(AMPERE), OWN_PTXAS))
    version = nvccs if same_ptxas else own
    assert launch.compiler.endswith(f", ptxas {version}")
    # An older one signs its code in another way.
    assert (f"V{nvccs}\0".encode() in launch.cubin) == (version == nvccs)


def forget_kernels() -> None:
    """Makes Triton look on disk for kernels that this process has compiled."""
    # Deleted kernels would be unloaded from a GPU, so they stay, on no device's name.
    for device in [*KERNEL.device_caches]:
        KERNEL.device_caches[object()] = KERNEL.device_caches.pop(device)


@needs_nvcc
@pytest.mark.parametrize("order", [(False, True, False), (True, False, True)])
def test_one_assembler_is_not_taken_for_the_other(
    order: tuple[bool, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    for is_forgotten in (False, True):
        for same_ptxas in order:
            if is_forgotten:
                forget_kernels()
            check_assembler(launch_softmax(AMPERE, 256, same_ptxas), same_ptxas)


OTHER_PROCESS = """
from test_code_triton import AMPERE, check_assembler, launch_softmax
for same_ptxas in {order}:
    check_assembler(launch_softmax(AMPERE, 256, same_ptxas), same_ptxas)
"""


# A thread's sums of 64 x 128, and of 64 x 64.
@pytest.mark.parametrize(
    ("shape", "n_sums"), [((4096, 4096, 256), 64), ((256, 256, 256), 32)]
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_steps_of_8_bit_floats_are_added_while_the_next_is_multiplied(
    dtype: torch.dtype, shape: tuple[int, ...], n_sums: int
) -> None:
    """Neither does the assembler put in waits, nor does it serialise products."""
    op, case = OPS["scaled_matmul"], Case(shape, dtype)
    arguments = launcher_arguments(op, case)
    (launch,) = record_launches(launcher(op), arguments, HOPPER)
    opcodes = re.findall(r"\b(wgmma\.\w+|add\.f32)\S*(?: +\d)?", launch.ptx)
    done = "".join(_LETTERS[each] for each in opcodes)
    assert re.fullmatch(f"(M{{4}}C|W(A{{{n_sums}}})?)+", done)
    # Twice in the loop and once behind it, by either warpgroup.
    assert done.count("MMMMCW" + "A" * n_sums) == 2 * 3
    assert not re.search(r"\(C75\d\d\)", launch.assembler_log)
    assert " 0 bytes spill stores" in launch.assembler_log


@pytest.mark.parametrize("precision", ["tf32", "tf32x3"])
def test_products_of_float32_are_not_serialized(precision: str) -> None:
    """Where the left operand's registers come from shared memory meanwhile."""
    params = {"precision": precision, "bias": True, "activation": "gelu"}
    op = OPS["matmul"].on_rung("twin")
    case = Case((4096, 4096, 4096), torch.float32, params=params)
    arguments = launcher_arguments(op, case)
    launches = record_launches(launcher(op), arguments, HOPPER)
    (launch,) = (each for each in launches if "wgmma" in each.ptx)
    assert not re.search(r"\(C75\d\d\)", launch.assembler_log)
    assert " 0 bytes spill stores" in launch.assembler_log


# What a kernel does, as letters: a product, the end of a group, a wait, an addition.
_LETTERS = {
    "wgmma.fence": "",
    "wgmma.mma_async": "M",
    "wgmma.commit_group": "C",
    "wgmma.wait_group": "W",
    "add.f32": "A",
}


@needs_nvcc
def test_processes_that_share_a_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    paths = (str(ROOT), str(ROOT / "tests"), os.environ.get("PYTHONPATH", ""))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, paths)))
    # This one leaves the code of one assembler, the other that of both.
    for same_ptxas in (False, True):
        forget_kernels()
        check_assembler(launch_softmax(AMPERE, 256, same_ptxas), same_ptxas)
        if not same_ptxas:
            program = OTHER_PROCESS.format(order=(True, False))
            subprocess.run([sys.executable, "-c", program], check=True)


@needs_nvcc
def test_threads_with_different_assemblers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))

    def launch(same_ptxas: bool) -> None:
        for n_cols in (128, 256):
            check_assembler(launch_softmax(AMPERE, n_cols, same_ptxas), same_ptxas)

    with ThreadPoolExecutor() as threads:
        list(threads.map(launch, [False, True, False, True]))


class AnyOptions:
    """The options of a kernel that the PTX's version depends on."""

    ptx_version = None


@needs_nvcc
def test_nothing_is_remembered_of_another_assembler() -> None:
    seen: list[int] = []

    def launch(*arguments: Any) -> None:
        seen.extend(
            each.cache_info().currsize for each in (get_features, get_ptxas_version)
        )
        get_features(AnyOptions, 80)
        get_ptxas_version(80)

    record_launches(launch, (), AMPERE)
    record_launches(launch, (), AMPERE, find_ptxas(AMPERE))
    record_launches(launch, (), AMPERE)
    assert seen[2:] == [0, 0, 0, 0]


@needs_nvcc
def test_the_assembler_gets_into_no_other_program() -> None:
    before = dict(os.environ)
    seen = []

    def launch(*arguments: Any) -> None:
        seen.append(dict(os.environ))

    record_launches(launch, (), AMPERE, find_ptxas(AMPERE))
    assert [*seen, dict(os.environ)] == [before, before]


def test_an_assembler_that_triton_would_pass_over(tmp_path: Path) -> None:
    before = driver._active
    with pytest.raises(CodegenUnavailable, match=r"Triton cannot run .*nothing"):
        record_launches(softmax, (), AMPERE, tmp_path / "nothing")
    assert driver._active is before
    assert launch_softmax(AMPERE).assembler != tmp_path / "nothing"


def test_triton_without_its_assembler(monkeypatch: pytest.MonkeyPatch) -> None:
    def get_ptxas(number: int) -> Any:
        raise RuntimeError("Cannot find ptxas")

    monkeypatch.setattr(triton_assembler, "get_ptxas", get_ptxas)
    with pytest.raises(CodegenUnavailable, match=r"Cannot find ptxas\); reinstall"):
        launch_softmax(AMPERE)
