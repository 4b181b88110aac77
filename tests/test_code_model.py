"""Both sides of every op, on every architecture, from the call to the findings."""

from __future__ import annotations

from itertools import chain
from typing import Any

import launches
import pytest
import torch

from bindings.backends import prebuilt, triton
from bindings.errors import UnsupportedError
from bindings.op import Op
from bindings.registry import OPS
from bindings.sources import ROOT
from bindings.toolchain import find_cuda_home
from bindings.trials import TRIALS
from compare.assembly.diff import align
from compare.code.architectures import ARCHITECTURES, Architecture
from compare.code.findings import find
from compare.code.kernel_code import KernelCode, inspect_cuda, inspect_triton
from compare.errors import CodegenUnavailable
from compare.judge.cases import LAYOUTS, Case, make_arguments

HOPPER = ARCHITECTURES[90]
COMMON = {
    path.name
    for folder in (ROOT / "csrc", ROOT / "triton_kernels")
    for path in (folder / "common").iterdir()
}

needs_nvcc = pytest.mark.skipif(find_cuda_home() is None, reason="needs nvcc")


launches.announce(
    (OPS[name], case, HOPPER)
    for name, case in (
        ("gelu", Case((4096,))),
        ("gelu", Case((4096,), layout="offset")),
        ("softmax", Case((2, 40000))),
        ("sum", Case((300, 512), params={"dim": 0})),
    )
)


def arguments_of(op: Op, shape: tuple[int, ...], **options: Any) -> tuple[Any, ...]:
    return launches.arguments_of((op, Case(shape, **options), HOPPER))


def both(op: Op, arguments: tuple[Any, ...], arch: Architecture) -> list[KernelCode]:
    return [inspect_cuda(op, arguments, arch), inspect_triton(op, arguments, arch)]


# Every architecture with softmax, the others each with one.
TRIED = [
    *launches.SOFTMAX,
    *(
        launch
        for name in ("matmul", "layer_norm", "rotary", "dropout", "cross_entropy")
        for launch in launches.of_contract(OPS[name])
        if launch[2] is not HOPPER
    ),
]


@needs_nvcc
@pytest.mark.parametrize(
    "launch", TRIED, ids=[f"{each[0].name}-{each[2].name}" for each in TRIED]
)
def test_code_of_both_sides(launch: launches.Launch) -> None:
    if launches.spills_in_triton(launch):
        pytest.skip("the assembler of Triton 3.6 spills two numbers of a thread")
    each_op, _, architecture = launch
    contract = TRIALS[each_op.name].code_contract
    is_reduction = contract is not None and contract.is_reduction
    arguments = launches.arguments_of(launch)
    launches.compile_with_nvcc(each_op.source, architecture)
    sides = both(each_op, arguments, architecture)
    for code in sides:
        assert code.arch == architecture.target
        assert 8 <= code.registers <= 255
        assert (code.spill_bytes, code.stack_bytes) == (0, 0)
        assert code.launch.threads_per_block % 32 == 0
        sizes = {x.numel() for x in arguments if isinstance(x, torch.Tensor)}
        assert code.elements in sizes
        # A product of these sizes has one row, and its tile is mostly empty.
        is_filled = not TRIALS[each_op.name].shape_names
        assert code.elements_per_thread >= 1 or is_reduction or not is_filled
        for mix in (code.ptx_mix, code.sass_mix):
            # Instructions that the tables do not know, or that should not be there.
            unexpected = {"other", "generic memory", "local memory", "float64"}
            assert not unexpected & mix.counts.keys()
            loads = ("global load", "async copy")
            assert max(chain(*(mix.widths.get(each, ()) for each in loads))) == 16
            assert max(mix.widths["global store"]) == 16 or is_reduction
        # Every instruction is traced back to a line of the op's own source, but for
        # those of a kernel that ops share.
        suffix = ".cu" if code.side == "cuda" else ".py"
        rungs = {
            f"{rung}{'.cuh' if suffix == '.cu' else suffix}" for rung in each_op.rungs
        }
        language = "csrc" if code.side == "cuda" else "triton_kernels"
        folder = ROOT / language / each_op.source
        own = {*rungs, *(path.name for path in folder.iterdir())}
        for listing in (code.ptx, code.sass):
            files = [
                {frame.file.rpartition("/")[2] for frame in each.frames}
                for each in listing.instructions
            ]
            assert all(names & (own | COMMON) for names in files)
    cuda, triton = sides
    findings = find(cuda, triton)
    assert len(findings) >= 3
    for finding in findings:
        for code, indices in zip(sides, (finding.cuda, finding.triton), strict=True):
            listing = getattr(code, finding.language)
            assert all(index < len(listing.instructions) for index in indices)
    rows = align(sides[0].ptx, sides[1].ptx)
    assert {"global load", "global store"} <= {each.category for each in rows}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_layouts_are_kept_where_memory_is_not(layout: str) -> None:
    case = Case((5, 7), torch.float16, layout)
    pair = [make_arguments(OPS["add"], case, device) for device in ("cpu", "meta")]
    for real, meta in zip(*pair, strict=True):
        assert meta.is_meta
        assert (meta.shape, meta.stride()) == (real.shape, real.stride())
        assert meta.storage_offset() == real.storage_offset()


@pytest.mark.parametrize("layout", ["contiguous", "offset"])
def test_alignment_decides_the_width_of_triton(layout: str) -> None:
    arguments = arguments_of(OPS["gelu"], (4096,), layout=layout)
    code = inspect_triton(OPS["gelu"], arguments, HOPPER)
    assert (16 in code.ptx_mix.widths["global load"]) == (layout == "contiguous")


@needs_nvcc
@pytest.mark.parametrize("layout", ["contiguous", "offset"])
def test_alignment_decides_the_width_of_cuda(layout: str) -> None:
    launches.compile_with_nvcc("gelu", HOPPER)
    arguments = arguments_of(OPS["gelu"], (4096,), layout=layout)
    code = inspect_cuda(OPS["gelu"], arguments, HOPPER)
    assert (16 in code.ptx_mix.widths["global load"]) == (layout == "contiguous")


@needs_nvcc
def test_dynamic_shared_memory_is_counted() -> None:
    # 64 KB of a row, the results of all warps of a cluster, and the 128 bytes of a line
    # that their barrier begins.
    launches.compile_with_nvcc("softmax", HOPPER)
    arguments = arguments_of(OPS["softmax"], (2, 40000))
    code = inspect_cuda(OPS["softmax"], arguments, HOPPER)
    assert code.launch.dynamic_shared_bytes == 64 * 1024 + 8 * 16 * 8 + 128
    assert (
        code.shared_bytes == code.launch.dynamic_shared_bytes + code.static_shared_bytes
    )


def test_nothing_is_launched_for_no_elements() -> None:
    op = OPS["gelu"]
    for inspect in (inspect_cuda, inspect_triton):
        with pytest.raises(CodegenUnavailable, match="choose a --shape"):
            inspect(op, arguments_of(op, (0, 3)), HOPPER)


def test_without_the_native_module(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> None:
        raise UnsupportedError(f"bindings.{name} is not built; run pip")

    monkeypatch.setattr(prebuilt, "load", missing)
    op = OPS["gelu"]
    with pytest.raises(CodegenUnavailable, match="_cpu is not built; run pip"):
        inspect_cuda(op, arguments_of(op, (16,)), HOPPER)


def test_a_launcher_of_several_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    op = OPS["gelu"]
    once = triton.launcher(op)

    def twice(*arguments: Any) -> None:
        once(*arguments)
        once(*arguments)

    monkeypatch.setattr(triton, "launcher", lambda op: twice)
    arguments = arguments_of(op, (16,))
    codes = [inspect_triton(op, arguments, HOPPER, number=n) for n in range(2)]
    assert [code.number for code in codes] == [0, 1]
    for code in codes:
        assert code.kernels == (code.title, code.title)
    with pytest.raises(CodegenUnavailable, match=r"launches 2 .* no --kernel 3"):
        inspect_triton(op, arguments, HOPPER, number=2)


@needs_nvcc
def test_both_launches_of_a_split_sum() -> None:
    launches.compile_with_nvcc("sum", HOPPER)
    arguments = arguments_of(OPS["sum"], (300, 512), params={"dim": 0})
    for inspect in (inspect_cuda, inspect_triton):
        first, second = (
            inspect(OPS["sum"], arguments, HOPPER, number=number) for number in range(2)
        )
        assert first.kernels == second.kernels == (first.title, second.title)
        assert (first.elements, second.elements) == (4 * 512, 512)
        names = [
            [each.name for each in code.launch.tensors] for code in (first, second)
        ]
        assert names == [["x", "workspace"], ["out", "workspace"]]
        for code in (first, second):
            assert code.simulation.out_of_bounds == ()
        with pytest.raises(CodegenUnavailable, match=r"launches 2 .* no --kernel 3"):
            inspect(OPS["sum"], arguments, HOPPER, number=2)
