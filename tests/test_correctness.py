"""Every op on every backend, by the acceptance rule, at the edges of its kernels."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from typing import Any

import pytest
import torch
from common import (
    ON_RUNGS,
    assert_accepted,
    is_simulated,
    leave_out,
    leave_out_simulated,
    op_id,
    random_inputs,
)
from together import in_one_test

import bindings
from bindings.op import DTYPES, Op, as_tuple
from bindings.registry import OPS
from bindings.trials import TRIALS
from compare.judge.cases import in_dtype, is_number

EVERY_RUNG = True


# Ops with the same kernels, of many tiles: where a call is dear they take turns.
_TURNS = {"layer_norm": 0, "rms_norm": 1}


def _own(op: Op, step: int, *, is_dear: bool) -> tuple[tuple[int, ...], ...]:
    """Every step-th shape; where a call is dear, those that are the op's turn."""
    if is_dear and op.source in _TURNS:
        return TRIALS[op.name].edge_shapes[_TURNS[op.source] * step :: 2 * step]
    return TRIALS[op.name].edge_shapes[::step]


def edges(
    op: Op, step: int, dtype: torch.dtype, *, is_cheap: bool
) -> list[tuple[int, ...]]:
    """Every step-th of the shapes around the ends of an op's tiles.

    Vectors of both types of 16 bits have the same ends: each has a third of them.
    Where a call is dear, float32 has the third that they leave.
    """
    thirds = {
        torch.float32: (0, 1, 2) if is_cheap else (2,),
        torch.float16: (0,),
        torch.bfloat16: (1,),
    }
    shapes = _own(op, step, is_dear=not is_cheap)
    if op.rung == "first":
        # It has a program or a block for each row: many rows are one, many times. A
        # product's goes through k one by one, in the interpreter for seconds.
        shapes = tuple(
            each
            for each in shapes
            if (len(each) != 2 or each[0] < 1000) and math.prod(each) < 1 << 23
        )
    return [shape for i, shape in enumerate(shapes) if i % 3 in thirds[dtype]]


# The place among a product's edges of the one that rungs are compiled for.
_RUNGS_OF_PRODUCTS = 9


def compiled_edges(op: Op, *, is_first_variant: bool) -> tuple[tuple[int, ...], ...]:
    """Shapes that Triton compiles for: many have code of their own.

    There is one less than the end of a tile, the end, and one more: the step between
    shapes is no multiple of 3. A first rung, which has no tiles, has one of few rows.
    Products have few shapes, and take seconds to compile.
    """
    shapes = TRIALS[op.name].edge_shapes
    if TRIALS[op.name].flops:
        if op.rung:
            return shapes[_RUNGS_OF_PRODUCTS::5]
        return shapes[2::6] if is_first_variant else shapes[8:9]
    if not is_first_variant:
        return shapes[9::32]
    if op.rung:
        return tuple(each for each in shapes[8:] if each[0] < 1000)[:1]
    turn = _TURNS.get(op.source)
    return shapes[5::11] if turn is None else shapes[5 + 11 * turn :: 22]


# Between the shapes that are tried, by rung. A call takes the twin at nearly all of its
# shapes, or a rung before it, and a first rung has no tiles, or small ones.
_STEPS = {"first": 4, "tiled": 2, "tensor_cores": 2, "twin": 5}


def is_compiled_for_magnitudes(params: Mapping[str, Any]) -> bool:
    """Whether test_other_magnitudes compiles the code of a case.

    It does so for other variants than the first on rungs, of which products there have
    one each, and for those of attention that have a window; the others are compiled to
    the same code as the first.
    """
    op = params["description"]
    is_variant = params["params"] != TRIALS[op.name].variants[0]
    return is_variant and bool(op.rung or "window" in params["params"])


def is_compiled_for_attention(params: Mapping[str, Any]) -> bool:
    """Whether test_attention.py compiles a case: sums whose order is not fixed."""
    return not params["params"].get("deterministic", True)


def is_twin_of_calls(params: Mapping[str, Any]) -> bool:
    """Whether a case is of the rung that each call of rows or of elements takes here.

    Calls of products choose a rung. On a GPU all are tried.
    """
    op = params["op"] if "op" in params else params["description"]
    is_one = op.rung == "twin" and not TRIALS[op.name].flops
    return is_one and bool(params["device"] == "cpu")


def variants_of_rung(op: Op) -> tuple[dict[str, Any], ...]:
    """Variants of a product that are compiled on a rung: the first one, and another.

    Rungs take turns, so that each variant is compiled on one of them at least.
    """
    first, *others = TRIALS[op.name].variants
    turn = op.rungs.index(op.rung) % max(len(others), 1)
    return first, *others[turn : turn + 1]


# All shapes in one test: there are thousands, and most take less time than a test does.
@in_one_test("dtype")
@pytest.mark.parametrize(
    ("description", "params", "step"),
    [
        pytest.param(op, params, step, id=f"{op_id(op)}-{params}")
        for op in ON_RUNGS
        # The kernels of other parameters have the same edges.
        for params, step in zip(
            TRIALS[op.name].variants,
            itertools.chain(
                [_STEPS.get(op.rung, 1)], itertools.repeat(2 * _STEPS.get(op.rung, 1))
            ),
            strict=False,
        )
    ],
)
@leave_out_simulated(is_compiled_for_magnitudes)
@leave_out_simulated(is_compiled_for_attention)
@leave_out_simulated(is_twin_of_calls)
def test_around_the_ends_of_tiles(
    description: Op,
    params: dict[str, object],
    step: int,
    backend: str,
    device: str,
    dtype: torch.dtype,
    generator: torch.Generator,
) -> None:
    if is_simulated(backend, device, dtype):
        is_first = params == TRIALS[description.name].variants[0]
        shapes = [*compiled_edges(description, is_first_variant=is_first)]
    else:
        is_cheap = (backend, device) != ("triton", "cpu")
        if not is_cheap and params != TRIALS[description.name].variants[0]:
            step *= 2
        shapes = edges(description, step, dtype, is_cheap=is_cheap)
    for shape in shapes:
        inputs = random_inputs(description, shape, dtype, device, generator)
        assert_accepted(description, backend, inputs, params, dtype)


MAGNITUDES = (1e-3, 30.0, 1e4)


def is_left_to_calls(params: Mapping[str, Any]) -> bool:
    """Whether a case is of a product on a rung, at another magnitude than one.

    Each magnitude has variants of its own, which take seconds to compile.
    """
    op, trial = params["op"], TRIALS[params["op"].name]
    all_are_tried = max(MAGNITUDES) <= trial.largest_input
    is_costly = bool(op.rung and trial.flops and all_are_tried)
    return is_costly and params["magnitude"] != MAGNITUDES[1]


@in_one_test("dtype", "magnitude")
@pytest.mark.parametrize("magnitude", MAGNITUDES)
@leave_out(is_twin_of_calls)
@leave_out_simulated(is_left_to_calls)
def test_other_magnitudes(
    op: Op,
    backend: str,
    device: str,
    dtype: torch.dtype,
    magnitude: float,
    generator: torch.Generator,
) -> None:
    trial = TRIALS[op.name]
    if magnitude > trial.largest_input:
        pytest.skip("nothing is promised for inputs of this size")
    shape: tuple[int, ...] = (5, 257)
    if is_simulated(backend, device, dtype):
        # Shapes that are compiled in any case, and have elements.
        if trial.flops:
            shape = trial.edge_shapes[_RUNGS_OF_PRODUCTS]
        elif not op.rung:
            shape = max(compiled_edges(op, is_first_variant=True)[:2], key=math.prod)
    made = trial.inputs(shape, generator)
    scaled = (magnitude * x if is_number(x) else x for x in made)
    inputs = trial.complete(*(in_dtype(x, dtype).to(device) for x in scaled))
    if (op.name, backend, device) == ("gelu", "torch", "cpu") and bool(
        torch.nn.functional.gelu(inputs[0]).isnan().any()
    ):
        pytest.skip("oneDNN's float16 GELU is NaN at -60000 on CPUs with AVX512-FP16")
    if (op.name, backend, device) == ("softmax_backward", "torch", "cuda") and bool(
        as_tuple(op.reference(*inputs))[0].isnan().any()
    ):
        pytest.skip("PyTorch's float16 softmax backward overflows on a GPU")
    variants = trial.variants
    if (backend, device) == ("triton", "cpu"):
        # Each dtype at another magnitude.
        place = MAGNITUDES.index(magnitude) + DTYPES.index(dtype)
        variants = variants[place % 3 % len(variants) :: 3]
    if is_simulated(backend, device, dtype) and op.rung and trial.flops:
        variants = variants_of_rung(op)
    for params in variants:
        assert_accepted(op, backend, inputs, params, dtype)


def test_gelu_on_a_dense_grid(backend: str, device: str, dtype: torch.dtype) -> None:
    x = torch.linspace(-8, 8, 16001, device=device).to(dtype)
    for params in TRIALS["gelu"].variants:
        assert_accepted(OPS["gelu"], backend, (x,), params)


def test_more_rows_than_a_grid_has_blocks_in_y(
    backend: str, device: str, generator: torch.Generator
) -> None:
    if backend == "triton" and device == "cpu":
        pytest.skip("the interpreter has no grid to outgrow, and takes long over it")
    x = torch.randn(65537, 3, generator=generator).to(device)
    assert_accepted(OPS["softmax"], backend, (x,))


def test_default_arguments_are_those_of_torch(backend: str, device: str) -> None:
    x = torch.tensor([[0.0, 1.0], [2.0, 4.0]], device=device)
    assert torch.allclose(
        bindings.gelu(x, backend=backend), torch.nn.functional.gelu(x)
    )
    assert torch.allclose(bindings.softmax(x, backend=backend), torch.softmax(x, -1))
