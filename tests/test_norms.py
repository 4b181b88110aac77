"""layer_norm and rms_norm: the tests that are theirs alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest
import torch
from common import assert_accepted, leave_out, random_inputs
from together import in_one_test
from torch import Tensor

import bindings
from bindings.op import Op, as_tuple
from bindings.ops import _norm as norm
from bindings.registry import FUNCTIONS, OPS
from compare.judge import acceptance
from compare.judge.acceptance import Expected

LAYER, RMS = OPS["layer_norm"], OPS["rms_norm"]
NORMS = (LAYER, RMS)


norms = pytest.mark.parametrize("description", NORMS, ids=lambda op: op.name)

# In registers, of several rows in a block and of one; read twice.
LENGTHS = (31, 1500, 70000)


def _input(
    n_cols: int, dtype: torch.dtype, device: str, generator: torch.Generator
) -> Tensor:
    x = 1 + torch.randn(3, n_cols, generator=generator)  # a mean of 0 would cancel
    return x.to(dtype).to(device)


# ---- Forward -------------------------------------------------------------------------


@pytest.mark.parametrize("n_cols", LENGTHS)
@norms
def test_without_weight(
    description: Op,
    backend: str,
    device: str,
    dtype: torch.dtype,
    n_cols: int,
    generator: torch.Generator,
) -> None:
    x = _input(n_cols, dtype, device, generator)
    assert_accepted(description, backend, (x,))


@pytest.mark.parametrize("absent", ["weight", "bias"])
def test_with_either_weight_or_bias(
    backend: str, device: str, absent: str, generator: torch.Generator
) -> None:
    x, weight, bias = random_inputs(LAYER, (5, 67), torch.float32, device, generator)
    present = {"weight": {"bias": bias}, "bias": {"weight": weight}}[absent]
    assert_accepted(LAYER, backend, (x,), present)


@pytest.mark.parametrize("n_cols", LENGTHS)
def test_a_mean_far_from_zero_costs_no_digits(
    backend: str,
    device: str,
    dtype: torch.dtype,
    n_cols: int,
    generator: torch.Generator,
) -> None:
    far = 1e4 if dtype == torch.float32 else 8.0
    x = (far + torch.randn(3, n_cols, generator=generator)).to(dtype).to(device)
    out = bindings.layer_norm(x, backend=backend).double()
    wide = x.double()
    mean, variance = wide.mean(-1, keepdim=True), wide.var(-1, correction=0)
    exact = (wide - mean) * (variance.unsqueeze(-1) + 1e-5).rsqrt()
    # Not by the acceptance rule: PyTorch loses three digits here.
    most = 4 * torch.finfo(dtype).eps * exact.abs().max()
    assert (out - exact).abs().max() <= most
    assert_accepted(LAYER, backend, (x,))


@in_one_test("value", "n_cols")
@pytest.mark.parametrize("value", [0.0, 0.1, -1e4])
@pytest.mark.parametrize("n_cols", LENGTHS)
def test_layer_norm_of_equal_numbers_is_zero(
    backend: str, device: str, n_cols: int, value: float
) -> None:
    x = torch.full((3, n_cols), value, device=device)
    out = bindings.layer_norm(x, backend=backend)
    assert out.abs().max() <= 1e-6
    bias = torch.full((n_cols,), 7.0, device=device)
    out = bindings.layer_norm(x, None, bias, backend=backend)
    assert (out == 7.0).all()


@norms
def test_of_zeros_is_zero(description: Op, backend: str, device: str) -> None:
    out = FUNCTIONS[description.name](
        torch.zeros(3, 40, device=device), backend=backend
    )
    assert (out == 0).all()


@pytest.mark.parametrize("eps", [0.0, 1])
@norms
def test_eps(
    description: Op,
    backend: str,
    device: str,
    eps: float,
    generator: torch.Generator,
) -> None:
    inputs = random_inputs(description, (5, 67), torch.float32, device, generator)
    assert_accepted(description, backend, inputs, {"eps": eps})


def test_a_single_column(backend: str, device: str, generator: torch.Generator) -> None:
    x = torch.randn(5, 1, generator=generator).to(device)
    weight = torch.tensor([2.0], device=device)
    bias = torch.tensor([3.0], device=device)
    assert (bindings.layer_norm(x, weight, bias, backend=backend) == 3.0).all()
    out = bindings.rms_norm(x, weight, backend=backend)
    torch.testing.assert_close(out, 2.0 * x.sign())


@in_one_test("n_cols", "special")
@pytest.mark.parametrize("n_cols", LENGTHS)
@pytest.mark.parametrize("special", [float("inf"), -float("inf"), float("nan")])
@norms
def test_special_values_stay_in_their_row(
    description: Op,
    backend: str,
    device: str,
    n_cols: int,
    special: float,
    generator: torch.Generator,
) -> None:
    x = _input(n_cols, torch.float32, device, generator)
    function = FUNCTIONS[description.name]
    expected = function(x, backend=backend)
    x[1, n_cols // 2] = special
    out = function(x, backend=backend)
    assert torch.equal(out[[0, 2]], expected[[0, 2]])
    if description is LAYER or special != special:
        assert out[1].isnan().all()
    else:  # rstd is 0
        assert out[1, n_cols // 2].isnan()
        assert out[1].nan_to_num().eq(0).all()


# ---- Backward ------------------------------------------------------------------------


def _accept_gradients(
    op: Op, backend: str, inputs: tuple[Tensor | None, ...], grad: Tensor
) -> None:
    """Judges the gradients of all inputs that are there."""

    def gradients(function: Callable[..., Any], dtype: torch.dtype) -> list[Tensor]:
        leaves = [
            None if x is None else x.detach().to(dtype).requires_grad_() for x in inputs
        ]
        out = as_tuple(function(*leaves))[0]
        there = [x for x in leaves if x is not None]
        return list(torch.autograd.grad(out, there, grad.to(dtype)))

    exact = gradients(op.reference, torch.float64)
    own = gradients(op.reference, grad.dtype)
    function = FUNCTIONS[op.name]
    found = gradients(lambda *args: function(*args, backend=backend), grad.dtype)
    for each in zip(found, exact, own, strict=True):
        verdict = acceptance.judge(each[0], Expected(*each[1:]))
        assert verdict.passed, verdict.problem


@in_one_test("shape", "present")
@pytest.mark.parametrize("shape", [(7, 31), (2, 9000), (2, 9001)])
@pytest.mark.parametrize("present", [(), (1,), (2,), (1, 2)])
@norms
def test_gradients_of_what_is_there(
    description: Op,
    backend: str,
    device: str,
    shape: tuple[int, ...],
    present: tuple[int, ...],
    generator: torch.Generator,
) -> None:
    made = random_inputs(description, shape, torch.float32, device, generator)
    inputs = tuple(x if i in (0, *present) else None for i, x in enumerate(made))
    grad = torch.randn(shape, generator=generator).to(device)
    _accept_gradients(description, backend, inputs, grad)


# Several in a block, one, one in clusters of each size and, as its columns do not fill
# vectors, of two launches; and one longer than all.
MORE_ROWS = (
    *((n_rows, 40) for n_rows in (300, 403)),
    (20, 300),
    *((7, n_cols) for n_cols in (2056, 4096, 4104, 5128, 6152, 8192, 12288)),
    *((5, n_cols) for n_cols in (8193, 20480, 32768, 40000, 65536, 65544)),
)


def is_left_to_the_other_norm(params: Mapping[str, Any]) -> bool:
    """Whether the other norm, which has the same kernels, is tried at a shape.

    They take turns, in float32 and in each of the 16-bit types. On a GPU all are tried.
    """
    place = MORE_ROWS.index(params["shape"])
    turn = place if params["dtype"] == torch.float32 else place // 2
    is_mine = turn % 2 == NORMS.index(params["description"])
    return params["device"] == "cpu" and not is_mine


@pytest.mark.parametrize(
    ("dtype", "shape"),
    [
        (dtype, shape)
        for i, shape in enumerate(MORE_ROWS)
        # Both 16-bit types take the same paths: each gets every other shape.
        for dtype in (torch.float32, (torch.float16, torch.bfloat16)[i % 2])
    ],
)
@norms
@leave_out(is_left_to_the_other_norm)
def test_more_rows_than_blocks(
    description: Op,
    backend: str,
    device: str,
    dtype: torch.dtype,
    shape: tuple[int, ...],
    generator: torch.Generator,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if backend == "triton" and device == "cpu" and shape[1] > 12288:
        pytest.skip("shorter rows are as long to it, and the interpreter is slow")
    # If the grid holds only two, few suffice.
    monkeypatch.setattr(norm, "count_partials", lambda *_: 2)
    backward = OPS[f"{description.name}_backward"]
    inputs = random_inputs(backward, shape, dtype, device, generator)
    assert_accepted(backward, backend, inputs)


@in_one_test("n_cols")
@pytest.mark.parametrize("n_cols", [7, 9000, 9001, 40000])
@norms
def test_without_rows_gradients_of_weights_are_zero(
    description: Op, backend: str, device: str, n_cols: int, generator: torch.Generator
) -> None:
    shape = (0, n_cols)
    inputs = random_inputs(description, shape, torch.float32, device, generator)
    leaves = [x.requires_grad_() for x in inputs]
    FUNCTIONS[description.name](*leaves, backend=backend).sum().backward()
    for x in leaves:
        assert x.grad is not None
        assert torch.equal(x.grad, torch.zeros_like(x))


@norms
def test_statistics_follow_the_rows_of_any_layout(
    description: Op, backend: str, device: str, generator: torch.Generator
) -> None:
    x = 1 + torch.randn(4, 6, 5, 33, generator=generator).to(device)
    for each in (x.permute(2, 0, 1, 3), x.transpose(0, 1)[:, ::2], x[:, :1].mT):
        assert_accepted(description, backend, (each,))
        name = f"{description.name}_backward"
        made = random_inputs(
            OPS[name], tuple(each.shape), torch.float32, device, generator
        )
        # The statistics come as they are, and in the order of other dimensions.
        assert_accepted(OPS[name], backend, (made[0], each, *made[2:]))
        turned = tuple(s.mT.contiguous().mT if s.dim() > 1 else s for s in made[2:])
        assert_accepted(OPS[name], backend, (made[0], each, *turned))


@norms
def test_weights_of_any_layout(
    description: Op, backend: str, device: str, generator: torch.Generator
) -> None:
    x, *weights = random_inputs(
        description, (3, 4, 64), torch.float32, device, generator
    )
    for lay_out in (
        lambda w: torch.stack([w, w], 1)[:, 0],
        lambda w: torch.cat([w[:1], w])[1:],
        lambda w: w[:1].expand(64),
        lambda w: w.flip(0),
    ):
        assert_accepted(description, backend, (x, *map(lay_out, weights)))


@pytest.mark.parametrize("n_sms", [132, 114])
def test_as_many_partial_sums_as_a_gpu_holds_blocks(n_sms: int) -> None:
    def count(n_rows: int, n_cols: int, element_size: int) -> int:
        return norm.count_partials(n_rows, n_cols, element_size, n_sms)

    assert count(0, 40, 4) == 1
    assert count(0, 10000, 4) == 1
    assert count(129, 40, 4) == 3
    assert count(33, 1000, 2) == 9
    assert count(10**6, 40, 4) == n_sms
    assert count(10**6, 4096, 2) == 2 * n_sms
    assert count(10**6, 4097, 2) == n_sms
    assert count(10**6, 12288, 4) == n_sms
    assert count(7, 32768, 4) == 7
    assert count(10**6, 32768, 4) == n_sms // 4
    assert count(10**6, 10**7, 4) == 1


@norms
def test_statistics_have_no_gradient(description: Op, device: str) -> None:
    x = torch.randn(3, 8, device=device).requires_grad_()
    out, *statistics = getattr(torch.ops.twin, f"{description.name}_cuda")(x)
    assert out.requires_grad
    assert not any(each.requires_grad for each in statistics)


@norms
def test_only_one_gradient_is_wanted(
    description: Op, backend: str, device: str, generator: torch.Generator
) -> None:
    inputs = random_inputs(description, (5, 33), torch.float32, device, generator)
    function = FUNCTIONS[description.name]
    leaves = [x.detach().requires_grad_() for x in inputs]
    function(*leaves, backend=backend).sum().backward()
    for i, x in enumerate(inputs):
        alone = x.detach().requires_grad_()
        function(*inputs[:i], alone, *inputs[i + 1 :], backend=backend).sum().backward()
        torch.testing.assert_close(alone.grad, leaves[i].grad, rtol=0, atol=0)


@norms
def test_compiles_without_weight(
    description: Op, backend: str, device: str, generator: torch.Generator
) -> None:
    torch.compiler.reset()
    x = torch.randn(5, 33, generator=generator).to(device).requires_grad_()

    def doubled(x: Tensor) -> Tensor:
        return 2 * FUNCTIONS[description.name](x, eps=0.25, backend=backend)

    compiled = torch.compile(doubled, fullgraph=True, backend="aot_eager")
    assert torch.equal(compiled(x), doubled(x))
    (expected,) = torch.autograd.grad(doubled(x).square().sum(), x)
    (gradient,) = torch.autograd.grad(compiled(x).square().sum(), x)
    assert torch.equal(gradient, expected)


# ---- Errors --------------------------------------------------------------------------

ONES = torch.ones(2, 3)

BAD_CALLS: dict[str, tuple[Callable[[str], Any], type[Exception], str]] = {
    "no tensor": (
        lambda backend: bindings.layer_norm([1.0], backend=backend),
        TypeError,
        r"layer_norm: x must be a torch.Tensor, got list",
    ),
    "no dimensions": (
        lambda backend: bindings.rms_norm(torch.ones(()), backend=backend),
        ValueError,
        r"rms_norm: x has no dimensions, expected at least 1",
    ),
    "dtype": (
        lambda backend: bindings.layer_norm(ONES.double(), backend=backend),
        TypeError,
        r"layer_norm: x has dtype torch.float64, expected one of torch.float32",
    ),
    "weight is a number": (
        lambda backend: bindings.rms_norm(ONES, 2.0, backend=backend),
        TypeError,
        r"rms_norm: weight must be a torch.Tensor or None, got float",
    ),
    "dtype of the weight": (
        lambda backend: bindings.rms_norm(ONES.half(), torch.ones(3), backend=backend),
        TypeError,
        r"rms_norm: x has dtype torch.float16 and weight has torch.float32",
    ),
    "shape of the bias": (
        lambda backend: bindings.layer_norm(ONES, None, torch.ones(2), backend=backend),
        ValueError,
        r"layer_norm: bias has shape \(2,\), expected \(3,\) for x of shape \(2, 3\)",
    ),
    "eps": (
        lambda backend: bindings.layer_norm(ONES, eps="small", backend=backend),
        TypeError,
        r"layer_norm: eps must be a number, got str",
    ),
    "shape of the gradient": (
        lambda backend: bindings.rms_norm_backward(
            torch.ones(3), ONES, torch.ones(2), backend=backend
        ),
        ValueError,
        r"rms_norm_backward: grad has shape \(3,\) and x has \(2, 3\), expected the sa",
    ),
    "dtype of rstd": (
        lambda backend: bindings.rms_norm_backward(
            ONES.half(), ONES.half(), torch.ones(2).half(), backend=backend
        ),
        TypeError,
        r"rms_norm_backward: rstd has dtype torch.float16, expected torch.float32",
    ),
    "shape of the mean": (
        lambda backend: bindings.layer_norm_backward(
            ONES, ONES, torch.ones(2, 1), torch.ones(2), backend=backend
        ),
        ValueError,
        r"layer_norm_backward: mean has shape \(2, 1\), expected \(2,\) for x of shape",
    ),
}


@in_one_test("bad", "backend")
@pytest.mark.parametrize("bad", BAD_CALLS)
def test_bad_arguments(bad: str, backend: str) -> None:
    call, error, message = BAD_CALLS[bad]
    with pytest.raises(error, match=message):
        call(backend)


@pytest.mark.parametrize("n_rows", [1, 4, 37])
def test_of_one_column_no_gradient_is_left(
    backend: str, device: str, n_rows: int, generator: torch.Generator
) -> None:
    x, grad = torch.randn(2, n_rows, 1, generator=generator).to(device)
    weight = torch.tensor([1.5], device=device)
    rstd = torch.full((n_rows,), 1e-5, device=device).rsqrt()
    grad_x, grad_weight, grad_bias = bindings.layer_norm_backward(
        grad, x, x[:, 0], rstd, weight, backend=backend
    )
    # The difference of a product and itself, of which one may not have been rounded.
    epsilon = torch.finfo(torch.float32).eps
    assert (grad_x.abs() <= epsilon * (grad * weight).abs() * rstd[:, None]).all()
    assert grad_weight.item() == 0
    torch.testing.assert_close(grad_bias, grad.sum(0))
