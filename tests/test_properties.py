"""Properties of ops for all inputs, tried on those that hypothesis draws."""

from __future__ import annotations

import inspect
import math
from typing import Any, NamedTuple

import pytest
import torch
from common import DEVICES, cancels, is_simulated
from hypothesis import assume, given
from hypothesis import strategies as st
from torch import Tensor

import bindings
from bindings.backends import interpreter
from bindings.op import DTYPES, Op, as_tuple
from bindings.registry import OPS
from bindings.trials import TRIALS
from compare.judge import acceptance
from compare.judge.cases import LAYOUTS, Case, in_dtype, is_number, lay_out
from compare.judge.parity import Parity, Prepared, check_prepared

INF, NAN = math.inf, math.nan

implementations = pytest.mark.parametrize("implementation", ["cuda", "triton"])

# ---- Inputs --------------------------------------------------------------------------

MOST_ELEMENTS = 4096

# Around the ends of vectors, warps, blocks and tiles.
EDGES = sorted({1, 2, 3, 5, 7, *(2**k + d for k in range(3, 13) for d in (-1, 0, 1))})


def sizes(most: int, least: int = 0) -> st.SearchStrategy[int]:
    """Sizes of a dimension, edges above all."""
    edges = [size for size in EDGES if least <= size <= most]
    anything = st.integers(least, most)
    return st.one_of(st.sampled_from(edges), anything) if edges else anything


@st.composite
def shapes(
    draw: st.DrawFn, least_dims: int = 0, most: int = MOST_ELEMENTS
) -> tuple[int, ...]:
    """Up to 4 dimensions; large ones first or last."""
    shape: list[int] = []
    for _ in range(draw(st.integers(least_dims, 4))):
        shape.append(draw(sizes(most // math.prod(shape or [1]) or 1)))
        if shape[-1] == 0:
            break
    return tuple(draw(st.sampled_from([shape, shape[::-1]])))


class Strides(NamedTuple):
    """A layout that comes about by permuting, slicing and expanding."""

    order: tuple[int, ...]  # of the dimensions in memory
    steps: tuple[int, ...]
    margins: tuple[int, ...]  # before the first entry of each dimension
    expanded: tuple[bool, ...]

    def lay_out(self, x: Tensor, device: str) -> Tensor:
        """The values of x in this layout; expanded dimensions repeat the first ones."""
        shape = [
            min(size, 1) if expanded else size
            for size, expanded in zip(x.shape, self.expanded, strict=True)
        ]
        ends = [
            margin + size * step
            for margin, size, step in zip(self.margins, shape, self.steps, strict=True)
        ]
        memory = torch.full([ends[d] for d in self.order], NAN, dtype=x.dtype)
        view = memory.to(device).permute([self.order.index(d) for d in range(x.dim())])
        view = view[tuple(map(slice, self.margins, ends, self.steps))]
        return view.copy_(x[tuple(map(slice, shape))]).expand(x.shape)


@st.composite
def layouts(draw: st.DrawFn, n_dims: int) -> str | Strides:
    """One of those that have a name, or any other."""
    if draw(st.booleans()):
        return draw(st.sampled_from(LAYOUTS))

    def one_each(strategy: st.SearchStrategy[Any]) -> tuple[Any, ...]:
        return tuple(draw(strategy) for _ in range(n_dims))

    return Strides(
        tuple(draw(st.permutations(range(n_dims)))),
        one_each(st.sampled_from([1, 1, 2, 3])),
        one_each(st.sampled_from([0, 0, 1, 4])),
        one_each(st.sampled_from([False, False, False, True])),
    )


class Values(NamedTuple):
    """The values of a tensor."""

    seed: int
    exponent: int  # they spread about as far as 10 to this power
    center: float  # on both sides of this
    specials: tuple[tuple[int, float], ...]  # and these are planted somewhere

    def put_into(self, x: Tensor) -> Tensor:
        """The random numbers in x, with these values."""
        x = x * 10.0**self.exponent + self.center
        for place, value in self.specials:
            if x.numel():
                x.view(-1)[place % x.numel()] = value
        return x


specials = st.tuples(
    st.integers(0, MOST_ELEMENTS),
    st.sampled_from([NAN, INF, -INF, 0.0, -0.0, 1e-45, 65504.0, 3.4e38, -3.4e38]),
)
values = st.builds(
    Values,
    seed=st.integers(0, 2**32),
    exponent=st.one_of(st.sampled_from([0, 1]), st.integers(-30, 30)),
    center=st.sampled_from([0.0, 0.0, 0.0, -5.0, 1.0, 100.0]),
    specials=st.lists(specials, max_size=3).map(tuple),
)


class Inputs(NamedTuple):
    """The arguments of an op."""

    shape: tuple[int, ...]
    dtype: torch.dtype
    values: Values
    layouts: tuple[str | Strides, ...]
    params: dict[str, Any]

    def arguments(self, op: Op, device: str) -> tuple[Any, ...]:
        """The arguments of a call of the op."""
        generator = torch.Generator().manual_seed(self.values.seed)
        # Those of another shape, such as a weight, are as the op makes them.
        trial = TRIALS[op.name]
        made = trial.inputs(self.shape, generator)
        is_full = _are_full(made)
        most = trial.largest_input
        values = [
            _up_to(self.values.put_into(x), most, self.dtype) if full else x
            for x, full in zip(made, is_full, strict=True)
        ]
        if op.name == "softmax_backward":
            # Gradients whose differences are finite, and what softmax may return.
            grad, x = values
            values = [grad / 4, torch.softmax(x, self.params["dim"])]
        tensors = []
        layouts = iter(self.layouts)
        for x, full in zip(values, is_full, strict=True):
            layout = next(layouts) if full else "contiguous"
            x = in_dtype(x, self.dtype)
            if op.name == "sum":
                # Terms that cancel leave but the rounding errors of the others, of
                # which one order of additions may have more than another.
                x = x.abs()
            if op.name in ("gelu", "activation"):
                # PyTorch's own answer for inf is inf or NaN, depending on the length.
                x = x.clamp(max=torch.finfo(x.dtype).max)
            tensors.append(
                lay_out(x, layout, device)
                if isinstance(layout, str)
                else layout.lay_out(x, device)
            )
        return trial.bind(trial.complete(*tensors), self.params, self.dtype)


def _are_full(made: tuple[Tensor, ...]) -> list[bool]:
    """Whether each of an op's inputs holds numbers and has the case's shape."""
    shape = max(made, key=Tensor.dim).shape
    return [x.shape == shape and is_number(x) for x in made]


def _up_to(x: Tensor, largest: float, dtype: torch.dtype) -> Tensor:
    """The values of x where they are no larger than that, NaN included."""
    if math.isinf(largest):
        return x
    largest = min(largest, torch.finfo(dtype).max)
    return x.clamp(-largest, largest)


@st.composite
def inputs(draw: st.DrawFn, op: Op) -> Inputs:
    """Any valid arguments of an op."""
    # An op that takes tensors without dimensions has their shape among its edges.
    # A product takes more than a look at each of its elements.
    trial = TRIALS[op.name]
    most = MOST_ELEMENTS // 8 if trial.flops else MOST_ELEMENTS
    shape = draw(shapes(least_dims=0 if () in trial.edge_shapes else 1, most=most))
    params = dict(draw(st.sampled_from(trial.variants)))
    if "dim" in inspect.signature(op.allocate).parameters:
        n_dims = max(len(shape), 1)
        params["dim"] = draw(st.integers(-n_dims, n_dims - 1))
    made = trial.inputs(shape, torch.Generator())
    return Inputs(
        shape,
        draw(st.sampled_from(DTYPES)),
        draw(values),
        tuple(
            draw(layouts(x.dim()))
            for x, full in zip(made, _are_full(made), strict=True)
            if full
        ),
        params,
    )


def call(op: str, implementation: str, *arguments: Any) -> Tensor:
    result: Tensor = getattr(bindings, op)(*arguments, backend=implementation)
    return result


def is_refused(implementation: str, device: str) -> bool:
    """Whether it would run in Triton's interpreter, which refuses the environment."""
    is_interpreted = implementation == "triton" and device == "cpu"
    return is_interpreted and interpreter.unsupported_reason(torch.float32) is not None


def are_same(x: Tensor, y: Tensor) -> bool:
    """Whether two results are the same bit for bit, or NaN in the same places."""
    same = (acceptance.bits(x) == acceptance.bits(y)) | (x.isnan() & y.isnan())
    return bool(same.all())


def can_be_judged(op: Op, arguments: tuple[Any, ...]) -> bool:
    """Whether the last bits of the inputs change only the last bits of the results.

    Products and gradients of weights are sums, and gradients of rows are differences:
    terms that cancel leave rounding errors, PyTorch's as much as ours.
    """
    generator = torch.Generator().manual_seed(0)
    epsilon = torch.finfo(torch.float32).eps

    def changed(x: Any) -> Any:
        if not isinstance(x, Tensor) or not x.is_floating_point():
            return x
        signs = 1 - 2 * torch.randint(0, 2, x.shape, generator=generator)
        return x.double() * (1 + epsilon * signs.to(x.device))

    exact = as_tuple(op.reference(*(_double(x) for x in arguments)))
    for _ in range(3):  # one change alone may happen to do little
        moved = as_tuple(op.reference(*map(changed, arguments)))
        for here, there in zip(exact, moved, strict=True):
            if acceptance.errors_of(there, here, torch.float32).max > 2 * epsilon:
                return False
    return True


def _double(x: Any) -> Any:
    return x.double() if isinstance(x, Tensor) and x.is_floating_point() else x


# ---- Every op ------------------------------------------------------------------------


@given(data=st.data())
def test_both_languages_are_accepted(op: Op, device: str, data: st.DataObject) -> None:
    made = data.draw(inputs(op))
    arguments = made.arguments(op, device)
    if op.name == "softmax_backward":
        assume(not cancels(*arguments))
    if op.name == "layer_norm_backward":
        assume(made.shape[-1] != 1)  # of one column only rounding errors are left
    if op.forward or TRIALS[op.name].flops:
        assume(can_be_judged(op, arguments))
    case = Case(made.shape, made.dtype, params=made.params)
    expected = acceptance.expect(op, arguments)
    prepared = Prepared(op, case, arguments, expected)
    allowed = 0.0
    results = []
    for implementation in ("cuda", "triton"):
        if is_refused(implementation, device):
            continue
        if is_simulated(implementation, device, made.dtype):
            continue  # each example would be compiled; test_correctness has its own
        parity = check_prepared(prepared, implementation)
        assert isinstance(parity, Parity)
        assert parity.problem == ""
        allowed += parity.allowed.max
        results.append(as_tuple(call(op.name, implementation, *arguments)))
    for outputs in zip(*results, strict=True):
        for result in outputs[1:]:
            apart = acceptance.errors_of(result, outputs[0].double(), made.dtype)
            assert apart.max <= allowed * (1 + allowed)


# ---- Addition ------------------------------------------------------------------------


@implementations
@given(made=inputs(OPS["add"]))
def test_addition_commutes(implementation: str, device: str, made: Inputs) -> None:
    if is_refused(implementation, device):
        return
    x, y = made.arguments(OPS["add"], device)
    there, back = call("add", implementation, x, y), call("add", implementation, y, x)
    assert are_same(there, back)


# ---- The Gaussian error linear unit --------------------------------------------------

approximations = pytest.mark.parametrize("approximate", ["none", "tanh"])

# The lowest point: where it is, and how far below zero.
VALLEY = -0.752
DEPTH = 0.171


@st.composite
def numbers(draw: st.DrawFn, device: str = DEVICES[-1]) -> Tensor:
    """A few hundred in a row, dense or spread out, of any dtype."""
    center = draw(st.floats(-12, 12))
    width = 10.0 ** draw(st.integers(-3, 2))
    x = torch.linspace(center - width, center + width, draw(st.integers(1, 600)))
    return x.to(device, draw(st.sampled_from(DTYPES)))


def gelu(implementation: str, x: Tensor, approximate: str) -> Tensor:
    return call("gelu", implementation, x, approximate).double()


def rounding(x: Tensor) -> Tensor:
    """The error of a difference after a few roundings of numbers of this size."""
    limits = torch.finfo(x.dtype)
    return 4 * limits.eps * (x.double().abs() + limits.tiny)


@implementations
@approximations
@given(x=numbers())
def test_gelu_keeps_its_bounds(
    implementation: str, approximate: str, x: Tensor
) -> None:
    if is_refused(implementation, x.device.type):
        return
    out = gelu(implementation, x, approximate)
    relu = x.double().clamp(min=0)
    slack = rounding(x)
    assert (out <= relu + slack).all()
    assert (out >= relu - DEPTH - slack).all()


@implementations
@approximations
@given(x=numbers())
def test_gelu_falls_and_then_rises(
    implementation: str, approximate: str, x: Tensor
) -> None:
    if is_refused(implementation, x.device.type):
        return
    out = gelu(implementation, x, approximate)
    slack = rounding(x)
    step = out.diff()
    assert (step >= -slack[1:])[x[:-1] >= VALLEY].all()
    assert (step <= slack[1:])[x[1:] <= VALLEY].all()


@implementations
@approximations
@given(x=numbers())
def test_gelu_of_both_signs_differ_by_x(
    implementation: str, approximate: str, x: Tensor
) -> None:
    if is_refused(implementation, x.device.type):
        return
    positive, negative = (gelu(implementation, each, approximate) for each in (x, -x))
    slack = rounding(x)
    assert ((positive - negative - x.double()).abs() <= slack).all()


# ---- Softmax -------------------------------------------------------------------------


@st.composite
def rows(draw: st.DrawFn, device: str = DEVICES[-1]) -> Tensor:
    """Some rows of numbers that are exact in every dtype."""
    shape = (draw(st.integers(1, 5)), draw(sizes(MOST_ELEMENTS // 5, least=1)))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**32)))
    most = draw(st.sampled_from([1, 8, 127]))
    x = torch.randint(-most, most + 1, shape, generator=generator) / 8
    return x.to(device, draw(st.sampled_from(DTYPES)))


def softmax(implementation: str, x: Tensor) -> Tensor:
    return call("softmax", implementation, x)


@implementations
@given(x=rows())
def test_softmax_sums_to_one(implementation: str, x: Tensor) -> None:
    if is_refused(implementation, x.device.type):
        return
    out = softmax(implementation, x).double()
    assert (out >= 0).all()
    limits = torch.finfo(x.dtype)
    # Of what is below the smallest normal number, only the first digits are left.
    slack = 8 * limits.eps + x.shape[-1] * limits.tiny * limits.eps
    assert (out.sum(-1) - 1).abs().max() <= slack


@implementations
@given(x=rows(), shift=st.integers(-16, 16))
def test_softmax_does_not_see_a_shift(
    implementation: str, x: Tensor, shift: int
) -> None:
    x = x.float()  # which holds the sums exactly
    assert are_same(softmax(implementation, x + shift), softmax(implementation, x))


@implementations
@given(x=rows(), seed=st.integers(0, 2**32))
def test_softmax_of_permuted_columns_is_permuted(
    implementation: str, x: Tensor, seed: int
) -> None:
    if is_refused(implementation, x.device.type):
        return
    generator = torch.Generator().manual_seed(seed)
    order = torch.randperm(x.shape[-1], generator=generator).to(x.device)
    limits = torch.finfo(x.dtype)
    torch.testing.assert_close(
        softmax(implementation, x[:, order]),
        softmax(implementation, x)[:, order],
        rtol=8 * limits.eps,
        atol=2 * limits.tiny * limits.eps,
    )


@implementations
@given(x=rows(), row=st.integers(0, 4), other=st.sampled_from([0.0, 1e30, INF, NAN]))
def test_softmax_of_a_row_does_not_see_the_others(
    implementation: str, x: Tensor, row: int, other: float
) -> None:
    if is_refused(implementation, x.device.type):
        return
    row %= len(x)
    others = torch.full_like(x, other, dtype=torch.float32).to(x.dtype)
    others[row] = x[row]
    assert are_same(
        softmax(implementation, others)[row], softmax(implementation, x)[row]
    )
