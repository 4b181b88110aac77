"""Matmul: every rung bit for bit, layouts, batches, gradients, errors."""

from __future__ import annotations

import inspect
import itertools
import math
import random
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest
import torch
import triton
from benches import make_bench, make_case
from common import (
    assert_accepted,
    compiled_twin,
    is_simulated,
    leave_out,
    leave_out_simulated,
    needs_gpu,
    skip_if_refused,
)
from together import in_one_test
from torch import Tensor
from triton.backends.nvidia import driver as nvidia_driver

import bindings
from bindings import backends
from bindings.backends import simulated
from bindings.backends import triton as triton_backend
from bindings.errors import UnsupportedError
from bindings.op import DTYPES
from bindings.ops.matmul import ACTIVATIONS, OP, product
from compare import peers
from compare.code import triton_offline
from compare.code.architectures import ARCHITECTURES
from compare.code.kernel_code import planned_kernels
from compare.judge import acceptance
from compare.judge.cases import Case, make_arguments
from compare.parameters import parse_parameter, read_ops
from compare.report.terminal import make_console
from compare.report.timings import show
from compare.timing import rates
from compare.timing.times import MatmulRate, Timing
from triton_kernels.common.tensor_map import FLOAT32, TFLOAT32

INF, NAN = math.inf, math.nan

SIZES = (1, 15, 16, 17, 63, 64, 65, 127, 129, 1000)
# The last is not a rung of its own, but the kernel that the table of regimes chooses.
TESTED_RUNGS = ("first", "tiled", "tensor_cores", "chosen")
# Shapes that the emulator and the interpreter compute in no time.
MOST_PRODUCTS = {"cuda": 300_000, "triton": 40_000}


def run(
    backend: str,
    a: Tensor,
    b: Tensor,
    bias: Tensor | None = None,
    activation: str | None = None,
    precision: str = "ieee",
    rung: str = "chosen",
) -> Tensor:
    """The op by one of its rungs."""
    given = (a, b, bias, activation, precision)
    out = OP.allocate(*given)
    assert isinstance(out, Tensor)
    backends.run(backend, OP.on_rung("" if rung == "chosen" else rung), out, *given)
    return out


def integers(
    shape: tuple[int, ...], dtype: torch.dtype, device: str, seed: int
) -> Tensor:
    """Small whole numbers, whose products and their sums are exact in every dtype."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(-2, 3, shape, generator=generator).to(device, dtype)


def column_major(x: Tensor) -> Tensor:
    """The same values in column-major order."""
    return x.mT.contiguous().mT


ORDERS: dict[str, Callable[[Tensor], Tensor]] = {
    "row": torch.clone,
    "column": column_major,
}


def sample(n: int, most: int) -> list[tuple[int, int, int]]:
    """A sample of all shapes that are not too large."""
    shapes = [
        (n_rows, n_cols, depth)
        for n_rows, n_cols, depth in itertools.product(SIZES, repeat=3)
        if n_rows * n_cols * depth <= most
    ]
    return random.Random(7).sample(shapes, n)


SHAPES = {backend: sample(7, most) for backend, most in MOST_PRODUCTS.items()}


def precision_of(rung: str, dtype: torch.dtype) -> str:
    """The precision in which a rung computes float32; small integers are exact."""
    return "tf32" if rung == "tensor_cores" else "ieee"


def assert_exact(
    backend: str,
    device: str,
    shape: tuple[int, int, int],
    rung: str,
    dtypes: Sequence[torch.dtype] = DTYPES,
    orders: Iterable[str] = ORDERS,
) -> None:
    """Compares dtypes and layouts of a shape bit for bit."""
    n_rows, n_cols, depth = shape
    for dtype in dtypes:
        a = integers((n_rows, depth), dtype, device, 0)
        b = integers((depth, n_cols), dtype, device, 1)
        bias = integers((n_cols,), dtype, device, 2)
        exact = (a.double() @ b.double() + bias.double()).to(dtype)
        pairs = [*itertools.product(orders, repeat=2)]
        if is_simulated(backend, device, dtype):
            # One for each of the first shapes: of the others, none. Rungs take turns:
            # two have each pair, and each rung both orders of either operand.
            turn = SHAPES[backend].index(shape)
            has_equal_orders = turn in (0, 3)
            is_mine = has_equal_orders == (TESTED_RUNGS.index(rung) % 2 == 0)
            pairs = pairs[turn : turn + 1] if is_mine else []
        elif device == "cpu" and dtype != torch.float32 and len(dtypes) > 1:
            # Both types of 16 bits take the same ways: equal orders, and unequal ones.
            pairs = pairs[::3] if dtype == torch.float16 else pairs[1:3]
        for order_a, order_b in pairs:
            out = run(
                backend,
                ORDERS[order_a](a),
                ORDERS[order_b](b),
                bias,
                precision=precision_of(rung, dtype),
                rung=rung,
            )
            where = f"{shape} {dtype} {order_a} x {order_b}"
            assert torch.equal(out, exact), where


# ---- Bit for bit ---------------------------------------------------------------------


@pytest.mark.parametrize("rung", TESTED_RUNGS)
@pytest.mark.parametrize(
    ("backend", "shape"),
    [(backend, shape) for backend, shapes in SHAPES.items() for shape in shapes],
)
def test_integers_are_exact(
    backend: str, shape: tuple[int, int, int], rung: str
) -> None:
    skip_if_refused(backend, "cpu")
    assert_exact(backend, "cpu", shape, rung)


@pytest.mark.parametrize("rung", TESTED_RUNGS[:-1])
def test_integers_are_exact_in_several_tiles(rung: str) -> None:
    assert_exact("cuda", "cpu", (257, 136, 200), rung)


def skip_if_simulated_elsewhere(backend: str) -> None:
    """Skips a twin where TWIN_SIMULATE asks for an architecture that it is not for."""
    asked = simulated.architecture_for(backend, [torch.empty(0, dtype=torch.float16)])
    numbers = {"cuda": range(90, 91), "triton": range(90, 120)}[backend]
    if asked and int(re.sub(r"\D", "", asked)) not in numbers:
        first, last = numbers[0], numbers[-1]
        pytest.skip(f"the twin is for sm_{first} to sm_{last}, not for {asked}")


# One wave of the largest tiles takes less time than two of others; of three waves the
# tiles of few rows take the least, but of two those of few columns where these suffice.
@pytest.mark.parametrize(
    ("n_matrices", "n_cols", "layouts", "tile"),
    [
        *((70, 199, layouts, "128, 256") for layouts in ("kk", "ko", "ok", "oo")),
        *((133, 199, layouts, "64, 256") for layouts in ("ko", "ok")),
        (133, 100, "ko", "128, 128"),
    ],
)
def test_tiles_of_float32_are_exact(
    n_matrices: int, n_cols: int, layouts: str, tile: str, device: str
) -> None:
    n_rows, depth = 100, 19
    a = integers((n_matrices, n_rows, depth), torch.float32, device, 0)
    b = integers((n_matrices, depth, n_cols), torch.float32, device, 1)
    op, out = OP.on_rung("tiled"), torch.empty(n_matrices, n_rows, n_cols)
    given = op.arguments(out, a, b, None, None, "ieee")
    (kernel,) = planned_kernels("cuda", op, given, ARCHITECTURES[90])
    assert kernel.endswith(f", {tile}>")
    if layouts[0] == "o":
        a = a.mT.contiguous().mT
    if layouts[1] == "k":
        b = b.mT.contiguous().mT
    out = run("cuda", a, b, precision="ieee", rung="tiled")
    assert torch.equal(out.double(), a.double() @ b.double())


# Rows that begin at multiples of 16 bytes, as tensor maps require. The last three have
# enough tiles for CUDA's larger sizes, 128 x 128 and 128 x 256; in the last one, a
# block takes two tiles, and its warpgroups take turns.
@pytest.mark.parametrize(
    ("backend", "shape"),
    [
        *(("cuda", shape) for shape in ((16, 16, 16), (64, 64, 64), (136, 264, 72))),
        *(("triton", shape) for shape in ((16, 16, 16), (64, 64, 136))),
        ("cuda", (1280, 1280, 16)),
        ("cuda", (1408, 2304, 16)),
        ("cuda", (1408, 3080, 264)),
    ],
)
def test_integers_are_exact_on_the_twin(
    backend: str, shape: tuple[int, int, int]
) -> None:
    skip_if_refused(backend, "cpu")
    skip_if_simulated_elsewhere(backend)
    orders = ("row",) if shape[0] > 1000 else ORDERS  # large ones take a second each
    assert_exact(backend, "cpu", shape, "twin", (torch.float16,), orders)


@needs_gpu
@pytest.mark.parametrize("rung", TESTED_RUNGS)
def test_integers_are_exact_on_a_gpu(rung: str, backend: str) -> None:
    for shape in sample(60, 10**9):  # a minute for the slowest, whose compiler is slow
        assert_exact(backend, "cuda", shape, rung)


@needs_gpu
def test_integers_are_exact_in_the_largest_tiles(backend: str) -> None:
    dtypes = (torch.float16, torch.bfloat16)
    for depth in (8, 136, 264, 392, 2056):  # Triton takes them where it is large
        assert_exact(backend, "cuda", (1664, 3080, depth), "chosen", dtypes)


@pytest.mark.parametrize("rung", ["tensor_cores", "twin", "chosen"])
def test_tf32_is_rounded_and_not_cut_off(rung: str, backend: str, device: str) -> None:
    # 1 + 3 / 4 of a unit of tf32 rounds to 1 + 1; truncation would leave 1.
    a = torch.full((16, 32), 1 + 0.75 * 2**-10, device=device)
    b = torch.eye(32, device=device)
    with compiled_twin(rung, backend, device):
        out = run(backend, a, b, precision="tf32", rung=rung)
    assert out.eq(1 + 2**-10).all()


@pytest.mark.parametrize(
    ("dtype", "precision", "expected"),
    [
        (torch.float32, "tf32", [FLOAT32, TFLOAT32, TFLOAT32]),
        (torch.float32, "tf32x3", [FLOAT32, FLOAT32, TFLOAT32]),
        (torch.float16, "tf32", [6, 6, 6]),
    ],
)
def test_tritons_maps_of_a_and_b_round_to_tf32(
    dtype: torch.dtype,
    precision: str,
    expected: list[int],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """By the types of elements that Triton's launcher hands to the driver of CUDA."""
    a, b = (torch.empty(128, 128, device="meta", dtype=dtype) for _ in "ab")
    op = OP.on_rung("twin")
    given = op.arguments(OP.allocate(a, b), a, b.mT, None, None, precision)
    launches = triton_offline.record_launches(
        triton_backend.launcher(op), given, ARCHITECTURES[90]
    )
    (launch,) = (e for e in launches if e.compiled.metadata.tensordesc_meta)
    encode = Mock()
    utils = SimpleNamespace(
        fill_tma_descriptor=encode, fill_tma_descriptor_tiled=encode
    )
    driver = SimpleNamespace(active=SimpleNamespace(utils=utils))
    monkeypatch.setattr(triton.runtime, "driver", driver)
    make: Any = nvidia_driver.make_tensordesc_arg
    others = [None] * (len(inspect.signature(make).parameters) - 2)
    maps = ("out", "a_map", "left_map", "b_map", "right_map")
    names = [each for each in maps if each in launch.arguments]
    for name, each in zip(names, launch.compiled.metadata.tensordesc_meta, strict=True):
        make(launch.arguments[name], each, *others)
    assert [call.args[3] for call in encode.call_args_list] == expected


# ---- Values --------------------------------------------------------------------------


def _turn(rung: str, activation: str | None) -> int:
    return TESTED_RUNGS.index(rung) + ACTIVATIONS.index(activation)


# All rungs end with the same functions: each has two activations, one with a bias, and
# each activation one or two rungs.
@in_one_test("activation")
@leave_out_simulated(lambda each: _turn(each["rung"], each["activation"]) % 3 != 0)
@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("rung", TESTED_RUNGS)
def test_epilogue(
    activation: str | None, rung: str, backend: str, device: str, dtype: torch.dtype
) -> None:
    generator = torch.Generator().manual_seed(3)
    a, b, bias = (
        torch.randn(*shape, generator=generator).to(device, dtype)
        for shape in ((33, 40), (40, 24), (24,))
    )
    precision = precision_of(rung, dtype)
    given: list[Tensor | None] = [bias, None]
    if is_simulated(backend, device, dtype):
        given = [given[_turn(rung, activation) % 2]]
    for each in given:
        arguments = (a, b, each, activation, precision)
        (expected,) = acceptance.expect(OP, arguments)
        out = run(backend, *arguments, rung=rung)
        assert acceptance.judge(out, expected).problem == ""


@pytest.mark.parametrize("activation", [None, "gelu"])
def test_epilogue_of_tf32_on_the_twin(
    activation: str | None, backend: str, device: str
) -> None:
    generator = torch.Generator().manual_seed(3)
    for n_rows, n_cols, depth in ((33, 40, 24), (65, 129, 37)):
        a, b, bias = (
            torch.randn(*shape, generator=generator).to(device)
            for shape in ((n_rows, depth), (depth, n_cols), (n_cols,))
        )
        arguments = (a, b, bias, activation, "tf32")
        (expected,) = acceptance.expect(OP, arguments)
        with compiled_twin("twin", backend, device):
            out = run(backend, *arguments, rung="twin")
        assert acceptance.judge(out, expected).problem == ""


@pytest.mark.parametrize("rung", TESTED_RUNGS)
def test_a_bias_begins_anywhere(rung: str, backend: str, device: str) -> None:
    generator = torch.Generator().manual_seed(4)
    a, b, biases = (
        torch.randn(*shape, generator=generator).to(device, torch.float16)
        for shape in ((128, 64), (64, 136), (137,))
    )
    out = run(backend, a, b, biases[1:], rung=rung)
    assert torch.equal(out, run(backend, a, b, biases[1:].clone(), rung=rung))


@pytest.mark.parametrize("rung", TESTED_RUNGS)
def test_without_any_products_the_bias_is_left(
    rung: str, backend: str, device: str
) -> None:
    a, b = torch.empty(3, 0, device=device), torch.empty(0, 5, device=device)
    bias = torch.tensor([-2.0, -1.0, 0.0, 1.0, 2.0], device=device)
    precision = precision_of(rung, torch.float32)
    out = run(backend, a, b, bias, "relu", precision, rung)
    assert torch.equal(out, bias.clamp(min=0).expand(3, 5))
    assert torch.equal(run(backend, a, b, None, None, precision, rung), 0 * out)


@in_one_test("rung")
@pytest.mark.parametrize("rung", TESTED_RUNGS)
def test_zero_times_infinity_is_nan_there_alone(
    rung: str, backend: str, device: str, dtype: torch.dtype
) -> None:
    a = torch.ones(20, 37, device=device, dtype=dtype)
    b = torch.ones(37, 21, device=device, dtype=dtype)
    a[3, 36] = INF
    b[36, 5] = 0.0
    b[0, 7] = NAN
    out = run(backend, a, b, precision=precision_of(rung, dtype), rung=rung)
    expected = torch.full((20, 21), 37.0, device=device)
    expected[:, 5] = 36.0
    expected[3] = INF
    expected[3, 5] = NAN
    expected[:, 7] = NAN
    assert torch.equal(out.isnan(), expected.isnan())
    assert torch.equal(out.nan_to_num(nan=0.0), expected.to(dtype).nan_to_num(nan=0.0))


@pytest.mark.parametrize("depth", [101, 3001, 4096])
@pytest.mark.parametrize("rung", ["first", "tiled"])
def test_rounding_errors_of_long_sums_do_not_pile_up(
    rung: str, depth: int, backend: str, device: str
) -> None:
    """A single chain of additions has three times the error that is allowed."""
    generator = torch.Generator().manual_seed(depth)
    a = torch.randn(16, depth, generator=generator).to(device)
    b = torch.randn(depth, 32, generator=generator).to(device)
    (expected,) = acceptance.expect(OP, (a, b, None, None, "ieee"))
    assert acceptance.judge(run(backend, a, b, rung=rung), expected).problem == ""


def test_sums_are_kept_in_float32(backend: str, device: str) -> None:
    # In float16, 2048 + 1 is 2048.
    a = torch.ones(1, 4096, device=device, dtype=torch.float16)
    assert bindings.matmul(a, a.mT, backend=backend).item() == 4096


# ---- Layouts -------------------------------------------------------------------------


def with_margins(x: Tensor, before: int, after: int) -> Tensor:
    """The same values with NaN around each row."""
    shape = (*x.shape[:-1], before + x.shape[-1] + after)
    view = x.new_full(shape, NAN)[..., before : before + x.shape[-1]]
    return view.copy_(x)


# By name: the layout of an operand, and whether it is read in place.
LAYOUTS: dict[str, tuple[Callable[[Tensor], Tensor], bool]] = {
    "row-major": (torch.clone, True),
    "column-major": (column_major, True),
    "rows that are aligned": (lambda x: with_margins(x, 16, 16), True),
    "rows at odd places": (lambda x: with_margins(x, 1, 2), True),
    "columns that are aligned": (lambda x: with_margins(x.mT, 8, 24).mT, True),
    "columns at odd places": (lambda x: with_margins(x.mT, 3, 2).mT, True),
    "every second column": (
        lambda x: torch.stack((x, x * NAN), -1).flatten(-2)[..., ::2],
        False,
    ),
    "expanded rows": (lambda x: x[..., :1, :].expand(x.shape), False),
    "expanded columns": (lambda x: x[..., :1].expand(x.shape), False),
    "batch innermost": (lambda x: x.movedim(0, -1).contiguous().movedim(-1, 0), False),
    "batch in the middle": (lambda x: x.transpose(0, 1).contiguous().mT.mT, True),
    "expanded batch": (lambda x: x[:1].expand(x.shape), True),
}
THREE_DIMENSIONS = ("batch innermost", "batch in the middle", "expanded batch")


@in_one_test("name", "dims")
@pytest.mark.parametrize("dims", [2, 3])
@pytest.mark.parametrize("name", LAYOUTS)
def test_layouts(name: str, dims: int, backend: str, device: str) -> None:
    lay_out, in_place = LAYOUTS[name]
    if dims == 2 and name in THREE_DIMENSIONS:
        pytest.skip("it has no batch")
    for dtype in (torch.float32, torch.float16):
        a = integers((3, 18, 40), dtype, device, 0)
        b = integers((3, 40, 24), dtype, device, 1)
        if name == "batch in the middle":
            a, b = (x.transpose(0, 1).contiguous().transpose(0, 1) for x in (a, b))
        elif dims == 2:
            a, b = lay_out(a[0]), lay_out(b[0])
        else:
            a, b = lay_out(a), lay_out(b)
        out = OP.allocate(a, b)
        for argument, x in zip(OP.arguments(out, a, b)[1:3], (a, b), strict=True):
            assert isinstance(argument, Tensor)
            assert (argument.data_ptr() == x.data_ptr()) == in_place
        exact = (a.double() @ b.double()).to(dtype)
        assert torch.equal(bindings.matmul(a, b, backend=backend), exact)


@pytest.mark.parametrize("size", [(1, 1), (1, 40), (40, 1)])
def test_nobody_asks_for_the_stride_of_a_single_row_or_column(
    size: tuple[int, int], backend: str, device: str
) -> None:
    memory = torch.arange(4000.0, device=device) % 7
    for strides in itertools.product((1, 3, 50), repeat=2):
        x = memory.as_strided(size, strides)
        for a, b in ((x, x.mT.clone()), (x.mT.clone(), x)):
            assert torch.equal(bindings.matmul(a, b, backend=backend), a @ b)


def test_operands_of_one_batch_and_of_many(
    backend: str, device: str, generator: torch.Generator
) -> None:
    a, b = (
        torch.randn(3, *size, generator=generator).to(device)
        for size in ((17, 33), (33, 20))
    )
    bias = torch.randn(20, generator=generator).to(device)
    for pair in ((a, b), (a, b[0]), (a[0], b), (a[:1], b[:1]), (a[:, :1], b[0])):
        assert_accepted(OP, backend, (*pair, bias), {"bias": True})
        out = bindings.matmul(*pair, bias, backend=backend)
        torch.testing.assert_close(out, product(*pair, bias))


def test_a_batch_of_rows_is_one_matrix() -> None:
    """The batch shares the other operand, so tiles are full."""
    a, b = torch.empty(8, 16, 32), torch.empty(32, 24)
    n_batches, n_rows = OP.arguments(torch.empty(8, 16, 24), a, b)[4:6]
    assert (n_batches, n_rows) == (1, 128)
    n_batches, n_rows = OP.arguments(torch.empty(8, 15, 24), a[:, 1:], b)[4:6]
    assert (n_batches, n_rows) == (8, 15)


# ---- Gradients -----------------------------------------------------------------------

GRADIENT_SHAPES = [
    ((19, 33), (33, 24)),
    ((3, 19, 33), (3, 33, 24)),
    ((3, 19, 33), (33, 24)),
    ((19, 33), (3, 33, 24)),
]


def gradients(
    function: Callable[..., Any], inputs: tuple[Tensor, ...], grad: Tensor
) -> tuple[Tensor, ...]:
    leaves = tuple(x.detach().requires_grad_() for x in inputs)
    return torch.autograd.grad(function(*leaves), leaves, grad)


OF_GRADIENTS = (None, "relu", "gelu", "silu")


def _is_on_diagonal(params: Mapping[str, Any]) -> bool:
    row = GRADIENT_SHAPES.index(params["shapes"])
    return row == OF_GRADIENTS.index(params["activation"])


# The backward of an activation is an op of its own, whatever shapes it follows.
@leave_out(lambda each: bool(each["activation"]) and not _is_on_diagonal(each))
@leave_out_simulated(lambda each: not _is_on_diagonal(each))
@pytest.mark.parametrize("activation", OF_GRADIENTS)
@pytest.mark.parametrize("shapes", GRADIENT_SHAPES)
def test_gradients(
    shapes: tuple[tuple[int, ...], tuple[int, ...]],
    activation: str | None,
    backend: str,
    device: str,
    dtype: torch.dtype,
    generator: torch.Generator,
) -> None:
    inputs = tuple(
        torch.randn(shape, generator=generator).to(device, dtype)
        for shape in (*shapes, (24,))
    )

    def of_torch(*inputs: Tensor) -> Tensor:
        a, b, bias = inputs
        return product(a, b, bias, activation)

    def of_ours(*inputs: Tensor) -> Tensor:
        return bindings.matmul(*inputs, activation, backend=backend)

    grad = torch.randn(of_torch(*inputs).shape, generator=generator).to(device, dtype)
    exact = gradients(of_torch, tuple(x.double() for x in inputs), grad.double())
    own = gradients(of_torch, inputs, grad)
    found = gradients(of_ours, inputs, grad)
    for each in zip(found, exact, own, strict=True):
        verdict = acceptance.judge(each[0], acceptance.Expected(*each[1:]))
        assert verdict.problem == ""


@pytest.mark.parametrize("has_bias", [False, True])
def test_gradient_of_a_sum(has_bias: bool, backend: str, device: str) -> None:
    a = torch.ones(5, 7, device=device, requires_grad=True)
    b = torch.ones(7, 6, device=device, requires_grad=True)
    bias = torch.ones(6, device=device, requires_grad=True) if has_bias else None
    bindings.matmul(a, b, bias, backend=backend).sum().backward()
    for x, expected in ((a, 6.0), (b, 5.0), (bias, 5.0)):
        if x is None:
            continue
        assert x.grad is not None
        assert x.grad.eq(expected).all()


def test_only_the_gradients_asked_for_are_computed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    a = torch.randn(5, 7, requires_grad=True)
    out = bindings.matmul(a, torch.randn(7, 6), torch.randn(6))
    calls: list[str] = []

    def counting(backend: str, op: Any, *args: Any) -> None:
        calls.append(op.name)
        original(backend, op, *args)

    original = backends.run
    monkeypatch.setattr(backends, "run", counting)
    out.sum().backward()
    assert calls == ["matmul"]


def test_the_bare_op_refuses_a_gradient_through_its_activation(backend: str) -> None:
    skip_if_refused(backend, "cpu")
    a, b = torch.randn(3, 4, requires_grad=True), torch.randn(4, 5)
    out = getattr(torch.ops.twin, f"matmul_{backend}")(a, b, None, "relu")
    with pytest.raises(NotImplementedError, match="no backward through a fused"):
        out.sum().backward()


@pytest.mark.parametrize("activation", [None, "gelu"])
def test_compiled(activation: str | None, backend: str) -> None:
    skip_if_refused(backend, "cpu")
    torch.compiler.reset()
    inputs = (torch.randn(9, 16), torch.randn(16, 8), torch.randn(8))

    def doubled(*inputs: Tensor) -> Any:
        return 2 * bindings.matmul(*inputs, activation, backend=backend)

    compiled = torch.compile(doubled, fullgraph=True, backend="aot_eager")
    assert torch.equal(compiled(*inputs), doubled(*inputs))
    grad = torch.randn(9, 8)
    pairs = zip(
        gradients(compiled, inputs, grad),
        gradients(doubled, inputs, grad),
        strict=True,
    )
    assert all(torch.equal(*pair) for pair in pairs)


# ---- Reports -------------------------------------------------------------------------


def test_rates_are_those_of_the_nearer_ceiling(
    capsys: pytest.CaptureFixture[str],
) -> None:
    measured = make_bench("matmul")
    case = make_case((4096, 4096, 4096))
    timing = case.timings["cuda"]
    assert isinstance(timing, Timing)
    tflops = 2 * 4096**3 / timing.median_us / 1e6
    assert rates.tflops("matmul", case, timing) == pytest.approx(tflops)
    assert rates.tflops("softmax", case, timing) is None
    rate = measured.matmul["float32"]
    assert isinstance(rate, MatmulRate)
    assert rates.share_of_matmul(measured, case, timing) == tflops / rate.tflops
    nearer = max(timing.fraction, tflops / rate.tflops)
    assert rates.share_of_ceiling(measured, case, timing) == nearer
    of_tf32 = make_case((4096, 4096, 4096), params={"precision": "tf32"})
    assert rates.share_of_matmul(measured, of_tf32, timing) is None
    show(replace(measured, cases=(case,), sweep=()), make_console())
    text = capsys.readouterr().out
    assert f"{tflops:,.1f}" in text
    assert f"{100 * tflops / rate.tflops:.1f} %" in text


def test_the_private_function_of_a_peer_is_what_it_was() -> None:
    (peer,) = (each for each in peers.of("matmul") if each.name == "cublaslt")
    matmul = peer.load()
    a, b, bias = torch.randn(5, 7), torch.randn(7, 6), torch.randn(6)
    expected = product(a, b, bias, "relu")
    torch.testing.assert_close(matmul(a, b, bias, "relu", "ieee"), expected)
    with pytest.raises(ValueError, match="of matrices alone"):
        matmul(a, b, bias, "gelu", "ieee")


def test_an_optional_input_is_there_where_a_variant_has_it() -> None:
    for given, expected in ((True, (128,)), (None, None)):
        case = Case((64, 128, 32), params={"bias": given})
        bias = make_arguments(OP, case)[2]
        assert (bias if bias is None else bias.shape) == expected
    assert make_arguments(OP, Case((64, 128, 32)))[2:] == (None, None, "ieee")
    summary = read_ops()["matmul"]
    assert parse_parameter(summary, "bias=true") == ("bias", True)
    assert parse_parameter(summary, "bias=false") == ("bias", None)
    assert parse_parameter(summary, "activation=relu") == ("activation", "relu")
    assert parse_parameter(summary, "activation=none") == ("activation", None)


# ---- Errors --------------------------------------------------------------------------

ONES = torch.ones(3, 4)
BAD_CALLS: dict[str, tuple[tuple[Any, ...], type[Exception], str]] = {
    "no tensor": ((ONES, 1.0), TypeError, r"matmul: b must be a torch.Tensor, got fl"),
    "dtype": (
        (ONES.int(), ONES.T.int()),
        TypeError,
        r"matmul: a has dtype torch.int32, expected one of",
    ),
    "mixed dtypes": (
        (ONES, ONES.T.half()),
        TypeError,
        r"matmul: a has dtype torch.float32 and b has torch.float16, expected the same",
    ),
    "a vector": (
        (ONES, ONES[0]),
        ValueError,
        r"matmul: b has shape \(4,\), expected 2 or 3 dimensions",
    ),
    "depth": (
        (ONES, ONES),
        ValueError,
        r"matmul: a has shape \(3, 4\) and b has \(3, 4\), expected as many columns in",
    ),
    "batches": (
        (ONES.expand(2, 3, 4), ONES.T.expand(5, 4, 3)),
        ValueError,
        r"matmul: a has shape \(2, 3, 4\) and b has \(5, 4, 3\), expected the same ba",
    ),
    "length of the bias": (
        (ONES, ONES.T, ONES[0]),
        ValueError,
        r"matmul: bias has shape \(4,\), expected \(3,\), the columns of b",
    ),
    "dtype of the bias": (
        (ONES, ONES.T, ONES[:, 0].half()),
        TypeError,
        r"matmul: a has dtype torch.float32 and bias has torch.float16",
    ),
    "a bias that is no tensor": (
        (ONES, ONES.T, 0.0),
        TypeError,
        r"matmul: bias must be a torch.Tensor or None, got float",
    ),
    "activation": (
        (ONES, ONES.T, None, "tanh"),
        ValueError,
        r"matmul: activation is 'tanh', expected one of None, 'relu', 'leaky_relu'",
    ),
    "precision": (
        (ONES, ONES.T, None, None, "fp8"),
        ValueError,
        r"matmul: precision is 'fp8', expected one of 'ieee', 'tf32', 'tf32x3'",
    ),
}


@in_one_test("bad", "backend")
@pytest.mark.parametrize("bad", BAD_CALLS)
def test_bad_arguments(bad: str, backend: str) -> None:
    arguments, error, message = BAD_CALLS[bad]
    with pytest.raises(error, match=message):
        bindings.matmul(*arguments, backend=backend)


def test_a_rung_that_cannot_serve_says_so(backend: str, device: str) -> None:
    a, b = ONES.to(device), ONES.T.to(device)
    message = "matmul: the rung 'tensor_cores' has no kernel for this call"
    with pytest.raises(UnsupportedError, match=message):
        run(backend, a, b, rung="tensor_cores")  # float32 as IEEE has it
