"""Matrices in the PTX simulator: against the C++ emulator, and the PTX manual's words.

The emulator's tensor cores are those of an H100, bit for bit: test_emulator_kernels.py
compares them with one.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import emulated
import numpy as np
import numpy.typing as npt
import pytest
import torch
from emulated import integers, narrow
from test_emulator_hopper import product
from test_emulator_kernels import fragments, places_of_a, to_bfloat16
from together import in_one_test

from compare.assembly.listing import parse_ptx
from compare.ptx_simulator import (
    Buffer,
    Contents,
    Launch,
    Order,
    Simulation,
    TensorArgument,
    simulate,
)
from compare.ptx_simulator.tensor_core import multiply_add

Array = npt.NDArray[Any]

SHARED_BYTES = 64 * 1024
# The thread's number in the grid, in its block, and in its warp; where shared memory
# begins, and what that adds to a descriptor.
BEGINNING = """
    mov.u32 %r1, %ctaid.x; mov.u32 %r2, %ntid.x; mov.u32 %r3, %tid.x;
    mad.lo.u32 %r1, %r1, %r2, %r3; and.b32 %r4, %r3, 31;
    mov.u32 %r59, tile; cvt.u64.u32 %d59, %r59; shr.u64 %d59, %d59, 4;
"""


def run(
    body: str,
    inputs: Sequence[Array],
    words: int,
    *,
    threads: int = 128,
    blocks: int = 1,
    order: Order = "",
    has_contents: bool = True,
) -> tuple[Array, Array, Simulation]:
    """Runs a kernel of out, %d0, and inputs, %d1 and so on.

    Args:
        body: Its instructions.
        inputs: What the other pointers lead to.
        words: How many of 32 bits of out each thread has.
        threads: Of a block.
        blocks: Of the launch.
        order: Of the warps.
        has_contents: Whether the inputs hold anything.

    Returns:
        The words of out, by thread; which of them are written; and the simulation.
    """
    parameters = ", ".join(f".param .u64 p{i}" for i in range(len(inputs) + 1))
    pointers = " ".join(f"ld.param.u64 %d{i}, [p{i}];" for i in range(len(inputs) + 1))
    listing = parse_ptx(f"""
.version 8.7
.target sm_90a
.address_size 64
.extern .shared .align 1024 .b8 tile[];
.visible .entry k({parameters})
{{
    .reg .pred %p<4>;
    .reg .b32 %r<64>;
    .reg .b32 %s<400>;
    .reg .b64 %d<64>;
    {pointers}
    {BEGINNING}
    {body}
    ret;
}}
""")
    out = np.zeros((blocks * threads, words), np.uint32)
    written = np.zeros(out.nbytes, np.bool_)
    arrays = [out.reshape(-1).view(np.uint8)]
    arrays += [np.ascontiguousarray(each).reshape(-1).view(np.uint8) for each in inputs]
    tensors = tuple(
        TensorArgument(f"x{i}", i, (i + 1) << 44, each.size)
        for i, each in enumerate(arrays)
    )
    launch = Launch(
        grid=(blocks, 1, 1),
        block=(threads, 1, 1),
        parameters=tuple(each.address for each in tensors),
        tensors=tensors,
        dynamic_shared_bytes=SHARED_BYTES,
    )
    contents = Contents(
        [
            Buffer(each.name, each.address, array, None if i else written)
            for i, (each, array) in enumerate(zip(tensors, arrays, strict=True))
        ]
    )
    simulation = simulate(
        listing, launch, contents=contents if has_contents else None, order=order
    )
    is_written = np.logical_and.reduce(written.reshape(*out.shape, 4), axis=-1)
    return out, is_written, simulation


def results(body: str, inputs: Sequence[Array], words: int, **options: Any) -> Array:
    """The words by thread that a kernel without a fault leaves in all of out."""
    out, written, simulation = run(body, inputs, words, **options)
    assert not simulation.faults
    assert simulation.is_exact
    assert written.all()
    return out


def registers(letter: str, count: int) -> str:
    """The names of registers, as a vector; those of different letters differ."""
    first = 64 * "abcd".index(letter) if letter != "e" else 256
    return "{" + ", ".join(f"%s{first + i}" for i in range(count)) + "}"


def each_of(vector: str) -> list[str]:
    return vector.strip("{}").split(", ")


def transfers(opcode: str, pointer: int, vector: str) -> str:
    """Loads, or stores, as many words of each thread as there are registers."""
    names = each_of(vector)
    lines = [
        f"mul.wide.u32 %d60, %r1, {4 * len(names)};",
        f"add.s64 %d60, %d60, %d{pointer};",
    ]
    for i, name in enumerate(names):
        place = f"[%d60+{4 * i}]"
        operands = (name, place) if opcode == "ld" else (place, name)
        lines.append(f"{opcode}.global.b32 {', '.join(operands)};")
    return "\n".join(lines)


def to_shared(pointer: int, n_bytes: int, threads: int = 128) -> str:
    """Copies what a pointer leads to to shared memory, from its beginning on."""
    lines = [f"mul.wide.u32 %d61, %r3, 16; add.s64 %d62, %d61, %d{pointer};"]
    lines.append("cvt.u32.u64 %r60, %d61; add.u32 %r60, %r60, %r59;")
    values = "{%r50, %r51, %r52, %r53}"
    for start in range(0, n_bytes, 16 * threads):
        if n_bytes - start < 16 * threads:
            lines.append(f"setp.lt.u32 %p3, %r3, {(n_bytes - start) // 16}; @%p3")
        lines.append(f"ld.global.v4.b32 {values}, [%d62+{start}];")
        if n_bytes - start < 16 * threads:
            lines.append("@%p3")
        lines.append(f"st.shared.v4.b32 [%r60+{start}], {values};")
    return "\n".join([*lines, "fence.proxy.async; bar.sync 0;"])


# ---- mma -----------------------------------------------------------------------------

# By the emulator's name: formats of factors and sums, and a lane's words of a, b and c.
FORMS = {
    "half": ("f16", "f32", (4, 2, 4)),
    "bfloat16": ("bf16", "f32", (4, 2, 4)),
    "tf32": ("tf32", "f32", (4, 2, 4)),
    "half_half": ("f16", "f16", (4, 2, 2)),
}


# Of 8 bits, with the largest number of each.
FLOAT8 = {
    "e4m3": (torch.float8_e4m3fn, 448),
    "e5m2": (torch.float8_e5m2, 57344),
}


def bits_of(x: Array, form: str) -> Array:
    """The bits of numbers that are rounded to a format, but not to infinity."""
    if form in FLOAT8:
        dtype, most = FLOAT8[form]
        numbers = torch.from_numpy(np.clip(x, -most, most).astype(np.float32))
        found: Array = numbers.to(dtype).view(torch.uint8).numpy()
        return found
    if form == "f16":
        return np.clip(x, -65504, 65504).astype(np.float16).view(np.uint16)
    x = np.clip(x, -3e38, 3e38).astype(np.float32)
    return to_bfloat16(x) if form == "bf16" else x.view(np.uint32)


def random_fragments(
    kind: str, count: int, spread: int, size: float = 1.0
) -> list[Array]:
    """Random a, b and c, of magnitudes up to 2 to the power of +-spread, times a size.

    That of c is times its square.
    """
    inputs, sums, sizes = FORMS[kind]
    random = np.random.default_rng(spread)

    def words(form: str, n_words: int, size: float) -> Array:
        shape = (count, 32, n_words if form in ("f32", "tf32") else 2 * n_words)
        scale = size * np.exp2(random.integers(-spread, spread + 1, shape))
        return bits_of(random.standard_normal(shape) * scale, form).view(np.uint32)

    a, b, c = sizes
    return [words(inputs, a, size), words(inputs, b, size), words(sums, c, size**2)]


def emulated_mma(kind: str, a: Array, b: Array, c: Array) -> Array:
    d = np.zeros_like(c)
    emulated.load_kernels()(f"mma_{kind}", d, a, b, c, len(a))
    return d


def simulated_mma(shape: str, kind: str, a: Array, b: Array, c: Array) -> Array:
    inputs, sums, _ = FORMS[kind]
    vectors = [
        registers(name, x.shape[-1]) for name, x in zip("abc", (a, b, c), strict=True)
    ]
    d = registers("d", c.shape[-1])
    opcode = f"mma.sync.aligned.{shape}.row.col.{sums}.{inputs}.{inputs}.{sums}"
    body = [transfers("ld", i + 1, vector) for i, vector in enumerate(vectors)]
    body.append(f"{opcode} {', '.join([d, *vectors])};")
    body.append(transfers("st", 0, d))
    # Blocks of three warps, so that warps and blocks are told apart.
    threads = 96 if len(a) % 3 == 0 else 32
    blocks = len(a) * 32 // threads
    found = results(
        "\n".join(body), [a, b, c], c.shape[-1], threads=threads, blocks=blocks
    )
    return found.reshape(c.shape)


SHAPES = {kind: "m16n8k8" if kind == "tf32" else "m16n8k16" for kind in FORMS}


@in_one_test("kind", "spread")
@pytest.mark.parametrize("kind", FORMS)
@pytest.mark.parametrize("spread", [0, 3, 14])
def test_mma_is_the_emulators_bit_for_bit(kind: str, spread: int) -> None:
    given = random_fragments(kind, 99, spread)
    found = simulated_mma(SHAPES[kind], kind, *given)
    np.testing.assert_array_equal(found, emulated_mma(kind, *given))


# What is left of a number in a word, if it is made subnormal.
SUBNORMAL = {"f16": 0x83FF83FF, "bf16": 0x807F807F, "tf32": 0x807FFFFF}


@pytest.mark.parametrize("kind", FORMS)
def test_mma_of_subnormal_numbers_is_the_emulators(kind: str) -> None:
    """Also of zeros of both signs, and of nothing but zeros."""
    inputs, sums, _ = FORMS[kind]
    is_half = inputs == "f16"
    a, _, _ = random_fragments(kind, 60, 0)
    _, b, _ = random_fragments(kind, 60, 3, 1.0 if is_half else 2.0**10)
    # As large as the products.
    _, _, c = random_fragments(kind, 60, 4, 2.0 ** (-9 if is_half else -59))
    a &= np.uint32(SUBNORMAL[inputs])
    signs = {"f16": 0x80008000, "bf16": 0x80008000}
    a[:20] &= np.uint32(signs.get(inputs, 0x80000000))
    c[10:30] &= np.uint32(signs.get(sums, 0x80000000))
    b[10] &= np.uint32(0x7FFFFFFF if inputs == "tf32" else 0x7FFF7FFF)
    a[10], c[10] = (signs.get(form, 0x80000000) for form in (inputs, sums))
    found = simulated_mma(SHAPES[kind], kind, a, b, c)
    assert not found[10].any()
    np.testing.assert_array_equal(found, emulated_mma(kind, a, b, c))


@pytest.mark.parametrize("kind", ["bfloat16", "tf32", "half_half"])
def test_sums_that_are_subnormal_are_the_emulators(kind: str) -> None:
    given = random_fragments(kind, 60, 2, 2.0 ** (-9 if kind == "half_half" else -66))
    found = simulated_mma(SHAPES[kind], kind, *given)
    least = 2.0 ** (-14 if kind == "half_half" else -126)
    numbers = np.abs(sums_as_numbers(found, kind))
    assert ((numbers > 0) & (numbers < least)).mean() > 0.2
    np.testing.assert_array_equal(found, emulated_mma(kind, *given))


def sums_as_numbers(words: Array, kind: str) -> Array:
    sums = np.float16 if kind == "half_half" else np.float32
    return words.view(sums).astype(np.float64)


@pytest.mark.parametrize("kind", ["bfloat16", "tf32", "half_half"])
def test_sums_that_are_too_large_are_the_emulators(kind: str) -> None:
    size = 2.0 ** (7 if kind == "half_half" else 63)
    given = random_fragments(kind, 60, 0, size)
    found = simulated_mma(SHAPES[kind], kind, *given)
    numbers = sums_as_numbers(found, kind)
    assert np.isinf(numbers).any()
    assert np.isfinite(numbers).any()
    np.testing.assert_array_equal(found, emulated_mma(kind, *given))


@pytest.mark.parametrize("kind", FORMS)
def test_infinity_and_nan_are_the_emulators(kind: str) -> None:
    random = np.random.default_rng(0)
    given = random_fragments(kind, 99, 3)
    inputs, sums, _ = FORMS[kind]
    for x, form in zip(given, (inputs, inputs, sums), strict=True):
        special = {"f16": [0x7C00, 0x7D01], "bf16": [0x7F80, 0x7FC1]}.get(
            form, [0x7F800000, 0x7F812345]
        )
        each: Array = x.view(np.uint16 if form in ("f16", "bf16") else np.uint32)
        sign = 1 << 8 * each.itemsize - 1
        for bits, share in zip(special, (0.02, 0.001), strict=True):
            chosen = random.random(each.shape) < share
            each[chosen] = each[chosen] & sign | bits
    found = simulated_mma(SHAPES[kind], kind, *given)
    expected = emulated_mma(kind, *given)
    numbers, others = (sums_as_numbers(x, kind) for x in (found, expected))
    assert np.isinf(numbers).sum() > 100
    assert np.isnan(numbers).sum() > 100
    np.testing.assert_array_equal(np.isfinite(numbers), np.isfinite(others))
    width = np.uint16 if kind == "half_half" else np.uint32
    is_special = ~np.isfinite(numbers)
    np.testing.assert_array_equal(
        found.view(width)[is_special], expected.view(width)[is_special]
    )


def test_numbers_beside_a_nan_are_as_without_it() -> None:
    a, b, c = random_fragments("half", 3, 3)
    expected = simulated_mma("m16n8k16", "half", a, b, c)
    a[:, 0, 0] = 0x7E007E00  # in row 0, which lanes 0 to 3 hold
    found = simulated_mma("m16n8k16", "half", a, b, c)
    np.testing.assert_array_equal(found[:, 4:], expected[:, 4:])
    np.testing.assert_array_equal(found[:, :4, 2:], expected[:, :4, 2:])
    assert (found[:, :4, :2] == 0x7FFFFFFF).all()


@pytest.mark.parametrize(
    ("shape", "kind"),
    [
        ("m16n8k8", "half"),
        ("m16n8k8", "bfloat16"),
        ("m16n8k8", "half_half"),
        ("m16n8k4", "tf32"),
    ],
)
def test_mma_of_half_the_depth_is_mma_with_zeros(shape: str, kind: str) -> None:
    a, b, c = random_fragments(kind, 30, 3)
    a, b = a[:, :, :2].copy(), b[:, :, :1].copy()
    found = simulated_mma(shape, kind, a, b, c)
    wide_a, wide_b = (np.concatenate([x, 0 * x], axis=-1) for x in (a, b))
    np.testing.assert_array_equal(found, emulated_mma(kind, wide_a, wide_b, c))


# ---- ldmatrix, stmatrix, movmatrix ---------------------------------------------------


def lanes_of(matrices: Array, *, is_transposed: bool) -> Array:
    """By lane and matrix, the words that lanes hold of matrices of 8 x 8 numbers.

    In the PTX manual's words, lane l has elements 2 (l % 4) and 2 (l % 4) + 1 of row
    l / 4, or, transposed, of column l / 4.
    """
    if is_transposed:
        matrices = matrices.swapaxes(1, 2)
    words = np.zeros((32, len(matrices)), np.uint32)
    for lane, number in np.ndindex(words.shape):
        low, high = matrices[number, lane // 4, lane % 4 * 2 : lane % 4 * 2 + 2]
        words[lane, number] = int(low) | int(high) << 16
    return words


@pytest.fixture(params=[1, 2, 4])
def count(request: pytest.FixtureRequest) -> int:
    return int(request.param)


@in_one_test("count", "trans", "space")
@pytest.mark.parametrize("trans", ["", ".trans"])
@pytest.mark.parametrize("space", [".shared", ".shared::cta", ""])
def test_ldmatrix(count: int, trans: str, space: str) -> None:
    random = np.random.default_rng(4)
    x = random.permutation(1024).astype(np.uint16)
    rows = random.permutation(128)[:32].astype(np.uint32)
    vector = registers("d", count)
    address = "%r6" if space else "%d11"
    loaded = results(
        f"""
        {to_shared(1, 2048)}
        mul.wide.u32 %d10, %r4, 4; add.s64 %d10, %d10, %d2;
        ld.global.u32 %r5, [%d10]; mad.lo.u32 %r6, %r5, 16, %r59;
        cvt.u64.u32 %d11, %r6; cvta.shared.u64 %d11, %d11;
        ldmatrix.sync.aligned.m8n8.x{count}{trans}{space}.b16 {vector}, [{address}];
        {transfers("st", 0, vector)}
        """,
        [x, rows],
        count,
    )
    matrices = x.reshape(128, 8)[rows].reshape(4, 8, 8)[:count]
    expected = lanes_of(matrices, is_transposed=bool(trans))
    np.testing.assert_array_equal(loaded.reshape(4, 32, count), 4 * [expected])


@pytest.mark.parametrize("trans", ["", ".trans"])
def test_stmatrix(count: int, trans: str) -> None:
    """Each warp stores matrices of its own, and loads them row by row."""
    random = np.random.default_rng(5)
    x = random.permutation(65536)[: 4 * count * 64].astype(np.uint16)
    matrices = x.reshape(4, count, 8, 8)
    held = np.stack([lanes_of(each, is_transposed=bool(trans)) for each in matrices])
    rows = random.permutation(128).astype(np.uint32)
    vector, loaded = registers("a", count), registers("d", 4)
    found, written, _ = run(
        f"""
        {transfers("ld", 1, vector)}
        mul.wide.u32 %d10, %r1, 4; add.s64 %d10, %d10, %d2;
        ld.global.u32 %r5, [%d10]; mad.lo.u32 %r6, %r5, 16, %r59;
        stmatrix.sync.aligned.m8n8.x{count}{trans}.shared.b16 [%r6], {vector};
        setp.ge.u32 %p1, %r4, {8 * count};
        @%p1 ret;
        ld.shared.v4.b32 {loaded}, [%r6];
        {transfers("st", 0, loaded)}
        """,
        [held, rows],
        4,
    )
    by_warp = found.reshape(4, 32, 4)[:, : 8 * count]
    np.testing.assert_array_equal(by_warp.reshape(-1), x.view(np.uint32))
    assert written.reshape(4, 32, 4)[:, : 8 * count].all()


@pytest.mark.parametrize(
    ("source", "is_race"),
    [("mov.b32 %r5, %r4;", False), ("shr.u32 %r5, %r3, 5;", True)],
)
def test_warps_may_store_the_same_matrix(source: str, is_race: bool) -> None:
    _, _, simulation = run(
        f"""
        mad.lo.u32 %r6, %r4, 16, %r59;
        {source}
        stmatrix.sync.aligned.m8n8.x1.shared.b16 [%r6], {{%r5}};
        """,
        [],
        1,
        threads=64,
        order="forward",
    )
    told = [each.what for each in simulation.faults]
    race = "writes shared memory that another warp writes, in no order"
    assert told[:1] == [race] * is_race


@pytest.mark.parametrize("trans", ["", ".trans"])
def test_stmatrix_of_what_nothing_defines(trans: str) -> None:
    """Only the numbers that lane 5 stores are lost."""
    _, written, _ = run(
        f"""
        mad.lo.u32 %r6, %r4, 16, %r59; mad.lo.u32 %r7, %r4, 4, %r59;
        setp.ne.u32 %p1, %r4, 5;
        @%p1 mov.b32 %r5, %r4;
        stmatrix.sync.aligned.m8n8.x1{trans}.shared.b16 [%r6], {{%r5}};
        ld.shared.b32 %r8, [%r7];
        {transfers("st", 0, "{%r8}")}
        """,
        [],
        1,
        threads=32,
    )
    # It has elements 2 and 3 of row 1, or of column 1.
    lost = [2 * 4, 3 * 4] if trans else [5]
    assert np.flatnonzero(~written).tolist() == lost


def test_movmatrix() -> None:
    matrices = (
        np.random.default_rng(6).permutation(256).astype(np.uint16).reshape(4, 8, 8)
    )
    found = results(
        f"""
        {transfers("ld", 1, "{%r5}")}
        movmatrix.sync.aligned.m8n8.trans.b16 %r6, %r5;
        {transfers("st", 0, "{%r6}")}
        """,
        [
            np.concatenate(
                [lanes_of(each[None], is_transposed=False) for each in matrices]
            )
        ],
        1,
    )
    expected = [lanes_of(each[None], is_transposed=True) for each in matrices]
    np.testing.assert_array_equal(found, np.concatenate(expected))


@pytest.mark.parametrize("trans", ["", ".trans"])
def test_ldmatrix_of_what_was_never_written(trans: str) -> None:
    """It is told which byte, and the other lanes get theirs."""
    words = registers("d", 1)
    body = f"""
        setp.eq.u32 %p1, %r4, 3;
        mad.lo.u32 %r6, %r4, 16, %r59;
        @!%p1 st.shared.v4.b32 [%r6], {{%r1, %r1, %r1, %r1}};
        @%p1 st.shared.b32 [%r6], %r1;
        bar.warp.sync -1;
        ldmatrix.sync.aligned.m8n8.x1{trans}.shared.b16 {words}, [%r6];
        {transfers("st", 0, words)}
    """
    out, written, simulation = run(body, [], 1, threads=32)
    assert simulation.faults[0].what == "reads shared memory at byte 52, never written"
    # The numbers 2 to 7 of row 3.
    unwritten = [4 * i + 1 for i in range(2, 8)] if trans else [13, 14, 15]
    assert np.flatnonzero(~written[:, 0]).tolist() == unwritten
    if not trans:
        assert (out[written] == np.arange(32)[written[:, 0]] // 4).all()


# ---- wgmma: where matrices lie -------------------------------------------------------


class Layout(NamedTuple):
    """Where a matrix lies in shared memory, as a descriptor tells.

    Attributes:
        start: Its address.
        swizzle_bytes: Of the swizzle; 16 for none.
        leading: The leading dimension's byte offset.
        stride: The stride dimension's byte offset.
        is_k_major: Whether neighbours along k are neighbours.
    """

    start: int
    swizzle_bytes: int
    leading: int
    stride: int
    is_k_major: bool = True

    @property
    def descriptor(self) -> int:
        """In which wgmma takes it."""
        mode = {16: 0, 128: 1, 64: 2, 32: 3}[self.swizzle_bytes]
        fields = (self.start, 0), (self.leading, 16), (self.stride, 32)
        return mode << 62 | sum((each >> 4 & 0x3FFF) << bit for each, bit in fields)

    def address(self, i: int, k: int, width: int) -> int:
        """Of the element in row, or column, i and at k: the manual's layouts."""
        t, c = 16 // width, self.swizzle_bytes // 16
        lbo, sbo = self.leading // width, self.stride // width
        if self.is_k_major:
            step = lbo if c == 1 else t
            place = along(i, (8, None), (c * t, sbo)) + along(k, (t, None), (1, step))
        else:
            steps = (sbo, t, lbo) if c == 1 else (lbo, c * t, sbo)
            place = along(i, (t, c, None), (1, t, steps[0]))
            place += along(k, (8, None), steps[1:])
        # Swizzle<log2(c), 4, 3>
        address = self.start + place * width
        return address ^ (address >> 7 & c - 1) << 4


def along(index: int, shape: Sequence[int | None], strides: Sequence[int]) -> int:
    """Where an index of one dimension leads to, in the words of CuTe's layouts."""
    place = 0
    for size, stride in zip(shape, strides, strict=True):
        index, part = divmod(index, size) if size else (0, index)
        place += part * stride
    return place


def image_of(matrices: Sequence[tuple[Array, Layout]], n_bytes: int) -> Array:
    """Shared memory with the bits of matrices in it; whatever else there is, is NaN."""
    image = np.full(n_bytes, 0xFF, np.uint8)
    for matrix, layout in matrices:
        width = matrix.itemsize
        for i, k in np.ndindex(matrix.shape):
            place = layout.address(i, k, width)
            image[place : place + width] = matrix[i, k : k + 1].view(np.uint8)
    return image


def sums_of(words: Array, sums: str) -> Array:
    """Matrices of the warpgroups, from the words that threads hold of them."""
    numbers = words.view(np.float16 if sums == "f16" else np.float32)
    matrices = np.zeros((len(words) // 128, 64, 2 * numbers.shape[1]))
    for thread, i in np.ndindex(numbers.shape):
        group, lane = thread // 128, thread % 32
        row = thread % 128 // 32 * 16 + lane // 4 + i // 2 % 2 * 8
        matrices[group, row, i // 4 * 8 + lane % 4 * 2 + i % 2] = numbers[thread, i]
    return matrices


FENCE = "wgmma.fence.sync.aligned;"
COMMIT = "wgmma.commit_group.sync.aligned;"


def wait(pending: int) -> str:
    return f"wgmma.wait_group.sync.aligned {pending};"


def both_of(inputs: str) -> tuple[str, str]:
    """The formats of a and b: two of 8 bits with a point between them, or the same."""
    a, _, b = inputs.partition(".")
    return a, b or a


def wgmma(n: int, inputs: str, sums: str = "f32") -> tuple[str, str]:
    """The opcode, and the registers of the sums."""
    types = ".".join((sums, *both_of(inputs)))
    opcode = f"wgmma.mma_async.sync.aligned.m64n{n}k{depth_of(inputs)}.{types}"
    return opcode, registers("e", n // 2 if sums == "f32" else n // 4)


def multiplied(
    a: Layout | str,
    b: Layout,
    image: Array,
    n: int,
    inputs: str,
    sums: str = "f32",
    *,
    inputs_of: Sequence[Array] = (),
    before: str = "",
    accumulates: str = "0",
    signs: str = "1, 1",
    **options: Any,
) -> Array:
    """What one `wgmma` makes of matrices in an image of shared memory."""
    opcode, d = wgmma(n, inputs, sums)
    flags = [signs]
    if depth_of(inputs) == 16:
        flags += [str(int(not e.is_k_major)) for e in (a, b) if isinstance(e, Layout)]
    left = "%d20" if isinstance(a, Layout) else a
    descriptors = f"add.s64 %d21, %d59, {b.descriptor};"
    if isinstance(a, Layout):
        descriptors += f"add.s64 %d20, %d59, {a.descriptor};"
    words = results(
        f"""
        {to_shared(1, image.size)}
        {descriptors}
        {before}
        {FENCE}
        {opcode} {d}, {left}, %d21, {accumulates}, {", ".join(flags)};
        {COMMIT} {wait(0)}
        {transfers("st", 0, d)}
        """,
        [image, *inputs_of],
        len(each_of(d)),
        **options,
    )
    found: Array = sums_of(words, sums)[0]
    return found


def layout_of(size: int, swizzle_bytes: int, start: int, *, is_k_major: bool) -> Layout:
    """A layout of so many rows or columns, with gaps between what it consists of."""
    pattern = 8 * swizzle_bytes
    if is_k_major:
        # Where there is a swizzle, the leading offset does not count.
        return Layout(start, swizzle_bytes, size * 32 + 128, 2 * pattern)
    leading, stride = 2 * pattern, size // swizzle_bytes * 4 * pattern + 5 * pattern
    if swizzle_bytes == 16:  # each steps along what the other does with a swizzle
        leading, stride = stride, leading
    return Layout(start, swizzle_bytes, leading, stride, is_k_major=False)


def depth_of(inputs: str) -> int:
    """The depth of what one instruction multiplies."""
    return 8 if inputs == "tf32" else 32 if both_of(inputs)[0] in FLOAT8 else 16


MAJORS = list(itertools.product([True, False], repeat=2))


@in_one_test("swizzle_bytes")
@pytest.mark.parametrize("swizzle_bytes", [16, 32, 64, 128])
@pytest.mark.parametrize(
    ("inputs", "a_is_k_major", "b_is_k_major"),
    [
        *(("bf16", *each) for each in MAJORS),
        ("f16", True, False),
        *((each, True, True) for each in ("tf32", "e4m3", "e5m2.e4m3")),
    ],
)
def test_matrices_lie_as_the_manual_says(
    inputs: str, a_is_k_major: bool, b_is_k_major: bool, swizzle_bytes: int
) -> None:
    depth = depth_of(inputs)
    a, b = integers(64, depth), integers(depth, 40)
    a_layout = layout_of(64, swizzle_bytes, 0, is_k_major=a_is_k_major)
    b_layout = layout_of(40, swizzle_bytes, 32768, is_k_major=b_is_k_major)
    a_form, b_form = both_of(inputs)
    image = image_of(
        [(bits_of(a, a_form), a_layout), (bits_of(b.T, b_form), b_layout)], 65536
    )
    found = multiplied(a_layout, b_layout, image, 40, inputs)
    np.testing.assert_array_equal(found, a @ b)


def places_of_bytes(lane: int, depth: int) -> list[tuple[int, int]]:
    """Row and column of the 16 bytes that a lane has of a: of the lowest one first."""
    return [
        (lane // 4 + i // 4 % 2 * 8, lane % 4 * 4 + i % 4 + i // 8 * depth // 2)
        for i in range(16)
    ]


@pytest.mark.parametrize(
    ("inputs", "is_k_major"),
    [("f16", True), ("bf16", False), ("tf32", True), ("e4m3.e5m2", True)],
)
@pytest.mark.parametrize("n", [8, 256])
def test_a_in_registers(inputs: str, is_k_major: bool, n: int) -> None:
    depth = depth_of(inputs)
    a, b = integers(64, depth), integers(depth, n)
    layout = layout_of(n, 64, 1024, is_k_major=is_k_major)
    a_form, b_form = both_of(inputs)
    image = image_of([(bits_of(b.T, b_form), layout)], 65536)
    places = places_of_bytes if a_form in FLOAT8 else places_of_a
    words = fragments(
        bits_of(a, a_form).reshape(4, 16, depth), lambda lane: places(lane, depth)
    )
    vector = registers("a", 4)
    found = multiplied(
        vector,
        layout,
        image,
        n,
        inputs,
        before=transfers("ld", 2, vector),
        inputs_of=[words.view(np.uint32)],
    )
    np.testing.assert_array_equal(found, a @ b)


K_MAJOR = Layout(0, 128, 0, 1024), Layout(8192, 128, 0, 1024)
DESCRIPTORS = f"""
    add.s64 %d20, %d59, {K_MAJOR[0].descriptor};
    add.s64 %d21, %d59, {K_MAJOR[1].descriptor};
"""


def image_for(a: Array, b: Array, inputs: str) -> Array:
    return image_of(
        list(zip((bits_of(a, inputs), bits_of(b.T, inputs)), K_MAJOR, strict=True)),
        16384,
    )


@pytest.mark.parametrize("sums", ["f32", "f16"])
@pytest.mark.parametrize("signs", ["1, 1", "-1, 1", "1, -1", "-1, -1"])
def test_products_are_added_or_subtracted(sums: str, signs: str) -> None:
    a, b, c = integers(64, 16), integers(16, 32), integers(64, 32)
    _, d = wgmma(32, "f16", sums)
    held = np.zeros((128, 16), np.float32 if sums == "f32" else np.float16)
    for thread, i in np.ndindex(held.shape):
        row = thread // 32 * 16 + thread % 32 // 4 + i // 2 % 2 * 8
        held[thread, i] = c[row, i // 4 * 8 + thread % 4 * 2 + i % 2]
    found = multiplied(
        *K_MAJOR,
        image_for(a, b, "f16"),
        32,
        "f16",
        sums,
        inputs_of=[held],
        before=transfers("ld", 2, d) + "setp.eq.u32 %p1, %r1, %r1;",
        accumulates="%p1",
        signs=signs,
    )
    sign = 1 if signs in ("1, 1", "-1, -1") else -1
    np.testing.assert_array_equal(found, sign * (a @ b) + c)


def test_warpgroups_and_blocks_multiply_matrices_of_their_own() -> None:
    """Two blocks of two warpgroups, which differ in a, and in whether they add."""
    a, b = integers(4, 64, 16), integers(16, 64)
    opcode, d = wgmma(64, "bf16")
    images = [
        image_of(
            [
                (bits_of(a[2 * block], "bf16"), Layout(0, 32, 0, 256)),
                (bits_of(a[2 * block + 1], "bf16"), Layout(2048, 32, 0, 256)),
                (bits_of(b.T, "bf16"), Layout(4096, 32, 0, 256)),
            ],
            8192,
        )
        for block in range(2)
    ]
    ones = np.ones((512, 32), np.float32)
    words = results(
        f"""
        mov.u32 %r7, %ctaid.x;
        mul.wide.u32 %d10, %r7, 8192; add.s64 %d10, %d10, %d1;
        {to_shared(10, 8192, threads=256)}
        {transfers("ld", 2, d)}
        shr.u32 %r8, %r3, 7; setp.eq.u32 %p1, %r8, 1;
        cvt.u64.u32 %d21, %r8; mad.lo.u64 %d21, %d21, 128, %d59;
        add.s64 %d20, %d21, {Layout(0, 32, 0, 256).descriptor};
        add.s64 %d22, %d59, {Layout(4096, 32, 0, 256).descriptor};
        {FENCE} {opcode} {d}, %d20, %d22, %p1, 1, 1, 0, 0;
        {COMMIT} {wait(0)}
        {transfers("st", 0, d)}
        """,
        [np.concatenate(images), ones],
        32,
        threads=256,
        blocks=2,
    )
    expected = a @ b + np.array([0, 1, 0, 1]).reshape(4, 1, 1)
    np.testing.assert_array_equal(sums_of(words, "f32"), expected)


# ---- wgmma: how it rounds ------------------------------------------------------------


# By the emulator's name. Numbers of tf32 are not rounded, so that both cut them off.
WGMMA_FORMS = [("half", "f16"), ("bf16", "bf16"), ("float", "tf32")]


def bits_and_numbers(inputs: str, *shape: int) -> tuple[Array, Array]:
    """Random numbers: the bits in a format, and what these stand for."""
    x = np.random.default_rng(shape).standard_normal(shape, np.float32)
    bits = bits_of(x, inputs)
    if inputs == "f16":
        return bits, bits.view(np.float16).astype(np.float32)
    if inputs == "bf16":
        return bits, (bits.astype(np.uint32) << 16).view(np.float32)
    assert (bits & 0x1FFF).any()
    return bits, x


@pytest.mark.parametrize(("kind", "inputs"), WGMMA_FORMS)
def test_sums_are_those_of_the_emulators_wgmma(kind: str, inputs: str) -> None:
    """Of random numbers, bit for bit; of a depth of several instructions."""
    (a_bits, b_bits), (a, b) = bits_and_numbers(inputs, 2, 64, 128)
    np.testing.assert_array_equal(narrow(kind, a).view(a_bits.dtype), a_bits)
    expected = product(emulated.load_kernels(), kind, a, b.T, (0, 1), 64)
    sums = np.zeros((1, 64, 64), np.uint32)
    depth = depth_of(inputs)
    for k in range(0, 128, depth):
        left, right = (x.T[k : k + depth, None] for x in (a_bits, b_bits))
        sums = multiply_add(left, right, sums, (inputs, inputs), "f32")
    np.testing.assert_array_equal(sums[0], expected.view(np.uint32))


def chain_of_the_emulator(kind: str, inputs: str) -> tuple[Array, Array]:
    """Two random matrices, as bits, and their product: that of four instructions."""
    bits, (a, b) = bits_and_numbers(inputs, 2, 64, 4 * depth_of(inputs))
    return bits, product(emulated.load_kernels(), kind, a, b.T, (0, 1), 64)


def chain_of_the_simulator(image: Array, inputs: str, majors: str = "") -> Array:
    """The bits of the same product, of both matrices along the rows of a swizzle."""
    opcode, d = wgmma(64, inputs)
    steps = "\n".join(
        f"""
        add.s64 %d20, %d59, {K_MAJOR[0].descriptor + 2 * step};
        add.s64 %d21, %d59, {K_MAJOR[1].descriptor + 2 * step};
        {opcode} {d}, %d20, %d21, {int(step > 0)}, 1, 1{majors};
        """
        for step in range(4)
    )
    words = results(
        f"""
        {to_shared(1, image.size)}
        {FENCE}
        {steps}
        {COMMIT} {wait(0)}
        {transfers("st", 0, d)}
        """,
        [image],
        32,
    )
    sums: Array = sums_of(words, "f32")[0].astype(np.float32).view(np.uint32)
    return sums


@pytest.mark.parametrize(("kind", "inputs"), WGMMA_FORMS)
def test_a_chain_of_products_is_the_emulators(kind: str, inputs: str) -> None:
    """By four instructions, whose descriptors go along the rows of a swizzle."""
    bits, expected = chain_of_the_emulator(kind, inputs)
    image = image_of(list(zip(bits, K_MAJOR, strict=True)), 16384)
    majors = "" if inputs == "tf32" else ", 0, 0"
    found = chain_of_the_simulator(image, inputs, majors)
    np.testing.assert_array_equal(found, expected.view(np.uint32))


# ---- wgmma of 8-bit floats -----------------------------------------------------------

# What an H200 makes of rows and columns of 32 numbers, and of an accumulator: of each
# pair of formats some 20 sums, which another number of bits or rounding would change.
OF_AN_H200 = json.loads(Path(__file__).with_name("float8_sums.json").read_text())[
    "sums"
]


@pytest.mark.parametrize("pair", OF_AN_H200)
def test_sums_of_8_bits_are_those_of_an_h200(pair: str) -> None:
    a, b, c, d = zip(*OF_AN_H200[pair], strict=True)
    left, right = (
        np.frombuffer(bytes.fromhex("".join(each)), np.uint8).reshape(-1, 32, 1)
        for each in (a, b)
    )
    sums, expected = (
        np.array([int(word, 16) for word in each], np.uint32).reshape(-1, 1, 1)
        for each in (c, d)
    )
    by_depth = left.swapaxes(0, 1), right.swapaxes(0, 1)
    found = multiply_add(*by_depth, sums, both_of(pair), "f32")
    np.testing.assert_array_equal(found, expected)


def random_bytes(form: str, n_rows: int, spread: int) -> Array:
    """Numbers of magnitudes up to 2 to the power of +-spread, or any finite ones."""
    random = np.random.default_rng(spread + 1)
    if spread < 0:
        found = random.integers(0, 256, (n_rows, 128), np.uint8)
        is_finite = torch.from_numpy(found).view(FLOAT8[form][0]).float().isfinite()
        found[~is_finite.numpy()] = 0
        return found
    scale = np.exp2(random.integers(-spread, spread + 1, (n_rows, 128)))
    return bits_of(random.standard_normal((n_rows, 128)) * scale, form)


def float8_sums(pair: str, spread: int) -> tuple[list[Array], Array]:
    """Random a, b by columns, and c, and what four products of the emulator give."""
    a, b = (
        random_bytes(form, n, spread)
        for form, n in zip(both_of(pair), (64, 128), strict=True)
    )
    c = np.random.default_rng(1).standard_normal((64, 128), np.float32)
    c *= np.float32(2.0) ** np.random.default_rng(2).integers(-20, 21, c.shape)
    c[:32] = 0
    return [a, b, c], emulated_sums(pair, a, b, c)


def emulated_sums(pair: str, a: Array, b: Array, c: Array) -> Array:
    d = np.zeros_like(c)
    name = f"float8_sums_{pair.replace('.', '_')}"
    emulated.load_kernels()(name, d, a, b, c, 4)
    return d


def added(pair: str, a: Array, b: Array, c: Array) -> Array:
    """The same by the simulator's sums."""
    sums = c.view(np.uint32)[None]
    for k in range(0, 128, 32):
        left, right = (x.T[k : k + 32, None] for x in (a, b))
        with np.errstate(invalid="ignore"):  # infinity times 0
            sums = multiply_add(left, right, sums, both_of(pair), "f32")
    found: Array = sums[0].view(np.float32)
    return found


@in_one_test("pair", "spread")
@pytest.mark.parametrize("pair", OF_AN_H200)
@pytest.mark.parametrize("spread", [0, 3, 9, -1])
def test_sums_of_8_bits_are_the_emulators(pair: str, spread: int) -> None:
    given, expected = float8_sums(pair, spread)
    np.testing.assert_array_equal(
        added(pair, *given).view(np.uint32), expected.view(np.uint32)
    )


@pytest.mark.parametrize("pair", OF_AN_H200)
def test_infinity_and_nan_of_8_bits_are_the_emulators(pair: str) -> None:
    (a, b, c), _ = float8_sums(pair, 3)
    for x, form in zip((a, b), both_of(pair), strict=True):
        chosen = np.random.default_rng(3).random(x.shape) < 0.001
        x[chosen] = x[chosen] & 0x80 | (0x7F if form == "e4m3" else 0x7C)
    c[5, 7], c[9, :3] = np.nan, -np.inf
    found, expected = added(pair, a, b, c), emulated_sums(pair, a, b, c)
    assert np.isnan(found).sum() > 50
    assert np.isfinite(found).sum() > 100
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("pair", OF_AN_H200)
def test_a_chain_of_8_bits_is_the_emulators(pair: str) -> None:
    """By four instructions of 64 columns, along the rows of a swizzle."""
    (a, b, c), _ = float8_sums(pair, 3)
    expected = emulated_sums(pair, a, b, 0 * c)[:, :64]
    image = image_of([(a, K_MAJOR[0]), (b[:64], K_MAJOR[1])], 16384)
    found = chain_of_the_simulator(image, pair)
    np.testing.assert_array_equal(found, expected.view(np.uint32))


# ---- When it is done, and by whom ----------------------------------------------------

ONES = np.ones((64, 16), np.float32), np.ones((16, 8), np.float32)
# Makes descriptors of two matrices of ones, and sums of 5.
BEGIN = f"""
    {to_shared(1, 16384)}
    {DESCRIPTORS}
    {" ".join(f"mov.b32 {each}, 0f40A00000;" for each in each_of(registers("e", 4)))}
    {FENCE}
"""
MULTIPLY = f"""
    {wgmma(8, "f16")[0]} {registers("e", 4)}, %d20, %d21, 1, 1, 1, 0, 0;
"""
STORE = transfers("st", 0, registers("e", 4))


def sums_after(body: str, order: Order) -> set[float]:
    """The sums that a kernel finds: 5, and 16 more for each product that is done."""
    out, _, _ = run(BEGIN + body + STORE, [image_for(*ONES, "f16")], 4, order=order)
    return set(out.view(np.float32).reshape(-1).tolist())


@pytest.mark.parametrize("order", ["", "forward", "reverse"])
@pytest.mark.parametrize("pending", [0, 1, 2])
def test_a_wait_for_products(pending: int, order: Order) -> None:
    """The checking mode does only what the wait asks for."""
    twice = 2 * (MULTIPLY + COMMIT)
    finished = 2 - pending if order else 2
    assert sums_after(twice + wait(pending), order) == {5.0 + 16 * finished}


@pytest.mark.parametrize(("order", "expected"), [("", {21.0}), ("forward", {37.0})])
def test_a_matrix_that_is_overwritten_too_early(
    order: Order, expected: set[float]
) -> None:
    """In the checking mode the product is that of what is there when it is awaited."""
    twos = "mov.b32 %r5, 0x40004000; st.shared.v4.b32 [%r6], {%r5, %r5, %r5, %r5};"
    overwrite = f"mad.lo.u32 %r6, %r3, 64, %r59; {twos}" + "".join(
        f"st.shared.v4.b32 [%r6+{place}], {{%r5, %r5, %r5, %r5}};"
        for place in (16, 32, 48)
    )
    body = MULTIPLY + COMMIT + overwrite + wait(0)
    assert sums_after(body, order) == expected
    _, _, simulation = run(
        BEGIN + body + STORE, [image_for(*ONES, "f16")], 4, order="forward"
    )
    assert simulation.faults


SUM = each_of(registers("e", 4))[0]
READ, WRITE = f"mov.b32 %r5, {SUM};", f"mov.b32 {SUM}, 0;"
ADD = f"add.f32 {SUM}, {SUM}, {SUM};"
MOVE = f"mov.b32 {each_of(registers('e', 4))[1]}, {SUM};"
# The left matrix is in registers.
ADD_LEFT = "".join(f"add.u32 %r{number}, %r3, 1;" for number in range(40, 44))
SET_LEFT = "".join(f"mov.b32 %r{number}, 0;" for number in range(40, 44))
MULTIPLY_LEFT = MULTIPLY.replace("%d20", "{%r40, %r41, %r42, %r43}").replace(
    "1, 0, 0;", "1, 0;"
)
DONE = COMMIT + wait(0)


@pytest.mark.parametrize(
    ("body", "what"),
    [
        (MULTIPLY + COMMIT + READ + wait(0), "reads accumulators of"),
        (MULTIPLY + READ + DONE, "reads accumulators of"),
        (MULTIPLY + COMMIT + WRITE + wait(0), "writes accumulators of"),
        (
            SET_LEFT + FENCE + MULTIPLY_LEFT + COMMIT + SET_LEFT + wait(0),
            "writes registers that are read by",
        ),
        (ADD_LEFT + MULTIPLY_LEFT + DONE, "uses registers that no wgmma.fence"),
        (ADD + MULTIPLY + DONE, "uses registers that no wgmma.fence"),
        # Moves, behind a product that has these registers, without another fence.
        (MULTIPLY + DONE + WRITE + MULTIPLY + DONE, "uses registers that no wgmma"),
        (
            SET_LEFT + MULTIPLY_LEFT + DONE + SET_LEFT + MULTIPLY_LEFT + DONE,
            "uses registers that no wgmma",
        ),
        (MULTIPLY + DONE + READ + MULTIPLY + DONE, "uses registers that no wgmma"),
        # Without a fault.
        (MULTIPLY + MULTIPLY + COMMIT + MULTIPLY + DONE, ""),
        (MULTIPLY + DONE + READ + WRITE + FENCE + MULTIPLY + DONE, ""),
        (MULTIPLY + COMMIT + SET_LEFT + wait(0), ""),
        # Moves that the compiler has put behind the fence.
        (WRITE + MULTIPLY + DONE, ""),
        (WRITE + MOVE + MULTIPLY + DONE, ""),
        (SET_LEFT + MULTIPLY_LEFT + DONE, ""),
        (MULTIPLY + DONE + READ + FENCE + WRITE + MOVE + MULTIPLY + DONE, ""),
        (SET_LEFT + FENCE + MULTIPLY_LEFT + "mov.b32 %r5, %r40;" + DONE, ""),
    ],
)
def test_registers_of_products_that_others_use(body: str, what: str) -> None:
    """The checking mode tells; in the fast mode it makes no difference."""
    image = image_for(*ONES, "f16")
    for order in ("", "forward"):
        _, _, simulation = run(BEGIN + body + STORE, [image], 4, order=order)
        told = [each.what for each in simulation.faults]
        if order and what:
            assert told[0].startswith(what)
        else:
            assert not told


@pytest.mark.parametrize("far", [0b00000011, 0b11100001, 0b11111011])
@pytest.mark.parametrize("is_k_major", [True, False])
def test_warps_may_multiply_one_after_the_other(far: int, is_k_major: bool) -> None:
    """Some of the two warpgroups' warps take a way that leads back from behind."""
    a, b = integers(2, 64, 16), integers(16, 32)
    layouts = [layout_of(64, 32, start, is_k_major=is_k_major) for start in (0, 8192)]
    b_layout = Layout(16384, 32, 0, 256)
    matrices = [(bits_of(b.T, "f16"), b_layout)]
    matrices += [(bits_of(e, "f16"), at) for e, at in zip(a, layouts, strict=True)]
    opcode, d = wgmma(32, "f16")
    words = results(
        f"""
        {to_shared(1, 32768, threads=256)}
        shr.u32 %r5, %r3, 5; shr.u32 %r6, {far}, %r5; and.b32 %r6, %r6, 1;
        add.s64 %d20, %d59, {layouts[0].descriptor};
        add.s64 %d21, %d59, {b_layout.descriptor};
        setp.ge.u32 %p1, %r3, 128;
        @%p1 add.s64 %d20, %d59, {layouts[1].descriptor};
        setp.eq.u32 %p2, %r6, 1;
        @%p2 bra FAR;
        NEAR: {FENCE}
        {opcode} {d}, %d20, %d21, 0, 1, 1, {int(not is_k_major)}, 0;
        {COMMIT} {wait(0)} {transfers("st", 0, d)}
        ret;
        FAR: bra NEAR;
        """,
        [image_of(matrices, 32768)],
        16,
        threads=256,
    )
    np.testing.assert_array_equal(sums_of(words, "f32"), a @ b)


@pytest.mark.parametrize("order", ["forward", "reverse"])
@pytest.mark.parametrize("is_awaited", [True, False])
def test_a_warp_that_has_waited_may_let_another_one_overwrite(
    is_awaited: bool, order: Order
) -> None:
    """Warp 3 tells warp 4, which is of no warpgroup, that the product is done."""
    _, _, simulation = run(
        f"""
        {to_shared(1, 16384, threads=160)}
        setp.ge.u32 %p1, %r3, 128;
        @%p1 bra OTHER;
        {DESCRIPTORS}
        {FENCE} {wgmma(8, "f16")[0]} {registers("e", 4)}, %d20, %d21, 0, 1, 1, 0, 0;
        {COMMIT} {wait(0) if is_awaited else ""}
        setp.lt.u32 %p2, %r3, 96;
        @!%p2 bar.arrive 1, 64;
        {wait(0)} {STORE}
        ret;
        OTHER: bar.sync 1, 64;
        mad.lo.u32 %r6, %r4, 16, %r59;
        st.shared.b32 [%r6], %r4;
        """,
        [image_for(*ONES, "f16")],
        4,
        threads=160,
        order=order,
    )
    assert bool(simulation.faults) != is_awaited


def test_lanes_of_a_warp_wait_for_each_other() -> None:
    words = registers("d", 1)
    out = results(
        f"""
        mad.lo.u32 %r6, %r4, 16, %r59;
        st.shared.v4.b32 [%r6], {{%r4, %r4, %r4, %r4}};
        setp.lt.u32 %p1, %r4, 16;
        @%p1 bra FAR;
        NEAR: ldmatrix.sync.aligned.m8n8.x1.shared.b16 {words}, [%r6];
        {transfers("st", 0, words)}
        ret;
        FAR: bra NEAR;
        """,
        [],
        1,
        threads=32,
    )
    np.testing.assert_array_equal(out[:, 0], np.arange(32) // 4)


MMA = "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32"
INSTRUCTIONS = {
    "ldmatrix": "ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r40}, [%r6];",
    "stmatrix": "stmatrix.sync.aligned.m8n8.x1.shared.b16 [%r6], {%r4};",
    "movmatrix": "movmatrix.sync.aligned.m8n8.trans.b16 %r40, %r4;",
    "mma": f"{MMA} {{%r40, %r41, %r42, %r43}}, {{%r4, %r4, %r4, %r4}}, {{%r4, %r4}},"
    " {%r4, %r4, %r4, %r4};",
    "wgmma": MULTIPLY,
}


@pytest.mark.parametrize("name", INSTRUCTIONS)
def test_a_warp_without_some_of_its_lanes(name: str) -> None:
    """It is told; the lanes of other warps go on."""
    body = f"""
        {BEGIN}
        mad.lo.u32 %r6, %r4, 16, %r59; mov.b32 %r40, 7;
        sub.u32 %r7, %r3, 5; setp.lt.u32 %p1, %r7, 7;
        @%p1 ret;
        {INSTRUCTIONS[name]}
        {transfers("st", 0, "{%r40}")}
    """
    _, written, simulation = run(body, [image_for(*ONES, "f16")], 1)
    assert [each.what for each in simulation.faults] == [
        "is without some of the lanes of its warp"
    ]
    assert simulation.faults[0].thread == (0, 0, 0)
    assert written[32:].all()
    if name in ("ldmatrix", "movmatrix", "mma"):
        assert not written[:32].any()


# ---- What is not known ---------------------------------------------------------------


def test_products_of_what_was_never_written() -> None:
    """It is told which byte; sums that need nothing of it are known."""
    image = image_for(*ONES, "f16")
    opcode, d = wgmma(8, "f16")
    body = f"""
        {to_shared(1, 16384)}
        {DESCRIPTORS} {FENCE}
        {opcode} {d}, %d20, %d21, 0, 1, 1, 0, 0;
        {COMMIT} {wait(0)} {STORE}
    """
    # Thread 27 stores at byte 432, where the swizzle has the first chunk of row 3 of a.
    store = "st.shared.v4.b32 [%r60+0]"
    without = body.replace(store, f"setp.ne.u32 %p1, %r3, 27; @%p1 {store}")
    out, written, simulation = run(without, [image], 4)
    assert simulation.faults[0].what == "reads shared memory at byte 432, never written"
    # Row 3 of the sums is that of lanes 12 to 15, in their first two registers.
    missing = np.zeros((128, 4), np.bool_)
    missing[12:16, :2] = True
    np.testing.assert_array_equal(written, ~missing)
    assert set(out.view(np.float32)[written]) == {16.0}


def test_a_descriptor_of_another_kind_is_told() -> None:
    body = BEGIN + f"add.s64 %d20, %d20, {1 << 49};" + MULTIPLY + COMMIT + wait(0)
    _, _, simulation = run(body, [image_for(*ONES, "f16")], 4)
    assert [each.what for each in simulation.faults] == [
        "has a descriptor of a kind that is not simulated"
    ]


def test_without_contents_results_are_unknown() -> None:
    body = f"""
        {DESCRIPTORS}
        mad.lo.u32 %r6, %r4, 16, %r59; mov.b32 %r40, 7;
        {INSTRUCTIONS["ldmatrix"]} {INSTRUCTIONS["stmatrix"]} {MULTIPLY}
        {INSTRUCTIONS["mma"].replace("%r4,", "%r40,").replace("%r4}", "%r40}")}
        setp.eq.u32 %p1, %r40, 0;
        @%p1 bra END;
        END: {wait(0)}
    """
    _, _, simulation = run(body, [], 1, has_contents=False)
    assert len(simulation.unknown_branches) == 1
    assert not simulation.unknown_opcodes
    stores = [(each.is_store, each.bytes) for each in simulation.accesses]
    assert stores == [(False, 4 * 128), (True, 4 * 128)]


def test_what_may_not_be_stored_at_all_is_unknown() -> None:
    """Without contents, a branch on what is loaded may go either way."""
    body = f"""
        mad.lo.u32 %r6, %r4, 16, %r59;
        ld.global.u32 %r9, [%d1]; setp.eq.u32 %p1, %r9, 0;
        @%p1 bra SKIP;
        {INSTRUCTIONS["stmatrix"]}
        SKIP: ld.shared.b32 %r8, [%r59]; setp.eq.u32 %p2, %r8, 0;
        @%p2 bra END;
        END:
    """
    given = [np.zeros(1, np.uint32)]
    _, _, simulation = run(body, given, 1, has_contents=False)
    assert len(simulation.unknown_branches) == 2
    certain = body.replace("@%p1 bra SKIP;", "")
    _, _, simulation = run(certain, given, 1, has_contents=False)
    assert not simulation.unknown_branches


OTHERS = [
    "mma.sync.aligned.m16n8k32.row.col.satfinite.s32.s8.s8.s32"
    " {%r40, %r41, %r42, %r43}, {%r4, %r4, %r4, %r4}, {%r4, %r4}, {%r4, %r4, %r4, %r4}",
    "mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32"
    " {%r40, %r41, %r42, %r43}, {%r4, %r4, %r4, %r4}, {%r4, %r4}, {%r4, %r4, %r4, %r4}",
    "mma.sync.aligned.m16n8k16.row.col.f16.bf16.bf16.f16"
    " {%r40, %r41}, {%r4, %r4, %r4, %r4}, {%r4, %r4}, {%r4, %r4}",
    "mma.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32"
    " {%r40, %r41, %r42, %r43}, {%r4, %r4, %r4, %r4}, {%r4, %r4}, {%r4, %r4, %r4, %r4}",
    "mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64"
    " {%d40, %d41}, {%d1}, {%d1}, {%d1, %d1}",
    "wgmma.mma_async.sync.aligned.m64n8k32.s32.s8.s8"
    " {%r40, %r41, %r42, %r43}, %d20, %d21, 1",
    "wgmma.mma_async.sync.aligned.m64n8k32.f16.e5m2.e5m2"
    " {%r40, %r41}, %d20, %d21, 1, 1, 1",
    "wgmma.mma_async.sync.aligned.m64n8k32.f32.e5m2.e5m2"
    " {%r40, %r41, %r42, %r43}, %d20, %d21, 1, 1, 1, 0, 0",
    "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.bf16"
    " {%r40, %r41, %r42, %r43}, %d20, %d21, 1, 1, 1, 0, 0",
    "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16"
    " {%r40, %r41, %r42, %r43}, %d20, %d21, 1, 1, 2, 0, 0",
    "wgmma.mma_async.sync.aligned.m64n8k8.f32.tf32.tf32"
    " {%r40, %r41, %r42, %r43}, %d20, %d21, 1, 1, 1, 0, 0",
    "ldmatrix.sync.aligned.m16n16.x1.trans.shared.b8 {%r40, %r41}, [%r6]",
    "stmatrix.sync.aligned.m16n8.x1.trans.shared.b8 [%r6], {%r4}",
]


@pytest.mark.parametrize("statement", OTHERS)
def test_other_forms_are_counted_and_not_computed(statement: str) -> None:
    body = f"""
        mad.lo.u32 %r6, %r4, 16, %r59; mov.b64 %d20, 0; mov.b64 %d21, 0;
        {statement};
    """
    _, _, simulation = run(body, [], 1, has_contents=False)
    assert simulation.is_exact
    _, _, simulation = run(body, [], 1)
    assert [each.what for each in simulation.faults] == ["is not simulated"]
