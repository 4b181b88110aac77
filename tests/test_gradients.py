"""Gradients through autograd, of every op whose backward has a kernel of its own."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

import pytest
import torch
from common import (
    cancels,
    laid_out_inputs,
    languages_on,
    leave_out,
    random_inputs,
)
from together import in_one_test
from torch import Tensor

from bindings.op import Op, as_tuple
from bindings.registry import FUNCTIONS, OPS
from bindings.trials import TRIALS
from compare.judge import acceptance
from compare.judge.acceptance import Expected
from compare.judge.cases import in_dtype

VARIANTS = [
    pytest.param(op, params, id=f"{op.name}-{params}")
    for op in OPS.values()
    if f"{op.name}_backward" in OPS
    for params in TRIALS[op.name].variants
]


differentiable = pytest.mark.parametrize(("forward", "params"), VARIANTS)


def place_of_variant(params: Mapping[str, Any]) -> int:
    """The place of a case's parameters among those of its op."""
    return TRIALS[params["forward"].name].variants.index(params["params"])


def n_variants(params: Mapping[str, Any]) -> int:
    """How many there are of its op."""
    return len(TRIALS[params["forward"].name].variants)


def _leaves(
    op: Op, inputs: tuple[Tensor, ...], dtype: torch.dtype
) -> tuple[Tensor, ...]:
    """Copies in a dtype; the differentiable ones require gradients."""
    copies = tuple(
        x.detach().to(dtype, copy=True) if x.is_floating_point() else x for x in inputs
    )
    for x in _differentiable(op, copies):
        x.requires_grad_()
    return copies


def _differentiable(op: Op, inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    assert op.gradient is not None
    numbers = tuple(x for x in inputs if x.is_floating_point())
    return numbers[: op.gradient.n_inputs]


def _gradients(
    op: Op, out: Tensor, leaves: tuple[Tensor, ...], grad: Tensor, **keywords: bool
) -> tuple[Tensor, ...]:
    return torch.autograd.grad(out, _differentiable(op, leaves), grad, **keywords)


def _expected(
    op: Op, inputs: tuple[Tensor, ...], grad: Tensor, params: dict[str, Any]
) -> tuple[list[Expected], Tensor]:
    """PyTorch's gradients in float64 and in x's dtype; and its output in float64."""
    by_dtype = []
    for dtype in (torch.float64, inputs[0].dtype):
        leaves = _leaves(op, inputs, dtype)
        out = as_tuple(op.reference(*leaves, **params))[0]
        by_dtype.append((_gradients(op, out, leaves, grad.to(dtype)), out.detach()))
    (exact, out), (own, _) = by_dtype
    by_row = TRIALS[f"{op.name}_backward"].is_judged_by_row
    # Attention's are sums over the keys, or over the queries, which are no more.
    n_terms = 1 if by_row else inputs[1].shape[1]
    pairs = zip(exact, own, strict=True)
    return [Expected(*each, n_terms=n_terms, by_row=by_row) for each in pairs], out


def _assert_accepted(
    op: Op,
    backend: str,
    inputs: tuple[Tensor, ...],
    grad: Tensor,
    params: dict[str, Any],
) -> None:
    expected, out = _expected(op, inputs, grad, params)
    assert not (op.name == "softmax" and cancels(grad, out, -1)), "cannot be judged"
    leaves = tuple(x.detach() for x in inputs)
    for x in _differentiable(op, leaves):
        x.requires_grad_()
    out = FUNCTIONS[op.name](*leaves, **params, backend=backend)
    gradients = _gradients(op, out, leaves, grad)
    for gradient, each in zip(gradients, expected, strict=True):
        verdict = acceptance.judge(gradient, each)
        assert verdict.passed, verdict.problem


def _inputs_and_grad(
    op: Op,
    params: dict[str, Any],
    shape: tuple[int, ...],
    dtype: torch.dtype,
    device: str,
    generator: torch.Generator,
) -> tuple[tuple[Tensor, ...], Tensor]:
    inputs = random_inputs(op, shape, dtype, device, generator)
    return inputs, _grad(op, params, inputs, generator)


def _grad(
    op: Op,
    params: dict[str, Any],
    inputs: tuple[Tensor, ...],
    generator: torch.Generator,
) -> Tensor:
    """Random numbers of the shape of the op's output."""
    out = as_tuple(op.reference(*inputs, **params))[0]
    return torch.randn(out.shape, generator=generator).to(out)


# None, one, short rows, several of the kernels' tiles, and rows that are read twice.
SHAPES = ((0, 5), (5, 0), (1, 33), (4, 6, 40), (37, 129), (3, 1025), (1, 20000))


def is_other_dtype(params: Mapping[str, Any]) -> bool:
    """Whether a shape is tried in the other dtype, and by the other language in this.

    Shapes and dtypes are those of the kernels' own tests. On a GPU all are tried.
    """
    is_half = params["dtype"] == torch.float16
    place = SHAPES.index(params["shape"]) + (params["backend"] == "cuda")
    return bool(params["device"] == "cpu" and (place % 2 == 1) != is_half)


def is_left_to_the_other_language(params: Mapping[str, Any]) -> bool:
    """Whether a shape of other parameters than the first is the other language's.

    Their gradients take the same way to the kernels. On a GPU all are tried.
    """
    variant = place_of_variant(params)
    place = SHAPES.index(params["shape"]) // 2 + variant
    is_turn = place % 2 == (params["backend"] == "cuda")
    return bool(params["device"] == "cpu" and variant and not is_turn)


@in_one_test("shape", "dtype")
@pytest.mark.parametrize("shape", SHAPES)
# The backwards themselves are tested in bfloat16, at more shapes.
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
@differentiable
@leave_out(is_other_dtype)
@leave_out(is_left_to_the_other_language)
def test_gradient_is_accepted(
    forward: Op,
    params: dict[str, Any],
    backend: str,
    device: str,
    dtype: torch.dtype,
    shape: tuple[int, ...],
    generator: torch.Generator,
) -> None:
    inputs, grad = _inputs_and_grad(forward, params, shape, dtype, device, generator)
    _assert_accepted(forward, backend, inputs, grad, params)


@in_one_test("forward", "params")
@differentiable
def test_gradient_of_a_scalar(
    forward: Op,
    params: dict[str, Any],
    backend: str,
    device: str,
    generator: torch.Generator,
) -> None:
    if () not in TRIALS[forward.name].edge_shapes:
        pytest.skip("it takes no tensors without dimensions")
    inputs, grad = _inputs_and_grad(
        forward, params, (), torch.float32, device, generator
    )
    _assert_accepted(forward, backend, inputs, grad, params)


LAYOUTS = {
    "transposed": lambda x: x.transpose(0, 1),
    "every second row": lambda x: x[:, ::2],
    "first columns": lambda x: x[..., :-3],
    "columns outermost": lambda x: x.movedim(-1, 0).contiguous().movedim(0, -1),
    "expanded rows": lambda x: x[..., :1, :].expand(*x.shape[:-2], 7, -1),
}


PAIRS_OF_LAYOUTS = [
    *((name, name) for name in LAYOUTS),
    *((name, "contiguous") for name in LAYOUTS),
    *(("transposed", name) for name in LAYOUTS if name != "transposed"),
]


def is_other_pair(params: Mapping[str, Any]) -> bool:
    """Whether a pair of layouts is left to other parameters, or to the other language.

    Layouts have nothing to do with parameters: each but the first of an op, which has
    all pairs, has every third.
    """
    variant = place_of_variant(params)
    place = PAIRS_OF_LAYOUTS.index((params["layout"], params["grad_layout"]))
    is_turn = (place + variant + (params["backend"] == "cuda")) % 3 == 0
    return bool(variant and not is_turn)


@in_one_test("layout", "grad_layout")
@pytest.mark.parametrize(("layout", "grad_layout"), PAIRS_OF_LAYOUTS)
@differentiable
@leave_out(is_other_pair)
def test_gradient_of_any_layout(
    forward: Op,
    params: dict[str, Any],
    backend: str,
    device: str,
    layout: str,
    grad_layout: str,
    generator: torch.Generator,
) -> None:
    inputs = laid_out_inputs(
        forward, (4, 6, 40), LAYOUTS[layout], torch.float32, device, generator
    )
    grad = _grad(forward, params, inputs, generator)
    if grad.dim() > 2:
        shape = grad.shape
        grad = LAYOUTS.get(grad_layout, torch.clone)(grad)
        if grad.shape != shape:
            grad = grad.flatten()[: shape[-1]].expand(shape)
    _assert_accepted(forward, backend, inputs, grad, params)


@in_one_test("forward", "params")
@differentiable
def test_gradient_of_a_sum_is_that_of_ones(
    forward: Op,
    params: dict[str, Any],
    backend: str,
    device: str,
    generator: torch.Generator,
) -> None:
    # The gradient of a sum is one number, expanded by strides of 0.
    inputs, _ = _inputs_and_grad(
        forward, params, (5, 67), torch.float32, device, generator
    )
    leaves = _leaves(forward, inputs, torch.float32)
    out = FUNCTIONS[forward.name](*leaves, **params, backend=backend)
    ones = _gradients(forward, out, leaves, torch.ones_like(out), retain_graph=True)
    summed = _gradients(forward, out.sum(), leaves, torch.ones((), device=device))
    assert all(map(torch.equal, summed, ones))


@in_one_test("dim")
@pytest.mark.parametrize("dim", range(-3, 3))
def test_gradient_of_softmax_along_every_dim(
    backend: str, device: str, dim: int, generator: torch.Generator
) -> None:
    softmax = OPS["softmax"]
    params = {"dim": dim}
    inputs, grad = _inputs_and_grad(
        softmax, params, (34, 35, 36), torch.float32, device, generator
    )
    _assert_accepted(softmax, backend, inputs, grad, params)


@differentiable
# What parameters are to torch, and whether they are given, is that of the last.
@leave_out(lambda case: 0 < place_of_variant(case) < n_variants(case) - 1)
def test_compiled_gradient_is_the_same(
    forward: Op, params: dict[str, Any], device: str, generator: torch.Generator
) -> None:
    torch.compiler.reset()
    inputs, grad = _inputs_and_grad(
        forward, params, (5, 33), torch.float32, device, generator
    )
    leaves = _leaves(forward, inputs, torch.float32)

    # Both languages in one graph, since it is torch that takes the time.
    def combined(*args: Tensor) -> Tensor:
        outs = [
            factor * FUNCTIONS[forward.name](*args, **params, backend=backend)
            for factor, backend in enumerate(languages_on(device), start=2)
        ]
        return torch.stack(outs).sum(0)

    compiled = torch.compile(combined, fullgraph=True, backend="aot_eager")
    expected = _gradients(forward, combined(*leaves), leaves, grad)
    gradients = _gradients(forward, compiled(*leaves), leaves, grad)
    assert all(map(torch.equal, gradients, expected))


@in_one_test("forward", "params")
@differentiable
def test_a_second_derivative_raises(
    forward: Op,
    params: dict[str, Any],
    backend: str,
    device: str,
    generator: torch.Generator,
) -> None:
    inputs, grad = _inputs_and_grad(
        forward, params, (3, 4), torch.float32, device, generator
    )
    leaves = _leaves(forward, inputs, torch.float32)
    out = FUNCTIONS[forward.name](*leaves, **params, backend=backend)
    grad.requires_grad_()
    for first in _gradients(forward, out, leaves, grad, create_graph=True):
        with pytest.raises(
            NotImplementedError,
            match=f"twin::{forward.name}_backward_{backend} has no backward",
        ):
            first.sum().backward(retain_graph=True)


@in_one_test("forward", "params")
@differentiable
def test_nothing_is_kept_for_tensors_without_gradient(
    forward: Op,
    params: dict[str, Any],
    backend: str,
    device: str,
    generator: torch.Generator,
) -> None:
    inputs, _ = _inputs_and_grad(
        forward, params, (3, 4), torch.float32, device, generator
    )
    out = FUNCTIONS[forward.name](*inputs, **params, backend=backend)
    assert not out.requires_grad
    backward = OPS[f"{forward.name}_backward"]
    known = inspect.signature(backward.allocate).parameters
    params = {name: each for name, each in params.items() if name in known}
    given = random_inputs(backward, (3, 4), torch.float32, device, generator)
    function = FUNCTIONS[backward.name]
    results = as_tuple(function(*given, **params, backend=backend))
    assert not any(each.requires_grad for each in results)
    for with_gradient in _differentiable(forward, given):
        with_gradient.requires_grad_()
        for each in as_tuple(function(*given, **params, backend=backend)):
            with pytest.raises(NotImplementedError, match="has no backward"):
                each.sum().backward()
        with_gradient.requires_grad_(False)


@in_one_test("forward", "params", "precision", "lower")
@pytest.mark.parametrize(
    ("precision", "lower"),
    [
        (torch.float32, torch.float16),
        (torch.float32, torch.bfloat16),
        (torch.float16, torch.bfloat16),
    ],
)
@differentiable
def test_gradient_of_lower_precision_is_rejected(
    forward: Op,
    params: dict[str, Any],
    precision: torch.dtype,
    lower: torch.dtype,
    generator: torch.Generator,
) -> None:
    inputs, grad = _inputs_and_grad(
        forward, params, (8, 781), precision, "cpu", generator
    )
    expected, _ = _expected(forward, inputs, grad, params)
    lowered = tuple(in_dtype(x, lower) for x in inputs)
    impostors, _ = _expected(forward, lowered, grad.to(lower), params)
    for each, impostor in zip(expected, impostors, strict=True):
        assert acceptance.judge(each.torch, each).passed
        assert not acceptance.judge(impostor.torch.to(precision), each).passed


@pytest.mark.parametrize("dim", range(-3, 3))
def test_reference_of_softmax_backward_is_the_formula(
    dim: int, generator: torch.Generator
) -> None:
    # PyTorch's function is private, by the underscore in its name.
    grad, x = torch.randn(2, 4, 5, 6, dtype=torch.float64, generator=generator)
    y = torch.softmax(x, dim)
    torch.testing.assert_close(
        OPS["softmax_backward"].reference(grad, y, dim),
        y * (grad - (grad * y).sum(dim, keepdim=True)),
    )


@in_one_test("dtype", "approximate")
@pytest.mark.parametrize("approximate", ["none", "tanh"])
def test_gelu_backward_of_special_values(
    backend: str, device: str, dtype: torch.dtype, approximate: str
) -> None:
    if backend == "torch":
        pytest.skip("PyTorch's float32 is NaN where x * x is inf")
    largest = torch.finfo(dtype).max
    values = [0.0, -0.0, 12.0, 1e4, largest, -12.0, -1e4, -largest]
    values += [float("inf"), -float("inf"), float("nan")]
    x = torch.tensor(values, dtype=dtype, device=device)
    out = FUNCTIONS["gelu_backward"](
        torch.ones_like(x), x, approximate, backend=backend
    )
    exact = OPS["gelu_backward"].reference(
        torch.ones_like(x).double(), x.double(), approximate
    )
    torch.testing.assert_close(out.double(), exact, equal_nan=True, rtol=0, atol=1e-30)


# In a warp, in a block, and read twice.
@in_one_test("dtype", "n_cols")
@pytest.mark.parametrize("n_cols", [8, 1500, 20000])
def test_softmax_backward_of_special_values(
    backend: str, device: str, dtype: torch.dtype, n_cols: int
) -> None:
    grad = torch.zeros(4, n_cols, dtype=dtype, device=device)
    y = torch.zeros_like(grad)
    y[:, 0] = y[:, -1] = 0.5
    grad[0, 0] = float("inf")
    grad[1, 1] = float("nan")
    y[2, 1] = float("nan")
    grad[3, 0] = 2.0
    out = FUNCTIONS["softmax_backward"](grad, y, backend=backend)
    # 0 * (0 - inf) is NaN, and 0.5 * (0 - inf) is -inf.
    assert out[0, :-1].isnan().all()
    assert out[0, -1] == -float("inf")
    assert out[1:3].isnan().all()
    assert out[3, [0, -1]].tolist() == [0.5, -0.5]
    assert (out[3, 1:-1] == 0).all()
