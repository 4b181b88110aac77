"""Rotary position embedding: both layouts, offsets, tables of any kind, gradients."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from common import leave_out, leave_out_simulated, skip_if_refused
from together import in_one_test
from torch import Tensor

import bindings
from bindings.op import Outputs, as_tuple
from bindings.ops.rotary import BACKWARD, OP
from compare.judge import acceptance
from compare.judge.acceptance import Expected

layouts = pytest.mark.parametrize("interleaved", [False, True])

# Vectors of every dtype, then none; with and without elements behind the pairs.
SIZES = [
    (64, 64),
    (96, 96),
    (128, 64),
    (256, 32),
    (80, 80),
    (40, 12),
    (33, 10),
    (65, 64),
]
WIDTHS = pytest.mark.parametrize(("head_dim", "rotary_dim"), SIZES)


def _tables(
    positions: int, rotary_dim: int, generator: torch.Generator
) -> tuple[Tensor, Tensor]:
    angles = 7 * torch.rand(positions, rotary_dim // 2, generator=generator)
    return angles.cos(), angles.sin()


def _assert_accepted(
    out: Tensor, x: Tensor, cos: Tensor, sin: Tensor, *params: bool | int | Tensor
) -> None:
    (expected,) = acceptance.expect(OP, (x, cos, sin, *params))
    verdict = acceptance.judge(out, expected)
    assert verdict.passed, verdict.problem


def test_a_pair_is_a_complex_number(
    backend: str, device: str, generator: torch.Generator
) -> None:
    x = torch.randn(2, 5, 3, 8, generator=generator)
    angles = 7 * torch.rand(5, 4, generator=generator)
    turn = torch.polar(torch.ones(5, 4), angles)[:, None]
    neighbours = torch.view_as_complex(x.unflatten(-1, (4, 2))) * turn
    halves = torch.complex(x[..., :4], x[..., 4:]) * turn
    x, cos, sin = (t.to(device) for t in (x, angles.cos(), angles.sin()))
    for interleaved, expected in (
        (True, torch.view_as_real(neighbours).flatten(-2)),
        (False, torch.cat((halves.real, halves.imag), -1)),
    ):
        out = bindings.rotary(x, cos, sin, interleaved, backend=backend)
        torch.testing.assert_close(out.cpu(), expected)


@in_one_test("head_dim", "rotary_dim", "table")
@layouts
@WIDTHS
@pytest.mark.parametrize("table", [None, torch.float32])
@leave_out(lambda each: each["table"] == each["dtype"])  # which None stands for
# Compiled code is tried with one of the four kinds in turn: with all at vectors, and
# with all where there are none.
@leave_out_simulated(
    lambda each: (
        SIZES.index((each["head_dim"], each["rotary_dim"])) % 4
        != 2 * each["interleaved"] + (each["table"] is None)
    )
)
def test_widths_and_dtypes_of_the_tables(
    backend: str,
    device: str,
    dtype: torch.dtype,
    head_dim: int,
    rotary_dim: int,
    table: torch.dtype | None,
    interleaved: bool,
    generator: torch.Generator,
) -> None:
    x = torch.randn(2, 7, 5, head_dim, generator=generator).to(device, dtype)
    cos, sin = (t.to(device, table or dtype) for t in _tables(7, rotary_dim, generator))
    out = bindings.rotary(x, cos, sin, interleaved, backend=backend)
    _assert_accepted(out, x, cos, sin, interleaved)
    bits = acceptance.bits
    assert torch.equal(
        bits(out[..., rotary_dim:].contiguous()), bits(x[..., rotary_dim:].contiguous())
    )


@layouts
def test_the_backward_turns_back_and_lengths_stay(
    backend: str, device: str, interleaved: bool, generator: torch.Generator
) -> None:
    x = torch.randn(2, 217, 3, 64, generator=generator).to(device)
    cos, sin = (t.to(device) for t in _tables(217, 48, generator))
    out = bindings.rotary(x, cos, sin, interleaved, backend=backend)
    torch.testing.assert_close(out.norm(dim=-1), x.norm(dim=-1))
    back = bindings.rotary_backward(out, cos, sin, interleaved, backend=backend)
    torch.testing.assert_close(back, x)


# ---- Offsets -------------------------------------------------------------------------


@in_one_test("offset")
@layouts
@pytest.mark.parametrize("offset", [0, 1, 6])
def test_a_number_begins_all_sequences(
    backend: str,
    device: str,
    interleaved: bool,
    offset: int,
    generator: torch.Generator,
) -> None:
    x = torch.randn(3, 4, 2, 32, generator=generator).to(device)
    cos, sin = (t.to(device) for t in _tables(10, 32, generator))
    for function in (bindings.rotary, bindings.rotary_backward):
        out = function(x, cos, sin, interleaved, offset, backend=backend)
        rest = slice(offset, offset + 4)
        expected = function(x, cos[rest], sin[rest], interleaved, backend=backend)
        assert torch.equal(out, expected)


@layouts
@pytest.mark.parametrize("index", [torch.int64, torch.int32])
def test_a_tensor_begins_each_sequence(
    backend: str,
    device: str,
    interleaved: bool,
    index: torch.dtype,
    generator: torch.Generator,
) -> None:
    x = torch.randn(3, 4, 2, 40, generator=generator).to(device)
    cos, sin = (t.to(device) for t in _tables(10, 32, generator))
    offsets = torch.tensor([5, 9, 0, 9, 6], dtype=index, device=device)[::2]
    for function in (bindings.rotary, bindings.rotary_backward):
        out = function(x, cos, sin, interleaved, offsets, backend=backend)
        for i, offset in enumerate(offsets.tolist()):
            each = slice(i, i + 1)
            expected = function(x[each], cos, sin, interleaved, offset, backend=backend)
            assert torch.equal(out[each], expected)


@pytest.mark.parametrize("head_dim", [36, 35])
def test_positions_beyond_the_tables_are_nan(
    backend: str, device: str, head_dim: int, generator: torch.Generator
) -> None:
    x = torch.randn(4, 3, 2, head_dim, generator=generator).to(device)
    cos, sin = (t.to(device) for t in _tables(5, 32, generator))
    offsets = torch.tensor([2, 3, -1, 2**62], device=device)
    out = bindings.rotary(x, cos, sin, offset=offsets, backend=backend)
    is_beyond = torch.zeros(4, 3, dtype=torch.bool, device=device)
    is_beyond[1, 2] = is_beyond[2, 0] = is_beyond[3] = True
    assert torch.equal(out[..., :32].isnan().all(-1).all(-1), is_beyond)
    assert torch.equal(out[..., :32].isnan().any(-1).any(-1), is_beyond)
    assert torch.equal(out[..., 32:], x[..., 32:])


# ---- Memory --------------------------------------------------------------------------


def _odd_address(table: Tensor) -> Tensor:
    memory = table.new_empty(table.numel() + 1)
    return memory[1:].view(table.shape).copy_(table)


TABLES: dict[str, Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]] = {
    "halves of one": lambda c, s: tuple(torch.cat((c, s), 1).chunk(2, 1)),  # type: ignore[dict-item, return-value]
    "of different strides": lambda c, s: (c, torch.cat((s, s), 1)[:, : s.shape[1]]),
    "transposed": lambda c, s: (c.t().contiguous().t(), s.t().contiguous().t()),
    "odd addresses": lambda c, s: (_odd_address(c), _odd_address(s)),
    "one angle for all": lambda c, s: (c[:1].expand_as(c), s[:1].expand_as(s)),
}


@in_one_test("name")
@layouts
@pytest.mark.parametrize("name", TABLES)
def test_tables_of_any_strides(
    backend: str,
    device: str,
    interleaved: bool,
    name: str,
    generator: torch.Generator,
) -> None:
    x = torch.randn(2, 7, 3, 64, generator=generator).to(device)
    cos, sin = TABLES[name](*(t.to(device) for t in _tables(7, 64, generator)))
    out = bindings.rotary(x, cos, sin, interleaved, backend=backend)
    _assert_accepted(out, x, cos, sin, interleaved)


@layouts
def test_queries_inside_of_a_larger_tensor(
    backend: str, device: str, interleaved: bool, generator: torch.Generator
) -> None:
    packed = torch.randn(2, 7, 3, 4, 32, generator=generator).to(device)
    cos, sin = (t.to(device) for t in _tables(7, 32, generator))
    for x in (packed[:, :, 1], packed[:, :, 0].transpose(1, 2)[:, :4]):
        out = bindings.rotary(x, cos, sin, interleaved, backend=backend)
        _assert_accepted(out, x, cos, sin, interleaved)
        assert out.stride(-1) == 1


# ---- In place ------------------------------------------------------------------------


@layouts
@pytest.mark.parametrize("head_dim", [64, 33])
def test_in_place(
    backend: str,
    device: str,
    dtype: torch.dtype,
    interleaved: bool,
    head_dim: int,
    generator: torch.Generator,
) -> None:
    values = torch.randn(2, 37, 10, head_dim, generator=generator).to(device, dtype)
    cos, sin = (t.to(device, dtype) for t in _tables(39, 32, generator))
    x = values[:, :, ::2]  # between heads of others, which must stay as they are
    expected = values.clone()
    expected[:, :, ::2] = bindings.rotary(x, cos, sin, interleaved, 2, backend=backend)
    assert bindings.rotary_(x, cos, sin, interleaved, 2, backend=backend) is x
    assert torch.equal(values, expected)


def test_in_place_as_torch_library_knows_it(
    backend: str, device: str, generator: torch.Generator
) -> None:
    x = torch.randn(2, 5, 3, 16, generator=generator).to(device)
    cos, sin = (t.to(device) for t in _tables(9, 16, generator))
    overload = getattr(torch.ops.twin, f"rotary_{backend}").in_place
    results = torch.library.opcheck(overload, (x, cos, sin))
    assert set(results.values()) == {"SUCCESS"}
    torch.compiler.reset()

    @torch.compile(fullgraph=True, backend="aot_eager")
    def turned(x: Tensor) -> Tensor:
        return bindings.rotary_(2 * x, cos, sin, backend=backend) + 1

    expected = bindings.rotary(2 * x, cos, sin, backend=backend) + 1
    assert torch.equal(turned(x), expected)


def test_in_place_needs_a_place_of_its_own(backend: str) -> None:
    skip_if_refused(backend, "cpu")
    for x in (
        X.transpose(-1, -2),
        X[:1].expand_as(X),
        X.as_strided(X.shape, (240, 48, 15, 1)),
    ):
        tables = (torch.ones(16, 1),) * 2
        with pytest.raises(ValueError, match=r"rotary_: x has shape .* and strides"):
            bindings.rotary_(x, *tables, backend=backend)
    x = X.clone().requires_grad_()
    with pytest.raises(ValueError, match="rotary_: x requires a gradient"):
        bindings.rotary_(x, TABLE, TABLE, backend=backend)
    with torch.no_grad():
        assert bindings.rotary_(x, TABLE, TABLE, backend=backend) is x
    with pytest.raises(ValueError, match="rotary_: cos has shape"):
        bindings.rotary_(X.clone(), TABLE, TABLE[:-1], backend=backend)


# ---- Gradients -----------------------------------------------------------------------


@layouts
@pytest.mark.parametrize("offset", [0, 2, "a tensor"])
# Compiled for a tensor in one of the layouts.
@leave_out_simulated(
    lambda each: each["offset"] == "a tensor" and not each["interleaved"]
)
def test_gradient(
    backend: str,
    device: str,
    dtype: torch.dtype,
    interleaved: bool,
    offset: int | str,
    generator: torch.Generator,
) -> None:
    x = torch.randn(2, 5, 3, 72, generator=generator).to(device, dtype)
    weight = torch.randn(x.shape, generator=generator).to(device, dtype)
    cos, sin = (t.to(device, dtype) for t in _tables(9, 64, generator))
    begin = torch.tensor([4, 1], device=device) if offset == "a tensor" else offset

    def gradient(
        function: Callable[..., Outputs], dtype: torch.dtype, **kwargs: str
    ) -> Tensor:
        leaf = x.to(dtype).detach().requires_grad_()
        tables = cos.to(dtype), sin.to(dtype)
        (out,) = as_tuple(function(leaf, *tables, interleaved, begin, **kwargs))
        (out * weight.to(dtype)).sum().backward()
        assert leaf.grad is not None
        return leaf.grad

    expected = Expected(
        gradient(OP.reference, torch.float64), gradient(OP.reference, dtype)
    )
    verdict = acceptance.judge(
        gradient(bindings.rotary, dtype, backend=backend), expected
    )
    assert verdict.passed, verdict.problem


def test_gradient_of_a_sum_is_expanded(
    backend: str, device: str, generator: torch.Generator
) -> None:
    x = torch.randn(2, 5, 3, 16, generator=generator).to(device).requires_grad_()
    cos, sin = (t.to(device) for t in _tables(5, 16, generator))
    bindings.rotary(x, cos, sin, backend=backend).sum().backward()
    expected = BACKWARD.reference(torch.ones_like(x), cos, sin)
    torch.testing.assert_close(x.grad, expected)


@pytest.mark.parametrize("offset", [0, 2, "a tensor"])
def test_compiled_forward_and_backward(
    backend: str, device: str, offset: int | str, generator: torch.Generator
) -> None:
    torch.compiler.reset()
    x = torch.randn(2, 5, 3, 16, generator=generator).to(device)
    cos, sin = (t.to(device) for t in _tables(9, 16, generator))
    begin = torch.tensor([4, 1], device=device) if offset == "a tensor" else offset

    def loss(x: Tensor) -> Tensor:
        out = bindings.rotary(2 * x, cos, sin, True, begin, backend=backend)
        return out.square().sum()

    plain, compiled = (x.clone().requires_grad_() for _ in range(2))
    loss(plain).backward()
    torch.compile(loss, fullgraph=True, backend="aot_eager")(compiled).backward()
    assert plain.grad is not None
    assert compiled.grad is not None
    assert torch.equal(plain.grad, compiled.grad)


def test_opcheck_with_gradient_and_offset(
    backend: str, device: str, generator: torch.Generator
) -> None:
    x = torch.randn(2, 5, 3, 16, generator=generator).to(device).requires_grad_()
    cos, sin = (t.to(device) for t in _tables(9, 16, generator))
    offset = torch.tensor([4, 1], device=device)
    overload = getattr(torch.ops.twin, f"rotary_{backend}").default
    results = torch.library.opcheck(overload, (x, cos, sin, True, offset))
    assert set(results.values()) == {"SUCCESS"}


# ---- Errors --------------------------------------------------------------------------

X, TABLE = torch.ones(2, 5, 3, 16), torch.ones(7, 8)

BAD_CALLS: dict[str, tuple[tuple[object, ...], type[Exception], str]] = {
    "cos is no tensor": ((X, 1.0, TABLE), TypeError, "cos must be a torch.Tensor, got"),
    "x of three dimensions": (
        (X[0], TABLE, TABLE),
        ValueError,
        r"x has shape \(5, 3, 16\), expected \(batch, sequence, heads, head_dim\)",
    ),
    "x dtype": ((X.double(), TABLE, TABLE), TypeError, "x has dtype torch.float64"),
    "tables of another half": (
        (X.half(), TABLE.bfloat16(), TABLE.bfloat16()),
        TypeError,
        "cos has dtype torch.bfloat16, expected torch.float16 as x has, or torch.float",
    ),
    "tables of two dtypes": (
        (X.half(), TABLE, TABLE.half()),
        TypeError,
        "cos has dtype torch.float32 and sin has torch.float16, expected the same",
    ),
    "tables of two shapes": (
        (X, TABLE, TABLE[:-1]),
        ValueError,
        r"cos has shape \(7, 8\) and sin has \(6, 8\), expected the same",
    ),
    "tables on another device": (
        (X, TABLE.to("meta"), TABLE.to("meta")),
        ValueError,
        "x is on cpu and cos on meta, expected the same device",
    ),
    "rotary_dim above head_dim": (
        (X[..., :15], TABLE, TABLE),
        ValueError,
        r"cos has shape \(7, 8\), expected \(positions, rotary_dim / 2\) with "
        "rotary_dim at most 15",
    ),
    "too few positions": (
        (X, TABLE[:4], TABLE[:4]),
        ValueError,
        "cos has 4 positions, expected at least 5: x has a sequence of 5 from position",
    ),
    "too few positions behind the offset": (
        (X, TABLE, TABLE, False, 3),
        ValueError,
        "cos has 7 positions, expected at least 8: x has a sequence of 5 from "
        "position 3 on",
    ),
    "negative offset": (
        (X, TABLE, TABLE, False, -1),
        ValueError,
        "offset is -1, expected at least 0",
    ),
    "offset is no int": (
        (X, TABLE, TABLE, False, 1.0),
        TypeError,
        "offset must be an int or a torch.Tensor, got float",
    ),
    "offset dtype": (
        (X, TABLE, TABLE, False, torch.zeros(2)),
        TypeError,
        "offset has dtype torch.float32, expected torch.int64 or torch.int32",
    ),
    "offset shape": (
        (X, TABLE, TABLE, False, torch.zeros(3, dtype=torch.int64)),
        ValueError,
        r"offset has shape \(3,\), expected one for each sequence, \(2,\)",
    ),
    "offset device": (
        (X, TABLE, TABLE, False, torch.zeros(2, dtype=torch.int64, device="meta")),
        ValueError,
        "x is on cpu and offset on meta, expected the same device",
    ),
    "sin requires a gradient": (
        (X, TABLE, TABLE.clone().requires_grad_()),
        ValueError,
        r"sin requires a gradient, which there is none of; expected sin.detach\(\)",
    ),
    "too many heads": (
        (torch.empty(1, 1, 2**30, 2, device="meta"), *(TABLE[:, :1].to("meta"),) * 2),
        ValueError,
        "expected fewer than 1073741824 heads",
    ),
}


@in_one_test("bad", "backend")
@pytest.mark.parametrize("bad", BAD_CALLS)
def test_bad_arguments(bad: str, backend: str) -> None:
    arguments, error, message = BAD_CALLS[bad]
    with pytest.raises(error, match=f"^rotary: .*{message}"):
        bindings.rotary(*arguments, backend=backend)
    with pytest.raises(error, match=f"^rotary_: .*{message}"):
        bindings.rotary_(*arguments, backend=backend)
    backward = message.replace("x has", "grad has").replace("x is", "grad is")
    with pytest.raises(error, match=f"^rotary_backward: .*{backward}"):
        bindings.rotary_backward(*arguments, backend=backend)


def test_tables_that_require_a_gradient_are_taken_where_none_is_kept(
    backend: str,
) -> None:
    skip_if_refused(backend, "cpu")
    table = TABLE.clone().requires_grad_()
    with torch.no_grad():
        out = bindings.rotary(X, table, table, backend=backend)
    assert torch.equal(out, bindings.rotary(X, TABLE, TABLE, backend=backend))
