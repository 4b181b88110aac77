"""The acceptance rule: right results pass, and those of a lower precision do not."""

from __future__ import annotations

import dataclasses
import itertools
import math
from typing import Any

import pytest
import torch
from together import in_one_test
from torch import Tensor

from bindings.op import DTYPES, Op, as_tuple
from bindings.registry import OPS
from bindings.trials import TRIALS
from compare.judge import acceptance
from compare.judge.acceptance import Expected
from compare.judge.cases import Case, in_dtype, make_arguments

# Bits of a significand, the leading one included, in the next lower precision: of TF32
# and float16, of bfloat16, and two less than bfloat16 has (formats of 8 bits have 4).
LOWER_PRECISION = {torch.float32: 11, torch.float16: 8, torch.bfloat16: 6}

# Rows long enough for softmax to sum, and few enough elements for errors not to be
# found by luck.
SHAPE = (8, 781)


def _arguments(op: Op, dtype: torch.dtype) -> tuple[Any, ...]:
    """Arguments of the op's first variant and shape with many numbers as results."""
    for params, shape in itertools.product(
        TRIALS[op.name].variants, (SHAPE, SHAPE[::-1])
    ):
        arguments = make_arguments(op, Case(shape, dtype, params=params))
        if as_tuple(op.allocate(*arguments))[0].numel() >= 100:
            return arguments
    raise AssertionError(f"{op.name} never returns many numbers")


def _expect(op: Op, arguments: tuple[Any, ...]) -> Expected:
    """The expectation of the first output; all others are judged in the same way."""
    return acceptance.expect(op, arguments)[0]


def _expected(op: Op, dtype: torch.dtype) -> Expected:
    return _expect(op, _arguments(op, dtype))


def _reference(op: Op, *arguments: Any) -> Tensor:
    return as_tuple(op.reference(*arguments))[0]


def _softmax(dtype: torch.dtype) -> Expected:
    return _expected(OPS["softmax"], dtype)


def _rounded(x: Tensor, bits: int) -> Tensor:
    """The values of x with so many significant bits."""
    mantissa, exponent = torch.frexp(x.double())
    scale = 2.0**bits
    return torch.ldexp((mantissa * scale).round() / scale, exponent).to(x.dtype)


def _truncated_arguments(op: Op, dtype: torch.dtype) -> tuple[Any, ...]:
    return tuple(
        _rounded(each, LOWER_PRECISION[dtype])
        if isinstance(each, Tensor) and each.is_floating_point()
        else each
        for each in _arguments(op, dtype)
    )


@in_one_test("op", "dtype")
def test_torch_is_accepted(op: Op, dtype: torch.dtype) -> None:
    expected = _expected(op, dtype)
    assert acceptance.judge(expected.torch, expected).passed


@in_one_test("op", "dtype")
def test_correct_rounding_is_accepted(op: Op, dtype: torch.dtype) -> None:
    expected = _expected(op, dtype)
    assert acceptance.judge(expected.exact.to(dtype), expected).passed


@in_one_test("op", "dtype")
def test_float32_arithmetic_is_accepted(op: Op, dtype: torch.dtype) -> None:
    # A few units of float32 off, then rounded once, as fast intrinsics are.
    expected = _expected(op, dtype)
    if expected.must_equal_torch:
        return
    exact = expected.exact * (1 + 3 * torch.finfo(torch.float32).eps)
    assert acceptance.judge(exact.to(dtype), expected).passed


@in_one_test("op", "dtype")
def test_result_of_lower_precision_is_rejected(op: Op, dtype: torch.dtype) -> None:
    expected = _expected(op, dtype)
    result = _rounded(expected.exact, LOWER_PRECISION[dtype]).to(dtype)
    assert not acceptance.judge(result, expected).passed


@in_one_test("op", "dtype")
def test_inputs_of_lower_precision_are_rejected(op: Op, dtype: torch.dtype) -> None:
    expected = acceptance.expect(op, _arguments(op, dtype))
    results = as_tuple(op.reference(*_truncated_arguments(op, dtype)))
    assert not acceptance.judge_all(results, expected).passed


@in_one_test("op", "lower")
@pytest.mark.parametrize("lower", [torch.float16, torch.bfloat16])
def test_float32_by_way_of_a_half_is_rejected(op: Op, lower: torch.dtype) -> None:
    expected = _expected(op, torch.float32)
    arguments = (
        in_dtype(each, lower) if isinstance(each, Tensor) else each
        for each in _arguments(op, torch.float32)
    )
    assert not acceptance.judge(_reference(op, *arguments).float(), expected).passed


def test_exponentials_of_lower_precision_are_rejected(dtype: torch.dtype) -> None:
    # An intermediate result is rounded; inputs and outputs are not.
    (x, _) = _arguments(OPS["softmax"], dtype)
    exponentials = (x.double() - x.double().amax(-1, keepdim=True)).exp()
    exponentials = _rounded(exponentials, LOWER_PRECISION[dtype])
    result = exponentials / exponentials.sum(-1, keepdim=True)
    assert not acceptance.judge(result.to(dtype), _softmax(dtype)).passed


def test_sum_of_lower_precision_is_rejected(dtype: torch.dtype) -> None:
    (x, _) = _arguments(OPS["softmax"], dtype)
    exponentials = (x.double() - x.double().amax(-1, keepdim=True)).exp()
    total = torch.zeros(len(x), 1, dtype=torch.float64)
    for column in exponentials.split(1, dim=1):
        total = _rounded(total + column, LOWER_PRECISION[dtype])
    assert not acceptance.judge(
        (exponentials / total).to(dtype), _softmax(dtype)
    ).passed


@in_one_test("op", "dtype")
def test_zeros_are_rejected(op: Op, dtype: torch.dtype) -> None:
    expected = _expected(op, dtype)
    assert not acceptance.judge(torch.zeros_like(expected.torch), expected).passed


def test_products_of_fewer_parts_are_rejected() -> None:
    """Of three that large and small parts of tf32 have, none can be left out."""
    op = OPS["matmul"]
    case = Case((16, 24, 1000), params={"precision": "tf32x3"})
    a, b, *others = make_arguments(op, case)
    expected = _expect(op, (a, b, *others))
    (large_a, small_a), (large_b, small_b) = (
        (large, _rounded(x - large, 11))
        for x, large in ((a, _rounded(a, 11)), (b, _rounded(b, 11)))
    )
    pairs = ((small_a, large_b), (large_a, small_b), (large_a, large_b))
    products = torch.stack([left.double() @ right.double() for left, right in pairs])
    total = products.sum(0)
    assert acceptance.judge(total.float(), expected).passed
    for left_out in products:
        assert not acceptance.judge((total - left_out).float(), expected).passed
    result = _reference(op, a, b, *others[:-1], "tf32")
    assert not acceptance.judge(result, expected).passed


def test_dropped_column_is_rejected(dtype: torch.dtype) -> None:
    (x, _) = _arguments(OPS["softmax"], dtype)
    result = torch.softmax(x[:, :-1].double(), -1)
    result = torch.cat([result, torch.zeros(len(x), 1)], dim=1)
    assert not acceptance.judge(result.to(dtype), _softmax(dtype)).passed


def test_tail_padded_with_zeros_is_rejected() -> None:
    op = OPS["softmax"]
    (x, dim) = make_arguments(op, Case((4, 4095)))
    expected = _expect(op, (x, dim))
    padded = torch.cat([x, torch.zeros(4, 1)], dim=1)
    result = torch.softmax(padded, -1)[:, :-1]
    assert not acceptance.judge(result, expected).passed


def test_approximation_of_gelu_is_rejected() -> None:
    op = OPS["gelu"]
    (x, approximate) = _arguments(op, torch.float32)
    expected = _expect(op, (x, approximate))
    assert not acceptance.judge(_reference(op, x, "tanh"), expected).passed


@in_one_test("op", "dtype")
def test_one_wrong_element_among_many_is_rejected(op: Op, dtype: torch.dtype) -> None:
    expected = _expected(op, dtype)
    result = expected.torch.clone()
    row = result.view(-1, result.shape[-1])[-1] if result.dim() else result.view(1)
    size = (row if expected.by_row else result).abs().max()
    row[row.numel() // 2] += 0.02 * size
    assert not acceptance.judge(result, expected).passed


def test_wrong_row_of_small_values_is_rejected(dtype: torch.dtype) -> None:
    # Beside a row with a value of 1, errors in a row of many small values look small.
    x = torch.zeros(2, 4096, dtype=dtype)
    x[0, 0] = 100.0
    expected = _expect(OPS["softmax"], (x, -1))
    result = expected.torch.clone()
    result[1] *= 1.05
    assert not acceptance.judge(result, expected).passed


@in_one_test("op", "special")
@pytest.mark.parametrize("special", [math.nan, math.inf, -math.inf])
def test_specials_have_to_be_in_place(op: Op, special: float) -> None:
    expected = _expected(op, torch.float32)
    result = expected.torch.clone()
    result.view(-1)[-1] = special
    verdict = acceptance.judge(result, expected)
    assert (
        f"1 of {result.numel()} elements are {special}".lower()
        in verdict.problem.lower()
    )
    exact = expected.exact.clone()
    exact.view(-1)[-1] = special
    missing = dataclasses.replace(expected, exact=exact)
    verdict = acceptance.judge(expected.torch, missing)
    assert f"1 of {result.numel()} elements should be {special}" in (
        verdict.problem.replace("NaN", "nan")
    )
    verdict = acceptance.judge(result, dataclasses.replace(missing, torch=result))
    assert verdict.passed


def test_overflow_of_float16_is_expected_infinity() -> None:
    x = torch.tensor([65504.0, 1.0], dtype=torch.float16)
    expected = _expect(OPS["add"], (x, x))
    result = torch.tensor([math.inf, 2.0], dtype=torch.float16)
    assert acceptance.judge(result, expected).passed


def test_add_has_to_have_every_bit() -> None:
    expected = _expected(OPS["add"], torch.float32)
    result = expected.torch.clone()
    result.view(torch.int32)[0, 0] ^= 1
    verdict = acceptance.judge(result, expected)
    assert verdict.problem == "1 of 6248 elements are not bit for bit PyTorch's"


def test_add_has_to_keep_the_sign_of_zero() -> None:
    x = torch.tensor([-0.0])
    expected = _expect(OPS["add"], (x, x))
    assert not acceptance.judge(torch.tensor([0.0]), expected).passed


def test_add_may_have_any_nan() -> None:
    x = torch.tensor([math.nan])
    expected = _expect(OPS["add"], (x, x))
    result = torch.tensor([0x7FC00001], dtype=torch.int32).view(torch.float32)
    assert acceptance.judge(result, expected).passed


def test_shape_and_dtype_have_to_be_right() -> None:
    expected = _softmax(torch.float16)
    verdict = acceptance.judge(expected.torch.t(), expected)
    assert verdict.problem == "the shape is (781, 8), not (8, 781)"
    verdict = acceptance.judge(expected.torch.float(), expected)
    assert verdict.problem == "the dtype is torch.float32, not torch.float16"


@in_one_test("op", "shape")
@pytest.mark.parametrize("shape", [(), (0,), (3, 0), (1,), (1, 1), (31, 1)])
def test_small_shapes_are_judged(op: Op, shape: tuple[int, ...]) -> None:
    if shape == () and () not in TRIALS[op.name].edge_shapes:
        pytest.skip("it takes no tensors without dimensions")
    for dtype in DTYPES:
        expected = _expect(op, make_arguments(op, Case(shape, dtype)))
        verdict = acceptance.judge(expected.torch, expected)
        assert verdict.passed
        assert verdict.error.max <= verdict.allowed.max


def test_reference_is_computed_on_copies() -> None:
    x = torch.ones(4)
    expected = _expect(OPS["add"], (x, x))
    x.zero_()
    assert expected.exact.tolist() == [2.0] * 4
