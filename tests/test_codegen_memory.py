"""What the kernels of every op move, as their PTX tells without a GPU."""

from __future__ import annotations

import math

import launches
import pytest
import torch
from torch import Tensor

from bindings.backends import native
from bindings.op import Op
from bindings.registry import OPS
from compare.cases import Case
from compare.codegen import launch, memory, who_does_what
from compare.codegen.architectures import parse_architecture
from compare.codegen.model import KernelCode, inspect_cuda, inspect_triton
from compare.codegen.places import in_op, in_sources
from compare.study import launcher_arguments

SIDES = {"cuda": inspect_cuda, "triton": inspect_triton}


def _code(
    side: str,
    op: Op,
    shape: tuple[int, ...],
    dtype: torch.dtype = torch.float32,
    arch: str = "sm_90",
) -> KernelCode:
    arguments = launcher_arguments(op, Case(shape, dtype))
    return SIDES[side](op, arguments, parse_architecture(arch))


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("odd", launches.ODD, ids=lambda odd: odd[0].name)
def test_every_op_moves_the_fewest_bytes(odd: launches.Launch, side: str) -> None:
    each_op, case, architecture = odd
    arguments = launches.arguments_of(odd)
    if side == "cuda":
        launches.compile_with_nvcc(each_op.source, architecture)
    code = SIDES[side](each_op, arguments, architecture)
    emulation = code.emulation
    assert emulation.blocks == emulation.total_blocks
    assert emulation.is_complete
    assert not emulation.unknown_opcodes
    assert not emulation.out_of_bounds
    assert (code.spill_bytes, code.stack_bytes) == (0, 0)
    # Of what is small beside them, such as a weight, every row reads all there is.
    n_bytes = 4 * math.prod(case.shape)
    large = {
        name
        for (name, _), x in zip(native.parameters(each_op), arguments, strict=True)
        if isinstance(x, Tensor) and x.numel() * x.element_size() == n_bytes
    }
    moved: list[tuple[object, int]] = [
        (each.argument, each.bytes)
        for each in memory.movements(emulation)
        if each.argument in large
    ]
    assert len(moved) == len(large)
    assert dict(moved) == dict.fromkeys(large, n_bytes)


# CUDA keeps them in the shared memory of a cluster of blocks, Triton the beginning of
# one in registers.
@pytest.mark.parametrize(
    ("side", "name", "n_kept"),
    [
        ("cuda", "softmax", 131072),
        ("cuda", "softmax_backward", 131072),
        ("triton", "softmax", 16384),
        ("triton", "softmax_backward", 8192),
    ],
)
def test_how_often_long_rows_are_read(side: str, name: str, n_kept: int) -> None:
    op, shape = OPS[name], (3, 131072)
    reads = [
        each.bytes
        for each in memory.movements(_code(side, op, shape).emulation)
        if not each.is_store and each.argument != memory.SHARED
    ]
    assert sum(reads) == (2 - n_kept / 131072) * op.traffic(shape, 4).read_bytes


@pytest.mark.parametrize("side", SIDES)
def test_padding_is_masked_off(side: str) -> None:
    code = _code(side, OPS["softmax"], (511, 781))
    architecture = parse_architecture("sm_90")
    facts = launch.facts(code, code.occupancy, architecture, code.emulation)
    assert facts.masked == pytest.approx(1 - 511 * 781 / (128 * 4096))


@pytest.mark.parametrize("side", SIDES)
def test_accesses_come_from_the_sources(op: Op, side: str) -> None:
    if op.forward:
        pytest.skip("it is in the file of its forward")
    code = _code(side, op, op.large_shape)
    accesses = code.ptx.in_category("global load", "global store")
    folder = {"cuda": "csrc", "triton": "triton_kernels"}[side]
    own = (f"{folder}/{op.source}.", f"{folder}/{op.source}_ladder/")
    assert in_op(accesses)
    assert all(place.startswith(own) for place in in_op(accesses))
    assert in_sources(accesses)


def test_who_does_what_in_softmax() -> None:
    op, shape = OPS["softmax"], (64, 4096)
    rows = {
        row.topic: row
        for row in who_does_what.table(
            _code("cuda", op, shape), _code("triton", op, shape)
        )
    }
    shared = rows["shared memory"]
    assert (shared.cuda.how, shared.triton.how) == ("by hand", "automatic")
    assert shared.cuda.places
    assert all(place.startswith("csrc/softmax.cu:") for place in shared.cuda.places)
    across = rows["scheduling across SMs"]
    assert across.cuda.how == across.triton.how == "by hand"
    alone = who_does_what.table(
        _code("cuda", OPS["add"], (4096,)), _code("triton", OPS["add"], (4096,))
    )
    assert {row.topic: row.cuda.how for row in alone}["shared memory"] == "not needed"
