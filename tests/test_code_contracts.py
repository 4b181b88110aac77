"""The contract of every op on its compiled code, and code that breaks one.

The code is compiled but not run, so this holds on every machine, for GPUs that are not
there.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import chain

import launches
import pytest
import torch
from handicaps.build import compiled
from handicaps.by_hand import LOAD, STORE, sass_of, with_ptx
from handicaps.catalogue import HANDICAPS, ROWS, SIGMOID, TRANSPOSE, Kernel

from bindings.errors import UnsupportedError
from bindings.op import Argument, Op
from bindings.registry import OPS
from bindings.sources import ROOT, kernel_source
from bindings.toolchain import find_cuda_home
from bindings.trial import UNEVEN_ROWS, CodeContract
from bindings.trials import TRIALS
from compare.code.architectures import ARCHITECTURES, Architecture
from compare.code.kernel_code import (
    KernelCode,
    Side,
    inspect_cuda,
    inspect_triton,
    planned_kernels,
)
from compare.code.rungs import name_of
from compare.judge.cases import Case, launcher_arguments
from compare.judge.contracts import applies, cases, violations

SIDES: dict[str, Callable[..., KernelCode]] = {
    "cuda": inspect_cuda,
    "triton": inspect_triton,
}

HAS_NVCC = find_cuda_home() is not None
needs_nvcc = pytest.mark.skipif(not HAS_NVCC, reason="needs nvcc")


# ---- The ops -------------------------------------------------------------------------


def every_kernel(
    side: str, op: Op, arguments: tuple[Argument, ...], architecture: Architecture
) -> list[KernelCode]:
    """The code of all kernels that a launcher launches."""
    first = SIDES[side](op, arguments, architecture)
    others = range(1, len(first.kernels))
    return [
        first,
        *(SIDES[side](op, arguments, architecture, number=each) for each in others),
    ]


@pytest.mark.parametrize("each_op", launches.TWINS, ids=lambda op: op.name)
def test_contract(each_op: Op, few_blocks: None) -> None:
    contract = TRIALS[each_op.name].code_contract
    assert contract
    jobs = [
        (side, launch)
        for launch in launches.of_contract(each_op)
        for side in SIDES
        if HAS_NVCC or side == "triton"
        if side == "cuda" or not launches.spills_in_triton(launch)
    ]
    for architecture in {launch[2] for side, launch in jobs if side == "cuda"}:
        launches.compile_with_nvcc(each_op.source, architecture)

    def look(job: tuple[str, launches.Launch]) -> tuple[str, ...]:
        side, launch = job
        arguments = launches.arguments_of(launch)
        kernels = every_kernel(side, each_op, arguments, launch[2])
        return tuple(
            chain.from_iterable(violations(contract, each) for each in kernels)
        )

    # One more than there are processors: Triton compiles one kernel at a time.
    with ThreadPoolExecutor((os.cpu_count() or 1) + 1) as threads:
        found = list(chain.from_iterable(threads.map(look, jobs)))
    assert found == []
    if not HAS_NVCC:
        pytest.skip("needs nvcc for the other side")


# The disassembler takes half a second for each, so there is one op of each kind:
# elementwise, rows, asynchronous copies, indices, tiles.
ASSEMBLED = ["gelu", "softmax", "layer_norm_backward", "cross_entropy", "matmul"]
launches.announce(
    (OPS[name], cases(OPS[name], torch.float32)[0], launches.HOPPER)
    for name in ASSEMBLED
)


@pytest.mark.parametrize("side", ["triton", pytest.param("cuda", marks=needs_nvcc)])
@pytest.mark.parametrize("name", ASSEMBLED)
def test_the_assembler_keeps_what_contracts_read_in_ptx(name: str, side: str) -> None:
    op = OPS[name]
    arguments = launcher_arguments(op, cases(op, torch.float32)[0])
    if side == "cuda":
        launches.compile_with_nvcc(op.source, launches.HOPPER)
    code = SIDES[side](op, arguments, ARCHITECTURES[90])
    for category in ("global load", "async copy", "global store"):
        of_ptx, of_sass = (
            {each.access_bytes for each in listing.in_category(category)}
            for listing in (code.ptx, code.sass)
        )
        assert max(of_ptx, default=0) == max(of_sass, default=0)
    assert not code.sass.in_category("float64")


WITH_BIAS = Case(
    (8192, 8192, 8192), torch.bfloat16, params={"bias": True, "activation": "gelu"}
)
launches.announce([(OPS["matmul"], WITH_BIAS, launches.HOPPER)])


@needs_nvcc
def test_matmul_multiplies_while_its_bias_is_on_its_way() -> None:
    op = OPS["matmul"]
    launches.compile_with_nvcc(op.source, launches.HOPPER)
    arguments = launcher_arguments(op, WITH_BIAS)
    # Behind another that starts counts, if blocks share tiles.
    number = len(planned_kernels("cuda", op, arguments, ARCHITECTURES[90])) - 1
    code = inspect_cuda(op, arguments, ARCHITECTURES[90], number=number)
    instructions = code.sass.instructions
    loads = [each for each in instructions if each.opcode.startswith("LDG")]
    loads = [each for each in loads if "128" not in each.opcode]  # no parts of tiles
    assert loads
    for load in loads:
        register = re.compile(rf"\b{load.operands[0]}\b")
        later = instructions[load.index + 1 :]
        use = next(each for each in later if any(map(register.search, each.operands)))
        step = next(each for each in later if each.opcode.startswith("HGMMA"))
        assert step.index < use.index, f"{use.text} waits before the first step"


# Both two-byte dtypes take the same kernels, of which each length has its own.
@pytest.mark.parametrize(
    ("n_cols", "dtype"),
    [
        *((20011, torch.float32), (50257, torch.float32)),
        *((20011, torch.float16), (50257, torch.bfloat16)),
    ],
)
@pytest.mark.parametrize(
    ("name", "n_inputs"), [("softmax", 1), ("softmax_backward", 2)]
)
def test_triton_reads_rows_that_begin_anywhere_in_vectors(
    name: str, n_inputs: int, n_cols: int, dtype: torch.dtype
) -> None:
    op = OPS[name]
    arguments = launcher_arguments(op, Case((1300, n_cols), dtype))
    code = inspect_triton(op, arguments, ARCHITECTURES[90])
    assert code.spill_bytes == 0
    for category, n_tensors in (("global load", n_inputs), ("global store", 1)):
        widths = [each.access_bytes for each in code.ptx.in_category(category)]
        # One access for what lies around the vectors of each tensor.
        assert widths.count(dtype.itemsize) == n_tensors
        assert all(each >= 8 for each in widths if each != dtype.itemsize)


KERNELS = {
    "cuda": ("csrc", r"(?s)__global__.*?(\w+_kernel)\("),
    "triton": ("triton_kernels", r"(?m)^def (\w+_kernel)\("),
}
# Of one op, or shared by several.
FOLDERS_OF_KERNELS = sorted(
    {path.parent.name for path in ROOT.glob("csrc/*/*first.cuh")}
    - {op.source for op in OPS.values() if op not in launches.TWINS}
)


SHARED_TILES = (64, 64, 16384)
COPIED_OPERANDS = (2001, 2001, 2001)
OF_PRODUCTS: list[tuple[tuple[int, ...], dict[str, object]]] = [
    (SHARED_TILES, {}),
    (COPIED_OPERANDS, {}),
    (COPIED_OPERANDS, {"precision": "tf32x3"}),
]


def _planned(on_rung: Op, side: Side, dtype: torch.dtype) -> set[str]:
    found: set[str] = set()
    # Unaligned rows, which no contract covers, have kernels of their own, and so have
    # tiles that blocks share, and operands that are copied, or split.
    others = [
        *(
            (each, {})
            for each in TRIALS[on_rung.name].benchmark_shapes
            if each in UNEVEN_ROWS
        ),
        *OF_PRODUCTS * (on_rung.source == "matmul"),
    ]
    uncovered = (
        Case(shape, dtype, params=params, direction=on_rung.direction)
        for shape, params in others
    )
    for case in chain(cases(on_rung, dtype), uncovered):
        # A rung may serve some of these alone.
        with contextlib.suppress(UnsupportedError):
            arguments = launcher_arguments(on_rung, case)
            titles = planned_kernels(side, on_rung, arguments, ARCHITECTURES[90])
            found |= set(map(name_of, titles))
    return found


@pytest.mark.parametrize("side", ["triton", "cuda"])
@pytest.mark.parametrize("folder", FOLDERS_OF_KERNELS)
def test_the_shapes_pick_every_kernel(folder: str, side: Side) -> None:
    language, pattern = KERNELS[side]
    kernels = {
        kernel
        for path in (ROOT / language / folder).glob("*.*")
        for kernel in re.findall(pattern, path.read_text())
    }
    assert kernels
    picked = {
        kernel
        for op in OPS.values()
        if f'#include "{folder}/' in kernel_source(op.source).read_text()
        for rung in ("", *op.rungs)
        for dtype in (torch.float32, torch.bfloat16)
        for kernel in _planned(op.on_rung(rung), side, dtype)
    }
    assert kernels <= picked


LARGE = TRIALS["gelu"].large_shape


@pytest.mark.parametrize(
    ("name", "case", "expected"),
    [
        ("softmax", Case((16384, 4096)), True),
        ("softmax", Case((16384, 4096), torch.float16, params={"dim": -1}), True),
        ("softmax", Case((16384, 4096), params={"dim": 0}), False),
        ("softmax", Case((16384, 4096), layout="sliced"), False),
        ("softmax", Case((1823, 781)), False),
        ("gelu", Case(LARGE), True),
        ("gelu", Case(LARGE, params={"approximate": "tanh"}), True),
        ("gelu", Case(TRIALS["gelu"].small_shape), False),
        ("gelu_backward", Case(LARGE, direction="backward"), True),
    ],
)
def test_what_a_contract_speaks_of(name: str, case: Case, expected: bool) -> None:
    assert applies(OPS[name], case) == expected


def test_nothing_is_asked_without_a_contract(monkeypatch: pytest.MonkeyPatch) -> None:
    trial = replace(TRIALS["gelu"], code_contract=None)
    monkeypatch.setitem(TRIALS, "gelu", trial)
    assert cases(OPS["gelu"], torch.float32) == ()
    assert not applies(OPS["gelu"], Case(LARGE))


# ---- Broken contracts ----------------------------------------------------------------

ANY = CodeContract()


def broken(code: KernelCode) -> list[str]:
    """The sentences of a broken contract, each of which begins with its kernel."""
    name = {"cuda": "CUDA", "triton": "Triton"}[code.side]
    start = f"{name}, {code.arch}, {code.title}: "
    found = violations(ANY, code)
    assert all(each.startswith(start) for each in found)
    return [each.removeprefix(start) for each in found]


NARROW_LOADS = "bytes of the widest global load: expected 16, found 4"
NARROW_STORES = "bytes of the widest global store: expected 16, found 4"
# By kernel with a handicap: the beginnings of the sentences on it. Some versions of a
# compiler break more.
HANDICAPPED = {
    "cuda-too_few_registers": ["bytes that a thread spills: expected 0, found "],
    "triton-too_few_registers": ["bytes that a thread spills: expected 0, found "],
    "cuda-double_literal": ["float64: expected no instructions, found add.f64, "],
    "triton-float64_constant": ["float64: expected no instructions, found add.f64, "],
    "cuda-scalar_loads": [NARROW_LOADS, NARROW_STORES],
    "triton-start_not_divisible": [NARROW_LOADS, NARROW_STORES],
    "cuda-guard_for_each_store": [
        NARROW_STORES,
        "32-byte sectors that stores to out touch: expected 512, found 2,048",
    ],
    "triton-mask_not_divisible": [
        NARROW_LOADS,
        NARROW_STORES,
        "32-byte sectors that stores to out touch: expected 512, found 2,048",
        "32-byte sectors that loads of x touch: expected 512, found 2,048",
    ],
    "cuda-chunk_for_each_thread": [
        "32-byte sectors that stores to out touch: expected 512, found 1,024",
        "32-byte sectors that loads of x touch: expected 512, found 1,024",
    ],
    "triton-strides_at_run_time": [
        NARROW_LOADS,
        "32-byte sectors that loads of x touch: expected 512, found 1,024",
    ],
    "cuda-bank_conflict": [
        NARROW_LOADS,
        NARROW_STORES,
        "bank conflicts in loads of shared memory: expected 0, found 3,968",
    ],
}


@pytest.mark.parametrize("name", HANDICAPPED)
def test_a_handicap_breaks_the_contract(name: str) -> None:
    (handicap,) = (each for each in HANDICAPS if each.name == name)
    if handicap.side == "cuda" and not HAS_NVCC:
        pytest.skip("needs nvcc")
    found = broken(compiled(handicap.kernel, handicap.side, 90))
    for start in HANDICAPPED[name]:
        assert any(sentence.startswith(start) for sentence in found), found


@pytest.mark.parametrize("side", ["triton", pytest.param("cuda", marks=needs_nvcc)])
@pytest.mark.parametrize("kernel", [SIGMOID, ROWS], ids=lambda each: each.name)
def test_a_clean_kernel_keeps_it(kernel: Kernel, side: Side) -> None:
    assert broken(compiled(kernel, side, 90)) == []


def test_local_memory_without_spills() -> None:
    code = replace(compiled(SIGMOID, "triton", 90), stack_bytes=64)
    assert broken(code) == ["bytes of a thread in local memory: expected 0, found 64"]


@pytest.mark.parametrize("side", ["triton", pytest.param("cuda", marks=needs_nvcc)])
def test_accesses_out_of_bounds(side: Side) -> None:
    (out, dtype), _ = SIGMOID.tensors
    shorter = replace(SIGMOID, tensors=((out - 4, dtype), (out - 8, dtype)))
    assert broken(compiled(shorter, side, 90)) == [
        "loads out of bounds: expected none, found thread (126, 0, 0) of block"
        " (3, 0, 0) at byte 16,352 of x",
        "stores out of bounds: expected none, found thread (127, 0, 0) of block"
        " (3, 0, 0) at byte 16,368 of out",
    ]


MATRICES = "wmma.load.a.sync.aligned.row.m16n16k16.global.f16 {%r1}, [%rd1], %r2"


@pytest.mark.parametrize(
    ("statements", "reason"),
    [
        (("$L:", LOAD, "bra $L"), "threads that do not come to their end"),
        (
            (LOAD, "frobnicate.b32 %r1, %r2", STORE),
            "what the simulator does not know: frobnicate.b32",
        ),
        (
            (LOAD, "ld.global.b32 %r5, [%rd9]", STORE),
            "some that depend on data, or are made by no single thread",
        ),
        ((MATRICES,), "some that depend on data, or are made by no single thread"),
    ],
)
def test_accesses_that_cannot_be_counted(
    statements: tuple[str, ...], reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("compare.ptx_simulator.machine.MOST_STEPS", 1000)
    what = f"accesses that cannot be counted: expected none, found {reason}"
    assert broken(with_ptx(*statements))[-1] == what


def test_an_op_of_narrow_accesses() -> None:
    code = compiled(TRANSPOSE, "triton", 90)
    assert broken(code) == []
    narrow = CodeContract(access_bytes=4)
    assert [each.partition(": ")[2] for each in violations(narrow, code)] == [
        "bytes of the widest global load: expected 4, found 16",
        "bytes of the widest global store: expected 4, found 16",
    ]


BOXES_IN = (
    "cp.async.bulk.tensor.3d.shared::cta.global.tile [%r1], [%rd1, {%r2}], [%r3]",
    "ld.global.b32 %r4, [%rd1]",
)
BOXES_OUT = ("cp.async.bulk.tensor.3d.global.shared::cta [%rd2, {%r2}], [%r1]",)
STORES = ("st.global.b32 [%rd2], %r4",)


@pytest.mark.parametrize(
    ("statements", "found"),
    [
        # Beside boxes loads may be narrow; stores are made by threads.
        ((*BOXES_IN, *STORES), [NARROW_STORES]),
        ((*BOXES_IN, *STORES, *BOXES_OUT), []),
        ((BOXES_IN[1], *BOXES_OUT), [NARROW_LOADS]),
    ],
)
def test_widths_beside_boxes(statements: tuple[str, ...], found: list[str]) -> None:
    widths = [each for each in broken(with_ptx(*statements)) if "widest" in each]
    assert [each.partition(", at ")[0] for each in widths] == found


@pytest.mark.parametrize(
    ("sass", "missing"),
    [
        (("UTMALDG.3D [UR8], [UR4]", "HGMMA.64x64x16.F32 R24, gdesc[UR4], R24"), ()),
        (("UTMASTG.3D [UR8], [UR4]", "LDG.E R2, [R4.64]"), ("HGMMA", "UTMALDG")),
    ],
)
def test_what_a_kernel_has_to_be_made_of(
    sass: tuple[str, ...], missing: tuple[str, ...]
) -> None:
    code = replace(compiled(SIGMOID, "triton", 90), read_sass=lambda: sass_of(*sass))
    name = code.title.partition("[")[0]
    contract = CodeContract(instructions={name: ("HGMMA", "UTMALDG"), "other": ("X",)})
    sentences = violations(contract, code)
    assert [each.partition(f"{code.title}: ")[2] for each in sentences] == [
        f"instructions: expected {each}, found none" for each in missing
    ]


def test_conflicts_that_a_contract_allows() -> None:
    (handicap,) = (each for each in HANDICAPS if each.name == "cuda-bank_conflict")
    if not HAS_NVCC:
        pytest.skip("needs nvcc")
    code = compiled(handicap.kernel, handicap.side, 90)
    name = code.title.partition("<")[0]
    for names, are_told in (((), True), ((name,), False), (("other",), True)):
        contract = CodeContract(conflicting_kernels=names)
        found = violations(contract, code)
        assert any("bank conflicts" in each for each in found) == are_told


@needs_nvcc
def test_a_sentence_names_the_lines_of_the_sources() -> None:
    op = OPS["gelu"]
    arguments = launcher_arguments(op, cases(op, torch.float32)[0])
    code = inspect_cuda(op, arguments, ARCHITECTURES[90])
    narrow = CodeContract(access_bytes=4)
    (load, store) = violations(narrow, code)
    at_line = r": expected 4, found 16, at csrc/common/vec\.cuh:\d+$"
    assert re.search(at_line, load)
    assert re.search(at_line, store)
