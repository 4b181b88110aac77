"""Cross entropy: gradients, rows that are ignored or wrong, special values, layouts."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from common import assert_accepted, leave_out_simulated, random_inputs
from together import in_one_test
from torch import Tensor

import bindings
from bindings import library
from bindings.op import Argument
from bindings.ops import cross_entropy as module
from bindings.registry import OPS
from compare.judge import acceptance
from compare.judge.acceptance import Expected

FORWARD, BACKWARD = OPS["cross_entropy"], OPS["cross_entropy_backward"]

PARAMS: tuple[dict[str, Any], ...] = (
    {},
    {"reduction": "sum", "label_smoothing": 1.0},
    {"reduction": "none", "ignore_index": 3},
    {"reduction": "mean", "label_smoothing": 0.1, "ignore_index": 0},
)
every_variant = pytest.mark.parametrize("params", PARAMS, ids=str)


def logits_and_target(
    shape: tuple[int, ...],
    dtype: torch.dtype,
    device: str,
    generator: torch.Generator,
) -> tuple[Tensor, Tensor]:
    logits, target = random_inputs(FORWARD, shape, dtype, device, generator)
    return logits, target


def expected_gradient(
    logits: Tensor, target: Tensor, grad: Tensor, params: dict[str, Any]
) -> Expected:
    """The gradient of PyTorch's function in float64, and in the dtype of the logits."""

    def in_dtype(dtype: torch.dtype) -> Tensor:
        leaf = logits.detach().to(dtype).requires_grad_()
        loss = torch.nn.functional.cross_entropy(leaf, target, **params)
        return torch.autograd.grad(loss, leaf, grad.to(dtype))[0]

    return Expected(in_dtype(torch.float64), in_dtype(logits.dtype))


# ---- Gradients -----------------------------------------------------------------------


SHAPES = ((1, 7), (17, 33), (5, 513), (2, 9001))


@in_one_test("shape")
@every_variant
@pytest.mark.parametrize("shape", SHAPES)
# A variant of a shape is compiled: what tells them apart are two ifs in one kernel.
@leave_out_simulated(
    lambda each: SHAPES.index(each["shape"]) != PARAMS.index(each["params"])
)
def test_gradient_is_accepted(
    shape: tuple[int, ...],
    params: dict[str, Any],
    backend: str,
    device: str,
    dtype: torch.dtype,
    generator: torch.Generator,
) -> None:
    logits, target = logits_and_target(shape, dtype, device, generator)
    target[0] = 1  # or no row of the mean might count
    grad = torch.randn(shape[0], generator=generator).to(device, dtype)
    if params.get("reduction") != "none":
        grad = grad[0]
    expected = expected_gradient(logits, target, grad, params)
    logits.requires_grad_()
    loss = bindings.cross_entropy(logits, target, **params, backend=backend)
    (gradient,) = torch.autograd.grad(loss, logits, grad)
    verdict = acceptance.judge(gradient, expected)
    assert verdict.passed, verdict.problem


def test_gradient_of_a_lower_precision_is_rejected(generator: torch.Generator) -> None:
    logits, target = logits_and_target((8, 781), torch.float32, "cpu", generator)
    expected = expected_gradient(logits, target, torch.ones(()), {})
    impostor = expected_gradient(logits.half(), target, torch.ones(()), {})
    assert acceptance.judge(expected.torch, expected).passed
    assert not acceptance.judge(impostor.torch.float(), expected).passed


@every_variant
def test_compiled_gradient_is_the_same(
    params: dict[str, Any], backend: str, device: str, generator: torch.Generator
) -> None:
    torch.compiler.reset()
    logits, target = logits_and_target((5, 33), torch.float32, device, generator)
    logits.requires_grad_()

    def doubled(logits: Tensor, target: Tensor) -> Tensor:
        return 2 * bindings.cross_entropy(logits, target, **params, backend=backend)

    compiled = torch.compile(doubled, fullgraph=True, backend="aot_eager")
    gradients: list[Tensor] = []
    for function in (doubled, compiled):
        loss = function(logits, target)
        gradients += torch.autograd.grad(loss, logits, torch.full_like(loss, 3.0))
    assert torch.equal(*gradients)


def test_gradient_may_have_any_strides(
    backend: str, device: str, generator: torch.Generator
) -> None:
    logits, target = logits_and_target((6, 4, 40), torch.float32, device, generator)
    _, logsumexp, _ = library.call_any(FORWARD, "torch", logits, target)
    one = torch.tensor(0.5, device=device)
    rows = torch.randn(4, 6, generator=generator).to(device).t()
    for grad in (one, one.expand(6, 4), rows, rows[:1].expand(6, 4)):
        assert_accepted(BACKWARD, backend, (grad, logits, target, logsumexp))


def test_second_derivative_raises(
    backend: str, device: str, generator: torch.Generator
) -> None:
    logits, target = logits_and_target((3, 4), torch.float32, device, generator)
    logits.requires_grad_()
    loss = bindings.cross_entropy(logits, target, backend=backend)
    (first,) = torch.autograd.grad(loss, logits, create_graph=True)
    with pytest.raises(NotImplementedError, match="has no backward"):
        first.sum().backward()


def test_nothing_else_that_the_op_returns_has_a_gradient(
    backend: str, device: str, generator: torch.Generator
) -> None:
    logits, target = logits_and_target((3, 4), torch.float32, device, generator)
    results = library.call_any(FORWARD, backend, logits.requires_grad_(), target)
    assert [each.requires_grad for each in results] == [True, False, False]


# ---- Rows that do not count ----------------------------------------------------------


@in_one_test("params", "n_cols")
@every_variant
@pytest.mark.parametrize("n_cols", [12, 300, 2000])
def test_ignored_rows_are_not_read(
    n_cols: int,
    params: dict[str, Any],
    backend: str,
    device: str,
    generator: torch.Generator,
) -> None:
    shape = (9, n_cols)
    logits, target = logits_and_target(shape, torch.float32, device, generator)
    ignore_index = params.get("ignore_index", -100)
    target[::2] = ignore_index
    target[1::2] = 5
    poisoned = logits.index_fill(0, torch.arange(0, 9, 2, device=device), math.nan)
    gradients: list[Tensor] = []
    for each in (logits, poisoned):
        each.requires_grad_()
        loss = bindings.cross_entropy(each, target, **params, backend=backend)
        gradients += torch.autograd.grad(loss.sum(), each)
        assert loss.isfinite().all()
    assert torch.equal(*gradients)
    assert (gradients[0][::2] == 0).all()


@pytest.mark.parametrize("reduction", module.REDUCTIONS)
def test_no_row_counts(reduction: str, backend: str, device: str) -> None:
    logits = torch.ones(4, 5, device=device, requires_grad=True)
    target = torch.full((4,), -100, device=device)
    loss = bindings.cross_entropy(logits, target, reduction=reduction, backend=backend)
    expected = torch.nn.functional.cross_entropy(logits, target, reduction=reduction)
    assert torch.equal(loss.nan_to_num(7.0), expected.nan_to_num(7.0))
    assert loss.isnan().all() == (reduction == "mean")
    (gradient,) = torch.autograd.grad(loss.sum(), logits)
    assert torch.equal(gradient, torch.zeros_like(gradient))


def test_rows_that_count_are_counted(
    backend: str, device: str, generator: torch.Generator
) -> None:
    for shape in ((1031, 12), (50, 300), (5, 2000)):
        logits, target = random_inputs(FORWARD, shape, torch.float32, device, generator)
        is_ignored = torch.rand(shape[0], generator=generator) < 0.1
        target[is_ignored.to(device)] = -100
        *_, n_counted = library.call_any(FORWARD, backend, logits, target)
        assert n_counted.item() == (target != -100).sum().item()


# ---- Targets that are no class -------------------------------------------------------

WRONG = (-1, 4, -101, 2**40, -(2**63))


@pytest.mark.parametrize("wrong", WRONG)
def test_target_that_is_no_class_raises_on_the_cpu(wrong: int, backend: str) -> None:
    target = torch.tensor([0, wrong, -100])
    message = f"target holds {wrong}, expected a class from 0 to 3, or ignore_index"
    with pytest.raises(IndexError, match=f"cross_entropy: {message}"):
        bindings.cross_entropy(torch.ones(3, 4), target, backend=backend)
    with pytest.raises(IndexError, match=f"cross_entropy_backward: {message}"):
        bindings.cross_entropy_backward(
            torch.ones(()), torch.ones(3, 4), target, torch.ones(3), backend=backend
        )


@in_one_test("wrong", "reduction")
@pytest.mark.parametrize("reduction", module.REDUCTIONS)
@pytest.mark.parametrize("wrong", WRONG)
def test_target_that_is_no_class_makes_its_row_nan(
    wrong: int,
    reduction: str,
    backend: str,
    device: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "_check_classes", lambda *args: None)
    logits = torch.ones(3, 4, device=device, requires_grad=True)
    target = torch.tensor([0, wrong, -100], device=device)
    loss = bindings.cross_entropy(logits, target, reduction=reduction, backend=backend)
    is_nan = [False, True, False] if reduction == "none" else True
    assert loss.isnan().tolist() == is_nan
    (gradient,) = torch.autograd.grad(loss.sum(), logits)
    assert gradient.isnan().all(1).tolist() == [False, True, False]
    assert not gradient[::2].isnan().any()


# ---- Values --------------------------------------------------------------------------

INF, NAN = math.inf, math.nan
SPECIAL_ROWS = {
    "inf": [INF, 0.0, 1.0],
    "inf elsewhere": [0.0, INF, 1.0],
    "-inf": [-INF, 0.0, 1.0],
    "-inf elsewhere": [0.0, -INF, 1.0],
    "nothing but -inf": [-INF, -INF, -INF],
    "NaN": [NAN, 0.0, 1.0],
    "NaN elsewhere": [0.0, NAN, 1.0],
    "NaN beside inf": [0.0, NAN, INF],
    "far apart": [1e34, -1e34, 0.0],
    "all far": [-1e34, -1e34, -1e34],
    "zeros": [0.0, -0.0, 0.0],
}


@in_one_test("name", "smoothing")
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("name", SPECIAL_ROWS)
def test_special_values(name: str, smoothing: float, backend: str, device: str) -> None:
    row = torch.tensor(SPECIAL_ROWS[name], device=device)
    # Beside an ordinary row, which must not change; short, and in several tiles.
    for padding in (0, 70, 9000):
        filler = torch.full((padding,), -4.0, device=device)
        padded = torch.cat([row, filler])
        logits = torch.stack([padded, torch.ones_like(padded)])
        target = torch.tensor([0, 1], device=device)
        params = {"label_smoothing": smoothing, "reduction": "none"}
        assert_accepted(FORWARD, backend, (logits, target), params)


@pytest.mark.parametrize("magnitude", [1e-3, 50.0, 1e4])
def test_losses_far_smaller_than_the_logits(
    magnitude: float, backend: str, device: str, generator: torch.Generator
) -> None:
    # The maximum is subtracted before anything is rounded away.
    logits, _ = logits_and_target((7, 1000), torch.float32, device, generator)
    logits = logits + magnitude
    target = logits.argmax(-1)
    for smoothing in (0.0, 0.1):
        params: dict[str, Any] = {"reduction": "none", "label_smoothing": smoothing}
        loss = bindings.cross_entropy(logits, target, **params, backend=backend)
        exact = torch.nn.functional.cross_entropy(logits.double(), target, **params)
        torch.testing.assert_close(loss.double(), exact, rtol=2e-6, atol=0)


def test_smoothing_over_all_classes_alone(
    backend: str, device: str, generator: torch.Generator
) -> None:
    for n_classes in (1, 2, 100):
        shape = (4, n_classes)
        logits, target = logits_and_target(shape, torch.float32, device, generator)
        for smoothing in (0.0, 0.3, 1.0):
            params = {"label_smoothing": smoothing, "reduction": "none"}
            assert_accepted(FORWARD, backend, (logits, target), params)


# ---- Layouts -------------------------------------------------------------------------
def test_rows_of_batches_are_read_in_place(
    backend: str, device: str, dtype: torch.dtype, generator: torch.Generator
) -> None:
    # A language model's: the last token has no target, and the vocabulary is padded.
    tokens, target = logits_and_target((3, 9, 72), dtype, device, generator)
    for logits in (tokens[:, :-1], tokens[:, :-1, :67], tokens[:, 1:, 1:]):
        following = target[:, 1:].clamp(max=logits.shape[-1] - 1)
        assert_accepted(FORWARD, backend, (logits, following))
        outputs = FORWARD.allocate(logits, following)
        launched = FORWARD.arguments(*outputs, logits, following)
        assert is_among(logits, launched)
        grad = torch.ones((), dtype=dtype, device=device)
        _, logsumexp, n = library.call_any(FORWARD, "torch", logits, following)
        inputs = (grad, logits, following, logsumexp, n)
        assert_accepted(BACKWARD, backend, inputs)
        assert is_among(logits, BACKWARD.arguments(torch.empty_like(logits), *inputs))


def is_among(x: Tensor, arguments: tuple[Argument, ...]) -> bool:
    """Whether a launcher gets the tensor itself, not a copy."""
    tensors = [each for each in arguments if isinstance(each, Tensor)]
    return any(each.data_ptr() == x.data_ptr() for each in tensors)


def test_one_row_without_a_dimension_of_rows(backend: str, device: str) -> None:
    logits = torch.tensor([1.0, 2.0, 4.0], device=device)
    target = torch.tensor(1, device=device)
    for params in ({}, {"reduction": "none"}):
        loss = bindings.cross_entropy(logits, target, **params, backend=backend)
        expected = torch.nn.functional.cross_entropy(logits, target)
        torch.testing.assert_close(loss, expected)


def test_gradient_has_the_memory_format_of_logits(
    backend: str, device: str, generator: torch.Generator
) -> None:
    logits, target = logits_and_target((3, 5, 40), torch.float32, device, generator)
    permuted = logits.transpose(0, 1).contiguous().transpose(0, 1)
    grad = torch.randn(target.shape, generator=generator).to(device)
    gradients: list[Tensor] = []
    for each in (logits, permuted):
        each.requires_grad_()
        loss = bindings.cross_entropy(each, target, reduction="none", backend=backend)
        gradients += torch.autograd.grad(loss, each, grad)
        assert gradients[-1].stride() == each.stride()
    assert torch.equal(*gradients)


def test_strides_of_targets_are_followed(
    backend: str, device: str, generator: torch.Generator
) -> None:
    logits, target = logits_and_target((8, 33), torch.float32, device, generator)
    for each in (
        target.repeat_interleave(2)[::2],
        target[:1].expand(8),
        target.flip(0),
    ):
        assert_accepted(FORWARD, backend, (logits, each))


# ---- Errors --------------------------------------------------------------------------

LOGITS, TARGET = torch.ones(3, 4), torch.zeros(3, dtype=torch.int64)

BAD_CALLS: dict[str, tuple[Callable[[str], Tensor], type[Exception], str]] = {
    "logits is no tensor": (
        lambda backend: bindings.cross_entropy([1.0], TARGET, backend=backend),
        TypeError,
        r"cross_entropy: logits must be a torch.Tensor, got list",
    ),
    "target is no tensor": (
        lambda backend: bindings.cross_entropy(LOGITS, 1, backend=backend),
        TypeError,
        r"cross_entropy: target must be a torch.Tensor, got int",
    ),
    "dtype of logits": (
        lambda backend: bindings.cross_entropy(
            LOGITS.double(), TARGET, backend=backend
        ),
        TypeError,
        r"cross_entropy: logits has dtype torch.float64, expected one of",
    ),
    "probabilities": (
        lambda backend: bindings.cross_entropy(
            LOGITS, LOGITS.softmax(-1), backend=backend
        ),
        TypeError,
        r"cross_entropy: target has dtype torch.float32, expected torch.int64",
    ),
    "dtype of target": (
        lambda backend: bindings.cross_entropy(LOGITS, TARGET.int(), backend=backend),
        TypeError,
        r"cross_entropy: target has dtype torch.int32, expected torch.int64",
    ),
    "shape of target": (
        lambda backend: bindings.cross_entropy(LOGITS, TARGET[:2], backend=backend),
        ValueError,
        r"cross_entropy: target has shape \(2,\) and logits has \(3, 4\), expected the",
    ),
    "logits without classes": (
        lambda backend: bindings.cross_entropy(
            LOGITS[0, 0], TARGET[0], backend=backend
        ),
        ValueError,
        r"cross_entropy: logits has shape \(\), expected a dimension of classes",
    ),
    "ignore_index": (
        lambda backend: bindings.cross_entropy(LOGITS, TARGET, 0.5, backend=backend),
        TypeError,
        r"cross_entropy: ignore_index must be an int, got float",
    ),
    "label_smoothing too large": (
        lambda backend: bindings.cross_entropy(
            LOGITS, TARGET, label_smoothing=1.5, backend=backend
        ),
        ValueError,
        r"cross_entropy: label_smoothing is 1.5, expected a number from 0 to 1",
    ),
    "label_smoothing is no number": (
        lambda backend: bindings.cross_entropy(
            LOGITS, TARGET, label_smoothing="0.1", backend=backend
        ),
        TypeError,
        r"cross_entropy: label_smoothing must be a number, got str",
    ),
    "label_smoothing is NaN": (
        lambda backend: bindings.cross_entropy(
            LOGITS, TARGET, label_smoothing=math.nan, backend=backend
        ),
        ValueError,
        r"cross_entropy: label_smoothing is nan, expected a number from 0 to 1",
    ),
    "reduction": (
        lambda backend: bindings.cross_entropy(
            LOGITS, TARGET, reduction="batchmean", backend=backend
        ),
        ValueError,
        r"cross_entropy: reduction is 'batchmean', expected one of 'none', 'mean',",
    ),
    "dtype of the gradient": (
        lambda backend: bindings.cross_entropy_backward(
            torch.ones(()).half(), LOGITS, TARGET, torch.ones(3), backend=backend
        ),
        TypeError,
        r"cross_entropy_backward: grad has dtype torch.float16 and logits has",
    ),
    "shape of the gradient": (
        lambda backend: bindings.cross_entropy_backward(
            torch.ones(4), LOGITS, TARGET, torch.ones(3), backend=backend
        ),
        ValueError,
        r"cross_entropy_backward: grad has shape \(4,\), expected \(\) or that of targ",
    ),
    "dtype of logsumexp": (
        lambda backend: bindings.cross_entropy_backward(
            torch.ones(()), LOGITS, TARGET, torch.ones(3).half(), backend=backend
        ),
        TypeError,
        r"cross_entropy_backward: logsumexp has dtype torch.float16, expected torch.fl",
    ),
    "shape of logsumexp": (
        lambda backend: bindings.cross_entropy_backward(
            torch.ones(()), LOGITS, TARGET, torch.ones(3, 1), backend=backend
        ),
        ValueError,
        r"cross_entropy_backward: logsumexp has shape \(3, 1\) and target has \(3,\)",
    ),
    "shape of n_counted": (
        lambda backend: bindings.cross_entropy_backward(
            torch.ones(()),
            LOGITS,
            TARGET,
            torch.ones(3),
            torch.ones(3),
            backend=backend,
        ),
        ValueError,
        r"cross_entropy_backward: n_counted has shape \(3,\), expected \(\)",
    ),
}


@in_one_test("bad", "backend")
@pytest.mark.parametrize("bad", BAD_CALLS)
def test_bad_arguments(bad: str, backend: str) -> None:
    call, error, message = BAD_CALLS[bad]
    with pytest.raises(error, match=message):
        call(backend)
