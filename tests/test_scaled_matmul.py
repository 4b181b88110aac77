"""Products of 8-bit floats: bit for bit, scales, layouts, special values, errors."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
import torch
from common import assert_accepted, compiled_twin, is_simulated, needs_gpu
from together import in_one_test
from torch import Tensor

import bindings
from bindings import backends
from bindings.backends import native, prebuilt
from bindings.errors import UnsupportedError
from bindings.op import DTYPES
from bindings.ops import scaled_matmul as described
from bindings.ops.scaled_matmul import E4M3, E5M2, OP, tensor_core_product
from compare.code.architectures import ARCHITECTURES
from compare.code.kernel_code import planned_kernels, planned_launches
from compare.judge import acceptance
from compare.judge.cases import Case, launcher_arguments, make_arguments

INF, NAN = math.inf, math.nan

RUNGS = ("first", "twin", "chosen")
TYPES = ((E4M3, E4M3), (E4M3, E5M2), (E5M2, E4M3))
# Less than a step, one, three and four, and the ends of tiles, aligned rows and stores.
SHAPES = ((5, 7, 3), (64, 40, 128), (130, 129, 300), (40, 24, 500))


def run(
    backend: str,
    inputs: Iterable[Tensor],
    out_dtype: torch.dtype = torch.float32,
    rung: str = "chosen",
) -> Tensor:
    """The op by one of its rungs."""
    given = (*inputs, out_dtype)
    out = OP.allocate(*given)
    assert isinstance(out, Tensor)
    backends.run(backend, OP.on_rung("" if rung == "chosen" else rung), out, *given)
    return out


def skip_what_takes_long(backend: str, device: str, shape: tuple[int, ...]) -> None:
    """The interpreter takes a second for what others compute in no time."""
    if (backend, device) == ("triton", "cpu") and math.prod(shape) > 20_000:
        pytest.skip("the interpreter and the simulator take long over it")


def operands(
    shape: tuple[int, int, int],
    device: str,
    generator: torch.Generator,
    types: tuple[torch.dtype, torch.dtype] = (E4M3, E4M3),
) -> tuple[Tensor, Tensor]:
    """Random numbers, of magnitudes that differ."""
    n_rows, n_cols, depth = shape
    a, b = (
        torch.randn(n, depth, generator=generator)
        * torch.randint(-3, 4, (n, depth), generator=generator).exp2()
        for n in (n_rows, n_cols)
    )
    return a.to(types[0]).to(device), b.to(types[1]).to(device).T


def scales(
    shape: tuple[int, int, int], kind: str, device: str, generator: torch.Generator
) -> tuple[Tensor, Tensor]:
    """Of all of a and b, or of their rows and columns."""
    a_shape, b_shape = {
        "numbers": ((), (1,)),
        "vectors": ((shape[0], 1), (1, shape[1])),
        "a vector and a number": ((shape[0], 1), ()),
        "a number and a vector": ((1,), (1, shape[1])),
    }[kind]
    scale_a, scale_b = (
        torch.randn(each, generator=generator).to(device) for each in (a_shape, b_shape)
    )
    return scale_a, scale_b


KINDS = ("numbers", "vectors", "a vector and a number", "a number and a vector")


def ones(device: str) -> tuple[Tensor, Tensor]:
    return torch.ones((), device=device), torch.ones((), device=device)


# ---- Values --------------------------------------------------------------------------


@in_one_test("shape", "types")
@pytest.mark.parametrize("types", TYPES)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("rung", RUNGS)
def test_integers_are_exact(
    rung: str,
    shape: tuple[int, int, int],
    types: tuple[torch.dtype, torch.dtype],
    backend: str,
    device: str,
    dtype: torch.dtype,
    generator: torch.Generator,
) -> None:
    skip_what_takes_long(backend, device, shape)
    if is_simulated(backend, device, dtype) and (shape, types) != (SHAPES[0], TYPES[1]):
        pytest.skip("each is compiled")
    n_rows, n_cols, depth = shape
    a = torch.randint(-4, 5, (n_rows, depth), generator=generator)
    b = torch.randint(-4, 5, (depth, n_cols), generator=generator)
    scale_a = torch.randint(-2, 3, (n_rows, 1), generator=generator)
    scale_b = torch.randint(-2, 3, (1, n_cols), generator=generator)
    given = (a.to(types[0]), b.to(types[1]), scale_a.float(), scale_b.float())
    try:
        out = run(backend, (x.to(device) for x in given), dtype, rung)
    except UnsupportedError:
        assert rung == "twin"
        return
    exact = (a @ b) * scale_a * scale_b
    assert torch.equal(out.cpu(), exact.double().to(dtype))


@in_one_test("shape", "types", "kind")
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("types", TYPES)
@pytest.mark.parametrize("shape", SHAPES)
def test_sums_are_those_of_tensor_cores(
    shape: tuple[int, int, int],
    types: tuple[torch.dtype, torch.dtype],
    kind: str,
    backend: str,
    device: str,
    generator: torch.Generator,
) -> None:
    is_compiled = (backend, device) == ("triton", "cpu")
    if is_compiled and TYPES.index(types) != KINDS.index(kind) % len(TYPES):
        pytest.skip("each is compiled")
    a, b = operands(shape, device, generator, types)
    scale_a, scale_b = scales(shape, kind, device, generator)
    try:
        with compiled_twin("twin", backend, device):
            out = run(backend, (a, b, scale_a, scale_b), rung="twin")
    except UnsupportedError:
        pytest.skip("the twin is for Hopper alone")
    expected = tensor_core_product(a, b) * (scale_a * scale_b)
    assert torch.equal(out, expected)


@in_one_test("types", "kind")
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("types", TYPES)
@pytest.mark.parametrize("rung", RUNGS)
def test_types_and_scales(
    rung: str,
    types: tuple[torch.dtype, torch.dtype],
    kind: str,
    backend: str,
    device: str,
    generator: torch.Generator,
) -> None:
    shape = (17, 33, 130) if backend == "cuda" or device == "cuda" else (9, 8, 40)
    inputs = (
        *operands(shape, device, generator, types),
        *scales(shape, kind, device, generator),
    )
    op = OP.on_rung("" if rung == "chosen" else rung)
    for dtype in DTYPES:
        if not is_simulated(backend, device, dtype):
            assert_accepted(op, backend, inputs, dtype=dtype)


@in_one_test("form")
@pytest.mark.parametrize("form", [E4M3, E5M2])
@pytest.mark.parametrize("rung", RUNGS)
def test_every_number_is_read_as_it_is(
    rung: str, form: torch.dtype, backend: str, device: str
) -> None:
    every = torch.arange(256).to(torch.uint8).to(device).view(form)
    one = torch.ones((1, 1), device=device).to(E4M3)
    try:
        with compiled_twin(rung, backend, device):
            column = run(backend, (every[:, None], one, *ones(device)), rung=rung)
            row = run(backend, (one, every[None], *ones(device)), rung=rung)
    except UnsupportedError:
        assert rung == "twin"
        return
    # The tensor cores have one NaN, and a single zero.
    expected = every.float()
    for out in (column[:, 0], row[0]):
        assert torch.equal(out.nan_to_num(1e9), expected.nan_to_num(1e9))
        assert torch.equal(out.isnan(), expected.isnan())


@pytest.mark.parametrize("rung", RUNGS)
def test_special_values(rung: str, backend: str, device: str) -> None:
    a = torch.zeros(6, 40)
    a[0, 3], a[1, 39], a[2, 5], a[3, 6], a[3, 7] = NAN, INF, -INF, INF, -INF
    b = torch.ones(40, 5)
    b[5, 1], b[:, 2], b[7, 3] = 0.0, -1.0, NAN
    scale_a = torch.tensor([1.0, 1.0, 2.0, 1.0, INF, NAN])[:, None]
    scale_b = torch.tensor([[1.0, 1.0, 1.0, 1.0, -INF]])
    given = (a.to(E5M2), b.to(E4M3), scale_a, scale_b)
    try:
        with compiled_twin(rung, backend, device):
            out = run(backend, (x.to(device) for x in given), rung=rung)
    except UnsupportedError:
        assert rung == "twin"
        return
    expected = OP.reference(*given, torch.float32)
    assert isinstance(expected, Tensor)
    torch.testing.assert_close(out.cpu(), expected, equal_nan=True)


@in_one_test("dtype")
@pytest.mark.parametrize("rung", ["first", "chosen"])
def test_without_any_products_zeros_are_left(
    rung: str, backend: str, device: str, dtype: torch.dtype
) -> None:
    if is_simulated(backend, device, dtype):
        pytest.skip("each is compiled")
    a, b = torch.empty((3, 0)).to(E4M3), torch.empty((0, 5)).to(E5M2)
    given = (a.to(device), b.to(device), *ones(device))
    out = run(backend, given, dtype, rung)
    assert torch.equal(out.cpu(), torch.zeros(3, 5, dtype=dtype))


@pytest.mark.parametrize("shape", [(0, 5), (5, 0), (0, 0)])
def test_no_elements(shape: tuple[int, int], backend: str, device: str) -> None:
    a, b = (
        torch.empty(each, device=device).to(E4M3)
        for each in ((shape[0], 4), (4, shape[1]))
    )
    scale_a = torch.empty((shape[0], 1), device=device)
    out = bindings.scaled_matmul(a, b, scale_a, ones(device)[0], backend=backend)
    assert out.shape == shape
    assert out.dtype == torch.bfloat16


# ---- What the tensor cores add -------------------------------------------------------

# What an H200 makes of rows and columns of 32 numbers, and of an accumulator.
OF_AN_H200 = json.loads(Path(__file__).with_name("float8_sums.json").read_text())[
    "sums"
]
FORMS = {"e4m3": E4M3, "e5m2": E5M2}


@pytest.mark.parametrize("pair", OF_AN_H200)
def test_the_yardstick_adds_as_an_h200(pair: str) -> None:
    for *hexadecimal, c, d in OF_AN_H200[pair]:
        a, b = (
            torch.tensor(list(bytes.fromhex(text)), dtype=torch.uint8).view(FORMS[form])
            for text, form in zip(hexadecimal, pair.split("."), strict=True)
        )
        sums, expected = (
            torch.tensor([[int(word, 16)]]).to(torch.uint32).view(torch.float32)
            for word in (c, d)
        )
        left, right = described._Terms(a[None]), described._Terms(b[:, None])
        found = described._add_products(left, right, slice(1), slice(32), sums)
        assert torch.equal(found, expected)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_sums_of_few_bits_are_rejected(dtype: torch.dtype) -> None:
    """Those of tensor cores alone, over all of K, as of fast accumulation."""
    arguments = make_arguments(OP, Case((64, 64, 1024), dtype))
    (expected,) = acceptance.expect(OP, arguments)
    a, b, scale_a, scale_b, _ = arguments
    results = (
        (tensor_core_product(a, b, step) * (scale_a * scale_b)).to(dtype)
        for step in (128, 1024)
    )
    assert [acceptance.judge(each, expected).passed for each in results] == [
        True,
        False,
    ]


def test_the_yardstick_is_as_far_off_as_an_h200() -> None:
    """Its results in float32 are off by 1.26e-4, whatever their size."""
    for depth in (256, 2048):
        (expected,) = acceptance.expect(
            OP, make_arguments(OP, Case((64, 96, depth), torch.float32))
        )
        error = acceptance.errors_of(expected.torch, expected.exact, torch.float32)
        assert 1.1e-4 < error.rms < 1.4e-4


@needs_gpu
@pytest.mark.parametrize("kind", ["numbers", "vectors"])
@pytest.mark.parametrize("types", TYPES)
def test_torch_has_the_same_numbers(
    types: tuple[torch.dtype, torch.dtype], kind: str, backend: str
) -> None:
    generator, shape = torch.Generator().manual_seed(0), (256, 384, 1024)
    inputs = (
        *operands(shape, "cuda", generator, types),
        *scales(shape, kind, "cuda", generator),
    )
    assert_accepted(OP, backend, inputs, dtype=torch.bfloat16)
    out = bindings.scaled_matmul(*inputs, backend=backend)
    by_torch = torch._scaled_mm(*inputs, out_dtype=torch.bfloat16)
    error = acceptance.errors_of(out, by_torch.double(), torch.bfloat16)
    assert error.rms < 2**-9


def test_the_private_function_of_torch_is_what_it_was() -> None:
    schema = str(torch.ops.aten._scaled_mm.default._schema)
    assert schema.startswith(
        "aten::_scaled_mm(Tensor self, Tensor mat2, Tensor scale_a, Tensor scale_b, "
        "Tensor? bias=None, Tensor? scale_result=None, ScalarType? out_dtype=None, "
        "bool use_fast_accum=False)"
    )


# ---- Layouts -------------------------------------------------------------------------


def padded(x: Tensor, by: int) -> Tensor:
    """The same rows, with others' memory behind each: NaN."""
    memory = x.new_empty((x.shape[0], x.shape[1] + by)).fill_(NAN)
    view = memory[:, : x.shape[1]]
    view.copy_(x)
    return view


def offset(x: Tensor, by: int) -> Tensor:
    """Contiguous rows that begin so many bytes into their memory."""
    view = x.new_empty(x.numel() + by)[by:].view(x.shape)
    return view.copy_(x)


# Of rows of a or of columns of b, and whether they are read in place.
ROWS: dict[str, tuple[Callable[[Tensor], Tensor], bool]] = {
    "contiguous": (lambda x: x.contiguous(), True),
    "transposed": (lambda x: x.T.contiguous().T, False),
    "with aligned gaps": (lambda x: padded(x, 32), True),
    "with gaps": (lambda x: padded(x, 3), False),
    "every second row": (lambda x: x.repeat_interleave(2, 0)[::2], True),
    "every second column": (lambda x: x.repeat_interleave(2, 1)[:, ::2], False),
    "one row": (lambda x: x[:1].expand(x.shape), False),
    "offset by 16": (lambda x: offset(x, 16), True),
    "offset by 1": (lambda x: offset(x, 1), False),
}


@in_one_test("name")
@pytest.mark.parametrize("name", ROWS)
@pytest.mark.parametrize("rung", RUNGS)
def test_layouts(
    rung: str, name: str, backend: str, device: str, generator: torch.Generator
) -> None:
    lay_out, _ = ROWS[name]
    a, b = operands((20, 18, 48), device, generator, TYPES[1])
    scale_a, scale_b = scales((20, 18, 48), "vectors", device, generator)
    left, right = lay_out(a), lay_out(b.T).T
    # Of any strides.
    given = (scale_a.repeat(1, 3)[:, 1:2], scale_b.T.contiguous().T)
    plain = left.clone(memory_format=torch.contiguous_format), right.T.contiguous().T
    try:
        with compiled_twin(rung, backend, device):
            out = run(backend, (left, right, *given), rung=rung)
            expected = run(backend, (*plain, scale_a, scale_b), rung=rung)
    except UnsupportedError:
        assert rung == "twin"
        return
    assert torch.equal(out, expected)


@pytest.mark.parametrize("name", ROWS)
def test_only_what_does_not_fit_is_copied(
    name: str, generator: torch.Generator
) -> None:
    lay_out, in_place = ROWS[name]
    a, b = operands((20, 18, 48), "cpu", generator)
    for left, right in ((lay_out(a), b), (a, lay_out(b.T).T)):
        given = (left, right, *ones("cpu"), torch.float32)
        out = OP.allocate(*given)
        _, taken_a, taken_b, *_ = arguments = OP.arguments(out, *given)
        is_kept = []
        for x, original in ((taken_a, left), (taken_b, right)):
            assert isinstance(x, Tensor)
            assert x.data_ptr() % 16 == 0
            is_kept.append(x.data_ptr() == original.data_ptr())
        assert all(is_kept) == in_place
        assert all(isinstance(n, int) and n % 16 == 0 for n in arguments[8:10])


@pytest.mark.parametrize("shape", [(1, 1, 1), (1, 9, 40), (9, 1, 40), (7, 5, 1)])
def test_nobody_asks_for_the_stride_of_a_single_row_or_column(
    shape: tuple[int, int, int], backend: str, device: str, generator: torch.Generator
) -> None:
    a, b = operands(shape, device, generator)
    odd = []
    for x in (a, b):
        sizes = zip(x.stride(), x.shape, strict=True)
        strides = [stride if size > 1 else 7 for stride, size in sizes]
        odd.append(x.as_strided(x.shape, strides))
    given = scales(shape, "vectors", device, generator)
    out = run(backend, (*odd, *given))
    assert torch.equal(out, run(backend, (a, b, *given)))


# ---- Rungs and tiles -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("shape", "block_n"),
    [
        ((64, 8192, 256), 64),  # rows of one small tile
        ((256, 256, 256), 64),  # too few tiles for all multiprocessors
        ((1664, 1280, 256), 128),  # 130 tiles, or twice as many small ones
        ((16897, 8, 16), 64),  # two waves of either
        ((4096, 4096, 256), 128),
    ],
)
def test_tiles(shape: tuple[int, int, int], block_n: int) -> None:
    arguments = launcher_arguments(OP, Case(shape, torch.bfloat16))
    (kernel,) = planned_kernels("cuda", OP, arguments, ARCHITECTURES[90])
    assert kernel.startswith("scaled_matmul_kernel<__nv_bfloat16")
    assert f", {block_n}, " in kernel
    (kernel,) = planned_kernels("triton", OP, arguments, ARCHITECTURES[90])
    assert kernel.startswith(f"scaled_matmul_kernel[BLOCK_N={block_n}, ")


# Pairs of blocks read the same columns of b: as many blocks as multiprocessors, 132.
@pytest.mark.parametrize(
    ("shape", "grid", "cluster"),
    [((128, 64 * 131, 8), 131, 1), ((128, 64 * 132, 8), 132, 2), ((5, 7, 8), 1, 1)],
)
def test_blocks_are_pairs_where_all_have_a_tile(
    shape: tuple[int, int, int], grid: int, cluster: int
) -> None:
    arguments = launcher_arguments(OP, Case(shape, torch.bfloat16))
    (plan,) = native.plan(prebuilt.load("_cpu"), OP, arguments, 90)
    assert (plan["grid"], plan["cluster"]) == ((grid, 1, 1), (cluster, 1, 1))


@pytest.mark.parametrize(
    ("n_rows", "n_in_cuda", "n_in_triton"), [(5, 5, 16), (33, 33, 64), (300, 128, 128)]
)
def test_rows_that_a_does_not_have_are_not_copied(
    n_rows: int, n_in_cuda: int, n_in_triton: int
) -> None:
    arguments = launcher_arguments(OP, Case((n_rows, 40, 256), torch.bfloat16))
    (plan,) = native.plan(prebuilt.load("_cpu"), OP, arguments, 90)
    *_, depth, n_rows_of_box, _n_batches, _rounds = plan["arguments"][1]
    assert (depth, n_rows_of_box) == (128, n_in_cuda)
    (launch,) = planned_launches("triton", OP, arguments, ARCHITECTURES[90])
    assert launch.arguments["a_map"].block_shape == (1, n_in_triton, 128)


@in_one_test("number")
@pytest.mark.parametrize("number", [n for n in ARCHITECTURES if n != 90])
def test_the_twin_is_for_hopper_alone(number: int) -> None:
    arguments = launcher_arguments(OP, Case((64, 64, 64)))
    (kernel,) = planned_kernels("cuda", OP, arguments, ARCHITECTURES[number])
    assert kernel.startswith("scaled_matmul_first_kernel<")
    twin = OP.on_rung("twin")
    with pytest.raises(UnsupportedError, match="the rung 'twin' has no kernel"):
        planned_kernels(
            "cuda",
            twin,
            launcher_arguments(twin, Case((64, 64, 64))),
            ARCHITECTURES[number],
        )


# ---- Bad arguments -------------------------------------------------------------------

A, B, SCALE = torch.zeros(2, 3).to(E4M3), torch.zeros(3, 4).to(E4M3), torch.ones(())

BAD_CALLS: dict[str, tuple[tuple[Any, ...], type[Exception], str]] = {
    "a is no tensor": (([1.0], B, SCALE, SCALE), TypeError, "a must be a torch.Tensor"),
    "scale_b is a number": (
        (A, B, SCALE, 1.0),
        TypeError,
        "scale_b must be a torch.Tensor, got float",
    ),
    "float32": (
        (A.float(), B, SCALE, SCALE),
        TypeError,
        "a has dtype torch.float32, expected one of torch.float8_e4m3fn, torch.float8",
    ),
    "another 8-bit float": (
        (A, B.to(torch.float8_e4m3fnuz), SCALE, SCALE),
        TypeError,
        "b has dtype torch.float8_e4m3fnuz, expected one of",
    ),
    "both e5m2": (
        (A.to(E5M2), B.to(E5M2), SCALE, SCALE),
        TypeError,
        "a and b have dtype torch.float8_e5m2, expected torch.float8_e4m3fn of one",
    ),
    "batch": (
        (A[None], B, SCALE, SCALE),
        ValueError,
        r"a has shape \(1, 2, 3\), expected 2 dimensions",
    ),
    "inner sizes": (
        (A, B.T, SCALE, SCALE),
        ValueError,
        r"a has shape \(2, 3\) and b has \(4, 3\), expected as many columns in a as",
    ),
    "dtype of a scale": (
        (A, B, SCALE.half(), SCALE),
        TypeError,
        "scale_a has dtype torch.float16, expected torch.float32",
    ),
    "shape of scale_a": (
        (A, B, torch.ones(2), SCALE),
        ValueError,
        r"scale_a has shape \(2,\), expected \(\), \(1,\) or \(2, 1\)",
    ),
    "shape of scale_b": (
        (A, B, SCALE, torch.ones(4, 1)),
        ValueError,
        r"scale_b has shape \(4, 1\), expected \(\), \(1,\) or \(1, 4\)",
    ),
    "devices": (
        (A, B, SCALE, SCALE.to("meta")),
        ValueError,
        "a is on cpu and scale_b on meta, expected the same device",
    ),
    "out_dtype": (
        (A, B, SCALE, SCALE, torch.float64),
        TypeError,
        "out_dtype is torch.float64, expected one of torch.float32, torch.float16",
    ),
    "out_dtype is no dtype": (
        (A, B, SCALE, SCALE, "float32"),
        TypeError,
        "out_dtype is 'float32', expected one of",
    ),
}


@in_one_test("bad", "backend")
@pytest.mark.parametrize("backend", backends.NAMES)
@pytest.mark.parametrize("bad", BAD_CALLS)
def test_bad_arguments(bad: str, backend: str) -> None:
    arguments, error, message = BAD_CALLS[bad]
    with pytest.raises(error, match=f"scaled_matmul: {message}"):
        bindings.scaled_matmul(*arguments, backend=backend)
