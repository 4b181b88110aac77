"""Bad arguments raise before any launch, and name the argument, its value and rule."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType

import pytest
import torch
from common import skip_if_refused
from together import in_one_test
from torch import Tensor

import bindings
from bindings.backends import native
from bindings.errors import BuildError
from bindings.registry import OPS

EVERY_BACKEND = True

BAD_CALLS: dict[str, tuple[Callable[[str], Tensor], type[Exception], str]] = {
    "add x is no tensor": (
        lambda backend: bindings.add([1.0], torch.ones(1), backend=backend),
        TypeError,
        r"add: x must be a torch.Tensor, got list",
    ),
    "add y is None": (
        lambda backend: bindings.add(torch.ones(1), None, backend=backend),
        TypeError,
        r"add: y must be a torch.Tensor, got NoneType",
    ),
    "add dtype": (
        lambda backend: bindings.add(
            torch.ones(1).int(), torch.ones(1).int(), backend=backend
        ),
        TypeError,
        r"add: x has dtype torch.int32, expected one of torch.float32, torch.float16",
    ),
    "add mixed dtypes": (
        lambda backend: bindings.add(
            torch.ones(1), torch.ones(1).half(), backend=backend
        ),
        TypeError,
        r"add: x has dtype torch.float32 and y has torch.float16",
    ),
    "add shapes": (
        lambda backend: bindings.add(torch.ones(2, 3), torch.ones(4), backend=backend),
        ValueError,
        r"add: x of shape \(2, 3\) and y of shape \(4,\) do not broadcast",
    ),
    "gelu dtype": (
        lambda backend: bindings.gelu(torch.ones(1).double(), backend=backend),
        TypeError,
        r"gelu: x has dtype torch.float64, expected one of",
    ),
    "gelu complex": (
        lambda backend: bindings.gelu(
            torch.ones(1, dtype=torch.cfloat), backend=backend
        ),
        TypeError,
        r"gelu: x has dtype torch.complex64, expected one of",
    ),
    "gelu approximate": (
        lambda backend: bindings.gelu(torch.ones(1), "erf", backend=backend),
        ValueError,
        r"gelu: approximate is 'erf', expected one of 'none', 'tanh'",
    ),
    "gelu_backward x is no tensor": (
        lambda backend: bindings.gelu_backward(torch.ones(1), 1.0, backend=backend),
        TypeError,
        r"gelu_backward: x must be a torch.Tensor, got float",
    ),
    "gelu_backward shapes": (
        lambda backend: bindings.gelu_backward(
            torch.ones(3), torch.ones(2, 3), backend=backend
        ),
        ValueError,
        r"gelu_backward: grad has shape \(3,\) and x has \(2, 3\), expected the same",
    ),
    "gelu_backward mixed dtypes": (
        lambda backend: bindings.gelu_backward(
            torch.ones(1).half(), torch.ones(1), backend=backend
        ),
        TypeError,
        r"gelu_backward: grad has dtype torch.float16 and x has torch.float32",
    ),
    "gelu_backward approximate": (
        lambda backend: bindings.gelu_backward(
            torch.ones(1), torch.ones(1), "erf", backend=backend
        ),
        ValueError,
        r"gelu_backward: approximate is 'erf', expected one of 'none', 'tanh'",
    ),
    "softmax_backward dtype": (
        lambda backend: bindings.softmax_backward(
            torch.ones(1).int(), torch.ones(1), backend=backend
        ),
        TypeError,
        r"softmax_backward: grad has dtype torch.int32, expected one of",
    ),
    "softmax_backward shapes": (
        lambda backend: bindings.softmax_backward(
            torch.ones(3, 1), torch.ones(3), backend=backend
        ),
        ValueError,
        r"softmax_backward: grad has shape \(3, 1\) and y has \(3,\), expected",
    ),
    "softmax_backward dim": (
        lambda backend: bindings.softmax_backward(
            torch.ones(3), torch.ones(3), 1, backend=backend
        ),
        IndexError,
        r"softmax_backward: dim is 1, expected a value from -1 to 0",
    ),
    "softmax bool": (
        lambda backend: bindings.softmax(torch.ones(1).bool(), backend=backend),
        TypeError,
        r"softmax: x has dtype torch.bool, expected one of",
    ),
    "softmax dim too large": (
        lambda backend: bindings.softmax(torch.ones(2, 3), 2, backend=backend),
        IndexError,
        r"softmax: dim is 2, expected a value from -2 to 1 for a tensor of 2 dim",
    ),
    "softmax dim too small": (
        lambda backend: bindings.softmax(torch.ones(()), -2, backend=backend),
        IndexError,
        r"softmax: dim is -2, expected a value from -1 to 0 for a tensor of 0",
    ),
    "softmax dim is no int": (
        lambda backend: bindings.softmax(torch.ones(2), 0.5, backend=backend),
        TypeError,
        r"softmax: dim must be an int, got float",
    ),
}


@in_one_test("bad")
@pytest.mark.parametrize("bad", BAD_CALLS)
def test_bad_arguments(bad: str, backend: str) -> None:
    call, error, message = BAD_CALLS[bad]
    with pytest.raises(error, match=message):
        call(backend)


def test_sparse_tensors_are_refused(backend: str) -> None:
    with pytest.raises((TypeError, NotImplementedError), match=r"layout|Sparse"):
        bindings.gelu(torch.eye(3).to_sparse(), backend=backend)


def test_unknown_backend() -> None:
    with pytest.raises(
        ValueError, match="gelu: backend is 'hip', expected one of 'cuda'"
    ):
        bindings.gelu(torch.ones(1), backend="hip")


def test_an_error_leaves_the_backend_usable(backend: str) -> None:
    skip_if_refused(backend, "cpu")
    with pytest.raises(TypeError):
        bindings.gelu(torch.ones(3).int(), backend=backend)
    # The sigmoid of this gate is 1.
    gate, up = torch.full((3,), 100.0), torch.full((3,), 2.0)
    out = bindings.swiglu(gate, up, backend=backend)
    assert torch.equal(out, gate * up)


def test_a_launcher_without_a_binding() -> None:
    says = r"^csrc/softmax/softmax\.cu defines no launcher 'softmax': .* pip install "
    with pytest.raises(BuildError, match=says):
        native.run(
            ModuleType("_cpu"), OPS["softmax"], torch.empty(3), torch.ones(3), -1
        )
