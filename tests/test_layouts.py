"""Tensors of any strides: every layout gives what its contiguous copy gives."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest
import torch
from common import (
    assert_accepted,
    cancels,
    laid_out_inputs,
    leave_out,
    random_inputs,
)
from together import in_one_test
from torch import Tensor

import bindings
from bindings import layout
from bindings.op import Op, as_tuple
from bindings.registry import FUNCTIONS, OPS


def _offset(x: Tensor, by: int) -> Tensor:
    """A contiguous view that begins `by` elements into its storage."""
    storage = x.new_empty(x.numel() + by)
    view = storage[by:].view(x.shape)
    view.copy_(x)
    return view


LAYOUTS: dict[str, Callable[[Tensor], Tensor]] = {
    "transposed": lambda x: x.transpose(-1, -2),
    "permuted": lambda x: x.permute(2, 0, 3, 1),
    "channels last": lambda x: x.contiguous(memory_format=torch.channels_last),
    "every second row": lambda x: x[:, :, ::2],
    "every second column": lambda x: x[..., ::2],
    "first columns": lambda x: x[..., :-3],
    "without the first column": lambda x: x[..., 1:],
    "first rows of each batch": lambda x: x[:, :, :4],
    "sliced in every dimension": lambda x: x[1:, ::2, 1:5, 2:-1],
    "sliced and permuted": lambda x: x[1:, ::2, 1:5].permute(0, 2, 1, 3),
    "expanded rows": lambda x: x[:, :, :1].expand(-1, -1, 7, -1),
    "expanded columns": lambda x: x[..., :1].expand(-1, -1, -1, 40),
    "expanded to nothing of its own": lambda x: x[:1, :1, :1, :1].expand(2, 3, 4, 33),
    "flipped copy": lambda x: x.flip(-1),
    "size one with an odd stride": lambda x: x.as_strided((1, 1, 1, 40), (11, 9, 7, 1)),
    "overlapping windows": lambda x: x.as_strided((1, 1, 9, 16), (9, 9, 3, 1)),
    **{
        f"offset by {by}": lambda x, by=by: _offset(x, by)  # type: ignore[misc]
        for by in (1, 2, 3, 4, 7)
    },
}


# Ops with the same kernels: each is tried in every second layout.
_WITH_THE_SAME_KERNELS = (
    ("activation", "gelu"),
    ("geglu", "swiglu"),
    ("layer_norm", "rms_norm"),
)


def is_left_to_the_other_op(params: Mapping[str, Any]) -> bool:
    """Whether another op that has the same kernels is tried in the layout."""
    place = list(LAYOUTS).index(params["name"]) % 2
    return any(params["op"].source == each[place] for each in _WITH_THE_SAME_KERNELS)


# Elements of 2 bytes have other vectors, so that other addresses and rows are aligned.
@in_one_test("name", "element")
@pytest.mark.parametrize(
    ("name", "element"),
    [
        *((name, torch.float32) for name in LAYOUTS),
        *((name, torch.float16) for name in ("transposed", "first columns")),
        *((f"offset by {by}", torch.float16) for by in (1, 2, 4)),
    ],
)
@leave_out(is_left_to_the_other_op)
def test_layout(
    op: Op,
    backend: str,
    device: str,
    element: torch.dtype,
    name: str,
    generator: torch.Generator,
) -> None:
    inputs = laid_out_inputs(
        op, (2, 4, 6, 40), LAYOUTS[name], element, device, generator
    )
    if op.name == "softmax_backward" and cancels(inputs[0], inputs[1], -1):
        function = FUNCTIONS[op.name]
        copies = tuple(x.contiguous() for x in inputs)
        assert torch.equal(
            function(*inputs, backend=backend), function(*copies, backend=backend)
        )
        return
    assert_accepted(op, backend, inputs, dtype=element)


@in_one_test("shape", "dim")
@pytest.mark.parametrize("dim", range(-4, 4))
@pytest.mark.parametrize("shape", [(3, 4, 5, 6), (2, 1, 7, 1)])
def test_softmax_of_every_dim(
    backend: str,
    device: str,
    shape: tuple[int, ...],
    dim: int,
    generator: torch.Generator,
) -> None:
    x = torch.randn(shape, generator=generator).to(device)
    assert_accepted(OPS["softmax"], backend, (x,), {"dim": dim})
    grad = torch.randn(shape, generator=generator).to(device)
    y = torch.softmax(x, dim)
    assert_accepted(OPS["softmax_backward"], backend, (grad, y), {"dim": dim})


BROADCASTS = [
    ((), ()),
    ((), (5,)),
    ((33,), ()),
    ((4, 33), (33,)),
    ((4, 32), (32,)),
    ((4, 33), (4, 1)),
    ((4, 1), (1, 33)),
    ((1, 32), (4, 32)),
    ((2, 3, 32), (3, 32)),
    ((2, 3, 32), (2, 1, 32)),
    ((2, 1, 33), (1, 3, 33)),
    ((2, 3, 1, 8), (1, 3, 5, 1)),
    ((0, 3), (1, 3)),
    ((3, 0), (3, 1)),
]


@in_one_test("x_shape", "y_shape")
@pytest.mark.parametrize(("x_shape", "y_shape"), BROADCASTS)
def test_add_broadcasts(
    backend: str,
    device: str,
    x_shape: tuple[int, ...],
    y_shape: tuple[int, ...],
    generator: torch.Generator,
) -> None:
    x = torch.randn(x_shape, generator=generator).to(device)
    y = torch.randn(y_shape, generator=generator).to(device)
    out = bindings.add(x, y, backend=backend)
    assert out.shape == torch.broadcast_shapes(x_shape, y_shape)
    assert torch.equal(out, x + y)


def test_add_of_tensors_in_different_layouts(
    backend: str, device: str, generator: torch.Generator
) -> None:
    x = torch.randn(32, 48, generator=generator).to(device)
    y = torch.randn(48, 32, generator=generator).to(device).t()
    assert torch.equal(bindings.add(x, y, backend=backend), x + y)
    assert torch.equal(bindings.add(y, x, backend=backend), x + y)
    assert torch.equal(bindings.add(x.t(), y.t(), backend=backend), (x + y).t())


@in_one_test("op", "shape")
@pytest.mark.parametrize("shape", [(6, 32), (2, 3, 5, 8)])
def test_results_keep_the_memory_format(
    op: Op,
    backend: str,
    device: str,
    shape: tuple[int, ...],
    generator: torch.Generator,
) -> None:
    inputs = random_inputs(op, shape, torch.float32, device, generator)
    function = getattr(bindings, op.name)
    assert as_tuple(function(*inputs, backend=backend))[0].is_contiguous()
    permuted = laid_out_inputs(
        op, shape, lambda x: x.movedim(-2, 0), torch.float32, device, generator
    )
    expected = as_tuple(op.reference(*permuted))[0]
    out = as_tuple(function(*permuted, backend=backend))[0]
    kept = max(permuted, key=Tensor.dim)
    if expected.shape[-kept.dim() :] != kept.shape:
        kept = expected  # reduced; several gradients behind one another are not
    assert out.stride()[-kept.dim() :] == kept.stride()


def test_dimensions_that_all_tensors_walk_evenly_are_merged() -> None:
    x = torch.empty(4, 5, 6)
    assert layout.collapse((x,)) == [(120, (1,))]
    assert layout.collapse((x, x[:, :1].expand(4, 5, 6))) == [
        (4, (30, 30)),
        (5, (6, 0)),
        (6, (1, 1)),
    ]
    assert layout.collapse((x.permute(2, 0, 1),)) == [(120, (1,))]
    assert layout.collapse((torch.empty(1, 1),)) == []


def test_only_what_does_not_fit_is_copied() -> None:
    out, x = torch.empty(4, 6, 8), torch.empty(4, 7, 8)[:, :6]
    assert layout.elementwise(out, x).inputs[0].data_ptr() == x.data_ptr()
    assert layout.rows(out, x, dim=2).inputs[0].data_ptr() == x.data_ptr()
    out, x = torch.empty(2, 3, 4, 8), torch.empty(3, 5, 5, 9)[:2, ::2, 1:, :8]
    assert layout.elementwise(out, x).inputs[0].data_ptr() != x.data_ptr()
    assert layout.rows(out, x, dim=3).inputs[0].data_ptr() != x.data_ptr()
