"""attention: the tests that are its alone."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import launches
import pytest
import torch
from common import (
    assert_accepted,
    leave_out,
    leave_out_simulated,
    op_id,
    random_inputs,
    triton_version,
)
from dependent import assert_waits_first
from launches import HOPPER
from mirror import kernels_of
from test_simulated_calls import needs_nvcc
from together import in_one_test
from torch import Tensor

import bindings
from bindings import backends, sources
from bindings.backends import native, prebuilt, triton
from bindings.errors import UnsupportedError
from bindings.op import Op, as_tuple
from bindings.ops import _attention_reference
from bindings.ops import attention as description
from bindings.ops._attention_reference import (
    reference,
    reference_backward,
    yardstick,
)
from bindings.ops._attention_splits import count_splits
from bindings.registry import OPS
from bindings.trials import TRIALS
from compare.assembly.listing import Listing
from compare.code import kernel_code, rungs, triton_offline
from compare.code.architectures import ARCHITECTURES
from compare.judge import acceptance
from compare.judge.cases import Case, launcher_arguments
from triton_kernels.attention import backward_twin_launches

FORWARD, BACKWARD = OPS["attention"], OPS["attention_backward"]
RUNGS = [FORWARD.on_rung(rung) for rung in ("", *FORWARD.rungs)]
on_each_rung = pytest.mark.parametrize("each_op", RUNGS, ids=op_id)
BACKWARD_RUNGS = [BACKWARD.on_rung(rung) for rung in ("", *BACKWARD.rungs)]
BITS_16 = pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
on_each_rung_of_the_backward = pytest.mark.parametrize(
    "each_op", BACKWARD_RUNGS, ids=op_id
)


def is_interpreted_already(params: Mapping[str, Any]) -> bool:
    """Whether a first rung, which computes in float32, is interpreted in float16.

    It takes most of the interpreter's time, and test_correctness does so as well.
    """
    is_first = params["each_op"].rung == "first"
    call = params["backend"], params["device"], params["dtype"]
    return is_first and call == ("triton", "cpu", torch.float16)


def in_both_precisions(test: Callable[..., None]) -> Callable[..., None]:
    """Runs a test of a rung in float32 and in float16."""
    dtypes = pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
    both: Callable[..., None] = leave_out(is_interpreted_already)(dtypes(test))
    return both


# Batch, queries, keys, heads, heads of k and v, head_dim: shared heads, ragged tiles.
SHAPE = (1, 37, 70, 4, 2, 40)

# What values are replaced by that must not matter: tensor cores multiply whole tiles of
# those, and 0 times NaN is NaN.
SPOILT = {torch.float32: math.nan, torch.float16: 1000.0}


def run(op: Op, backend: str, *inputs: Tensor, **params: Any) -> tuple[Tensor, Tensor]:
    """The result and the lse of a rung that takes such a call, or skips the test."""
    arguments = TRIALS["attention"].bind(inputs, params)
    outputs = as_tuple(op.allocate(*arguments))
    try:
        backends.run(backend, op, outputs, *arguments)
    except UnsupportedError:
        assert op.rung in ("tensor_cores", "twin")
        pytest.skip("the rung takes no such call")
    out, lse = outputs
    return out, lse


def same_bits(x: Tensor, y: Tensor) -> bool:
    """Whether two tensors hold the same, NaN included."""
    return torch.equal(acceptance.bits(x), acceptance.bits(y))


# ---- Which keys a query sees ---------------------------------------------------------


@on_each_rung
@in_both_precisions
def test_keys_that_nobody_sees_change_nothing(
    each_op: Op,
    backend: str,
    device: str,
    dtype: torch.dtype,
    generator: torch.Generator,
) -> None:
    q, k, v = random_inputs(FORWARD, (1, 37, 70, 2, 2, 40), dtype, device, generator)
    window = (5, 0)
    out, lse = run(each_op, backend, q, k, v, window=window)
    first_seen = 70 - 37 - window[0]
    spoilt_k, spoilt_v = k.clone(), v.clone()
    spoilt_k[:, :first_seen] = math.nan
    spoilt_v[:, :first_seen] = SPOILT[dtype]
    spoilt, spoilt_lse = run(each_op, backend, q, spoilt_k, spoilt_v, window=window)
    assert same_bits(out, spoilt)
    assert same_bits(lse, spoilt_lse)


@on_each_rung
@in_both_precisions
def test_keys_to_come_change_nothing(
    each_op: Op,
    backend: str,
    device: str,
    dtype: torch.dtype,
    generator: torch.Generator,
) -> None:
    q, k, v = random_inputs(FORWARD, (1, 70, 70, 2, 2, 40), dtype, device, generator)
    out, lse = run(each_op, backend, q, k, v, causal=True)
    k, v = k.clone(), v.clone()
    k[:, 30:] = math.nan
    v[:, 30:] = 1000.0
    later, later_lse = run(each_op, backend, q, k, v, causal=True)
    assert same_bits(out[:, :30], later[:, :30])
    assert same_bits(lse[..., :30], later_lse[..., :30])
    assert not (out[:, 30:] == later[:, 30:]).any()


@on_each_rung
@in_both_precisions
def test_the_last_query_is_over_the_last_key(
    each_op: Op,
    backend: str,
    device: str,
    dtype: torch.dtype,
    generator: torch.Generator,
) -> None:
    q, k, v = random_inputs(FORWARD, (1, 3, 5, 1, 1, 8), dtype, device, generator)
    out, lse = run(each_op, backend, q, k, v, window=(0, 0))
    assert torch.equal(out[:, :, 0], v[:, 2:, 0])  # each query sees one key
    scores = (q[0, :, 0].double() * k[0, 2:, 0].double()).sum(-1) * 8**-0.5
    assert (lse[0, 0] - scores).abs().max() < 1e-5


@on_each_rung
@in_both_precisions
def test_queries_that_see_no_key(
    each_op: Op,
    backend: str,
    device: str,
    dtype: torch.dtype,
    generator: torch.Generator,
) -> None:
    q, k, v = random_inputs(FORWARD, (2, 70, 9, 2, 1, 40), dtype, device, generator)
    out, lse = run(each_op, backend, q, k, v, causal=True)
    assert (out[:, :61] == 0).all()
    assert (lse[..., :61] == -math.inf).all()
    assert lse[..., 61:].isfinite().all()


def test_gradients_where_a_query_sees_no_key(
    backend: str, device: str, generator: torch.Generator
) -> None:
    shape = (1, 40, 9, 2, 2, 8)
    q, k, v = (
        x.requires_grad_()
        for x in random_inputs(FORWARD, shape, torch.float32, device, generator)
    )
    out, lse = bindings.attention(
        q, k, v, causal=True, return_lse=True, backend=backend
    )
    grads = torch.autograd.grad(out.sum() + lse[..., 31:].sum(), (q, k, v))
    assert (grads[0][:, :31] == 0).all()
    assert all(grad.isfinite().all() for grad in grads)


WINDOWED = (1, 65, 319, 2, 1, 128)
WINDOWS = ((144, 0), (144, 16))


@pytest.mark.parametrize("window", WINDOWS)
def test_windows_of_a_plain_call(
    backend: str, device: str, window: tuple[int, int], generator: torch.Generator
) -> None:
    # The twin serves it, and hides keys of a tile before the last one. To Triton all
    # multiples of 16 are alike: this is compiled to what test_correctness has.
    inputs = random_inputs(FORWARD, WINDOWED, torch.bfloat16, device, generator)
    assert_accepted(FORWARD, backend, inputs, {"window": window})


# In CUDA two boxes of 64 columns hold such rows, in Triton one of 128. Products leave
# out the last columns.
IN_TWO_BOXES = pytest.mark.parametrize("head_dim", [72, 80, 96])


@in_one_test("head_dim")
@IN_TWO_BOXES
@BITS_16
def test_rows_that_fill_no_whole_boxes(
    backend: str,
    device: str,
    dtype: torch.dtype,
    head_dim: int,
    generator: torch.Generator,
) -> None:
    shape = (1, 150, 266, 2, 1, head_dim)
    inputs = random_inputs(FORWARD, shape, dtype, device, generator)
    for params in ({}, {"causal": True}):
        assert_accepted(FORWARD, backend, inputs, params)


@needs_nvcc
@in_one_test("head_dim")
@IN_TWO_BOXES
def test_what_nvcc_makes_for_rows_that_fill_no_whole_boxes(
    head_dim: int, generator: torch.Generator
) -> None:
    launches.compile_with_nvcc("attention", HOPPER)
    shape = (1, 150, 266, 2, 1, head_dim)
    inputs = random_inputs(FORWARD, shape, torch.bfloat16, "cpu", generator)
    for params in ({}, {"causal": True}):
        with bindings.simulated(HOPPER.target):
            assert_accepted(FORWARD, "cuda", inputs, params)


def test_more_tiles_than_blocks(
    backend: str, device: str, generator: torch.Generator
) -> None:
    # An H200 has 132 multiprocessors: blocks of the twin count what tiles they take.
    shape = (1, 9, 10, 140, 140, 8)
    inputs = random_inputs(FORWARD, shape, torch.float16, device, generator)
    assert_accepted(FORWARD, backend, inputs, {"causal": True})


# ---- What must not matter ------------------------------------------------------------


@on_each_rung
@in_both_precisions
def test_heads_that_are_shared_are_those_that_are_repeated(
    each_op: Op,
    backend: str,
    device: str,
    dtype: torch.dtype,
    generator: torch.Generator,
) -> None:
    q, k, v = random_inputs(FORWARD, SHAPE, dtype, device, generator)
    out, lse = run(each_op, backend, q, k, v)
    repeated = (x.repeat_interleave(2, 2) for x in (k, v))
    assert all(map(same_bits, (out, lse), run(each_op, backend, q, *repeated)))


@on_each_rung
@in_both_precisions
def test_a_batch_is_its_parts(
    each_op: Op,
    backend: str,
    device: str,
    dtype: torch.dtype,
    generator: torch.Generator,
) -> None:
    inputs = random_inputs(FORWARD, (2, *SHAPE[1:]), dtype, device, generator)
    out, lse = run(each_op, backend, *inputs)
    for i in range(2):
        part, part_lse = run(each_op, backend, *(x[i : i + 1] for x in inputs))
        assert same_bits(out[i : i + 1], part)
        assert same_bits(lse[i : i + 1], part_lse)


@on_each_rung
@in_both_precisions
def test_values_of_twice_the_size(
    each_op: Op,
    backend: str,
    device: str,
    dtype: torch.dtype,
    generator: torch.Generator,
) -> None:
    q, k, v = random_inputs(FORWARD, SHAPE, dtype, device, generator)
    out, lse = run(each_op, backend, q, k, v)
    twice, same_lse = run(each_op, backend, q, k, 2 * v)
    is_normal = out.abs() > torch.finfo(dtype).tiny
    assert torch.equal((2 * out)[is_normal], twice[is_normal])
    assert same_bits(lse, same_lse)


@on_each_rung
@in_both_precisions
def test_equal_scores_weigh_alike(
    each_op: Op,
    backend: str,
    device: str,
    dtype: torch.dtype,
    generator: torch.Generator,
) -> None:
    q, k, v = random_inputs(FORWARD, SHAPE, dtype, device, generator)
    for params in ({"scale": 0.0}, {"scale": 0.0, "softcap": 3.0}):
        out, lse = run(each_op, backend, q, k, v, **params)
        mean = v.double().mean(1, keepdim=True).repeat_interleave(2, 2)
        exact = mean.expand(out.shape)
        expected = acceptance.Expected(exact, exact.to(dtype), by_row=False)
        verdict = acceptance.judge(out, replace(expected, n_terms=70))
        assert verdict.passed, verdict.problem
        assert (lse - math.log(70)).abs().max() < 1e-5


@on_each_rung
def test_parts_of_the_keys_combine(
    each_op: Op, backend: str, device: str, generator: torch.Generator
) -> None:
    inputs = random_inputs(FORWARD, SHAPE, torch.float16, device, generator)
    q, k, v = inputs
    out, lse = run(each_op, backend, q, k, v)
    parts = [
        run(each_op, backend, q, k[:, part], v[:, part])
        for part in (slice(0, 23), slice(23, 70))
    ]
    whole = torch.logaddexp(*(each_lse for _, each_lse in parts))
    assert (whole - lse).abs().max() < 1e-5
    combined = sum(
        each.float() * (each_lse - whole).exp().transpose(1, 2)[..., None]
        for each, each_lse in parts
    )
    assert (combined - out.float()).abs().max() < 2e-3 * float(v.abs().max())


# ---- Inputs that break arithmetic ----------------------------------------------------

EXTREMES: dict[str, Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]] = {
    # Of few digits, so that sums are exact in any order.
    "scores of -120": lambda q, k: (
        (4 * q.abs()).round() / 4 + 1,
        -((4 * k.abs()).round() / 4 + 1) * 40,
    ),
    "scores of 10000": lambda q, k: (60 * q, 60 * k),
    "scores of 10^9": lambda q, k: (20000 * q.clamp(-3, 3), 20000 * k.clamp(-3, 3)),
    "one key above all": lambda q, k: (
        q.abs() + 1,
        torch.cat([k[:, :1] + 50, k[:, 1:]], 1),
    ),
    "equal keys": lambda q, k: (q, k[:, :1].expand_as(k)),
}


@in_one_test("extreme")
@on_each_rung
@pytest.mark.parametrize("extreme", EXTREMES)
def test_extreme_scores(
    each_op: Op, backend: str, device: str, extreme: str, generator: torch.Generator
) -> None:
    for dtype in (torch.float32, torch.float16):
        q, k, v = random_inputs(FORWARD, (1, 3, 64, 2, 2, 24), dtype, device, generator)
        q, k = EXTREMES[extreme](q, k)
        assert_accepted(each_op, backend, (q, k, v))


@BITS_16
def test_rows_whose_scores_rise(
    backend: str, device: str, dtype: torch.dtype, generator: torch.Generator
) -> None:
    # The twin takes keys from right to left, and what a row's exponentials are relative
    # to moves where a score exceeds it by a factor of 2^8: here never in every fourth
    # row, in the next ones after some tiles, after each, and by far. Below 0, the
    # integers of scores' bits, by which most tiles are passed over, fall as they rise.
    shape = (1, 133, 400, 2, 1, 64)
    q, k, v = random_inputs(FORWARD, shape, dtype, device, generator)
    by_row = torch.tensor([0.3, 1.0, 5.0, 30.0], device=device).repeat(34)[:133]
    q = (q / 8 + by_row[:, None, None]).to(dtype)
    for left, right in ((1, 0), (0, -1), (0.5, -0.5)):
        by_key = torch.linspace(left, right, 400, device=device)
        rising = (k / 8 + by_key[:, None, None]).to(dtype)
        for params in ({}, {"causal": True}):
            assert_accepted(FORWARD, backend, (q, rising, v), params)


@on_each_rung
def test_softcap_and_any_scale(
    each_op: Op, backend: str, device: str, generator: torch.Generator
) -> None:
    inputs = random_inputs(FORWARD, SHAPE, torch.float16, device, generator)
    for params in (
        {"softcap": 0.5},
        {"softcap": 50.0},
        {"scale": -1.0},
        {"scale": 3.0},
    ):
        assert_accepted(each_op, backend, inputs, params)


# ---- Few queries and long keys -------------------------------------------------------

# Sharing of heads by one to four, ragged tiles of rows and of keys, parts without keys,
# rows that see no key of a part, and calls that are not split.
DECODING: dict[str, tuple[tuple[int, ...], dict[str, Any], int]] = {
    "one key": ((2, 1, 1, 4, 2, 64), {}, 0),
    "a head of its own": ((2, 1, 701, 2, 2, 40), {"softcap": 5.0}, 5),
    "two that share": ((1, 1, 350, 4, 2, 128), {}, 2),
    "three that share": ((2, 3, 700, 3, 1, 64), {"causal": True}, 5),
    "four that share": ((1, 1, 5000, 4, 1, 24), {}, 39),
    "a single part": ((66, 1, 260, 4, 2, 16), {"scale": 0.3}, 1),
    "two blocks on a multiprocessor": ((67, 1, 260, 4, 2, 100), {}, 1),
    "a window": ((1, 3, 1500, 4, 2, 33), {"causal": True, "window": (801, 0)}, 6),
    "a window of both sides": ((1, 3, 600, 4, 1, 128), {"window": (400, 2)}, 3),
    "a window without a part": ((1, 1, 900, 4, 1, 64), {"window": (200, 9)}, 0),
    "32 rows": ((1, 8, 700, 4, 1, 128), {"causal": True}, 2),
    "tiles of rows": ((1, 13, 600, 3, 1, 80), {"causal": True, "scale": -0.1}, 2),
    "tiles of long rows": ((1, 5, 600, 4, 1, 256), {"causal": True}, 4),
    "many queries": ((1, 33, 300, 2, 1, 16), {}, 0),
}
# Those of them that are compiled: one of each head_dim, and of each kind of rows.
COMPILED = (
    "a head of its own",
    "two that share",
    "three that share",
    "a single part",
    "two blocks on a multiprocessor",
    "a window",
    "32 rows",
    "tiles of long rows",
)


@BITS_16
@pytest.mark.parametrize("case", DECODING)
@leave_out_simulated(lambda params: params["case"] not in COMPILED)
def test_keys_that_are_split(
    case: str,
    backend: str,
    device: str,
    dtype: torch.dtype,
    generator: torch.Generator,
) -> None:
    shape, params, n_splits = DECODING[case]
    inputs = random_inputs(FORWARD, shape, dtype, device, generator)
    if device == "cpu":  # as on an H200
        q, k, _, causal, window, *_ = TRIALS["attention"].bind(inputs, params)
        assert count_splits(q, k, causal, window) == n_splits
    assert_accepted(FORWARD, backend, inputs, params)
    if (backend, device) == ("triton", "cpu"):
        return  # where one thing is done after the other
    once, again = (run(FORWARD, backend, *inputs, **params) for _ in range(2))
    assert all(map(same_bits, once, again))


# The launch that computes the parts, and the one that puts them together.
@pytest.mark.parametrize("number", [0, 1])
@pytest.mark.parametrize("side", [pytest.param("cuda", marks=needs_nvcc), "triton"])
def test_launches_of_keys_that_are_split_wait_for_the_one_before(
    side: str, number: int
) -> None:
    shape, params, n_splits = DECODING["two that share"]
    assert n_splits > 1
    arguments = launcher_arguments(FORWARD, Case(shape, torch.bfloat16, params=params))
    inspect = {"cuda": kernel_code.inspect_cuda, "triton": kernel_code.inspect_triton}
    code = inspect[side](FORWARD, arguments, HOPPER, number=number)
    assert_waits_first(code)


@pytest.mark.parametrize("extreme", EXTREMES)
def test_extreme_scores_of_keys_that_are_split(
    backend: str, device: str, extreme: str, generator: torch.Generator
) -> None:
    shape = (1, 3, 400, 4, 2, 24)
    q, k, v = random_inputs(FORWARD, shape, torch.float16, device, generator)
    q, k = EXTREMES[extreme](q, k)
    assert_accepted(FORWARD, backend, (q, k, v))


def test_split_keys_that_nobody_sees_change_nothing(
    backend: str, device: str, generator: torch.Generator
) -> None:
    shape = (1, 1, 700, 4, 2, 64)
    q, k, v = random_inputs(FORWARD, shape, torch.float16, device, generator)
    whole = run(FORWARD, backend, q, k, v, window=(499, 0))
    k, v = k.clone(), v.clone()
    k[:, :200] = v[:, :200] = math.nan
    spoilt = run(FORWARD, backend, q, k, v, window=(499, 0))
    assert all(map(same_bits, whole, spoilt))


# Rows of a batch as in decoding, and how many blocks then share their keys.
@pytest.mark.parametrize(
    ("n_batches", "n_keys", "n_splits"),
    [(1, 1024, 8), (1, 131072, 16), (4, 8192, 4), (16, 4096, 1), (700, 1024, 1)],
)
def test_as_many_splits_as_keep_a_gpu_busy(
    n_batches: int, n_keys: int, n_splits: int
) -> None:
    q, k = (
        torch.empty(n_batches, n, heads, 128, dtype=torch.float16, device="meta")
        for n, heads in ((1, 32), (n_keys, 8))
    )
    assert count_splits(q, k, True, None) == n_splits
    assert count_splits(q.float(), k.float(), True, None) == 0


# With 8 heads of keys, on an H200: its 132 multiprocessors have one or two blocks each.
@pytest.mark.parametrize(
    ("n_batches", "n_warps", "n_keys"), [(16, 8, 128), (17, 4, 64)]
)
def test_two_blocks_share_a_multiprocessor_where_there_are_more(
    n_batches: int, n_warps: int, n_keys: int
) -> None:
    q, k = meta_inputs((n_batches, 1, 260, 32, 8, 128))
    arguments = TRIALS["attention"].bind((q, k, k), {})
    given = FORWARD.arguments(*FORWARD.allocate(*arguments), *arguments)
    (plan,) = native.plan(prebuilt.load("_cpu"), FORWARD, given, HOPPER.number)
    assert plan["block"] == (32 * n_warps, 1, 1)
    (launch,) = kernel_code.planned_launches("triton", FORWARD, given, HOPPER)
    assert launch.constants["BLOCK_N"] == n_keys


def test_kernels_of_split_keys_are_mirrored() -> None:
    for file in ("split", "combine"):
        cuda = kernels_of(sources.CSRC / "attention" / f"{file}.cuh")
        folder = sources.CSRC.parent / "triton_kernels" / "attention"
        assert kernels_of(folder / f"{file}.py") == cuda != {}


# ---- Layouts -------------------------------------------------------------------------


@on_each_rung
@in_both_precisions
def test_tensors_of_other_strides(
    each_op: Op,
    backend: str,
    device: str,
    dtype: torch.dtype,
    generator: torch.Generator,
) -> None:
    batch, n, heads, head_dim = 2, 33, 3, 40
    qkv = torch.randn(batch, n, 3, heads, head_dim, generator=generator)
    parts = qkv.to(device, dtype).unbind(2)  # of one projection
    assert_accepted(each_op, backend, parts)
    heads_first = [x.transpose(1, 2).contiguous().transpose(1, 2) for x in parts]
    assert_accepted(each_op, backend, tuple(heads_first))
    q, k, v = parts
    expanded = (q, *(x[:, :, :1].expand(-1, -1, heads, -1) for x in (k, v)))
    assert_accepted(each_op, backend, expanded)
    shifted = [
        torch.cat([x.flatten()[:1], x.flatten()])[1:].view(x.shape) for x in parts
    ]
    assert_accepted(each_op, backend, tuple(shifted))


def test_the_result_has_the_memory_format_of_q(backend: str, device: str) -> None:
    q = torch.randn(2, 3, 7, 8, device=device).transpose(1, 2)  # heads first in memory
    out = bindings.attention(q, q, q, backend=backend)
    assert out.stride() == q.stride()


# ---- Gradients -----------------------------------------------------------------------

GRADIENT_PARAMS: tuple[dict[str, Any], ...] = (
    {},
    {"causal": True, "softcap": 2.0},
    {"window": (3, 4), "scale": -0.4},
)


@pytest.mark.parametrize("params", GRADIENT_PARAMS, ids=str)
def test_the_reference_is_differentiated_right(params: dict[str, Any]) -> None:
    generator = torch.Generator().manual_seed(0)
    shape = (1, 6, 9, 4, 2, 5)
    made = TRIALS["attention"].inputs(shape, generator)
    inputs = tuple(x.double().requires_grad_() for x in made)
    out, lse = description.OP.reference(*inputs, **params)
    grad = torch.randn(out.shape, generator=generator, dtype=torch.float64)
    grad_lse = torch.randn(lse.shape, generator=generator, dtype=torch.float64)
    by_autograd = torch.autograd.grad((out, lse), inputs, (grad, grad_lse))
    arguments = (*(x.detach() for x in inputs), out.detach(), lse.detach(), grad_lse)
    by_formula = description.BACKWARD.reference(grad, *arguments, **params)
    for mine, right in zip(by_formula, by_autograd, strict=True):
        assert torch.allclose(mine, right, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("params", GRADIENT_PARAMS, ids=str)
def test_the_gradient_of_lse(
    backend: str, device: str, params: dict[str, Any], generator: torch.Generator
) -> None:
    made = random_inputs(FORWARD, SHAPE, torch.float32, device, generator)
    weights = torch.randn(1, 4, 37, generator=generator).to(device)
    q, k, v = (x.clone().requires_grad_() for x in made)
    _, lse = bindings.attention(q, k, v, **params, return_lse=True, backend=backend)
    found = torch.autograd.grad((lse * weights).sum(), (q, k))
    q, k, v = (x.double().requires_grad_() for x in made)
    _, lse = description.OP.reference(q, k, v, **params)
    exact = torch.autograd.grad((lse * weights).sum(), (q, k))
    for mine, right in zip(found, exact, strict=True):
        assert (mine - right).abs().max() < 1e-5 * right.abs().max()


def backward_inputs(
    inputs: tuple[Tensor, ...], generator: torch.Generator, **params: Any
) -> tuple[Tensor, ...]:
    """What the backward of a call takes, with PyTorch's results of the call."""
    grad = torch.randn(inputs[0].shape, generator=generator).to(inputs[0])
    results = yardstick(*TRIALS["attention"].bind(inputs, params))
    return grad, *inputs, *results


def run_backward(
    op: Op, backend: str, *inputs: Tensor, **params: Any
) -> tuple[Tensor, ...]:
    """The gradients by a rung that takes such a call, or skips the test."""
    arguments = TRIALS["attention_backward"].bind(inputs, params)
    outputs = as_tuple(op.allocate(*arguments))
    try:
        backends.run(backend, op, outputs, *arguments)
    except UnsupportedError:
        assert op.rung in ("tensor_cores", "twin")
        pytest.skip("the rung takes no such call")
    return outputs


@pytest.mark.parametrize("sizes", [(16, 2048), (2048, 16)], ids=str)
def test_gradients_that_are_long_sums_of_float32(
    backend: str, device: str, sizes: tuple[int, int], generator: torch.Generator
) -> None:
    made = random_inputs(
        FORWARD, (1, *sizes, 1, 1, 16), torch.float32, device, generator
    )
    inputs = backward_inputs(made, generator)
    # Which sums are chains of additions is Triton's choice, and not the interpreter's.
    is_compiled = (backend, device) == ("triton", "cpu")
    with bindings.simulated(HOPPER.target) if is_compiled else nullcontext():
        assert_accepted(BACKWARD, backend, inputs)


@in_one_test("params")
@on_each_rung_of_the_backward
@in_both_precisions
@pytest.mark.parametrize("params", [*GRADIENT_PARAMS, {"scale": 0.0}], ids=str)
def test_gradients_of_softcap_and_any_scale(
    each_op: Op,
    backend: str,
    device: str,
    dtype: torch.dtype,
    params: dict[str, Any],
    generator: torch.Generator,
) -> None:
    made = random_inputs(FORWARD, (1, 37, 70, 4, 2, 24), dtype, device, generator)
    inputs = backward_inputs(made, generator, **params)
    assert_accepted(each_op, backend, inputs, params)


@in_one_test("params")
@on_each_rung_of_the_backward
@pytest.mark.parametrize(
    "params",
    [{}, {"causal": True}, {"causal": True, "deterministic": False}],
    ids=str,
)
def test_gradients_of_scores_far_below_0(
    each_op: Op,
    backend: str,
    device: str,
    params: dict[str, Any],
    generator: torch.Generator,
) -> None:
    # A score of 0 past the ends of a tile would have an infinite probability there.
    for dtype in (torch.float32, torch.float16):
        made = random_inputs(FORWARD, (1, 67, 70, 2, 1, 24), dtype, device, generator)
        q, k = EXTREMES["scores of -120"](*made[:2])
        out, lse = yardstick(*TRIALS["attention"].bind((q, k, made[2]), params))
        grad = torch.randn(q.shape, generator=generator).to(q)
        assert_accepted(each_op, backend, (grad, q, k, made[2], out, lse), params)


@on_each_rung_of_the_backward
@in_both_precisions
def test_gradients_of_keys_that_nobody_sees(
    each_op: Op,
    backend: str,
    device: str,
    dtype: torch.dtype,
    generator: torch.Generator,
) -> None:
    made = random_inputs(FORWARD, (1, 37, 70, 2, 2, 40), dtype, device, generator)
    window = (5, 0)
    grad, q, k, v, out, lse = backward_inputs(made, generator, window=window)
    first_seen = 70 - 37 - window[0]
    spoilt_k, spoilt_v = k.clone(), v.clone()
    spoilt_k[:, :first_seen] = SPOILT[dtype]
    spoilt_v[:, :first_seen] = SPOILT[dtype]
    found, spoilt = (
        run_backward(each_op, backend, grad, q, *keys, out, lse, window=window)
        for keys in ((k, v), (spoilt_k, spoilt_v))
    )
    assert all(map(same_bits, found, spoilt))
    _, grad_k, grad_v = found
    assert (grad_k[:, :first_seen] == 0).all()
    assert (grad_v[:, :first_seen] == 0).all()


@BITS_16
def test_gradients_where_nobody_sees_a_block_of_keys(
    backend: str, device: str, dtype: torch.dtype, generator: torch.Generator
) -> None:
    # Not even what is no number reaches a gradient from there.
    made = random_inputs(FORWARD, (1, 40, 340, 2, 1, 40), dtype, device, generator)
    inputs = backward_inputs(made, generator, window=(9, 0))
    grad, q, k, v, out, lse = inputs
    k, v = k.clone(), v.clone()
    k[:, :200], v[:, :200] = math.nan, math.inf
    found, spoilt = (
        run_backward(BACKWARD, backend, grad, q, *keys, out, lse, window=(9, 0))
        for keys in (inputs[2:4], (k, v))
    )
    assert all(map(same_bits, found, spoilt))


# ---- Gradients of long rows ----------------------------------------------------------

# The twin's warpgroups then have the same keys, and a gradient each. Heads that share,
# ragged tiles, queries that see no key, a window, and fewer columns than the tile has.
LONG_ROWS: dict[str, tuple[tuple[int, ...], dict[str, Any]]] = {
    "heads that share": ((1, 65, 129, 2, 1, 256), {"causal": True}),
    "queries without a key": ((1, 130, 63, 4, 2, 192), {"causal": True}),
    "a window": ((1, 131, 197, 2, 2, 136), {"window": (60, 16)}),
}


@BITS_16
@pytest.mark.parametrize("case", LONG_ROWS)
def test_gradients_of_long_rows(
    case: str,
    backend: str,
    device: str,
    dtype: torch.dtype,
    generator: torch.Generator,
) -> None:
    shape, params = LONG_ROWS[case]
    made = random_inputs(FORWARD, shape, dtype, device, generator)
    inputs = backward_inputs(made, generator, **params)
    assert_accepted(BACKWARD, backend, inputs, params)


# ---- Gradients that blocks add up in memory ------------------------------------------

# Ragged tiles, heads that share keys, windows, fewer queries than keys, and more.
# Of 64 and of 128 columns, all are alike to Triton.
ADDED_UP: dict[str, tuple[tuple[int, ...], dict[str, Any]]] = {
    "causal": ((1, 150, 150, 2, 1, 64), {"causal": True}),
    "heads that share": ((2, 66, 140, 2, 1, 24), {"causal": True, "scale": 0.1}),
    "a window": ((1, 263, 131, 2, 1, 40), {"window": (50, 16)}),
    "keys that nobody sees": ((1, 65, 420, 1, 1, 40), {"window": (9, 0)}),
    "queries that see none": ((1, 420, 140, 1, 1, 64), {"causal": True}),
    "a few queries": ((1, 9, 279, 2, 1, 128), {}),
}
IN_ANY_ORDER = "causal", "a window", "a few queries"


@BITS_16
@pytest.mark.parametrize("case", ADDED_UP)
def test_gradients_that_are_added_up_in_turns(
    case: str,
    backend: str,
    device: str,
    dtype: torch.dtype,
    generator: torch.Generator,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shape, params = ADDED_UP[case]
    made = random_inputs(FORWARD, shape, dtype, device, generator)
    inputs = backward_inputs(made, generator, **params)
    assert_accepted(BACKWARD, backend, inputs, params)
    if (backend, device) == ("triton", "cpu"):
        return  # where the orders are those of the simulator
    first = run_backward(BACKWARD, backend, *inputs, **params)
    for order in ("reverse", "random:1"):
        monkeypatch.setenv("TWIN_EMULATOR_ORDER", order)
        again = run_backward(BACKWARD, backend, *inputs, **params)
        assert all(map(same_bits, first, again))


# More heads than are taken at a time, as few and as small as that takes.
MANY_HEADS: tuple[tuple[int, ...], dict[str, Any]]
MANY_HEADS = (1, 480, 260, 89, 89, 8), {"window": (8, 0)}


@pytest.mark.parametrize("side", ["cuda", "triton"])
@pytest.mark.parametrize(
    ("shape", "params", "n_at_once", "n_from_last"),
    [
        (*MANY_HEADS, 88, 88),  # two blocks for each multiprocessor
        ((4, 4096, 4096, 32, 32, 64), {"causal": True}, 10, 120),  # as the L2 has room
        ((4, 4096, 4096, 32, 32, 64), {}, 10, 0),
        ((4, 4096, 4096, 16, 16, 128), {"causal": True}, 8, 56),
        (
            *((4, 4096, 4096, 16, 16, 128), {"causal": True, "deterministic": False}),
            *(8, 0),
        ),
        ((4, 4096, 4096, 32, 8, 128), {"causal": True}, 8, 0),  # too many queries
        ((1, 131072, 131072, 8, 8, 128), {"causal": True}, 1, 0),
    ],
)
def test_order_in_which_keys_are_taken(
    side: kernel_code.Side,
    shape: tuple[int, ...],
    params: dict[str, Any],
    n_at_once: int,
    n_from_last: int,
) -> None:
    given = launcher_arguments(BACKWARD, Case(shape, torch.bfloat16, params=params))
    _, launch, _ = kernel_code.planned_launches(side, BACKWARD, given, HOPPER)
    names = {
        "cuda": (12, 13),  # behind the sums, six maps and five sizes
        "triton": ("heads_per_section", "n_from_last"),
    }
    found = tuple(launch.arguments[name] for name in names[side])
    assert found == (n_at_once, n_from_last)


@pytest.mark.parametrize("dtype", [torch.bfloat16])
def test_gradients_of_keys_taken_from_the_last(
    backend: str,
    device: str,
    dtype: torch.dtype,
    generator: torch.Generator,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # In CUDA of all heads but the last one; in Triton it takes no more than two.
    shape, params = MANY_HEADS
    if backend == "triton":
        shape, params = (1, 150, 150, 2, 2, 64), {"causal": True}
        monkeypatch.setattr(backward_twin_launches, "order_of_keys", lambda *_: (1, 1))
    made = random_inputs(FORWARD, shape, dtype, device, generator)
    inputs = backward_inputs(made, generator, **params)
    assert_accepted(BACKWARD, backend, inputs, params)


@BITS_16
@pytest.mark.parametrize("case", IN_ANY_ORDER)
def test_gradients_that_are_added_up_in_any_order(
    case: str,
    backend: str,
    device: str,
    dtype: torch.dtype,
    generator: torch.Generator,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shape, params = ADDED_UP[case]
    made = random_inputs(FORWARD, shape, dtype, device, generator)
    inputs = backward_inputs(made, generator, **params)
    allowing = params | {"deterministic": False}
    assert_accepted(BACKWARD, backend, inputs, allowing)
    if (backend, device) == ("triton", "cpu"):
        return  # where one thing is done after the other
    once = run_backward(BACKWARD, backend, *inputs, **allowing)
    monkeypatch.setenv("TWIN_EMULATOR_ORDER", "reverse")
    again = run_backward(BACKWARD, backend, *inputs, **allowing)
    assert all(map(same_bits, once[1:], again[1:]))  # of k and v


def test_autograd_passes_the_permission_on(
    backend: str, device: str, generator: torch.Generator
) -> None:
    made = random_inputs(FORWARD, SHAPE, torch.float16, device, generator)
    inputs = backward_inputs(made, generator, causal=True)
    params = {"causal": True, "deterministic": False}
    expected = run_backward(BACKWARD, backend, *inputs, **params)
    leaves = [x.requires_grad_() for x in made]
    out = bindings.attention(*leaves, **params, backend=backend)
    found = torch.autograd.grad(out, leaves, inputs[0])
    for mine, right in zip(found, expected, strict=True):
        scale = float(right.abs().max())
        assert (mine.float() - right.float()).abs().max() < 2e-3 * scale


BACKWARD_KERNELS = [
    "attention_begin_sums_kernel",
    "attention_backward_kernel",
    "attention_end_sums_kernel",
]
LONG_ROWS_KERNELS = [
    "attention_delta_kernel",
    "attention_backward_keys_kernel",
    "attention_backward_queries_kernel",
]
# Calls, and whether blocks add up gradients in memory.
CHOICES: dict[str, tuple[int, torch.dtype, dict[str, Any], int, bool]] = {
    "Hopper": (64, torch.float16, {}, 90, True),
    "head_dim 128": (128, torch.bfloat16, {"window": (3, 9)}, 90, True),
    "head_dim 136": (136, torch.float16, {}, 90, False),
    "head_dim 256": (256, torch.bfloat16, {"causal": True}, 90, False),
    "float32": (64, torch.float32, {}, 90, False),
    "softcap": (64, torch.float16, {"softcap": 5.0}, 90, False),
    "Ampere": (64, torch.float16, {}, 80, False),
}


@pytest.mark.parametrize("side", rungs.SIDES)
@pytest.mark.parametrize("call", CHOICES)
def test_calls_whose_gradients_are_added_up_in_memory(
    call: str, side: kernel_code.Side
) -> None:
    head_dim, dtype, params, capability, are_added_up = CHOICES[call]
    shape = (1, 256, 256, 2, 2, head_dim)
    titles = {}
    for deterministic in (True, False):
        given = params | {"deterministic": deterministic}
        case = Case(shape, dtype, params=given, direction=BACKWARD.direction)
        titles[deterministic] = kernel_code.planned_kernels(
            side,
            BACKWARD,
            launcher_arguments(BACKWARD, case),
            ARCHITECTURES[capability],
        )
    assert (titles[False] != titles[True]) == are_added_up
    if are_added_up:
        for each in titles.values():
            assert [*map(rungs.name_of, each)] == BACKWARD_KERNELS
    if head_dim > 128:
        assert [*map(rungs.name_of, titles[True])] == LONG_ROWS_KERNELS


# ---- Many tiles ----------------------------------------------------------------------


@pytest.mark.parametrize("rung", ["", "tensor_cores"])
def test_lse_of_many_tiles(
    rung: str, backend: str, device: str, generator: torch.Generator
) -> None:
    # What is off by a rounding in each tile adds up. Sizes that are no multiples of 16
    # are alike to Triton: the rung is compiled to what test_correctness has.
    is_slow = (backend, device) == ("triton", "cpu")
    shape = (1, 63, 4095 if is_slow else 8191, 1, 1, 24)
    q, k, v = random_inputs(FORWARD, shape, torch.bfloat16, device, generator)
    _, lse = run(FORWARD.on_rung(rung), backend, 8 * q, k, v)
    _, exact = reference(8 * q.double(), k.double(), v.double())
    assert (lse - exact).abs().max() < 4 * torch.finfo(torch.float32).eps * exact.max()


# ---- Generated code ------------------------------------------------------------------


def meta_inputs(shape: tuple[int, ...]) -> tuple[Tensor, Tensor]:
    """The tensors q and k of a shape, without numbers."""
    batch, n_queries, n_keys, n_heads, n_kv_heads, head_dim = shape
    q, k = (
        torch.empty(batch, n, heads, head_dim, dtype=torch.bfloat16, device="meta")
        for n, heads in ((n_queries, n_heads), (n_keys, n_kv_heads))
    )
    return q, k


# What the assembler says where it serializes products, or puts waits of its own.
WARNING = re.compile(r"wgmma|warpgroup")


# Calls of other numbers take as many registers. Each of 128 columns is compiled to what
# other tests simulate.
@pytest.mark.parametrize(
    ("shape", "params"),
    [
        ((4, 4096, 4096, 16, 16, 64), {"causal": True}),
        (WINDOWED, {"window": WINDOWS[0]}),
        ((4, 4096, 4096, 16, 16, 96), {"causal": True}),
        ((4, 4096, 4096, 16, 16, 192), {"causal": True}),
        ((4, 4096, 4096, 16, 16, 256), {"causal": True}),
    ],
)
def test_what_triton_makes_of_the_twin(
    shape: tuple[int, ...], params: dict[str, Any]
) -> None:
    head_dim = shape[-1]
    q, k = meta_inputs(shape)
    arguments = TRIALS["attention"].bind((q, k, k), params)
    twin, hopper = FORWARD.on_rung("twin"), ARCHITECTURES[90]
    given = twin.arguments(*twin.allocate(*arguments), *arguments)
    launcher = triton.launcher(twin)
    *_, launch = triton_offline.record_launches(launcher, given, hopper)
    n_consumers = 3 if head_dim == 64 else 2
    # Those of the kernel, and the workers: the loading warp is one of four.
    assert "num_warps=4" in launch.title
    assert launch.block == (128 * (n_consumers + 1), 1, 1)
    log = launch.assembler_log
    assert not WARNING.search(log)
    # Of long rows a thread has so many sums that others leave, outside of the loop; and
    # Triton 3.8 keeps numbers of a tile so while a warpgroup computes it.
    (spilled,) = re.findall(r"(\d+) bytes spill stores", log)
    may_spill = head_dim > 128 or triton_version() == (3, 8)
    assert int(spilled) <= (24 if may_spill else 0)


@pytest.mark.parametrize(
    ("shape", "params"),
    [
        (TRIALS["attention"].small_shape, {}),  # which test_page shows
        ((1, 65, 63, 2, 1, 128), {"causal": True}),  # which test_correctness simulates
        *(
            (shape, params | {"deterministic": False})
            for shape, params in (ADDED_UP["causal"], ADDED_UP["a few queries"])
        ),
        *LONG_ROWS.values(),
    ],
)
def test_what_triton_makes_of_the_backwards_twin(
    shape: tuple[int, ...], params: dict[str, Any]
) -> None:
    head_dim = shape[-1]
    q, k = meta_inputs(shape)
    lse = torch.empty(shape[0], shape[3], shape[1], device="meta")
    arguments = TRIALS["attention_backward"].bind((q, q, k, k, q, lse), params)
    twin, hopper = BACKWARD.on_rung("twin"), ARCHITECTURES[90]
    given = twin.arguments(*twin.allocate(*arguments), *arguments)
    launcher = triton.launcher(twin)
    launches = triton_offline.record_launches(launcher, given, hopper)
    names = [each.kernel for each in launches]
    if head_dim > 128:
        assert names == LONG_ROWS_KERNELS
    else:
        assert names == BACKWARD_KERNELS
        # Threads wait for no sum, and add four numbers at a time.
        assert "add.v4.f32" in launches[1].ptx
    for launch in launches:
        is_small = launch.block == (128, 1, 1)
        assert is_small or launch.block == (3 * 128, 1, 1)
        log = launch.assembler_log
        assert not WARNING.search(log)
        # A few numbers leave the registers before the loops, the most where steps have
        # twice the queries; in the loops one at most comes back.
        (spilled,) = re.findall(r"(\d+) bytes spill stores", log)
        few = 40 if head_dim == 128 else 96
        assert int(spilled) <= (0 if is_small or head_dim > 128 else few)


# The tiles of three warpgroups, of products of two widths, and of the most registers;
# all of the backward.
TWINS_OF_NVCC = [
    *((FORWARD, (1, 300, 300, 1, 1, n_cols), {}) for n_cols in (64, 96, 256)),
    (BACKWARD, (1, 300, 140, 1, 1, 64), {}),
    (BACKWARD, (1, 300, 140, 1, 1, 128), {}),
    (BACKWARD, (1, 300, 140, 1, 1, 128), {"deterministic": False}),
]
launches.announce(
    (op, Case(shape, torch.bfloat16, params=params, direction=op.direction), HOPPER)
    for op, shape, params in TWINS_OF_NVCC
)


@needs_nvcc
def test_the_assembler_waits_for_no_sums_of_its_own_accord() -> None:
    """As it does where it cannot tell which sums a thread has waited for.

    Or where registers do not suffice: then it puts a wait behind each product.
    """
    launches.compile_with_nvcc("attention", HOPPER)
    for op, shape, params in TWINS_OF_NVCC:
        case = Case(shape, torch.bfloat16, params=params, direction=op.direction)
        arguments = launcher_arguments(op, case)
        number = 1 if op is BACKWARD else 0  # behind the one that begins sums
        code = kernel_code.inspect_cuda(op, arguments, HOPPER, number=number)
        asked = _opcodes(code.ptx, "wgmma.wait_group")
        assert 0 < len(asked) == len(_opcodes(code.sass, "WARPGROUP.DEPBAR")), case


def _opcodes(listing: Listing, start: str) -> list[str]:
    opcodes = (each.opcode for each in listing.instructions)
    return [each for each in opcodes if each.startswith(start)]


# Of those that are compiled anyway, one of each tile.
@pytest.mark.parametrize(
    "case", ["three that share", "two that share", "32 rows", "tiles of long rows"]
)
def test_what_triton_makes_of_split_keys(case: str) -> None:
    shape, params, _ = DECODING[case]
    q, k = meta_inputs(shape)
    arguments = TRIALS["attention"].bind((q, k, k), params)
    given = FORWARD.arguments(*FORWARD.allocate(*arguments), *arguments)
    hopper = ARCHITECTURES[90]
    launcher = triton.launcher(FORWARD)
    launches = triton_offline.record_launches(launcher, given, hopper)
    assert [each.kernel for each in launches] == [
        "attention_split_kernel",
        "attention_combine_kernel",
    ]
    for each in launches:
        (spilled,) = re.findall(r"(\d+) bytes spill stores", each.assembler_log)
        # Of 256 columns, one number leaves the registers of what 3.7 and 3.8 make.
        may_spill = shape[-1] == 256 and triton_version() in ((3, 7), (3, 8))
        assert int(spilled) <= (4 if may_spill else 0)
    assert "cp.async.cg.shared.global" in launches[0].ptx


# ---- Bad input -----------------------------------------------------------------------

X = torch.zeros(1, 2, 2, 8)
BAD: dict[str, tuple[tuple[Any, ...], dict[str, Any], type[Exception], str]] = {
    "q is no tensor": (([1.0], X, X), {}, TypeError, "q must be a torch.Tensor"),
    "three dimensions": ((X[0], X, X), {}, ValueError, "q has shape .* 4 dimensions"),
    "another dtype": ((X, X.half(), X), {}, TypeError, "expected the same"),
    "an integer": ((X.int(),) * 3, {}, TypeError, "q has dtype torch.int32"),
    "k and v differ": ((X, X, X[:, :1]), {}, ValueError, "k has shape .* v has"),
    "another head_dim": ((X, X[..., :4], X[..., :4]), {}, ValueError, "head_dim"),
    "another batch": (
        (X, X.repeat(2, 1, 1, 1), X.repeat(2, 1, 1, 1)),
        {},
        ValueError,
        "batch",
    ),
    "heads that do not divide": (
        (X, X.repeat(1, 1, 2, 1)[:, :, :3], X.repeat(1, 1, 2, 1)[:, :, :3]),
        {},
        ValueError,
        "q has 2 heads and k has 3",
    ),
    "a long head_dim": (
        (torch.zeros(1, 1, 1, 257),) * 3,
        {},
        ValueError,
        "257, expected 1 to 256",
    ),
    "no head_dim": (
        (torch.zeros(1, 1, 1, 0),) * 3,
        {},
        ValueError,
        "0, expected 1 to 256",
    ),
    "causal is no bool": ((X, X, X), {"causal": 1}, TypeError, "causal must be a bool"),
    "deterministic is no bool": (
        (X, X, X),
        {"deterministic": None},
        TypeError,
        "deterministic must be a bool",
    ),
    "half a window": ((X, X, X), {"window": (1,)}, ValueError, "window has 1 entries"),
    "a number as a window": (
        (X, X, X),
        {"window": 5},
        TypeError,
        "window must be a pair",
    ),
    "a negative window": (
        (X, X, X),
        {"window": (-1, 2)},
        ValueError,
        r"window\[0\] is -1",
    ),
    "an infinite scale": ((X, X, X), {"scale": math.inf}, ValueError, "scale is inf"),
    "a softcap of 0": ((X, X, X), {"softcap": 0.0}, ValueError, "softcap is 0.0"),
}


@in_one_test("backend", "name")
@pytest.mark.parametrize("name", BAD)
def test_bad_input(backend: str, name: str) -> None:
    arguments, params, error, message = BAD[name]
    with pytest.raises(error, match=message):
        bindings.attention(*arguments, **params, backend=backend)


def test_an_lse_of_another_shape(backend: str) -> None:
    with pytest.raises(
        ValueError, match=r"lse has shape \(1, 2, 3\), expected \(1, 2, 2\)"
    ):
        bindings.attention_backward(
            X, X, X, X, X, torch.zeros(1, 2, 3), backend=backend
        )


def test_a_head_at_a_time_is_the_same(
    monkeypatch: pytest.MonkeyPatch, generator: torch.Generator
) -> None:
    inputs = random_inputs(FORWARD, SHAPE, torch.float32, "cpu", generator)
    options = (True, None, 0.3, 5.0)
    whole = reference(*inputs, *options)
    grads = (torch.randn(whole[0].shape, generator=generator), whole[1].cos())
    operands = (grads[0], *inputs, *whole, grads[1], *options)
    expected = (*whole, *reference_backward(*operands))
    monkeypatch.setattr(_attention_reference, "_MOST_SCORES", 1)
    split = (*reference(*inputs, *options), *reference_backward(*operands))
    for x, y in zip(split, expected, strict=True):
        assert x.shape == y.shape
        assert (x - y).abs().max() < 1e-5
