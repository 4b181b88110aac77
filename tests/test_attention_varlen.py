"""Attention of packed sequences, of any lengths."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import pytest
import torch
from common import assert_accepted
from test_simulated_calls import needs_nvcc
from together import in_one_test
from torch import Tensor, library

import bindings
from bindings import backends
from bindings.errors import UnsupportedError
from bindings.op import Op, as_tuple
from bindings.ops._attention_reference import yardstick
from bindings.registry import OPS
from bindings.trials import TRIALS
from compare.judge import acceptance

FORWARD, BACKWARD = OPS["attention"], OPS["attention_backward"]

# Of queries and of keys: none, one, around the ends of warps and tiles, and primes.
LENGTHS = ((0, 1, 31, 33, 5, 129, 0, 67), (7, 1, 33, 31, 0, 127, 128, 3))
SHORT = ((3, 0, 17, 1, 31), (5, 4, 0, 33, 37))
# Rows of no sequence, in front of the others and behind them: of queries and of keys.
IN_FRONT, BEHIND = (2, 3), (3, 1)


class Packed(NamedTuple):
    """Packed tensors, and their offsets."""

    q: Tensor
    k: Tensor
    v: Tensor
    offsets: dict[str, Tensor]

    def rows(self, i: int) -> tuple[slice, slice]:
        """The queries and the keys of a sequence."""
        queries, keys = (x[i : i + 2].tolist() for x in self.offsets.values())
        return slice(*queries), slice(*keys)


def pack(
    lengths: tuple[tuple[int, ...], ...],
    dtype: torch.dtype,
    device: str,
    generator: torch.Generator,
    heads: tuple[int, int] = (2, 1),
    head_dim: int = 24,
) -> Packed:
    """Random sequences of these lengths, and rows of none."""
    offsets, n_rows = {}, []
    for i, side in enumerate("qk"):
        begins = torch.tensor([IN_FRONT[i], *lengths[i]]).cumsum(0)
        offsets[f"cu_seqlens_{side}"] = begins.to(device, torch.int32)
        n_rows.append(int(begins[-1]) + BEHIND[i])
    q, k, v = (
        torch.randn(n_rows[i], heads[i], head_dim, generator=generator)
        for i in (0, 1, 1)
    )
    q, k, v = (x.to(device, dtype) for x in (q, k, v))
    return Packed(q, k, v, offsets)


def run(op: Op, backend: str, *inputs: Tensor, **params: Any) -> tuple[Tensor, ...]:
    """The results of a rung that takes such a call, or skips the test."""
    arguments = TRIALS[op.name].bind(inputs, params)
    outputs = as_tuple(op.allocate(*arguments))
    try:
        backends.run(backend, op, outputs, *arguments)
    except UnsupportedError:
        pytest.skip("the rung takes no such call")
    return outputs


def backward_inputs(
    packed: Packed, generator: torch.Generator, **params: Any
) -> tuple[Tensor, ...]:
    """What the backward of a call takes, with PyTorch's results of the call."""
    q, k, v, offsets = packed
    results = yardstick(*TRIALS["attention"].bind((q, k, v), {**params, **offsets}))
    grad = torch.randn(q.shape, generator=generator).to(q)
    return grad, q, k, v, *results


def same_bits(x: Tensor, y: Tensor) -> bool:
    """Whether two tensors hold the same, NaN included."""
    return torch.equal(acceptance.bits(x), acceptance.bits(y))


# ---- Results -------------------------------------------------------------------------

PARAMS: dict[torch.dtype, dict[str, Any]] = {
    torch.float32: {},
    torch.float16: {"causal": True},
    torch.bfloat16: {"window": (20, 3)},
}


@pytest.mark.parametrize("dtype", PARAMS, ids=str)
def test_results_and_gradients(
    backend: str, device: str, dtype: torch.dtype, generator: torch.Generator
) -> None:
    params = PARAMS[dtype]
    is_simulated = (backend, device, dtype) == ("triton", "cpu", torch.bfloat16)
    packed = pack(SHORT if is_simulated else LENGTHS, dtype, device, generator)
    given = {**params, **packed.offsets}
    assert_accepted(FORWARD, backend, packed[:3], given)
    inputs = backward_inputs(packed, generator, **params)
    assert_accepted(BACKWARD, backend, inputs, given)


@pytest.mark.parametrize("params", PARAMS.values(), ids=str)
def test_the_reference_takes_one_sequence_after_the_other(
    params: dict[str, Any], generator: torch.Generator
) -> None:
    packed = pack(SHORT, torch.float32, "cpu", generator)
    q, k, v, offsets = packed
    inputs = tuple(x.double().requires_grad_() for x in (q, k, v))
    arguments = TRIALS["attention"].bind(inputs, {**params, **offsets})
    out, lse = FORWARD.reference(*arguments)
    expected = torch.zeros_like(out)
    for i in range(len(SHORT[0])):
        queries, keys = packed.rows(i)
        own = (inputs[0][queries], *(x[keys] for x in inputs[1:]))
        part, part_lse = FORWARD.reference(*(x[None] for x in own), **params)
        expected = expected.index_copy(
            0, torch.arange(queries.start, queries.stop), part[0]
        )
        assert torch.equal(lse[:, queries], part_lse[0])
    assert torch.equal(out, expected)
    grad = torch.randn(out.shape, generator=generator, dtype=torch.float64)
    by_autograd = torch.autograd.grad(expected, inputs, grad)
    operands = (grad, *(x.detach() for x in (*inputs, out, lse)))
    arguments = TRIALS["attention_backward"].bind(operands, {**params, **offsets})
    for mine, right in zip(BACKWARD.reference(*arguments), by_autograd, strict=True):
        assert torch.allclose(mine, right, rtol=1e-10, atol=1e-12)


def test_rows_of_no_sequence(
    backend: str, device: str, generator: torch.Generator
) -> None:
    q, k, v, offsets = pack(SHORT, torch.float32, device, generator)
    inputs = [x.requires_grad_() for x in (q, k, v)]
    out, lse = bindings.attention_varlen(
        *inputs, **offsets, return_lse=True, backend=backend
    )
    grads = torch.autograd.grad(out.sum() + lse[:, 2:5].sum(), inputs)
    for side, x in enumerate((out, lse.T, *grads)):
        i = int(side in (3, 4))  # k and v
        outside = torch.cat([x[: IN_FRONT[i]], x[-BEHIND[i] :]])
        assert (outside == (-math.inf if side == 1 else 0.0)).all()
        assert x[IN_FRONT[i] :].abs().sum() > 0
    # No sequence at all.
    one = {name: x[:1] for name, x in offsets.items()}
    assert (bindings.attention_varlen(q, k, v, **one, backend=backend) == 0.0).all()


def test_a_key_of_the_neighbour_is_noticed(
    backend: str, device: str, generator: torch.Generator
) -> None:
    packed = pack(((9, 40), (9, 130)), torch.float16, device, generator)
    inputs, offsets = packed[:3], packed.offsets
    expected = acceptance.expect(FORWARD, TRIALS["attention"].bind(inputs, offsets))
    right = run(FORWARD, backend, *inputs, **offsets)
    assert acceptance.judge_all(right, expected).passed
    begins = offsets["cu_seqlens_k"] + torch.tensor([0, 1, 1], device=device).int()
    offsets = {**offsets, "cu_seqlens_k": begins}
    wrong = run(FORWARD, backend, *inputs, **offsets)
    assert not acceptance.judge_all(wrong, expected).passed


# ---- Neighbours ----------------------------------------------------------------------


@pytest.mark.parametrize("rung", ["tiled", "tensor_cores"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_a_sequence_is_alone(
    rung: str,
    backend: str,
    device: str,
    dtype: torch.dtype,
    generator: torch.Generator,
) -> None:
    params = {"causal": True, "softcap": 5.0}
    packed = pack(((31, 40, 2), (5, 70, 33)), dtype, device, generator, (4, 2))
    queries, keys = packed.rows(1)
    # Whatever the neighbours are: these are infinite and NaN.
    for x, rows in zip(packed[:3], (queries, keys, keys), strict=True):
        x[: rows.start], x[rows.stop :] = math.inf, math.nan
    alone = tuple(
        x[rows][None] for x, rows in zip(packed[:3], (queries, keys, keys), strict=True)
    )
    forward, backward = FORWARD.on_rung(rung), BACKWARD.on_rung(rung)
    results = run(forward, backend, *packed[:3], **params, **packed.offsets)
    own = run(forward, backend, *alone, **params)
    assert same_bits(results[0][queries], own[0][0])
    assert same_bits(results[1][:, queries], own[1][0])
    grad = torch.randn(packed.q.shape, generator=generator).to(packed.q)
    grads = run(
        backward, backend, grad, *packed[:3], *results, **params, **packed.offsets
    )
    own_grads = run(backward, backend, grad[queries][None], *alone, *own, **params)
    for x, y, rows in zip(grads, own_grads, (queries, keys, keys), strict=True):
        assert same_bits(x[rows], y[0])


def test_wrong_offsets_lead_to_no_other_memory(
    backend: str, device: str, generator: torch.Generator
) -> None:
    q, k, v, _ = pack(SHORT, torch.float32, device, generator)
    wrong = {
        "cu_seqlens_q": torch.tensor([-9, 70, 3, 2**31 - 1, 5]),
        "cu_seqlens_k": torch.tensor([50, -(2**31), 1000, 7, 20]),
    }
    params = {name: x.to(device, torch.int32) for name, x in wrong.items()}

    # Around each tensor there is NaN, which would show.
    def surrounded(x: Tensor) -> tuple[Tensor, Tensor]:
        memory = x.new_full((x.numel() + 2048,), math.nan)
        inside = memory[1024:-1024].view(x.shape)
        return memory, inside.copy_(x)

    inputs = tuple(surrounded(x)[1] for x in (q, k, v))
    results: tuple[Tensor, ...] = ()
    for op in (FORWARD, BACKWARD):
        given = (q, *inputs, *results) if results else inputs
        arguments = TRIALS[op.name].bind(given, params)
        memories, results = zip(
            *(surrounded(x.zero_()) for x in op.allocate(*arguments)), strict=True
        )
        backends.run(backend, op, results, *arguments)
        for memory, x in zip(memories, results, strict=True):
            assert memory.isnan().sum() == 2048
            assert not x.isnan().any()


# ---- The rest of PyTorch, and compiled code ------------------------------------------


# What Triton makes is tested in bfloat16 wherever there is that dtype.
@needs_nvcc
def test_what_nvcc_makes_is_accepted(generator: torch.Generator) -> None:
    packed = pack(SHORT, torch.float16, "cpu", generator)
    with bindings.simulated("sm_80"):
        assert_accepted(FORWARD, "cuda", packed[:3], {"causal": True, **packed.offsets})


def test_opcheck(generator: torch.Generator) -> None:
    q, k, v, offsets = pack(SHORT, torch.float32, "cpu", generator)
    inputs = [x.requires_grad_() for x in (q, k, v)]
    tests = ["test_schema", "test_autograd_registration", "test_faketensor"]
    overload = torch.ops.twin.attention_cuda.default
    results = library.opcheck(overload, tuple(inputs), offsets, test_utils=tests)
    assert set(results.values()) == {"SUCCESS"}


def test_tensors_of_other_strides(
    backend: str, device: str, generator: torch.Generator
) -> None:
    packed = pack(SHORT, torch.float16, device, generator)
    kv = torch.stack(packed[1:3], 2)  # of one projection
    q = packed.q.transpose(0, 1).contiguous().transpose(0, 1)  # heads first in memory
    assert_accepted(FORWARD, backend, (q, *kv.unbind(2)), packed.offsets)
    out = bindings.attention_varlen(q, *kv.unbind(2), **packed.offsets, backend=backend)
    assert out.stride() == q.stride()


# ---- Bad input -----------------------------------------------------------------------

Q, K = torch.zeros(7, 4, 8), torch.zeros(5, 2, 8)


def ints(*values: int, dtype: torch.dtype = torch.int32) -> Tensor:
    """Offsets."""
    return torch.tensor(values, dtype=dtype)


GIVEN = {
    "q": Q,
    "k": K,
    "v": K,
    "cu_seqlens_q": ints(0, 3, 7),
    "cu_seqlens_k": ints(0, 4, 5),
}
BAD: dict[str, tuple[dict[str, Any], type[Exception], str]] = {
    "a batch": ({"q": Q[None]}, ValueError, "q has shape .* 3 dimensions: rows, heads"),
    "a list": ({"cu_seqlens_q": [0, 7]}, TypeError, "cu_seqlens_q must be a torch.Ten"),
    "None": ({"cu_seqlens_k": None}, TypeError, "cu_seqlens_k must be a torch.Tensor"),
    "int64": (
        {"cu_seqlens_k": ints(0, 4, 5, dtype=torch.int64)},
        TypeError,
        "cu_seqlens_k has dtype torch.int64, expected torch.int32",
    ),
    "no offset": (
        {"cu_seqlens_q": ints()},
        ValueError,
        r"cu_seqlens_q has shape \(0,\)",
    ),
    "other numbers": (
        {"cu_seqlens_q": ints(0, 7)},
        ValueError,
        r"cu_seqlens_q has shape \(2,\) and cu_seqlens_k has \(3,\)",
    ),
    "another device": (
        {"cu_seqlens_q": ints(0, 3, 7).to("meta")},
        ValueError,
        "cu_seqlens_q is on meta",
    ),
    "a negative offset": (
        {"cu_seqlens_q": ints(-1, 3, 7)},
        ValueError,
        r"cu_seqlens_q\[0\] is -1, expected 0 to 7",
    ),
    "an offset too far": (
        {"cu_seqlens_k": ints(0, 4, 6)},
        ValueError,
        r"cu_seqlens_k\[2\] is 6, expected 4 to 5",
    ),
    "offsets that decrease": (
        {"cu_seqlens_q": ints(0, 5, 3)},
        ValueError,
        r"cu_seqlens_q\[2\] is 3, expected 5 to 7",
    ),
    "a sequence too long": (
        {"max_seqlen_k": 3},
        ValueError,
        "max_seqlen_k is 3, expected 4 or more, the length of sequence 0",
    ),
    "a length in parts": (
        {"max_seqlen_q": 4.0},
        TypeError,
        "max_seqlen_q must be an int",
    ),
    "heads": ({"q": Q[:, :3]}, ValueError, "q has 3 heads and k has 2"),
    "a head_dim": ({"q": Q[..., :4]}, ValueError, "expected the same head_dim"),
    "a window": ({"window": 5}, TypeError, "window must be a pair"),
    "a softcap": ({"softcap": 0.0}, ValueError, "softcap is 0.0"),
}


@in_one_test("name")
@pytest.mark.parametrize("name", BAD)
def test_bad_input(name: str) -> None:
    changed, error, message = BAD[name]
    with pytest.raises(error, match=message):
        bindings.attention_varlen(**{**GIVEN, **changed})


def test_offsets_of_one_side() -> None:
    with pytest.raises(TypeError, match="cu_seqlens_k is None, expected both"):
        torch.ops.twin.attention_cuda(Q, K, K, cu_seqlens_q=ints(0, 7))


@pytest.mark.parametrize("rung", ["first", "twin"])
def test_rungs_that_take_none(rung: str, backend: str) -> None:
    op = FORWARD.on_rung(rung)
    arguments = TRIALS["attention"].bind(
        (Q.half(), K.half(), K.half()),
        {"cu_seqlens_q": ints(0, 7), "cu_seqlens_k": ints(0, 5)},
    )
    with pytest.raises(UnsupportedError, match="has no kernel for this call"):
        backends.run(backend, op, op.allocate(*arguments), *arguments)
