"""The traffic of every op's kernels, by the PTX simulator, without a GPU."""

from __future__ import annotations

import math

import launches
import pytest
from common import triton_version
from torch import Tensor

from bindings.backends import native, prebuilt
from bindings.op import Op
from bindings.registry import OPS
from bindings.toolchain import find_cuda_home
from bindings.trials import TRIALS
from compare.assembly.places import in_op, in_sources
from compare.code import launch, memory, who_does_what
from compare.code.kernel_code import KernelCode, inspect_cuda, inspect_triton
from compare.judge.cases import Case

SIDES = {"cuda": inspect_cuda, "triton": inspect_triton}
HOPPER = launches.HOPPER

needs_nvcc = pytest.mark.skipif(find_cuda_home() is None, reason="needs nvcc")
on_both_sides = pytest.mark.parametrize(
    "side", ["triton", pytest.param("cuda", marks=needs_nvcc)]
)


def _code(side: str, each: launches.Launch) -> KernelCode:
    op, _, architecture = each
    if side == "cuda":
        launches.compile_with_nvcc(op.source, architecture)
    return SIDES[side](op, launches.arguments_of(each), architecture)


LONG = {
    name: (OPS[name], Case((2, 131072)), HOPPER)
    for name in ("softmax", "softmax_backward")
}
PADDED = OPS["softmax"], Case((511, 781)), HOPPER
SHARED = OPS["softmax"], Case((64, 4096)), HOPPER
NOT_SHARED = OPS["add"], Case((4096,)), HOPPER
launches.announce([*LONG.values(), PADDED, SHARED, NOT_SHARED])


@on_both_sides
@pytest.mark.parametrize("odd", launches.ODD, ids=lambda odd: odd[0].name)
def test_every_op_moves_the_fewest_bytes(odd: launches.Launch, side: str) -> None:
    each_op, case, _ = odd
    arguments = launches.arguments_of(odd)
    code = _code(side, odd)
    simulation = code.simulation
    assert simulation.blocks == simulation.total_blocks
    assert simulation.is_complete
    assert not simulation.unknown_opcodes
    assert not simulation.out_of_bounds
    assert (code.spill_bytes, code.stack_bytes) == (0, 0)
    # Every row reads all of a small input beside the rows, such as a weight.
    n_bytes = 4 * math.prod(case.shape)
    parameters = native.parameters(prebuilt.load("_cpu"), each_op)
    large = {
        name
        for (name, _), x in zip(parameters, arguments, strict=True)
        if isinstance(x, Tensor) and x.numel() * x.element_size() == n_bytes
    }
    moved: list[tuple[object, int]] = [
        (each.argument, each.bytes)
        for each in memory.movements(simulation)
        if each.argument in large
    ]
    assert len(moved) == len(large)
    if (each_op.name, side) == ("sum", "triton"):
        # One element is behind the vectors of the last row. Triton holds a row's eight
        # places around them 16 times over in its 128 threads, and so loads it 16 times;
        # that of 3.7 has each thread load all of them.
        n_loads = 128 if triton_version() == (3, 7) else 16
        assert dict(moved) == dict.fromkeys(large, n_bytes + (n_loads - 1) * 4)
    else:
        assert dict(moved) == dict.fromkeys(large, n_bytes)


# CUDA keeps them in the shared memory of a cluster of blocks; Triton the beginning of
# one in registers, in the backward all of it in several programs' registers.
@pytest.mark.parametrize(
    ("side", "name", "n_kept"),
    [
        pytest.param("cuda", "softmax", 131072, marks=needs_nvcc),
        pytest.param("cuda", "softmax_backward", 131072, marks=needs_nvcc),
        ("triton", "softmax", 32768),
        ("triton", "softmax_backward", 131072),
    ],
)
def test_how_often_long_rows_are_read(side: str, name: str, n_kept: int) -> None:
    each_op, case, _ = LONG[name]
    reads = [
        each.bytes
        for each in memory.movements(_code(side, LONG[name]).simulation)
        if not each.is_store and each.argument not in (memory.SHARED, "sums_ptr")
    ]
    all_bytes = TRIALS[each_op.name].traffic(case.shape, 4).read_bytes
    assert sum(reads) == (2 - n_kept / 131072) * all_bytes


@on_both_sides
def test_padding_is_masked_off(side: str) -> None:
    code = _code(side, PADDED)
    masked = launch.masked_fraction(code.ptx, code.simulation)
    n_programs, n_lanes = {"cuda": (128, 4096), "triton": (511, 1024)}[side]
    assert masked == pytest.approx(1 - 511 * 781 / (n_programs * n_lanes))


@on_both_sides
@pytest.mark.parametrize(
    "each_op", [op for op in launches.TWINS if not op.forward], ids=lambda op: op.name
)
def test_accesses_come_from_the_sources(each_op: Op, side: str) -> None:
    code = _code(side, next(launches.of_contract(each_op)))
    accesses = code.ptx.in_category("global load", "global store")
    folder = {"cuda": "csrc", "triton": "triton_kernels"}[side]
    # Its own, or what several share.
    own_folders = (each_op.source, "glu", "matmul", "norm", "unary")
    assert in_op(accesses)
    assert all(
        place.startswith(tuple(f"{folder}/{own}/" for own in own_folders))
        for place in in_op(accesses)
    )
    assert in_sources(accesses)


@needs_nvcc
def test_who_does_what_in_softmax() -> None:
    rows = {
        row.topic: row
        for row in who_does_what.table(_code("cuda", SHARED), _code("triton", SHARED))
    }
    shared = rows["shared memory"]
    assert (shared.cuda.how, shared.triton.how) == ("by hand", "automatic")
    assert shared.cuda.places
    assert all(
        place.startswith("csrc/softmax/twin.cuh:") for place in shared.cuda.places
    )
    across = rows["scheduling across SMs"]
    assert across.cuda.how == across.triton.how == "by hand"
    alone = who_does_what.table(_code("cuda", NOT_SHARED), _code("triton", NOT_SHARED))
    assert {row.topic: row.cuda.how for row in alone}["shared memory"] == "not needed"
