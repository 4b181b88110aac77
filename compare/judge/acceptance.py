"""The one rule by which a result is accepted.

A result is compared with the same computation in float64, whose inputs are the very
same numbers. PyTorch's own result in the same dtype is compared with it too, and the
result may be at most twice as far off. So the rule knows what a dtype can do without a
table of tolerances, and a result that was computed in a lower precision fails
(tests/test_acceptance.py proves it for every op and dtype).

Errors are relative to the row (the last dimension) that they occur in, since rows
differ in size: the largest error to the largest value of the row, the root mean square
of all errors to the root mean square of the row. Both have to hold: the first sees one
wrong element among millions, the second sees many elements that are all slightly off.
Where the rows of an op are differences of larger numbers, a row near zero has no right
digits in any arithmetic: errors are relative to the whole result there.

NaN and infinities have to be where float64, rounded to the dtype, has them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from bindings.op import Op, as_tuple
from bindings.trials import TRIALS

# How much further off than PyTorch a result may be. Both are a few roundings away from
# the exact value, and which of the two is luckier differs from input to input; 2 is
# what FlashAttention's tests use. A precision of two bits less is 4 times as far off.
FACTOR = 2.0

# The cost of float32 arithmetic, in units of its epsilon (2^-23): fast exponentials,
# reciprocals and divisions of up to 2 units each, and a sum, come to less. It matters
# where PyTorch happens to be exact. The next lower precision, TF32, is off by 4096.
FLOAT32_UNITS = 8.0

# Sums lose more the longer they are: in whatever order n terms are added, the error is
# seldom more than sqrt(n) units. At most so many are granted, a quarter of TF32's one.
MOST_UNITS = 512.0

# The cost of rounding once to the dtype, in units of its epsilon: half of one. The
# next lower precision than float16 is bfloat16, off by 4 units.
ROUNDING_UNITS = 0.5

# Shorter rows are taken together: the size of a few values can be near zero by chance.
SHORTEST_ROW = 32


@dataclass(frozen=True)
class Expected:
    """The yardsticks of a result."""

    exact: Tensor  # the result in float64
    torch: Tensor  # PyTorch's result in the dtype of the op
    must_equal_torch: bool = False  # bit for bit
    n_terms: int = 1  # how many numbers an element is summed from, if that is known
    by_row: bool = True  # whether errors are relative to their row, else to the largest


@dataclass(frozen=True)
class Errors:
    """How far off a result is, relative to the rows of the exact one."""

    max: float
    rms: float  # the root mean square


UNKNOWN = Errors(math.nan, math.nan)


@dataclass(frozen=True)
class Verdict:
    """Whether a result is accepted, and by how much."""

    error: Errors  # how far off it is
    allowed: Errors  # how far off it may be
    problem: str  # one sentence; empty if the result is accepted

    @property
    def passed(self) -> bool:
        """Whether there is no problem."""
        return not self.problem

    @property
    def share(self) -> float:
        """How much of the error that is allowed there is."""
        return self.error.max / self.allowed.max if self.allowed.max else 0.0


def expect(op: Op, arguments: tuple[Any, ...]) -> tuple[Expected, ...]:
    """Computes what each output of the op should be.

    To be called before the implementation under test, which might write to its inputs,
    or find in freed memory the results that others left there.
    """
    exact = op.reference(*(_copy(each, torch.float64) for each in arguments))
    own = _yardstick(op, arguments)
    trial = TRIALS[op.name]
    return tuple(
        Expected(*each, trial.is_rounded_once, by_row=trial.is_judged_by_row)
        for each in zip(as_tuple(exact), own, strict=True)
    )


def _yardstick(op: Op, arguments: tuple[Any, ...]) -> tuple[Tensor, ...]:
    """PyTorch's results in the precision that the op is judged by."""
    compute = TRIALS[op.name].yardstick or op.reference
    return as_tuple(compute(*(_copy(each) for each in arguments)))


def expect_like(own: Tensor, n_terms: int = 1) -> Expected:
    """What to expect of a result where nothing more exact is known than another one.

    Args:
        own: The other result, of a floating dtype, which may be as far off.
        n_terms: How many numbers an element is summed from.
    """
    exact = own.double()
    moved = exact * (1 + _floor(own.dtype, n_terms))
    return Expected(exact, moved.to(own.dtype), n_terms=n_terms)


def changed_reference(
    op: Op, arguments: tuple[Any, ...], expected: tuple[Expected, ...]
) -> str:
    """Tells how PyTorch now computes something else than before; empty if it does not.

    An implementation, or a library that it imports, might have replaced a function of
    PyTorch's or changed a setting, and the next results would be judged by that.
    """
    now = _yardstick(op, arguments)
    before = [Expected(each.torch.double(), each.torch) for each in expected]
    problem = judge_all(now, before).problem
    return problem and f"PyTorch computes something else than before: {problem}"


def judge_all(results: Sequence[Tensor], expected: Sequence[Expected]) -> Verdict:
    """The verdict on the output that is furthest off, for what is allowed there."""
    verdicts = [judge(*pair) for pair in zip(results, expected, strict=True)]
    worst = max(verdicts, key=lambda each: (not each.passed, each.share))
    if len(verdicts) == 1 or worst.passed:
        return worst
    number = verdicts.index(worst) + 1
    return replace(worst, problem=f"output {number}: {worst.problem}")


def judge(result: Tensor, expected: Expected) -> Verdict:
    """Compares a result with what it should be."""
    dtype = expected.torch.dtype
    allowed = _allowed(expected)
    if problem := wrong_kind(result, expected):
        return Verdict(UNKNOWN, allowed, problem)
    error = errors_of(result, expected.exact, dtype, expected.by_row)
    problem = (
        _misplaced_specials(result, expected.exact.to(dtype))
        or (_bit_differences(result, expected) if expected.must_equal_torch else "")
        or _too_far_off(error, allowed)
    )
    return Verdict(error, allowed, problem)


def errors_of(
    result: Tensor, exact: Tensor, dtype: torch.dtype, by_row: bool = True
) -> Errors:
    """How far off a result is where both it and the exact one are finite.

    What `dtype`, that of the op, cannot represent is not held against the result, which
    has the shape and device of the exact one, in float64, and any dtype. Errors are
    relative to their row, or else to the whole result.
    """
    if exact.numel() == 0:
        return Errors(0.0, 0.0)
    size, error = exact.abs(), (result.double() - exact).abs_()
    if size.max() > torch.finfo(dtype).max or not _are_finite(error):
        is_finite = exact.to(dtype).isfinite() & result.isfinite()
        size, error = (x.where(is_finite, x.new_zeros(())) for x in (size, error))
    size, error = (_rows(x) if by_row else x.reshape(1, -1) for x in (size, error))
    smallest = torch.finfo(dtype).tiny  # below it, numbers lose digits
    largest = size.amax(dim=1).clamp(min=smallest)
    typical = size.square().mean(dim=1).sqrt().clamp(min=smallest)
    squares = error.square().mean(dim=1) / typical.square()
    return Errors(
        max=(error.amax(dim=1) / largest).max().item(),
        rms=squares.mean().sqrt().item(),
    )


_WHOLE_NUMBERS = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def bits(x: Tensor) -> Tensor:
    """The memory of x, seen as whole numbers."""
    return x.view(_WHOLE_NUMBERS[x.element_size()])


def _copy(argument: Any, dtype: torch.dtype | None = None) -> Any:
    if not isinstance(argument, Tensor):
        return argument
    if not argument.is_floating_point():
        dtype = None  # they are indices
    return argument.detach().to(dtype, copy=True)


def _rows(x: Tensor) -> Tensor:
    n_cols = x.shape[-1] if x.dim() else 1
    return x.reshape(-1, n_cols) if n_cols >= SHORTEST_ROW else x.reshape(1, -1)


def _allowed(expected: Expected) -> Errors:
    dtype = expected.torch.dtype
    if expected.must_equal_torch:
        return errors_of(expected.torch, expected.exact, dtype, expected.by_row)
    floor = _floor(dtype, expected.n_terms)
    own = errors_of(expected.torch, expected.exact, dtype, expected.by_row)
    return Errors(max(FACTOR * own.max, floor), max(FACTOR * own.rms, floor))


def _floor(dtype: torch.dtype, n_terms: int) -> float:
    """The error that arithmetic in float32, or in float64 for that, always may have."""
    units = min(max(FLOAT32_UNITS, math.sqrt(n_terms)), MOST_UNITS)
    if dtype in (torch.float32, torch.float64):
        return units * torch.finfo(dtype).eps
    return (
        units * torch.finfo(torch.float32).eps + ROUNDING_UNITS * torch.finfo(dtype).eps
    )


def wrong_kind(result: object, expected: Expected) -> str:
    """Tells of a wrong class, shape, dtype or device; empty if all are right."""
    like = expected.torch
    # A subclass can put off its work until somebody looks, or look like what it is not.
    if type(result) is not Tensor:
        return f"the result is of class {type(result).__name__}, not Tensor"
    if result.shape != like.shape:
        return f"the shape is {tuple(result.shape)}, not {tuple(like.shape)}"
    if result.dtype != like.dtype:
        return f"the dtype is {result.dtype}, not {like.dtype}"
    if result.device != like.device:
        return f"the device is {result.device}, not {like.device}"
    return ""


def _are_finite(x: Tensor) -> bool:
    """Whether all are finite; if their sum is not, the answer is no as well."""
    return math.isfinite(x.sum(dtype=torch.float64))


def _misplaced_specials(result: Tensor, exact: Tensor) -> str:
    if _are_finite(result) and _are_finite(exact):
        return ""
    for name, where in (
        ("NaN", torch.isnan),
        ("inf", torch.isposinf),
        ("-inf", torch.isneginf),
    ):
        found, wanted = where(result), where(exact)
        for wrong, problem in (
            (found & ~wanted, f"are {name} and should not be"),
            (wanted & ~found, f"should be {name} and are not"),
        ):
            if count := int(wrong.sum()):
                return f"{count} of {result.numel()} elements {problem}"
    return ""


def _bit_differences(result: Tensor, expected: Expected) -> str:
    # Where both are NaN, whose bits mean nothing, the check above was enough.
    differs = (bits(result) != bits(expected.torch)) & ~result.isnan()
    if count := int(differs.sum()):
        return f"{count} of {result.numel()} elements are not bit for bit PyTorch's"
    return ""


def _too_far_off(error: Errors, allowed: Errors) -> str:
    for name, found, most in (
        ("largest", error.max, allowed.max),
        ("root mean square", error.rms, allowed.rms),
    ):
        if not found <= most:
            return f"the {name} error is {found:.2g}, and {most:.2g} would be allowed"
    return ""
