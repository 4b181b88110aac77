"""Activations by name: which function each is, what is special, gradients, errors."""

from __future__ import annotations

import math
import re
from pathlib import Path

import pytest
import torch
from common import leave_out_simulated
from together import in_one_test

import bindings
from bindings.ops.activation import ACTIVATIONS, LAUNCHED, REFERENCES
from bindings.registry import OPS
from compare.judge import acceptance

INF, NAN = math.inf, math.nan
GRADIENT_LAYOUTS = ["contiguous", "transposed", "expanded gradient"]
each_activation = pytest.mark.parametrize("activation", ACTIVATIONS)

SPECIALS = [NAN, INF, -INF, 0.0, -0.0, 1e-30, -1e-30, 3e38, -3e38, 88.0, -88.0, -104.0]


def test_both_languages_and_python_have_them_in_one_order() -> None:
    root = Path(__file__).resolve().parents[1]
    cuda = (root / "csrc/common/epilogue.cuh").read_text()
    names = re.search(r"enum class Activation : int \{(.*?)\};", cuda)
    assert names
    assert tuple(name.strip() for name in names[1].split(",")) == LAUNCHED
    triton = (root / "triton_kernels/common/epilogue.py").read_text()
    names = re.search(r"ACTIVATIONS = \((.*?)\)", triton)
    assert names
    assert tuple(re.findall(r'"(\w+)"', names[1])) == LAUNCHED


def test_which_function_each_is(backend: str, device: str) -> None:
    x = torch.linspace(-4, 4, 33, device=device)
    functional = torch.nn.functional
    for name, expected in {
        "relu": x.clamp(min=0),
        "leaky_relu": torch.where(x < 0, 0.01 * x, x),
        "gelu": functional.gelu(x),
        "gelu_tanh": functional.gelu(x, approximate="tanh"),
        "silu": x * torch.sigmoid(x),
    }.items():
        torch.testing.assert_close(
            bindings.activation(x, name, backend=backend), expected
        )


@each_activation
def test_on_a_dense_grid(
    activation: str, backend: str, device: str, dtype: torch.dtype
) -> None:
    x = torch.linspace(-20, 20, 8001, device=device).to(dtype)
    grad = torch.linspace(-3, 5, 8001, device=device).to(dtype)
    for op, arguments in (
        (OPS["activation"], (x, activation)),
        (OPS["activation_backward"], (grad, x, activation)),
    ):
        (expected,) = acceptance.expect(op, arguments)
        out = getattr(bindings, op.name)(*arguments, backend=backend)
        assert acceptance.judge(out, expected).problem == ""


@in_one_test("activation")
@each_activation
def test_special_values(
    activation: str, backend: str, device: str, dtype: torch.dtype
) -> None:
    values = SPECIALS
    if activation.startswith("gelu"):  # of which PyTorch has two answers
        values = [x for x in SPECIALS if x != INF]
    # Each among many: a CPU's PyTorch does single values another way.
    x = torch.tensor(values, device=device).repeat_interleave(32).to(dtype)
    (expected,) = acceptance.expect(OPS["activation"], (x, activation))
    out = bindings.activation(x, activation, backend=backend)
    assert acceptance.judge(out, expected).problem == ""


def test_relu_passes_no_gradient_where_x_is_not_positive(
    backend: str, device: str
) -> None:
    x = torch.tensor([-1.0, 0.0, -0.0, 1.0, -INF, INF, NAN], device=device)
    grad = torch.tensor([INF, NAN, INF, INF, NAN, 2.0, 3.0], device=device)
    out = bindings.activation_backward(grad, x, "relu", backend=backend)
    assert out.tolist() == [0.0, 0.0, 0.0, INF, 0.0, 2.0, 3.0]
    ones = torch.ones_like(x)
    out = bindings.activation_backward(ones, x, "leaky_relu", backend=backend)
    slope = torch.tensor(0.01).item()
    assert out[:4].tolist() == [slope, slope, slope, 1.0]


@in_one_test("layout")
@each_activation
@pytest.mark.parametrize("layout", GRADIENT_LAYOUTS)
# Compiled code has one of the layouts for each activation, in turn.
@leave_out_simulated(
    lambda params: (
        GRADIENT_LAYOUTS.index(params["layout"])
        != ACTIVATIONS.index(params["activation"]) % len(GRADIENT_LAYOUTS)
    )
)
def test_gradient_through_autograd(
    activation: str, layout: str, backend: str, device: str, dtype: torch.dtype
) -> None:
    generator = torch.Generator().manual_seed(1)
    x = 3 * torch.randn(7, 40, generator=generator).to(device)
    x = x.to(dtype).t() if layout == "transposed" else x.to(dtype)
    grad = torch.randn(x.shape, generator=generator).to(device, dtype)
    if layout == "expanded gradient":
        grad = grad[:1, :1].expand(x.shape)
    leaf = x.detach().requires_grad_()
    bindings.activation(leaf, activation, backend=backend).backward(grad)
    exact = x.detach().double().requires_grad_()
    REFERENCES[activation](exact).backward(grad.double())
    own = x.detach().clone().requires_grad_()
    REFERENCES[activation](own).backward(grad)
    assert leaf.grad is not None
    assert exact.grad is not None
    assert own.grad is not None
    expected = acceptance.Expected(exact.grad, own.grad)
    assert acceptance.judge(leaf.grad, expected).problem == ""


@pytest.mark.parametrize(
    ("name", "arguments", "error", "message"),
    [
        (
            "activation",
            (torch.ones(1), "tanh"),
            ValueError,
            r"activation: activation is 'tanh', expected one of 'relu', 'leaky_relu'",
        ),
        (
            "activation",
            (torch.ones(1).int(),),
            TypeError,
            r"activation: x has dtype torch.int32, expected one of",
        ),
        (
            "activation_backward",
            (torch.ones(2), torch.ones(3)),
            ValueError,
            r"activation_backward: grad has shape \(2,\) and x has \(3,\), expected",
        ),
        (
            "activation_backward",
            (None, torch.ones(3)),
            TypeError,
            r"activation_backward: grad must be a torch.Tensor, got NoneType",
        ),
    ],
)
def test_bad_arguments(
    name: str,
    arguments: tuple[object, ...],
    error: type[Exception],
    message: str,
    backend: str,
) -> None:
    with pytest.raises(error, match=message):
        getattr(bindings, name)(*arguments, backend=backend)
