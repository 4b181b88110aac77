"""Gradients through autograd, of every op whose backward has a kernel of its own."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from conftest import cancels, random_inputs, skip_if_refused
from torch import Tensor

from bindings.op import Op, as_tuple
from bindings.registry import FUNCTIONS, OPS
from compare import acceptance
from compare.acceptance import Expected

VARIANTS = [
    pytest.param(op, params, id=f"{op.name}-{params}")
    for op in OPS.values()
    if f"{op.name}_backward" in OPS
    for params in op.variants
]

# Where there are many cases; the other backends have fewer.
both_languages = pytest.mark.parametrize("backend", ["cuda", "triton"])

differentiable = pytest.mark.parametrize(("forward", "params"), VARIANTS)


def _leaf(x: Tensor, dtype: torch.dtype) -> Tensor:
    return x.detach().to(dtype).requires_grad_()


def _expected(
    op: Op, x: Tensor, grad: Tensor, params: dict[str, Any]
) -> tuple[Expected, Tensor]:
    """PyTorch's gradient in float64 and in x's dtype; and its output in float64."""
    by_dtype = []
    for dtype in (torch.float64, x.dtype):
        leaf = _leaf(x, dtype)
        out = as_tuple(op.reference(leaf, **params))[0]
        (gradient,) = torch.autograd.grad(out, leaf, grad.to(dtype))
        by_dtype.append((gradient, out.detach()))
    (exact, out), (own, _) = by_dtype
    return Expected(exact, own), out


def _assert_accepted(
    op: Op, backend: str, x: Tensor, grad: Tensor, params: dict[str, Any]
) -> None:
    expected, out = _expected(op, x, grad, params)
    assert not (op.name == "softmax" and cancels(grad, out, -1)), "cannot be judged"
    leaf = x.detach().requires_grad_()
    result = FUNCTIONS[op.name](leaf, **params, backend=backend)
    (gradient,) = torch.autograd.grad(result, leaf, grad)
    verdict = acceptance.judge(gradient, expected)
    assert verdict.passed, verdict.problem


def _x_and_grad(
    op: Op,
    shape: tuple[int, ...],
    dtype: torch.dtype,
    device: str,
    generator: torch.Generator,
) -> tuple[Tensor, Tensor]:
    (x,) = random_inputs(op, shape, dtype, device, generator)
    grad = torch.randn(shape, generator=generator).to(dtype).to(device)
    return x, grad


# None, one, short rows, several of the kernels' tiles, and rows that are read twice.
@both_languages
@pytest.mark.parametrize(
    "shape", [(0, 5), (5, 0), (1, 33), (4, 6, 40), (37, 129), (3, 1025), (2, 20000)]
)
@differentiable
def test_gradient_is_accepted(
    forward: Op,
    params: dict[str, Any],
    backend: str,
    device: str,
    dtype: torch.dtype,
    shape: tuple[int, ...],
    generator: torch.Generator,
) -> None:
    skip_if_refused(backend, device, dtype)
    x, grad = _x_and_grad(forward, shape, dtype, device, generator)
    _assert_accepted(forward, backend, x, grad, params)


@differentiable
def test_gradient_of_a_scalar(
    forward: Op, params: dict[str, Any], backend: str, device: str
) -> None:
    x = torch.tensor(0.5, device=device, requires_grad=True)
    FUNCTIONS[forward.name](x, **params, backend=backend).backward()
    expected = torch.tensor(0.5, device=device, requires_grad=True)
    as_tuple(forward.reference(expected, **params))[0].backward()
    torch.testing.assert_close(x.grad, expected.grad)


LAYOUTS = {
    "transposed": lambda x: x.transpose(0, 1),
    "every second row": lambda x: x[:, ::2],
    "first columns": lambda x: x[..., :-3],
    "columns outermost": lambda x: x.movedim(-1, 0).contiguous().movedim(0, -1),
    "expanded rows": lambda x: x[:, :1].expand(-1, 7, -1),
}


@both_languages
@pytest.mark.parametrize("grad_layout", [*LAYOUTS, "contiguous"])
@pytest.mark.parametrize("layout", LAYOUTS)
@differentiable
def test_gradient_of_any_layout(
    forward: Op,
    params: dict[str, Any],
    backend: str,
    device: str,
    layout: str,
    grad_layout: str,
    generator: torch.Generator,
) -> None:
    x, grad = _x_and_grad(forward, (4, 6, 40), torch.float32, device, generator)
    x, grad = LAYOUTS[layout](x), LAYOUTS.get(grad_layout, torch.clone)(grad)
    if x.shape != grad.shape:
        grad = grad.flatten()[: x[0, 0].numel()].expand(x.shape)
    _assert_accepted(forward, backend, x, grad, params)


@differentiable
def test_gradient_of_a_sum_is_that_of_ones(
    forward: Op,
    params: dict[str, Any],
    backend: str,
    device: str,
    generator: torch.Generator,
) -> None:
    # The gradient of a sum is one number, expanded by strides of 0.
    x, _ = _x_and_grad(forward, (5, 67), torch.float32, device, generator)
    x.requires_grad_()
    out = FUNCTIONS[forward.name](x, **params, backend=backend)
    (ones,) = torch.autograd.grad(out, x, torch.ones_like(out), retain_graph=True)
    (summed,) = torch.autograd.grad(out.sum(), x)
    assert torch.equal(summed, ones)


@both_languages
@pytest.mark.parametrize("dim", range(-3, 3))
def test_gradient_of_softmax_along_every_dim(
    backend: str, device: str, dim: int, generator: torch.Generator
) -> None:
    softmax = OPS["softmax"]
    x, grad = _x_and_grad(softmax, (34, 35, 36), torch.float32, device, generator)
    _assert_accepted(softmax, backend, x, grad, {"dim": dim})


@differentiable
def test_compiled_gradient_is_the_same(
    forward: Op,
    params: dict[str, Any],
    backend: str,
    device: str,
    generator: torch.Generator,
) -> None:
    torch.compiler.reset()
    x, grad = _x_and_grad(forward, (5, 33), torch.float32, device, generator)
    x.requires_grad_()

    def doubled(x: Tensor) -> Tensor:
        return 2 * FUNCTIONS[forward.name](x, **params, backend=backend)

    compiled = torch.compile(doubled, fullgraph=True, backend="aot_eager")
    (expected,) = torch.autograd.grad(doubled(x), x, grad)
    (gradient,) = torch.autograd.grad(compiled(x), x, grad)
    assert torch.equal(gradient, expected)


@differentiable
def test_a_second_derivative_raises(
    forward: Op,
    params: dict[str, Any],
    backend: str,
    device: str,
    generator: torch.Generator,
) -> None:
    x, grad = _x_and_grad(forward, (3, 4), torch.float32, device, generator)
    x.requires_grad_()
    out = FUNCTIONS[forward.name](x, **params, backend=backend)
    (first,) = torch.autograd.grad(out, x, grad, create_graph=True)
    with pytest.raises(
        NotImplementedError,
        match=f"twin::{forward.name}_backward_{backend} has no backward",
    ):
        first.sum().backward()


@differentiable
def test_nothing_is_kept_for_tensors_without_gradient(
    forward: Op,
    params: dict[str, Any],
    backend: str,
    device: str,
    generator: torch.Generator,
) -> None:
    x, grad = _x_and_grad(forward, (3, 4), torch.float32, device, generator)
    out = FUNCTIONS[forward.name](x, **params, backend=backend)
    assert not out.requires_grad
    backward = FUNCTIONS[f"{forward.name}_backward"]
    assert not backward(grad, x, **params, backend=backend).requires_grad
    for with_gradient in (grad, x):
        with_gradient.requires_grad_()
        out = backward(grad, x, **params, backend=backend)
        with pytest.raises(NotImplementedError, match="has no backward"):
            out.sum().backward()
        with_gradient.requires_grad_(False)


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
    x, grad = _x_and_grad(forward, (8, 781), precision, "cpu", generator)
    expected, _ = _expected(forward, x, grad, params)
    impostor, _ = _expected(forward, x.to(lower), grad.to(lower), params)
    assert acceptance.judge(expected.torch, expected).passed
    assert not acceptance.judge(impostor.torch.to(precision), expected).passed


@pytest.mark.parametrize("dim", range(-3, 3))
def test_reference_of_softmax_backward_is_the_formula(
    dim: int, generator: torch.Generator
) -> None:
    # PyTorch's function has an underscore in its name: nobody promises what it does.
    grad, x = torch.randn(2, 4, 5, 6, dtype=torch.float64, generator=generator)
    y = torch.softmax(x, dim)
    torch.testing.assert_close(
        OPS["softmax_backward"].reference(grad, y, dim),
        y * (grad - (grad * y).sum(dim, keepdim=True)),
    )


@pytest.mark.parametrize("approximate", ["none", "tanh"])
def test_gelu_backward_of_special_values(
    backend: str, device: str, dtype: torch.dtype, approximate: str
) -> None:
    if backend == "torch":
        pytest.skip("PyTorch's float32 is NaN where x * x is inf")
    skip_if_refused(backend, device, dtype)
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
@pytest.mark.parametrize("n_cols", [8, 1500, 20000])
def test_softmax_backward_of_special_values(
    backend: str, device: str, dtype: torch.dtype, n_cols: int
) -> None:
    skip_if_refused(backend, device, dtype)
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
