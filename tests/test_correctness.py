"""Every op by every backend, by the acceptance rule, where its kernels change."""

from __future__ import annotations

import pytest
import torch
from conftest import assert_accepted, random_inputs, skip_if_refused

import bindings
from bindings.op import Op, as_tuple
from bindings.registry import OPS

EDGES = [
    pytest.param(
        op, shape, params, id=f"{op.name}-{'x'.join(map(str, shape))}-{params}"
    )
    for op in OPS.values()
    for params in op.variants
    for shape in op.edge_shapes
]


# The other two backends have no kernels of their own to go wrong there.
@pytest.mark.parametrize("backend", ["cuda", "triton"])
@pytest.mark.parametrize(("description", "shape", "params"), EDGES)
def test_around_the_ends_of_tiles(
    description: Op,
    shape: tuple[int, ...],
    params: dict[str, object],
    backend: str,
    device: str,
    dtype: torch.dtype,
    generator: torch.Generator,
) -> None:
    skip_if_refused(backend, device, dtype)
    inputs = random_inputs(description, shape, dtype, device, generator)
    assert_accepted(description, backend, inputs, params)


@pytest.mark.parametrize("magnitude", [1e-3, 30.0, 1e4])
def test_other_magnitudes(
    op: Op,
    backend: str,
    device: str,
    dtype: torch.dtype,
    magnitude: float,
    generator: torch.Generator,
) -> None:
    skip_if_refused(backend, device, dtype)
    inputs = random_inputs(op, (5, 257), torch.float32, device, generator)
    inputs = tuple((magnitude * x).to(dtype) for x in inputs)
    if (op.name, backend, device) == ("gelu", "torch", "cpu") and bool(
        torch.nn.functional.gelu(inputs[0]).isnan().any()
    ):
        pytest.skip("oneDNN's float16 GELU is NaN at -60000 on CPUs with AVX512-FP16")
    if (op.name, backend, device) == ("softmax_backward", "torch", "cuda") and bool(
        as_tuple(op.reference(*inputs))[0].isnan().any()
    ):
        pytest.skip("PyTorch's float16 softmax backward overflows on a GPU")
    for params in op.variants:
        assert_accepted(op, backend, inputs, params)


def test_gelu_on_a_dense_grid(backend: str, device: str, dtype: torch.dtype) -> None:
    skip_if_refused(backend, device, dtype)
    x = torch.linspace(-8, 8, 16001, device=device).to(dtype)
    for params in OPS["gelu"].variants:
        assert_accepted(OPS["gelu"], backend, (x,), params)


def test_more_rows_than_a_grid_has_blocks_in_y(
    backend: str, device: str, generator: torch.Generator
) -> None:
    if backend == "triton" and device == "cpu":
        pytest.skip("the interpreter has no grid to outgrow, and takes long over it")
    x = torch.randn(65537, 3, generator=generator).to(device)
    assert_accepted(OPS["softmax"], backend, (x,))


def test_default_arguments_are_those_of_torch(backend: str, device: str) -> None:
    x = torch.tensor([[0.0, 1.0], [2.0, 4.0]], device=device)
    assert torch.allclose(
        bindings.gelu(x, backend=backend), torch.nn.functional.gelu(x)
    )
    assert torch.allclose(bindings.softmax(x, backend=backend), torch.softmax(x, -1))
