"""Sum: any dimensions in any layout, the same bits in every run, and its gradients."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest
import torch
from common import assert_accepted, leave_out_simulated, skip_if_refused
from together import in_one_test
from torch import Tensor

import bindings
from bindings import layout
from bindings.backends import native, prebuilt, triton
from bindings.op import Argument
from bindings.registry import OPS
from compare.code.architectures import ARCHITECTURES
from compare.code.triton_offline import record_launches

SUM = OPS["sum"]


LAYOUTS: dict[str, Callable[[Tensor], Tensor]] = {
    "contiguous": lambda x: x,
    "permuted": lambda x: x.movedim(0, -1),
    "sliced": lambda x: x[1:, ..., ::3],
    "offset": lambda x: x[..., 1:],
    "expanded": lambda x: x[:, :1].expand(x.shape),
}

# Shapes whose reduced dimension is split, and dim.
SPLIT = [
    ((20000,), 0),
    ((2, 24583), -1),
    ((2, 24584), -1),
    ((300, 512), 0),
    ((300, 510), 0),
    ((40000, 2), 0),
    ((2, 5000, 24), 1),
]


def launcher_arguments(x: Tensor, *args: object) -> tuple[Argument, ...]:
    return SUM.arguments(SUM.allocate(x, *args), x, *args)


def every_dim(n_dims: int) -> list[tuple[int, ...]]:
    return [
        dims
        for count in range(n_dims + 1)
        for dims in itertools.combinations(range(n_dims), count)
    ]


# ---- Values --------------------------------------------------------------------------


@in_one_test("name", "shape")
@pytest.mark.parametrize("name", LAYOUTS)
@pytest.mark.parametrize("shape", [(6, 5, 40), (3, 4, 5, 8)])
def test_all_dims_of_all_layouts(
    backend: str,
    device: str,
    name: str,
    shape: tuple[int, ...],
    generator: torch.Generator,
) -> None:
    x = LAYOUTS[name](torch.rand(shape, generator=generator).to(device))
    for dims in every_dim(x.dim()):
        assert_accepted(SUM, backend, (x,), {"dim": dims})


@in_one_test("dim", "keepdim")
@pytest.mark.parametrize("dim", [0, -1, (0, 2), [2, 1], ()])
@pytest.mark.parametrize("keepdim", [False, True])
def test_the_shape_is_that_of_torch(
    backend: str, device: str, dim: int | list[int], keepdim: bool
) -> None:
    x = torch.ones(3, 4, 5, device=device)
    out = bindings.sum(x, dim, keepdim, backend=backend)
    assert torch.equal(out, torch.sum(x, dim, keepdim))


@pytest.mark.parametrize("shape", [(), (1,), (0,), (3, 0, 2)])
def test_few_elements_and_none(
    backend: str, device: str, shape: tuple[int, ...]
) -> None:
    x = torch.full(shape, 3.0, device=device)
    for dims, keepdim in itertools.product(every_dim(x.dim()), (False, True)):
        out = bindings.sum(x, dims, keepdim, backend=backend)
        assert torch.equal(out, torch.sum(x, dims, keepdim))


@in_one_test("shape", "dim")
@pytest.mark.parametrize(
    ("shape", "dim"), [*SPLIT, ((37, 1030), 0), ((37, 1030), 1), ((1048577,), 0)]
)
def test_whole_numbers_are_added_exactly(
    backend: str,
    device: str,
    shape: tuple[int, ...],
    dim: int,
    generator: torch.Generator,
) -> None:
    # Below 2^24 every partial sum is a number of float32, whatever the order.
    x = torch.randint(-100, 101, shape, generator=generator).to(device)
    out = bindings.sum(x.float(), dim, backend=backend)
    assert torch.equal(out, x.sum(dim).float())


@pytest.mark.parametrize("n_cols", [1, 5, 8, 13, 70, 300])
# Compiled for rows of a vector, of less, and of several.
@leave_out_simulated(lambda params: params["n_cols"] not in (5, 8, 300))
def test_rows_begin_and_end_anywhere(
    backend: str,
    device: str,
    dtype: torch.dtype,
    n_cols: int,
    generator: torch.Generator,
) -> None:
    memory = torch.randint(-2, 3, (8 + 3 * n_cols,), generator=generator).to(device)
    for start in range(8):
        x = memory.to(dtype)[start : start + 3 * n_cols].view(3, n_cols)
        out = bindings.sum(x, 1, backend=backend)
        assert torch.equal(out, x.float().sum(1).to(dtype))


def test_it_is_rounded_once(backend: str, device: str) -> None:
    # In float16, 2048 + 1 is 2048.
    x = torch.ones(4096, device=device).half()
    assert bindings.sum(x, 0, backend=backend).item() == 4096
    assert bindings.sum(30 * x, 0, backend=backend).item() == torch.inf


@in_one_test("special", "shape", "dim")
@pytest.mark.parametrize("special", [torch.nan, torch.inf, -torch.inf])
@pytest.mark.parametrize(("shape", "dim"), SPLIT[:4])
def test_specials_reach_their_own_sum_only(
    backend: str, device: str, shape: tuple[int, ...], dim: int, special: float
) -> None:
    x = torch.ones(shape, device=device)
    x.view(-1)[-1] = special
    assert_accepted(SUM, backend, (x,), {"dim": dim})


@pytest.mark.parametrize(("shape", "dim"), SPLIT)
# Compiled for one of each two that differ by their alignment.
@leave_out_simulated(lambda params: (params["shape"], params["dim"]) in SPLIT[2:5:2])
def test_a_split_sum_is_accepted(
    backend: str,
    device: str,
    dtype: torch.dtype,
    shape: tuple[int, ...],
    dim: int,
    generator: torch.Generator,
) -> None:
    x = torch.rand(shape, generator=generator).to(device, dtype)
    assert_accepted(SUM, backend, (x,), {"dim": dim})


# ---- Launches ------------------------------------------------------------------------


# The interpreter takes what the compiler refuses: a variable of another type in each
# branch. So what is compiled for few strides alone is compiled here.
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dim", [0, 1, 2])
def test_triton_compiles_every_layout(layout: str, dim: int) -> None:
    x = LAYOUTS[layout](torch.empty(6, 5, 40, device="meta"))
    launches = record_launches(
        triton.launcher(SUM), launcher_arguments(x, dim), ARCHITECTURES[90]
    )
    assert len(launches) == 1


@pytest.mark.parametrize(("shape", "dim"), SPLIT)
def test_split_sums_are_launched_twice(shape: tuple[int, ...], dim: int) -> None:
    arguments = launcher_arguments(torch.empty(shape, device="meta"), dim)
    *_, n_splits, split_size, _ = arguments
    assert isinstance(n_splits, int)
    assert isinstance(split_size, int)
    workspace = arguments[2]
    assert isinstance(workspace, Tensor)
    assert n_splits > 1
    assert (n_splits - 1) * split_size < shape[dim] <= n_splits * split_size
    out = arguments[0]
    assert isinstance(out, Tensor)
    assert workspace.numel() == n_splits * out.numel()
    first, second = native.plan(prebuilt.load("_cpu"), SUM, arguments, 90)
    assert "<float, float, " in first["signature"]
    assert second["signature"].startswith("void sum_kernel<float, float, ")


# With so many blocks, single loads of two bytes keep enough in flight.
@pytest.mark.parametrize(
    ("n_cols", "dtype", "is_split"),
    [
        (50257, torch.bfloat16, False),
        (50257, torch.float32, True),
        (50256, torch.bfloat16, True),
        (47999, torch.float16, True),
    ],
)
def test_columns_that_fill_a_gpu_are_not_split(
    n_cols: int, dtype: torch.dtype, is_split: bool
) -> None:
    x = torch.empty(1300, n_cols, dtype=dtype, device="meta")
    *_, n_splits, _, _ = launcher_arguments(x, 0)
    assert isinstance(n_splits, int)
    assert (n_splits > 1) == is_split


def test_columns_that_are_not_split_are_accepted(
    backend: str, device: str, generator: torch.Generator
) -> None:
    x = torch.rand((70, 49153), generator=generator).to(device, torch.float16)
    assert_accepted(SUM, backend, (x,), {"dim": 0})


@pytest.mark.parametrize("shape", [(16384, 8192), (1048576, 128), (64, 2097152)])
@pytest.mark.parametrize("dim", [0, 1, ()])
def test_large_sums_fill_a_gpu(shape: tuple[int, ...], dim: int) -> None:
    arguments = launcher_arguments(torch.empty(shape, device="meta"), dim)
    first, *rest = native.plan(prebuilt.load("_cpu"), SUM, arguments, 90)
    assert first["grid"][0] * first["grid"][1] >= 3 * 132
    assert len(rest) == (arguments[-3] != 1)


def test_only_what_cannot_be_merged_is_copied() -> None:
    x = torch.empty(4, 5, 6, 7)
    for dims in every_dim(4):
        walked = launcher_arguments(x, dims)[1]
        assert isinstance(walked, Tensor)
        is_copied = walked.data_ptr() != x.data_ptr()
        assert is_copied == (dims in [(0, 2), (1, 3), (0, 3), (0, 1, 3), (0, 2, 3)])


def test_dimensions_are_outer_reduced_and_inner() -> None:
    x = torch.empty(4, 5, 6, 7)
    walk = layout.reduction(torch.empty(4, 7), x, (1, 2))
    assert walk[1:] == (4, 30, 7, 210, 7, 1)
    walk = layout.reduction(torch.empty(4, 5), x, (2, 3))
    assert walk[1:] == (1, 42, 20, 0, 1, 42)


# ---- The same bits -------------------------------------------------------------------


@pytest.mark.parametrize(("shape", "dim"), [*SPLIT, ((37, 1025), 0), ((37, 1025), 1)])
def test_every_run_and_every_order_give_the_same_bits(
    device: str,
    shape: tuple[int, ...],
    dim: int,
    generator: torch.Generator,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    x = torch.randn(shape, generator=generator).to(device)
    first = bindings.sum(x, dim)
    for _ in range(50):
        assert torch.equal(bindings.sum(x, dim), first)
    for order in ("forward", "reverse", "random:1", "random:2"):
        monkeypatch.setenv("TWIN_EMULATOR_ORDER", order)
        assert torch.equal(bindings.sum(x, dim), first)


# ---- Bad arguments -------------------------------------------------------------------

BAD: list[tuple[object, object, type[Exception], str]] = [
    (0.5, False, TypeError, "sum: dim must be an int or a sequence of ints, got float"),
    ("0", False, TypeError, "sum: dim must be an int or a sequence of ints, got str"),
    (None, False, TypeError, r"sum: dim must be .* got NoneType"),
    ([0, 0.5], False, TypeError, "sum: dim must be an int, got float"),
    (True, False, TypeError, "sum: dim must be an int, got bool"),
    (2, False, IndexError, "sum: dim is 2, expected a value from -2 to 1 for a tensor"),
    ([0, -3], False, IndexError, "sum: dim is -3, expected a value from -2 to 1"),
    ([0, 0], False, ValueError, r"sum: dim is \(0, 0\), expected each dimension only"),
    ([1, -1], False, ValueError, r"sum: dim is \(1, -1\), expected each dimension"),
    (0, 1, TypeError, "sum: keepdim must be a bool, got int"),
]


@in_one_test("dim", "keepdim", "error", "message")
@pytest.mark.parametrize(("dim", "keepdim", "error", "message"), BAD)
def test_bad_arguments(
    backend: str, dim: int, keepdim: bool, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        bindings.sum(torch.ones(2, 3), dim, keepdim, backend=backend)


def test_bad_tensors(backend: str) -> None:
    with pytest.raises(TypeError, match=r"sum: x has dtype torch\.int64, expected one"):
        bindings.sum(torch.ones(3).long(), 0, backend=backend)
    with pytest.raises(TypeError, match=r"sum: x must be a torch\.Tensor, got list"):
        bindings.sum([1.0], 0, backend=backend)


# ---- Gradients -----------------------------------------------------------------------


@in_one_test("dim", "keepdim")
@pytest.mark.parametrize("dim", [0, (1, -1), ()])
@pytest.mark.parametrize("keepdim", [False, True])
def test_gradient(
    backend: str,
    device: str,
    dim: int | tuple[int, ...],
    keepdim: bool,
    generator: torch.Generator,
) -> None:
    x = torch.randn(3, 4, 5, generator=generator).to(device).requires_grad_()
    exact = x.detach().double().requires_grad_()
    out = bindings.sum(x, dim, keepdim, backend=backend)
    weights = torch.randn(out.shape, generator=generator).to(device)
    (grad,) = torch.autograd.grad(out, x, weights)
    (expected,) = torch.autograd.grad(
        torch.sum(exact, dim, keepdim), exact, weights.double()
    )
    assert torch.equal(grad.double(), expected)


@in_one_test("x_shape", "y_shape")
@pytest.mark.parametrize(
    ("x_shape", "y_shape"),
    [
        ((4, 5), (4, 5)),
        ((), (5,)),
        ((7, 4, 33), (33,)),
        ((7, 1, 33), (4, 1)),
        ((2, 3, 4), (3, 1)),
        ((1, 5), (1, 1)),
    ],
)
def test_gradient_of_a_broadcasting_add(
    backend: str,
    device: str,
    x_shape: tuple[int, ...],
    y_shape: tuple[int, ...],
    generator: torch.Generator,
) -> None:
    inputs = [
        torch.randn(s, generator=generator).to(device) for s in (x_shape, y_shape)
    ]
    inputs = [each.requires_grad_() for each in inputs]
    exact = [each.detach().double().requires_grad_() for each in inputs]
    out = bindings.add(*inputs, backend=backend)
    weights = torch.randn(out.shape, generator=generator).to(device)
    grads = torch.autograd.grad(out, inputs, weights)
    expected = torch.autograd.grad(exact[0] + exact[1], exact, weights.double())
    for grad, want in zip(grads, expected, strict=True):
        assert grad.shape == want.shape
        torch.testing.assert_close(grad.double(), want, rtol=1e-5, atol=1e-5)


def test_gradient_of_a_gradient(backend: str, device: str) -> None:
    x = torch.randn(3, 4, device=device).requires_grad_()
    (grad,) = torch.autograd.grad(
        bindings.sum(x, 0, backend=backend).square().sum(), x, create_graph=True
    )
    (second,) = torch.autograd.grad(grad.sum(), x)
    assert torch.equal(second, torch.full_like(x, 6.0))


def test_only_the_operand_that_needs_it_gets_a_gradient(backend: str) -> None:
    skip_if_refused(backend, "cpu")
    x, y = torch.ones(3, 4), torch.ones(4).requires_grad_()
    bindings.add(x, y, backend=backend).sum().backward()
    assert x.grad is None
    assert y.grad is not None
    assert torch.equal(y.grad, torch.full((4,), 3.0))


@pytest.mark.parametrize("dim", [1, (0, 2), ()])
def test_opcheck_with_a_gradient(
    backend: str, device: str, dim: int | tuple[int, ...]
) -> None:
    overload = getattr(torch.ops.twin, f"sum_{backend}").default
    x = torch.randn(3, 4, 5, device=device).movedim(0, 1).requires_grad_()
    for keepdim in (False, True):
        results = torch.library.opcheck(overload, (x, dim, keepdim))
        assert set(results.values()) == {"SUCCESS"}


@pytest.mark.parametrize("dynamic", [False, True])
def test_compiled_with_gradients(backend: str, device: str, dynamic: bool) -> None:
    torch.compiler.reset()

    def loss(x: Tensor, y: Tensor) -> Tensor:
        total = bindings.add(x, y, backend=backend)
        return bindings.sum(total * total, (0, -1), True, backend=backend)

    compiled = torch.compile(loss, fullgraph=True, backend="aot_eager", dynamic=dynamic)
    inputs = [torch.randn(3, 4, 5, device=device), torch.randn(4, 1, device=device)]
    inputs = [each.requires_grad_() for each in inputs]
    out = compiled(*inputs)
    assert torch.equal(out, loss(*inputs))
    grads = torch.autograd.grad(out.sum(), inputs)
    expected = torch.autograd.grad(loss(*inputs).sum(), inputs)
    for grad, want in zip(grads, expected, strict=True):
        assert torch.equal(grad, want)
