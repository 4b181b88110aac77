"""GEGLU and SwiGLU: two tensors and the halves of one, gradients and errors."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest
import torch
from common import leave_out, leave_out_simulated
from together import in_one_test
from torch import Tensor

import bindings
from bindings import layout
from bindings.op import Op
from bindings.registry import OPS
from bindings.trials import TRIALS
from compare.judge import acceptance

CASES = [
    pytest.param(OPS[name], params, id="-".join([name, *params.values()]))
    for name in ("geglu", "swiglu")
    for params in TRIALS[name].variants
]
each_op = pytest.mark.parametrize(("glu", "params"), CASES)


def is_other_variant(params: Mapping[str, Any]) -> bool:
    """Whether a case's parameters are not the first of its op."""
    return bool(params["params"] != TRIALS[params["glu"].name].variants[0])


# Rows that are whole vectors, that are half of one, that begin between two, and that
# are one element; columns around the ends of a tile.
SHAPES = [
    *((3, 16), (5, 12), (7, 9), (4, 1), (2, 3, 8)),
    *((1, 31), (33,), (3, 1023), (1, 1024), (2, 2049)),
]

# One of each kind.
COMPILED = ((5, 12), (7, 9), (3, 1023), (2, 2049))


def is_compiled(params: Mapping[str, Any]) -> bool:
    """Whether a case is compiled: one variant takes turns with the next."""
    variants = [each.values for each in CASES]
    turn = variants.index((params["glu"], params["params"])) % 2
    return params["shape"] in COMPILED[turn::2]


LAYOUTS: dict[str, Callable[[Tensor], Tensor]] = {
    "contiguous": lambda x: x,
    "transposed": lambda x: x.transpose(0, 1),
    "permuted": lambda x: x.permute(2, 0, 1),
    "permuted within": lambda x: x.transpose(-1, -2),
    "every second row": lambda x: x[:, ::2],
    "every second column": lambda x: x[..., ::2],
    "between two vectors": lambda x: x[..., 1:-1],
    "expanded": lambda x: x[:1].expand(4, -1, -1),
    "expanded columns": lambda x: x[..., :1].expand(-1, -1, 6),
    "one column in each half": lambda x: x[..., :2],
}


def tensors(
    op: Op, shape: tuple[int, ...], dtype: torch.dtype, device: str, seed: int = 0
) -> tuple[Tensor, Tensor]:
    """The op's own two inputs."""
    generator = torch.Generator().manual_seed(seed)
    first, second = (
        x.to(device, dtype) for x in TRIALS[op.name].inputs(shape, generator)
    )
    return first, second


def assert_right(op: Op, backend: str, *arguments: Any) -> Tensor:
    """Calls an op, judges the result, and returns it."""
    (expected,) = acceptance.expect(op, arguments)
    inputs = [x for x in arguments if isinstance(x, Tensor)]
    before = [x.clone() for x in inputs]
    out: Tensor = getattr(bindings, op.name)(*arguments, backend=backend)
    assert all(map(torch.equal, inputs, before)), "an input was overwritten"
    problem = judged(out, expected)
    assert problem == ""
    return out


def judged(out: Tensor | None, expected: acceptance.Expected) -> str:
    """The faults of a result; empty if there are none."""
    assert out is not None
    return acceptance.judge(out, expected).problem


# ---- Two tensors, and the halves of one ----------------------------------------------


def test_which_half_is_gated(backend: str, device: str) -> None:
    x = torch.tensor([[2.0, 3.0, -1.0, 0.5]], device=device)
    left, right = x[:, :2], x[:, 2:]
    functional = torch.nn.functional
    torch.testing.assert_close(
        bindings.geglu(x, backend=backend), left * functional.gelu(right)
    )
    torch.testing.assert_close(
        bindings.swiglu(x, backend=backend), functional.silu(left) * right
    )


@in_one_test("params", "shape")
@each_op
@pytest.mark.parametrize("shape", SHAPES)
@leave_out_simulated(lambda params: not is_compiled(params))
def test_halves_are_two_tensors(
    glu: Op,
    params: dict[str, str],
    shape: tuple[int, ...],
    backend: str,
    device: str,
    dtype: torch.dtype,
) -> None:
    first, second = tensors(glu, shape, dtype, device)
    joined = torch.cat((first, second), dim=-1)
    values = params.values()
    out = assert_right(glu, backend, joined, None, *values)
    of_two = assert_right(glu, backend, first, second, *values)
    of_views = assert_right(glu, backend, *joined.chunk(2, dim=-1), *values)

    backward = OPS[f"{glu.name}_backward"]
    grad = torch.randn(shape, generator=torch.Generator().manual_seed(1))
    grad = grad.to(device, dtype)
    grads_of_halves = assert_right(backward, backend, grad, joined, None, *values)
    grads_of_two = assert_right(backward, backend, grad, first, second, *values)
    if backend != "torch":  # whose last bits depend on the layout
        assert torch.equal(out, of_two)
        assert torch.equal(out, of_views)
        assert torch.equal(grads_of_halves, torch.cat(tuple(grads_of_two), dim=-1))


@in_one_test("params", "name")
@each_op
@pytest.mark.parametrize("name", LAYOUTS)
def test_halves_of_any_layout(
    glu: Op, params: dict[str, str], name: str, backend: str, device: str
) -> None:
    lay_out = LAYOUTS[name]
    x = lay_out(tensors(glu, (4, 6, 32), torch.float32, device)[0])
    values = params.values()
    out = assert_right(glu, backend, x, None, *values)
    backward = OPS[f"{glu.name}_backward"]
    grads = {
        "contiguous": torch.randn(out.shape, device=device),
        "expanded": torch.ones((), device=device).expand(out.shape),
        # The strides of a half, which is no reason to take the gradient for dense.
        "as a half": torch.randn(x.shape, device=device)[..., : out.shape[-1]],
        "in gaps": torch.randn(*out.shape, 2, device=device)[..., 0],
    }
    for grad in grads.values():
        assert_right(backward, backend, grad, x, None, *values)


@in_one_test("params", "shape")
@each_op
@pytest.mark.parametrize("shape", [(0,), (3, 0), (0, 8), (2, 0, 4)])
def test_empty_halves(
    glu: Op,
    params: dict[str, str],
    shape: tuple[int, ...],
    backend: str,
    device: str,
) -> None:
    x = torch.empty(shape, device=device, requires_grad=True)
    out = getattr(bindings, glu.name)(x, **params, backend=backend)
    assert out.shape == (*shape[:-1], shape[-1] // 2)
    out.sum().backward()
    assert x.grad is not None
    assert x.grad.shape == shape


def test_halves_are_read_where_they_are() -> None:
    x = torch.empty(4, 6, 32)
    out, left, right = torch.empty(4, 6, 16), x[..., :16], x[..., 16:]
    walk = layout.elementwise(out, left, right)
    assert [each.data_ptr() for each in walk.inputs] == [
        left.data_ptr(),
        right.data_ptr(),
    ]
    assert (walk.n_elements, walk.n_cols, walk.out_stride_row) == (384, 16, 16)
    assert walk.strides == (32, 1, 32, 1)
    walk = layout.elementwise(left, right)
    assert (walk.n_cols, walk.strides, walk.out_stride_row) == (16, (32, 1), 32)


# ---- Gradients -----------------------------------------------------------------------


def exact_gradients(
    glu: Op, inputs: tuple[Tensor, ...], grad: Tensor, params: dict[str, str]
) -> list[tuple[Tensor, ...]]:
    """The reference's gradients by autograd: in float64, and in the inputs' dtype."""
    results = []
    for dtype in (torch.float64, grad.dtype):
        leaves = [x.detach().to(dtype).requires_grad_() for x in inputs]
        first, second = (*leaves, None)[:2]
        out = glu.reference(first, second, **params)
        results.append(torch.autograd.grad(out, leaves, grad.to(dtype)))
    return results


@in_one_test("params", "form", "kind")
@each_op
@pytest.mark.parametrize("form", ["two tensors", "halves"])
@pytest.mark.parametrize("kind", ["dense", "of a sum"])
# Compiled for each form and each kind, in two of the four pairs.
@leave_out_simulated(
    lambda each: (each["form"] == "halves") != (each["kind"] == "of a sum")
)
def test_gradients_are_those_of_float64_autograd(
    glu: Op,
    params: dict[str, str],
    form: str,
    kind: str,
    backend: str,
    device: str,
    dtype: torch.dtype,
) -> None:
    inputs = tensors(glu, (5, 136), dtype, device)
    grad = torch.randn(5, 136, generator=torch.Generator().manual_seed(1))
    grad = grad.to(device, dtype)
    if kind == "of a sum":
        grad = torch.ones_like(grad)
    given = inputs if form == "two tensors" else (torch.cat(inputs, dim=-1),)
    exact, own = exact_gradients(glu, given, grad, params)

    leaves = [x.clone().requires_grad_() for x in given]
    out = getattr(bindings, glu.name)(*leaves, **params, backend=backend)
    if kind == "of a sum":
        out.sum().backward()
    else:
        out.backward(grad)
    for leaf, each_exact, each_own in zip(leaves, exact, own, strict=True):
        expected = acceptance.Expected(each_exact, each_own)
        assert judged(leaf.grad, expected) == ""
    for x, leaf in zip(given, leaves, strict=True):
        assert torch.equal(x, leaf.detach()), "an input was overwritten"


@each_op
def test_a_tail_of_the_gate_is_shut_or_open(
    glu: Op, params: dict[str, str], backend: str, device: str
) -> None:
    if backend == "torch":
        return  # whose derivative of the tanh approximation is NaN there
    # 1e30 * 1e30 is inf: where the derivative is 0, the product has to be 0 as well.
    large = torch.tensor([1e30, -1e30], device=device)
    one = torch.ones(2, device=device)
    is_first = glu.name == "swiglu"
    gate_grad = 0 if is_first else 1
    pair = (large, 1e30 * one) if is_first else (1e30 * one, large)
    function = getattr(bindings, f"{glu.name}_backward")
    grads = function(1e-30 * one, *pair, *params.values(), backend=backend)
    assert grads[gate_grad].tolist() == [pytest.approx(1.0), 0.0]
    grads = function(1e30 * one, *pair, *params.values(), backend=backend)
    assert grads[gate_grad].tolist() == [torch.inf, 0.0]


@each_op
@pytest.mark.parametrize("form", ["two tensors", "halves"])
# Other parameters are compiled in one of the forms.
@leave_out(lambda each: each["form"] == "halves" and is_other_variant(each))
def test_compiled_gradients(
    glu: Op, params: dict[str, str], form: str, backend: str, device: str
) -> None:
    torch.compiler.reset()
    pair = tensors(glu, (3, 24), torch.float32, device)
    given = pair if form == "two tensors" else (torch.cat(pair, dim=-1),)

    def loss(*inputs: Tensor) -> Tensor:
        out: Tensor = getattr(bindings, glu.name)(*inputs, **params, backend=backend)
        return out.square().sum()

    gradients = []
    compiled = torch.compile(loss, fullgraph=True, backend="aot_eager")
    for function in (loss, compiled):
        leaves = [x.clone().requires_grad_() for x in given]
        function(*leaves).backward()
        gradients.append([leaf.grad for leaf in leaves])
    for eager, by_compiler in zip(*gradients, strict=True):
        assert torch.equal(eager, by_compiler)


@each_op
@pytest.mark.parametrize("name", ["contiguous", "permuted", "expanded columns"])
# Other parameters of an op are checked in one layout.
@leave_out(lambda each: each["name"] != "contiguous" and is_other_variant(each))
@pytest.mark.parametrize("backend", ["cuda"])  # they share what tells of strides
def test_opcheck_of_halves(
    glu: Op, params: dict[str, str], name: str, backend: str, device: str
) -> None:
    x = LAYOUTS[name](tensors(glu, (4, 6, 8), torch.float32, device)[0])
    values = tuple(params.values())
    overload = getattr(torch.ops.twin, f"{glu.name}_{backend}").default
    results = torch.library.opcheck(overload, (x.requires_grad_(), None, *values))
    assert set(results.values()) == {"SUCCESS"}
    x = x.detach()
    grad = torch.randn(overload(x, None, *values).shape, device=device)
    overload = getattr(torch.ops.twin, f"{glu.name}_backward_{backend}").default
    results = torch.library.opcheck(overload, (grad, x, None, *values))
    assert set(results.values()) == {"SUCCESS"}


# ---- Errors --------------------------------------------------------------------------

ONE = torch.ones(2, 4)
BAD_CALLS: dict[str, tuple[str, tuple[Any, ...], type[Exception], str]] = {
    "no tensor": (
        "geglu",
        ([1.0],),
        TypeError,
        r"geglu: value must be a torch.Tensor, got list",
    ),
    "gate is no tensor": (
        "geglu",
        (ONE, 1.0),
        TypeError,
        r"geglu: gate must be a torch.Tensor, got float",
    ),
    "dtype": (
        "swiglu",
        (ONE.double(),),
        TypeError,
        r"swiglu: gate has dtype torch.float64, expected one of torch.float32",
    ),
    "mixed dtypes": (
        "swiglu",
        (ONE, ONE.half()),
        TypeError,
        r"swiglu: gate has dtype torch.float32 and up has torch.float16",
    ),
    "shapes": (
        "geglu",
        (ONE, ONE[:1]),
        ValueError,
        r"geglu: value has shape \(2, 4\) and gate has \(1, 4\), expected the same",
    ),
    "odd": (
        "geglu",
        (torch.ones(2, 3),),
        ValueError,
        r"geglu: value has shape \(2, 3\), expected an even last dimension where gate",
    ),
    "no dimension": (
        "swiglu",
        (torch.ones(()),),
        ValueError,
        r"swiglu: gate has shape \(\), expected an even last dimension where up",
    ),
    "approximate": (
        "geglu",
        (ONE, ONE, "erf"),
        ValueError,
        r"geglu: approximate is 'erf', expected one of 'none', 'tanh'",
    ),
    "grad is no tensor": (
        "swiglu_backward",
        (None, ONE),
        TypeError,
        r"swiglu_backward: grad must be a torch.Tensor, got NoneType",
    ),
    "grad of another shape": (
        "geglu_backward",
        (ONE, ONE),
        ValueError,
        r"geglu_backward: grad has shape \(2, 4\), expected \(2, 2\)",
    ),
    "grad of another dtype": (
        "swiglu_backward",
        (ONE.half(), ONE, ONE),
        TypeError,
        r"swiglu_backward: grad has dtype torch.float16 and gate has torch.float32",
    ),
}


@in_one_test("bad", "backend")
@pytest.mark.parametrize("bad", BAD_CALLS)
def test_bad_arguments(bad: str, backend: str) -> None:
    name, arguments, error, message = BAD_CALLS[bad]
    with pytest.raises(error, match=message):
        getattr(bindings, name)(*arguments, backend=backend)
