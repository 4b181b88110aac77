"""Ops as the rest of PyTorch sees them: torch.compile, autograd, fake tensors."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from common import (
    LANGUAGES,
    laid_out_inputs,
    languages_on,
    random_inputs,
    skip_if_refused,
)
from together import in_one_test
from torch import library

from bindings.op import Op, as_tuple
from bindings.registry import FUNCTIONS
from bindings.trials import TRIALS
from compare.judge.cases import is_number

EVERY_BACKEND = True

# Where a fake tensor's strides could differ from a real one's.
LAYOUTS = {
    "contiguous": lambda x: x,
    "permuted": lambda x: x.movedim(-1, 0),
    "sliced": lambda x: x[..., ::2, 1:],
    "expanded": lambda x: x[:1].expand(4, *x.shape[1:]),
}


def differentiable(inputs: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...]:
    """The inputs that hold numbers rather than indices, or 8-bit floats."""
    return tuple(filter(is_number, inputs))


def outputs(op: Op, *args: Any, **keywords: Any) -> tuple[torch.Tensor, ...]:
    """All results of the public function."""
    return as_tuple(FUNCTIONS[op.name](*args, **keywords))


# Backends share the functions for fake tensors; a backward shares those of its forward.
@in_one_test("op")
@pytest.mark.parametrize(
    ("layout", "backend"),
    [
        *(("contiguous", backend) for backend in LANGUAGES),
        *((layout, "cuda") for layout in LAYOUTS if layout != "contiguous"),
    ],
)
def test_opcheck(
    op: Op, backend: str, device: str, layout: str, generator: torch.Generator
) -> None:
    if op.forward and layout != "contiguous":
        pytest.skip("its forward has been checked")
    inputs = laid_out_inputs(
        op, (4, 6, 8), LAYOUTS[layout], torch.float32, device, generator
    )
    # An op with a gradient has its autograd registration checked as well.
    has_gradient = op.gradient is not None
    for x in differentiable(inputs):
        x.requires_grad_(has_gradient)
    overload = getattr(torch.ops.twin, f"{op.name}_{backend}").default
    tests = ["test_autograd_registration", "test_faketensor"]
    if all(x.element_size() > 1 for x in inputs):
        # It compares inputs by arithmetic, which PyTorch has none of for 8-bit floats.
        tests.append("test_schema")
    # It takes most of the time, and no interest in strides or in what runs the op.
    if (backend, layout) == ("cuda", "contiguous"):
        tests.append("test_aot_dispatch_dynamic")
    results = library.opcheck(overload, inputs, test_utils=tests)
    assert set(results.values()) == {"SUCCESS"}


def test_compile_fullgraph(op: Op, device: str, generator: torch.Generator) -> None:
    torch.compiler.reset()  # or the limit of recompilations is reached in the end
    inputs = random_inputs(op, (5, 33), torch.float32, device, generator)

    # Both languages in one graph, since it is torch that takes the time.
    def doubled(*args: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return tuple(
            2 * out
            for backend in languages_on(device)
            for out in outputs(op, *args, backend=backend)
        )

    compiled = torch.compile(doubled, fullgraph=True, backend="aot_eager")
    assert all(map(torch.equal, compiled(*inputs), doubled(*inputs)))


@in_one_test("op")
def test_backward_raises_instead_of_returning_no_gradient(
    op: Op, backend: str, device: str, generator: torch.Generator
) -> None:
    if op.gradient is not None:
        pytest.skip("it has a gradient")
    inputs = random_inputs(op, (3, 4), torch.float32, device, generator)
    differentiable(inputs)[0].requires_grad_()
    for out in outputs(op, *inputs, backend=backend):
        with pytest.raises(
            NotImplementedError, match=f"twin::{op.name}_{backend} has no backward"
        ):
            out.sum().backward()


@in_one_test("op")
def test_forward_mode_raises_instead_of_a_tangent_of_zero(
    op: Op, backend: str, device: str, generator: torch.Generator
) -> None:
    inputs = random_inputs(op, (3, 4), torch.float32, device, generator)
    primals = differentiable(inputs)

    def call(*primals: torch.Tensor) -> Any:
        given = iter(primals)
        args = (next(given) if is_number(x) else x for x in inputs)
        return FUNCTIONS[op.name](*args, backend=backend)

    with pytest.raises(NotImplementedError, match="has no forward-mode formula"):
        torch.func.jvp(call, primals, primals)


@in_one_test("op", "mode")
@pytest.mark.parametrize("mode", [torch.inference_mode, torch.no_grad])
def test_without_autograd(
    op: Op, backend: str, device: str, mode: type, generator: torch.Generator
) -> None:
    inputs = random_inputs(op, (3, 4), torch.float32, device, generator)
    expected = outputs(op, *inputs, backend=backend)
    with mode():
        results = outputs(op, *inputs, backend=backend)
        assert all(map(torch.equal, results, expected))


@in_one_test("op")
def test_autocast_changes_nothing(
    op: Op, backend: str, device: str, generator: torch.Generator
) -> None:
    inputs = random_inputs(op, (3, 4), torch.float32, device, generator)
    with torch.autocast(device, dtype=torch.bfloat16):
        results = outputs(op, *inputs, backend=backend)
    expected = as_tuple(op.allocate(*inputs))
    for out, like in zip(results, expected, strict=False):
        assert out.dtype == like.dtype


# The ops of both languages are looked at in every dtype by assert_accepted.
@in_one_test("op")
def test_inputs_are_read_only_and_the_output_is_new(
    op: Op, backend: str, device: str, generator: torch.Generator
) -> None:
    inputs = random_inputs(op, (7, 65), torch.float32, device, generator)
    before = [x.clone() for x in inputs]
    results = outputs(op, *inputs, backend=backend)
    assert all(type(out) is torch.Tensor for out in results)
    assert all(map(torch.equal, inputs, before))
    places = {x.untyped_storage().data_ptr() for x in (*inputs, *results)}
    assert len(places) == len(inputs) + len(results)


@in_one_test("op", "dtype")
@pytest.mark.parametrize("implementation", ["cuda", "triton"])
def test_the_same_call_gives_the_same_bits(
    op: Op,
    implementation: str,
    device: str,
    dtype: torch.dtype,
    generator: torch.Generator,
) -> None:
    if implementation == "triton" and device == "cpu":
        pytest.skip("the interpreter does one thing after the other")
    if device == "cpu" and dtype != torch.float32:
        pytest.skip("the order of blocks in the emulator has nothing to do with it")
    # The emulator's blocks run on several threads; a GPU's in any order, and it has
    # room for more.
    shape = (37 if device == "cuda" else 4, 1025)
    inputs = random_inputs(op, shape, dtype, device, generator)
    first = outputs(op, *inputs, backend=implementation)
    for _ in range(50 if device == "cuda" else 5):
        again = outputs(op, *inputs, backend=implementation)
        assert all(map(torch.equal, again, first))


# Several blocks of each kernel; of softmax, rows in a warp, in a block's registers, in
# its shared memory, and read twice. Numbers of 16 bits take the same ways, in rows of
# twice the length.
SHAPES_OF_SEVERAL_BLOCKS: list[tuple[torch.dtype, tuple[int, ...]]] = [
    *((torch.float32, shape) for shape in ((37, 9), (5, 1025), (3, 40000))),
    *((torch.float32, (2, 70000)), (torch.float16, (37, 9))),
    (torch.bfloat16, (5, 1025)),
]


@in_one_test("dtype", "shape")
@pytest.mark.parametrize(("dtype", "shape"), SHAPES_OF_SEVERAL_BLOCKS)
def test_the_order_of_threads_changes_no_bit(
    op: Op,
    dtype: torch.dtype,
    shape: tuple[int, ...],
    generator: torch.Generator,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if TRIALS[op.name].shape_names and max(shape) > 10000:
        pytest.skip("it has no rows, which these shapes are long of")
    inputs = random_inputs(op, shape, dtype, "cpu", generator)
    variants = TRIALS[op.name].variants
    if len(variants) > 2:
        # They take turns: what they have in common decides on the ways.
        variants = variants[SHAPES_OF_SEVERAL_BLOCKS.index((dtype, shape)) % 3 :: 3]
    for params in variants:
        monkeypatch.setenv("TWIN_EMULATOR_ORDER", "forward")
        arguments = TRIALS[op.name].bind(inputs, params, dtype)
        forward = outputs(op, *arguments)
        if not params.get("deterministic", True):
            continue  # it allows other sums in another order
        for order in ("reverse", "random:1"):
            monkeypatch.setenv("TWIN_EMULATOR_ORDER", order)
            assert all(map(torch.equal, outputs(op, *arguments), forward)), order


@in_one_test("op")
def test_negated_views_are_resolved(
    op: Op, backend: str, generator: torch.Generator
) -> None:
    skip_if_refused(backend, "cpu")
    # The imaginary part of a conjugate is a view whose sign is a flag of the tensor.
    inputs = tuple(
        torch.complex(x, x).conj().imag if is_number(x) else x
        for x in random_inputs(op, (3, 8), torch.float32, "cpu", generator)
    )
    assert all(x.is_neg() for x in differentiable(inputs))
    plain = tuple(x.resolve_neg() for x in inputs)
    results = outputs(op, *inputs, backend=backend)
    assert all(map(torch.equal, results, outputs(op, *plain, backend=backend)))


@in_one_test("op")
def test_meta_tensors_give_shape_and_dtype(
    op: Op, backend: str, generator: torch.Generator
) -> None:
    inputs = random_inputs(op, (3, 8), torch.float32, "meta", generator)
    results = outputs(op, *inputs, backend=backend)
    expected = as_tuple(op.reference(*inputs))
    for out, like in zip(results, expected, strict=False):
        assert out.is_meta
        assert out.shape == like.shape
        assert out.dtype == like.dtype


@pytest.mark.parametrize("backend", ["cuda", "torch"])
def test_gradients_that_torch_func_cannot_take(backend: str) -> None:
    def loss(x: torch.Tensor) -> torch.Tensor:
        return FUNCTIONS["softmax"](x, backend=backend).square().sum()

    says = rf"^twin::softmax_{backend}: torch\.func\.grad and its like do not "
    with pytest.raises(NotImplementedError, match=says):
        torch.func.grad(loss)(torch.randn(3, 5))
