"""The emulator's model beyond threads and warps, against independent definitions.

Groups, asynchronous copies, matrix instructions, and the usual kinds of kernels made of
them. Where there is a GPU, every such test runs on it as well, which shows that the
test is right; the last section compares the results of the two.
"""

from __future__ import annotations

import functools
import itertools
import math
import re
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import emulated
import numpy as np
import pytest
import torch
from common import needs_gpu
from emulated import (
    FOR_BOTH,
    MACHINES,
    ORDERS,
    ROOT,
    SOURCES,
    Library,
    array,
    gpu_library,
    nvcc,
    zeros,
)

# ---- The machines -------------------------------------------------------------------


@pytest.fixture(params=MACHINES)
def machine(request: pytest.FixtureRequest) -> Library:
    return emulated.load_kernels() if request.param == "emulator" else gpu_library()


@pytest.fixture
def emulator() -> Library:
    return emulated.load_kernels()


def test_nvcc_compiles_the_same_files(tmp_path: Path) -> None:
    # All at once, behind what they include, which takes most of the time.
    texts = [each.read_text(encoding="utf-8") for each in FOR_BOTH]
    included = re.findall(r"^#include .*\n", "".join(texts), re.M)
    source, cubin = tmp_path / "kernels.cu", tmp_path / "kernels.cubin"
    source.write_text(
        "".join(dict.fromkeys(included))
        + "".join(
            f'namespace {each.stem} {{\n#include "{each}"\n}}\n' for each in FOR_BOTH
        )
    )
    nvcc("-arch=sm_90a", "-cubin", f"-I{SOURCES}", source, "-o", cubin)
    assert cubin.stat().st_size > 0


def test_both_sides_of_ptx_have_the_same_functions() -> None:
    def functions(*paths: Path) -> list[tuple[str, str]]:
        found = []
        for path in paths:
            text = path.read_text(encoding="utf-8")
            text = text.replace("__device__ __forceinline__", "inline")
            pattern = r"^(?:inline )?[\w:]+\*?\s(\w+)\((.*?)\) \{"
            site = r"std::|,?\s*Site site = Site::here\(\)|\s"
            for name, parameters in re.findall(pattern, text, re.M | re.S):
                found.append((name, re.sub(site, "", parameters)))
        return sorted(found)

    headers = sorted((ROOT / "csrc/common/ptx").glob("*.cuh"))
    on_gpu = functions(*headers, ROOT / "tests/emulator/ptx.cuh")
    on_gpu = [
        each for each in on_gpu if each[0] != "shared_address"
    ]  # of the GPU alone
    assert on_gpu == functions(ROOT / "csrc/emulator/emulated_ptx.h") != []


# ---- Cooperative groups --------------------------------------------------------------


def test_block_group(machine: Library) -> None:
    threads, blocks = 60, 12
    out = zeros(blocks * threads, 12, dtype=np.uint32)
    machine("block_group", out)
    expected = [
        [
            thread,
            threads,
            *(block % 2, block // 2 % 3, block // 6),
            *(thread % 4, thread // 4 % 3, thread // 12),
            40305,
            threads * 10000 + thread,
            threads - 1 - thread,
            0,
        ]
        for block in range(blocks)
        for thread in range(threads)
    ]
    np.testing.assert_array_equal(out, expected)


@pytest.mark.parametrize("size", [1, 2, 4, 8, 16, 32])
def test_tiles(machine: Library, size: int) -> None:
    x = np.random.default_rng(size).integers(0, 100, 64, np.int32)
    x[32:48] = 77
    for rank, distance in ((0, 0), (5, size // 2), (size - 1, min(1, size - 1))):
        out = zeros(64, 20)
        machine("tiles", out, x, size, rank, distance)
        expected = array(tiles(x, size, rank, distance), np.int64)
        np.testing.assert_array_equal(out.view(np.uint32), expected)


def tiles(x: np.ndarray, size: int, rank: int, distance: int) -> list[list[int]]:
    """The output of tile_kernel, by the CUDA programming guide."""
    rows = []
    for thread in range(x.size):
        first, own = thread // size * size, thread % size
        tile = [int(value) for value in x[first : first + size]]
        value = tile[own]
        equal = len({other // 50 for other in tile}) == 1
        rows.append(
            [
                own,
                101 * size,
                thread // size,
                x.size // size,
                tile[rank % size],
                tile[own - distance] if own >= distance else value,
                tile[own + distance] if own + distance < size else value,
                tile[own ^ distance],
                any(other > 90 for other in tile),
                all(other > 10 for other in tile),
                sum((other % 2) << i for i, other in enumerate(tile)),
                sum((other % 3 == value % 3) << i for i, other in enumerate(tile)),
                ((1 << size) - 1) * equal,
                equal,
                sum(tile),
                min(tile),
                max(tile),
                functools.reduce(lambda a, b: a & b, tile),
                functools.reduce(lambda a, b: a | b, tile),
                functools.reduce(lambda a, b: a ^ b, tile),
            ]
        )
    return rows


def butterfly(x: np.ndarray) -> np.ndarray:
    """The sum of x that each element gets by butterfly: rounding makes them differ."""
    distance = x.size // 2
    while distance > 0:
        x = x + x[np.arange(x.size) ^ distance]
        distance //= 2
    return x


def test_tiles_of_other_types_and_of_tiles(machine: Library) -> None:
    out = zeros(64, 8, dtype=np.float64)
    machine("tile_values", out)
    i = np.arange(64)
    opposite = i ^ 3
    triple = opposite + 1e3 * (2 * opposite) + 1e6 * (3 * opposite)
    np.testing.assert_array_equal(out[:, 0], triple)
    np.testing.assert_array_equal(out[:, 1], 0.5 * (i // 32 * 32 + 7))
    np.testing.assert_array_equal(out[:, 2], np.where(i % 4 < 2, i + 2, i))
    np.testing.assert_array_equal(out[:, 3], i % 16 // 4 * 1000 + 400 + i % 4)
    np.testing.assert_array_equal(out[:, 4], i // 4 * 1000 + 1600 + i % 4)
    inverse = np.float32(1) / (np.float32(1) + i.astype(np.float32))
    sums = [butterfly(part) for part in inverse.reshape(2, 32)]
    np.testing.assert_array_equal(out[:, 5], np.concatenate(sums))
    np.testing.assert_array_equal(out[:, 6], 1e10 * (4 * (i // 4 * 4) + 6))
    least = (7 * i % 17).reshape(4, 16).min(axis=1)
    np.testing.assert_array_equal(out[:, 7], np.repeat(least, 16))


def test_one_thread_for_all(machine: Library) -> None:
    counter, out = zeros(3, dtype=np.uint32), zeros(64, dtype=np.uint32)
    machine("invoke_one", counter, out)
    np.testing.assert_array_equal(counter, [1, 8 * 3, 8])
    tickets = out.reshape(8, 8)
    assert (tickets == tickets[:, :1]).all()
    assert set(tickets[:, 0]) == set(range(8))


def test_converged_threads(machine: Library) -> None:
    out = zeros(64, 12)
    machine("coalesced", out)
    expected = np.zeros_like(out)
    for first in (0, 32):
        threads = [i for i in range(first, first + 32) if i % 3 == 1]
        values = [i * i % 23 for i in threads]
        scan = [np.float32(1 + value) for value in values]
        distance = 1
        while distance < len(scan):
            scan = [
                own * np.float32(0.5) + scan[rank - distance] * np.float32(0.25)
                if rank >= distance
                else own
                for rank, own in enumerate(scan)
            ]
            distance *= 2
        for rank, (thread, value) in enumerate(zip(threads, values, strict=True)):
            expected[thread] = [
                rank,
                len(threads),
                values[3],
                values[rank - 2] if rank >= 2 else value,
                values[rank + 2] if rank + 2 < len(values) else value,
                1 in values,
                True,
                sum((other % 2) << i for i, other in enumerate(values)),
                sum((other % 4 == value % 4) << i for i, other in enumerate(values)),
                0,
                sum(values),
                int(scan[-1] * 4096),
            ]
    np.testing.assert_array_equal(out, expected)


# ---- Asynchronous copies -------------------------------------------------------------


@pytest.mark.parametrize("size", [4, 8, 16])
def test_copies_of_every_size(machine: Library, size: int) -> None:
    x = np.random.default_rng(size).integers(1, 256, 64 * size, np.uint8)
    out = zeros(3, 64, size, dtype=np.uint8)
    machine("copy_sizes", out, x, size)
    source = x.reshape(64, size)
    read = np.arange(64)[:, None] % (size + 1)
    byte = np.arange(size)
    np.testing.assert_array_equal(out[0], np.where(byte < read, source, 0))
    np.testing.assert_array_equal(out[1], source)
    # The last argument of CUDA's function counts the bytes that are not read.
    np.testing.assert_array_equal(out[2], np.where(byte < size - read, source, 0))


@pytest.mark.parametrize("name", ["copy_groups", "pipeline_groups"])
@pytest.mark.parametrize("when", ["eager", "late", None])
@pytest.mark.parametrize("unfinished", [-1, 0, 1, 2, 3, 4])
def test_which_copies_have_arrived(
    emulator: Library,
    name: str,
    when: str | None,
    unfinished: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if when is not None:
        monkeypatch.setenv("TWIN_EMULATOR_ASYNC", when)
    if name == "pipeline_groups" and unfinished < 0:
        pytest.skip("CUDA has no function for this")
    x = np.arange(1, 161, dtype=np.int32)
    out = zeros(32, 5)
    emulator(name, out, x, unfinished)
    arrived = finished_copies(unfinished) if when != "eager" else range(5)
    for copy in range(5):
        expected = x[32 * copy : 32 * copy + 32] if copy in arrived else 0
        np.testing.assert_array_equal(out[:, copy], expected)


def finished_copies(unfinished: int) -> list[int]:
    """The copies that copy_groups_kernel has waited for."""
    groups = [[0], [1, 2], [], [3]]
    if unfinished < 0:
        return [0, 1, 2, 3, 4]
    return list(itertools.chain(*groups[: len(groups) - unfinished]))


@needs_gpu
@pytest.mark.parametrize("name", ["copy_groups", "pipeline_groups"])
@pytest.mark.parametrize("unfinished", [0, 1, 2, 3, 4])
def test_awaited_copies_have_arrived_on_the_gpu(name: str, unfinished: int) -> None:
    x = np.arange(1, 161, dtype=np.int32)
    out = zeros(32, 5)
    gpu_library()(name, out, x, unfinished)
    for copy in finished_copies(unfinished):
        np.testing.assert_array_equal(out[:, copy], x[32 * copy : 32 * copy + 32])


@pytest.mark.parametrize(("when", "expected"), [("eager", 7), ("late", -1)])
def test_copies_without_a_wait(
    emulator: Library, when: str, expected: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TWIN_EMULATOR_ASYNC", when)
    out = zeros(3, 64)
    emulator("abandoned_copy", out, array([7]))
    np.testing.assert_array_equal(out[:, 1:], np.full((3, 63), expected))


@needs_gpu
def test_gpu_lets_threads_pass_a_barrier_without_those_that_returned() -> None:
    out = zeros(3, 64)
    gpu_library()("abandoned_copy", out, array([7]))
    assert np.isin(out[:, 1:], [-1, 7]).all()


# ---- ldmatrix ------------------------------------------------------------------------


@pytest.mark.parametrize("transposed", [0, 1])
def test_ldmatrix(machine: Library, transposed: int) -> None:
    random = np.random.default_rng(4)
    x = random.permutation(1024).astype(np.uint16)
    places = (8 * random.permutation(128)[:32]).astype(np.int32)
    out = zeros(64, 4, dtype=np.uint32)
    machine("load_matrices", out, x, places, transposed)
    for thread in range(64):
        lane = thread % 32
        for number in range(4):
            rows = [x[place : place + 8] for place in places[8 * number :][:8]]
            matrix = np.array(rows).T if transposed else np.array(rows)
            low, high = matrix[lane // 4, lane % 4 * 2 : lane % 4 * 2 + 2]
            assert out[thread, number] == int(low) | int(high) << 16


# ---- mma.sync ------------------------------------------------------------------------

# The row and column of element i of a lane's fragment, in the words of the PTX ISA,
# "Matrix Fragments for mma.m16n8k16 with floating point type" and "... mma.m16n8k8".
# A lane belongs to group lane / 4, in which it is thread lane % 4.


def places_of_a(lane: int, depth: int) -> list[tuple[int, int]]:
    group, thread = lane >> 2, lane % 4
    if depth == 8:
        return [
            (group if i in (0, 2) else group + 8, thread if i in (0, 1) else thread + 4)
            for i in range(4)
        ]
    return [
        (
            group if 0 <= i < 2 or 4 <= i < 6 else group + 8,
            thread * 2 + (i & 1) + (0 if i < 4 else 8),
        )
        for i in range(8)
    ]


def places_of_b(lane: int, depth: int) -> list[tuple[int, int]]:
    group, thread = lane >> 2, lane % 4
    if depth == 8:
        return [(thread if i == 0 else thread + 4, group) for i in range(2)]
    return [(thread * 2 + (i & 1) + (0 if i < 2 else 8), group) for i in range(4)]


def places_of_c(lane: int) -> list[tuple[int, int]]:
    group, thread = lane >> 2, lane % 4
    return [(group if i < 2 else group + 8, thread * 2 + (i & 1)) for i in range(4)]


def fragments(
    matrices: np.ndarray, places: Callable[[int], list[tuple[int, int]]]
) -> np.ndarray:
    """Each lane's fragment of each matrix."""
    index = np.array([places(lane) for lane in range(32)])
    return np.ascontiguousarray(matrices[:, index[:, :, 0], index[:, :, 1]])


def to_bfloat16(x: np.ndarray) -> np.ndarray:
    """The bits of x, rounded to nearest; x has no NaN."""
    bits = torch.tensor(x).bfloat16().view(torch.int16).numpy()
    return bits.view(np.uint16)


def from_bfloat16(bits: np.ndarray) -> np.ndarray:
    return (bits.astype(np.uint32) << 16).view(np.float32)


def multiply(
    library: Library, kind: str, a: np.ndarray, b: np.ndarray, c: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Products of many matrices: d, and a, b and c as rounded for the instruction."""
    depth = 8 if kind == "tf32" else 16
    a_bits: np.ndarray
    b_bits: np.ndarray
    if kind == "tf32":
        a_bits, b_bits = a.view(np.uint32), b.view(np.uint32)
        a, b = ((x & 0xFFFFE000).view(np.float32) for x in (a_bits, b_bits))
    elif kind == "bfloat16":
        a_bits, b_bits = to_bfloat16(a), to_bfloat16(b)
        a, b = from_bfloat16(a_bits), from_bfloat16(b_bits)
    else:
        a_bits, b_bits = (x.astype(np.float16).view(np.uint16) for x in (a, b))
        a, b = (x.view(np.float16).astype(np.float32) for x in (a_bits, b_bits))
    accumulators = np.float16 if kind == "half_half" else np.float32
    c = c.astype(accumulators)
    c_fragments = fragments(c, places_of_c)
    d_fragments = np.full_like(c_fragments, 123)
    library(
        f"mma_{kind}",
        d_fragments,
        fragments(a_bits, lambda lane: places_of_a(lane, depth)),
        fragments(b_bits, lambda lane: places_of_b(lane, depth)),
        c_fragments,
        len(a),
    )
    d = np.full((len(a), 16, 8), np.nan, accumulators)
    for lane in range(32):
        for i, (row, column) in enumerate(places_of_c(lane)):
            d[:, row, column] = d_fragments[:, lane, i]
    return d, a, b, c


KINDS = ["half", "bfloat16", "tf32", "half_half"]


@pytest.mark.parametrize("kind", KINDS)
def test_mma_with_one_hot_matrices(machine: Library, kind: str) -> None:
    """Every element of a, b and c contributes to exactly the right elements of d."""
    depth = 8 if kind == "tf32" else 16
    every_a = np.eye(16 * depth, dtype=np.float32).reshape(-1, 16, depth)
    every_b = np.eye(depth * 8, dtype=np.float32).reshape(-1, depth, 8)
    distinct_a = np.arange(1, 16 * depth + 1, dtype=np.float32).reshape(16, depth)
    distinct_b = np.arange(1, depth * 8 + 1, dtype=np.float32).reshape(depth, 8)
    distinct_c = np.arange(1, 129, dtype=np.float32).reshape(16, 8)
    zero = np.float32(0)
    for a, b, c in (
        (every_a, distinct_b, zero),
        (distinct_a, every_b, zero),
        (every_a[:1] * 0, distinct_b, distinct_c),
    ):
        n = max(len(x) for x in (a, b) if x.ndim == 3)
        a_all, b_all, c_all = (
            np.ascontiguousarray(np.broadcast_to(x, (n, *shape)))
            for x, shape in ((a, (16, depth)), (b, (depth, 8)), (c, (16, 8)))
        )
        d, _, _, _ = multiply(machine, kind, a_all, b_all, c_all)
        np.testing.assert_array_equal(d, a_all @ b_all + c_all)


def random_matrices(
    kind: str, count: int, spread: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Random a, b and c, of magnitudes up to 2 to the power of +-spread."""
    depth = 8 if kind == "tf32" else 16
    random = np.random.default_rng(spread)

    def matrices(*shape: int) -> np.ndarray:
        scale = np.exp2(random.integers(-spread, spread + 1, (count, *shape)))
        values = random.standard_normal((count, *shape)) * scale
        return np.asarray(values, dtype=np.float32)

    return matrices(16, depth), matrices(depth, 8), matrices(16, 8)


@pytest.mark.parametrize("kind", KINDS)
def test_mma_is_a_matrix_product(machine: Library, kind: str) -> None:
    d, a, b, c = multiply(machine, kind, *random_matrices(kind, 100, 2))
    a, b, c = (x.astype(np.float64) for x in (a, b, c))
    magnitude = abs(a) @ abs(b) + abs(c)
    error = 2.0**-10 * abs(d) if kind == "half_half" else 0
    assert (abs(d - (a @ b + c)) <= 2.0**-20 * magnitude + error).all()


def exponent_of(value: float, lowest: int) -> int:
    return max(math.frexp(value)[1] - 1, lowest)


def by_the_rule(kind: str, a: np.ndarray, b: np.ndarray, c: float) -> np.floating[Any]:
    """One element of d, by the rounding that the emulator's README describes."""
    lowest = -14 if kind.startswith("half") else -126
    lowest_c = -14 if kind == "half_half" else -126
    terms = [
        (Fraction(x) * Fraction(y), exponent_of(x, lowest) + exponent_of(y, lowest))
        for x, y in zip(map(float, a), map(float, b), strict=True)
        if x != 0 and y != 0
    ]
    if c != 0:
        terms.append((Fraction(c), exponent_of(c, lowest_c)))
    if not terms:
        return np.float32(0)
    unit = Fraction(2) ** (max(exponent for _, exponent in terms) - 25)
    total = float(sum(math.trunc(value / unit) for value, _ in terms) * unit)
    if kind == "half_half":
        return np.float64(total).astype(np.float16)
    rounded = np.float32(total)
    if abs(float(rounded)) > abs(total):
        rounded = np.nextafter(rounded, np.float32(0))
    return rounded


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("spread", [0, 3, 14])
def test_how_mma_rounds(emulator: Library, kind: str, spread: int) -> None:
    matrices = random_matrices(kind, 4, spread)
    if kind == "half_half":  # not beyond the largest half
        matrices = matrices[0] / 4, matrices[1] / 2**spread, matrices[2] / 4
    d, a, b, c = multiply(emulator, kind, *matrices)
    for number, row, column in np.ndindex(d.shape):
        expected = by_the_rule(
            kind, a[number, row], b[number, :, column], float(c[number, row, column])
        )
        assert d[number, row, column] == expected


@pytest.mark.parametrize("kind", KINDS)
def test_mma_of_infinity_and_nan(machine: Library, kind: str) -> None:
    depth = 8 if kind == "tf32" else 16
    a = np.ones((1, 16, depth), np.float32)
    a[0, 0, 1], a[0, 1, 2], a[0, 2, 3], a[0, 3, :2] = np.inf, -np.inf, np.nan, np.inf
    b = np.ones((1, depth, 8), np.float32)
    b[0, 0, 0] = -1
    c = np.zeros((1, 16, 8), np.float32)
    c[0, 0, 4], c[0, 5, 4], c[0, 6, 5] = -np.inf, np.inf, np.nan
    d, a, b, c = multiply(machine, kind, a, b, c)
    with np.errstate(invalid="ignore"):
        expected = a.astype(np.float64) @ b.astype(np.float64) + c
    np.testing.assert_array_equal(d, expected)
    bits = d.view(np.uint16 if kind == "half_half" else np.uint32)
    quiet_nan = 0x7FFF if kind == "half_half" else 0x7FFFFFFF
    assert set(bits[np.isnan(d)]) == {quiet_nan}


@pytest.mark.parametrize("kind", KINDS)
def test_nan_leaves_other_sums_of_mma_as_they_are(emulator: Library, kind: str) -> None:
    matrices = random_matrices(kind, 1, 3)
    if kind == "half_half":
        matrices = matrices[0] / 4, matrices[1] / 8, matrices[2] / 4
    before, a, b, c = multiply(emulator, kind, *matrices)
    a[0, 3, 2], b[0, 1, 6] = np.nan, np.inf
    after, *_ = multiply(emulator, kind, a, b, c)
    others = np.ones(after.shape, bool)
    others[:, 3], others[..., 6] = False, False
    assert not np.isfinite(after[~others]).any()
    np.testing.assert_array_equal(after[others], before[others])


# ---- The usual kinds of kernels ------------------------------------------------------


@pytest.fixture(
    params=[(order, when) for order in ORDERS for when in ("eager", "late")]
)
def any_order(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    order, when = request.param
    monkeypatch.setenv("TWIN_EMULATOR_ORDER", order)
    monkeypatch.setenv("TWIN_EMULATOR_ASYNC", when)


def normal(*shape: int) -> np.ndarray:
    return np.random.default_rng(shape).standard_normal(shape, np.float32)


def empty(*shape: int) -> np.ndarray:
    return np.full(shape, np.nan, np.float32)


def test_addition(machine: Library) -> None:
    x, y = normal(2, 4096)
    out = empty(4096)
    machine("add", out, x, y, x.size)
    np.testing.assert_array_equal(out, x + y)


def test_gelu(machine: Library) -> None:
    x = 4 * normal(5000)
    out = empty(5000)
    machine("gelu", out, x, x.size)
    expected = [0.5 * v * (1 + math.erf(v / math.sqrt(2))) for v in x.astype(float)]
    np.testing.assert_allclose(out, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.usefixtures("any_order")
def test_softmax(machine: Library) -> None:
    x = 10 * normal(5, 777)
    out = empty(5, 777)
    machine("softmax", out, x, *x.shape)
    powers = np.exp(x.astype(float) - x.max(axis=1, keepdims=True))
    np.testing.assert_allclose(out, powers / powers.sum(axis=1, keepdims=True), 1e-5)


def product_error(out: np.ndarray, a: np.ndarray, b: np.ndarray) -> float:
    """The largest error, relative to the product of the magnitudes."""
    a, b = a.astype(np.float64), b.astype(np.float64)
    return float(np.max(abs(out - a @ b) / (abs(a) @ abs(b))))


@pytest.mark.usefixtures("any_order")
def test_matrix_product(machine: Library) -> None:
    a, b, out = normal(70, 45), normal(45, 130), empty(70, 130)
    machine("matmul", out, a, b, 70, 130, 45)
    assert product_error(out, a, b) < 1e-6


def bfloat16_product(library: Library, name: str = "matmul_bf16") -> float:
    a, b = to_bfloat16(normal(100, 136)), to_bfloat16(normal(136, 72))
    out = empty(100, 72)
    library(name, out, a, b, 100, 72, 136)
    return product_error(out, from_bfloat16(a), from_bfloat16(b))


@pytest.mark.usefixtures("any_order")
def test_matrix_product_on_tensor_cores(machine: Library) -> None:
    assert bfloat16_product(machine) < 1e-6


@pytest.mark.parametrize("when", ["eager", "late", None])
@pytest.mark.parametrize("order", ORDERS)
def test_a_wait_that_is_too_weak_shows(
    emulator: Library, when: str | None, order: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TWIN_EMULATOR_ORDER", order)
    if when is not None:
        monkeypatch.setenv("TWIN_EMULATOR_ASYNC", when)
    error = bfloat16_product(emulator, "matmul_bf16_weak_wait")
    # The error is NaN where the kernel has read shared memory before the copy to it.
    assert error < 1e-6 if when == "eager" else not error < 1e-3


# ---- The emulator against the GPU ----------------------------------------------------


@needs_gpu
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("spread", [0, 1, 3, 7, 14])
def test_mma_is_the_gpus_bit_for_bit(emulator: Library, kind: str, spread: int) -> None:
    """Holds on Hopper (measured on an H200); other tensor cores round differently."""
    if torch.cuda.get_device_capability() != (9, 0):
        pytest.skip("the emulated tensor cores are those of sm_90")
    matrices = random_matrices(kind, 500, spread)
    here, _, _, _ = multiply(emulator, kind, *matrices)
    there, _, _, _ = multiply(gpu_library(), kind, *matrices)
    different = np.count_nonzero(
        ~((here == there) | (np.isnan(here) & np.isnan(there)))
    )
    assert different == 0, f"{different} of {here.size} elements"


@needs_gpu
@pytest.mark.parametrize("kind", KINDS)
def test_mma_of_tiny_numbers_is_the_gpus(emulator: Library, kind: str) -> None:
    """Denormals, and a tiny c beside products that are zero."""
    if torch.cuda.get_device_capability() != (9, 0):
        pytest.skip("the emulated tensor cores are those of sm_90")
    a, b, c = random_matrices(kind, 200, 3)
    scale = np.float32(2.0**-12 if kind.startswith("half") else 2.0**-62)
    a, b, c = a * scale, b * scale, c * scale * scale
    a[:50] = 0
    c[100:] *= np.float32(2.0**-20)
    here, _, _, _ = multiply(emulator, kind, a, b, c)
    there, _, _, _ = multiply(gpu_library(), kind, a, b, c)
    different = np.count_nonzero(here != there)
    assert different == 0, f"{different} of {here.size} elements"


@needs_gpu
@pytest.mark.parametrize(
    ("name", "shapes", "rounding"),
    [
        ("add", ((4096,), (4096,), (4096,)), 0),
        ("gelu", ((5000,), (5000,)), 2e-6),
        ("softmax", ((64, 1000), (64, 1000)), 2e-6),
        # nvcc fuses a product and a sum, which round once.
        ("matmul", ((70, 130), (70, 45), (45, 130)), 2e-6),
        ("matmul_bf16", ((256, 128), (256, 512), (512, 128)), 0),
    ],
)
def test_kernels_compute_what_the_gpu_computes(
    emulator: Library, name: str, shapes: tuple[tuple[int, ...], ...], rounding: float
) -> None:
    inputs = [normal(*shape) for shape in shapes[1:]]
    if name == "matmul_bf16":
        inputs = [to_bfloat16(x) for x in inputs]
    sizes: tuple[int, ...] = (math.prod(shapes[0]),)
    if name == "softmax":
        sizes = shapes[0]
    if name.startswith("matmul"):
        sizes = (*shapes[0], shapes[1][1])
    results = []
    for library in (emulator, gpu_library()):
        out = empty(*shapes[0])
        library(name, out, *inputs, *sizes)
        results.append(out)
    here, there = results
    largest = abs(there).max()
    assert (abs(here - there) <= rounding * largest).all(), abs(here - there).max()
