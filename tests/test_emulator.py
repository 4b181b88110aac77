"""The emulator: the results of kernels, and its messages.

The kernels are in tests/emulator, built by g++ alone and driven through ctypes.
"""

from __future__ import annotations

import itertools
import re
import threading
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from emulated import (
    COMPILER,
    EMULATOR,
    ORDERS,
    RUNNER,
    SOURCES,
    Library,
    array,
    compile_object,
    load_kernels,
    object_of,
    run,
    zeros,
)
from together import in_one_test

from bindings.backends import cuda_inline


@pytest.fixture(scope="session")
def library() -> Library:
    return load_kernels()


@pytest.fixture(params=ORDERS)
def order(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("TWIN_EMULATOR_ORDER", request.param)
    return str(request.param)


# ---- Results -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("grid", "block"),
    [((5, 1, 1), (33, 1, 1)), ((2, 3, 1), (8, 4, 1)), ((2, 3, 4), (3, 5, 7))],
)
def test_indices(
    library: Library, grid: tuple[int, ...], block: tuple[int, ...]
) -> None:
    threads = [range(size) for size in reversed(block)]
    blocks = [range(size) for size in reversed(grid)]
    expected = [
        (*reversed(thread), *reversed(block_index))
        for block_index in itertools.product(*blocks)
        for thread in itertools.product(*threads)
    ]
    out = zeros(len(expected), 6, dtype=np.uint32)
    library("indices", out, array(grid, np.uint32), array(block, np.uint32))
    np.testing.assert_array_equal(out, expected)


@pytest.mark.usefixtures("order")
def test_shared_memory_and_barriers(library: Library) -> None:
    x = np.random.default_rng(0).standard_normal((40, 96), np.float32)
    out = np.full_like(x, np.nan)
    library("reverse", out, x, 40)
    np.testing.assert_array_equal(out, np.roll(x, -1, axis=1))


@pytest.mark.parametrize("votes", [[0] * 70, [1] * 70, [0] * 69 + [5]])
def test_barrier_votes(library: Library, votes: list[int]) -> None:
    out = zeros(70, 3)
    library("barrier_votes", out, array(votes, np.int32), 70)
    expected = [np.count_nonzero(votes), all(votes), any(votes)]
    np.testing.assert_array_equal(out, [expected] * 70)


@pytest.mark.usefixtures("order")
def test_threads_that_returned_count_as_arrived(library: Library) -> None:
    leaves = np.random.default_rng(3).integers(0, 3, 100, np.int32)
    leaves[32:64] = 1
    out = zeros(100, 2)
    library("early_exit", out, leaves, 100)
    stays = leaves == 0
    odd = np.count_nonzero(np.arange(100)[stays] % 2)
    np.testing.assert_array_equal(out[stays], [[odd, 1]] * np.count_nonzero(stays))
    assert not out[~stays].any()


def shuffled(x: np.ndarray, operand: np.ndarray, width: int) -> np.ndarray:
    """All four shuffles, by the pseudocode of shfl.sync in the PTX ISA."""
    segment_mask = (32 - width) & 31
    results = []
    for mode in ("idx", "up", "down", "bfly"):
        for lane in range(32):
            b = int(operand[lane if mode == "idx" else 0]) & 31
            max_lane = (lane & segment_mask) | (
                0 if mode == "up" else ~segment_mask & 31
            )
            min_lane = lane & segment_mask
            j, valid = {
                "idx": (min_lane | (b & ~segment_mask), True),
                "up": (lane - b, lane - b >= max_lane),
                "down": (lane + b, lane + b <= max_lane),
                "bfly": (lane ^ b, lane ^ b <= max_lane),
            }[mode]
            if mode == "idx":
                valid = j <= max_lane
            results.append(x[j if valid else lane])
    return np.array(results, x.dtype)


@in_one_test("name", "numpy_type", "width")
@pytest.mark.parametrize("width", [1, 2, 4, 8, 16, 32])
@pytest.mark.parametrize(
    ("name", "numpy_type"),
    [("float", "f4"), ("int64", "i8"), ("half", "f2"), ("bf162", "u4")],
)
def test_shuffles(library: Library, name: str, numpy_type: str, width: int) -> None:
    random = np.random.default_rng(width)
    x = np.arange(100, 132).astype(numpy_type)
    for first in (0, 1, 3, 8, 16, 31, 32):
        operand = random.integers(0, 64, 32, np.int32)
        operand[0] = first
        out = np.zeros(128, numpy_type)
        library(f"shuffle_{name}", out, x, operand, width)
        np.testing.assert_array_equal(out, shuffled(x, operand, width))


@pytest.mark.usefixtures("order")
def test_warp_operations(library: Library) -> None:
    x = np.random.default_rng(1).integers(-7, 8, 32, np.int32)
    out = zeros(32, 12)
    library("warp", out, x)
    lanes = np.arange(32)

    def mask(condition: Any) -> int:
        return int(np.sum(np.where(condition, 1 << lanes, 0)))

    unsigned = x.view(np.uint32)
    expected = {
        0: [mask(x > 0)] * 32,
        1: [int((x > 6).any())] * 32,
        2: [1] * 32,
        3: [x.sum()] * 32,
        4: [x.min()] * 32,
        5: [x.max()] * 32,
        6: [unsigned.max()] * 32,
        7: [np.bitwise_xor.reduce(unsigned)] * 32,
        8: [mask(x == value) for value in x],
        9: [0] * 32,
        10: [mask((lanes % 3 == 0) == (lane % 3 == 0)) for lane in lanes],
        11: [x[:16].sum()] * 16 + [x[16:].sum()] * 16,
    }
    for column, values in expected.items():
        wanted = np.array(values, np.int64) & 0xFFFFFFFF
        np.testing.assert_array_equal(out.view(np.uint32)[:, column], wanted)


def test_partial_warp(library: Library) -> None:
    out = zeros(40)
    library("partial_warp", out)
    np.testing.assert_array_equal(out, [32] * 32 + [8] * 8)


@pytest.mark.usefixtures("order")
def test_histogram(library: Library) -> None:
    x = np.random.default_rng(2).integers(0, 256, 20_000, np.uint8)
    bins = zeros(256, dtype=np.uint32)
    library("histogram", bins, x, x.size)
    np.testing.assert_array_equal(bins, np.bincount(x, minlength=256))


def test_atomic_sums_of_all_types(library: Library) -> None:
    out = zeros(12, dtype=np.float64)
    library("sums", out)
    expected = [512, 256, -3072, 1024 * 2.0**33, 256, 128, 128, -128, 64, 256]
    expected += [1024 + 2048e5, 1024 + 4096e5]
    np.testing.assert_array_equal(out, expected)


def test_other_atomics(library: Library) -> None:
    out, tickets = (
        array([-1000, 1000, 0, -1, 0], np.int32),
        zeros(1024, dtype=np.uint32),
    )
    counters = array([0, 0, 0, 0], np.uint32)
    library("extremes", out, tickets, counters)
    np.testing.assert_array_equal(out, [723, -300, 0x7FFFFFFF, ~31, 0])
    np.testing.assert_array_equal(np.sort(tickets), np.arange(1024))
    # atomicInc wraps after 99, atomicDec after 0: 1024 = 10 * 100 + 24.
    np.testing.assert_array_equal(counters, [1024, 24, 76, 42])


# ---- Numbers -------------------------------------------------------------------------


def test_half_conversions(library: Library) -> None:
    halves = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
    widened = np.zeros(halves.size, np.float32)
    library("half_to_float", widened, halves, halves.size)
    np.testing.assert_array_equal(widened, halves.astype(np.float32))

    random = np.random.default_rng(3)
    finite = widened[np.isfinite(widened)]
    ties = (finite[:-1].astype(np.float64) + finite[1:]) / 2
    around = [ties, np.nextafter(ties, np.inf), np.nextafter(ties, -np.inf)]
    bits = random.integers(0, 1 << 32, 300_000, np.uint64).astype(np.uint32)
    special = array(
        [65519.99, 65520, 1e30, np.inf, -np.inf, 2**-25, 2**-26, -0.0], np.float64
    )
    doubles = np.concatenate([*around, special])
    singles = np.concatenate([bits.view(np.float32), doubles.astype(np.float32)])
    for name, values in (("float_to_half", singles), ("double_to_half", doubles)):
        rounded = zeros(values.size, dtype=np.uint16)
        library(name, rounded, values, values.size)
        with np.errstate(all="ignore"):
            expected = values.astype(np.float16).view(np.uint16)
        expected[np.isnan(values)] = 0x7FFF  # the NaN that the GPU makes
        np.testing.assert_array_equal(rounded, expected)


def test_bfloat16_conversions(library: Library) -> None:
    upper = np.arange(1 << 16, dtype=np.uint32) << 16
    widened = np.zeros(upper.size, np.float32)
    library("bf16_to_float", widened, (upper >> 16).astype(np.uint16), upper.size)
    np.testing.assert_array_equal(widened.view(np.uint32), upper)

    lower = array([0, 1, 0x7FFF, 0x8000, 0x8001, 0xFFFF], np.uint32)
    values = (upper[:, None] | lower).ravel().view(np.float32)
    rounded = zeros(values.size, dtype=np.uint16)
    library("float_to_bf16", rounded, values, values.size)
    # The nearer neighbour, or the even one of a tie; infinity counts as 2^128.
    kept = np.repeat(upper >> 16, lower.size)
    up = np.tile(lower, upper.size).astype(np.int64) + (kept & 1) > 0x8000
    expected = np.where(np.isnan(values), 0x7FFF, kept + up)
    np.testing.assert_array_equal(rounded, expected)


def value_of(bits: int, exponent_bits: int) -> Fraction:
    """The exact value of a finite half (5) or bfloat16 (8)."""
    mantissa_bits = 15 - exponent_bits
    bias = (1 << (exponent_bits - 1)) - 1
    exponent = bits >> mantissa_bits & ((1 << exponent_bits) - 1)
    mantissa = bits & ((1 << mantissa_bits) - 1)
    if exponent > 0:
        mantissa += 1 << mantissa_bits
    scale = Fraction(2) ** (max(exponent, 1) - bias - mantissa_bits)
    return mantissa * scale * (-1 if bits >> 15 else 1)


@pytest.mark.parametrize(("name", "exponent_bits"), [("half", 5), ("bf16", 8)])
def test_narrow_arithmetic_rounds_once(
    library: Library, name: str, exponent_bits: int
) -> None:
    random = np.random.default_rng(exponent_bits)
    infinity = ((1 << exponent_bits) - 1) << (15 - exponent_bits)
    count = 1500
    inputs = random.integers(0, infinity, (3, count), np.uint16)
    inputs |= random.integers(0, 2, (3, count), np.uint16) << 15
    # The product 1.0...01 * 1.1 is a tie, which a tiny third number must break.
    one = ((1 << (exponent_bits - 1)) - 1) << (15 - exponent_bits)
    inputs[:, :2] = np.array([[one + 1], [one + (1 << (14 - exponent_bits))], [1]])
    inputs[2, 1] |= 0x8000
    largest = value_of(infinity - 1, exponent_bits)
    last_step = largest - value_of(infinity - 2, exponent_bits)

    def is_nearest(exact: Fraction, result: int) -> bool:
        if result & 0x7FFF == infinity:
            return abs(exact) >= largest + last_step / 2
        distance = abs(exact - value_of(result, exponent_bits))
        for neighbour in (result - 1, result + 1):
            if not 0 <= neighbour <= 0xFFFF or neighbour & 0x7FFF >= infinity:
                continue
            rival = abs(exact - value_of(neighbour, exponent_bits))
            if rival < distance or (rival == distance and result & 1):
                return False
        return True

    def exact_result(number: int, a: Fraction, b: Fraction, c: Fraction) -> Fraction:
        if number == 3:
            return a / b
        return [a + b, a - b, a * b, Fraction(), a * b + c][number]

    for number in range(5):
        out = zeros(count, dtype=np.uint16)
        library(f"{name}_arithmetic", out, inputs, count, number)
        for i in range(count):
            a, b, c = (value_of(int(bits), exponent_bits) for bits in inputs[:, i])
            if number == 3 and b == 0:
                continue
            exact = exact_result(number, a, b, c)
            assert is_nearest(exact, int(out[i])), (number, inputs[:, i], out[i])


def test_intrinsics(library: Library) -> None:
    wrong = zeros(1, dtype=np.uint32)
    library("intrinsics", wrong)
    assert wrong[0] == 0, f"checks {[i for i in range(32) if wrong[0] >> i & 1]}"


# ---- Waiting -------------------------------------------------------------------------


@pytest.mark.usefixtures("order")
def test_threads_may_wait_for_each_other(library: Library) -> None:
    flags, out = zeros(64), zeros(64)
    library("handshake", flags, out)
    assert out.all()
    lock, counter = zeros(1), zeros(1, dtype=np.int64)
    library("lock", lock, counter)
    assert counter[0] == 512


def test_threads_may_spin_on_a_volatile(library: Library) -> None:
    flags = zeros(4)
    library("volatile_handshake", flags)
    assert flags.all()


@pytest.mark.parametrize("workers", ["1", "2"])
@pytest.mark.usefixtures("order")
def test_blocks_may_wait_for_each_other(
    library: Library, workers: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TWIN_EMULATOR_WORKERS", workers)
    arrived, out = zeros(1, dtype=np.uint32), zeros(12, dtype=np.uint32)
    library("grid_barrier", arrived, out, 12)
    np.testing.assert_array_equal(out, [12] * 12)


@pytest.mark.usefixtures("order")
def test_last_block_sees_the_others(library: Library) -> None:
    for _ in range(20):
        finished, out = zeros(1, dtype=np.uint32), zeros(1, dtype=np.float32)
        library("last_block", finished, zeros(100, dtype=np.float32), out, 100)
        assert out[0] == 4950


# ---- Faults --------------------------------------------------------------------------

FAULTS = {
    "two_barriers": (
        "divergent barrier: threads of the block wait at different barriers",
        ["threads 0, 2, 4.*: waiting in __syncthreads at {0}", "threads 1, 3.* at {1}"],
    ),
    "deadlock": (
        "deadlock",
        [
            "threads 0-15: waiting in __shfl_xor_sync at {0}",
            "threads 16-63: waiting in __syncthreads at {1}",
        ],
    ),
    "mask_without_caller": (
        r"wrong mask: lane \d+ .*__shfl_sync at {0} .*0x0000ffff.* does not name it",
        [],
    ),
    "mask_names_returned": (
        "wrong mask: __reduce_add_sync at {0} .* names lanes that have returned",
        ["threads 0-19: waiting in __reduce_add_sync", "thread 20: returned"],
    ),
    "different_operations": (
        "divergent warp operation",
        ["threads 0-15: .* __any_sync at {0}", "thread 16: .* __all_sync at {1}"],
    ),
    "different_masks": ("divergent warp operation", ["__syncwarp at {0}"]),
    "wrong_width": (
        "__shfl_down_sync with width 24, expected a power of two up to 32, at {0}",
        [],
    ),
    "endless_atomic": ("endless polling", ["polling with atomicAdd at {0}"]),
    "endless_sleep": ("endless polling", ["polling with __nanosleep at {0}"]),
    "endless_barrier": ("step limit", ["waiting in __syncthreads_or at {0}"]),
    "endless_loop": ("time limit: for 1 s no thread .* thread [0-3], at 0x", []),
    "trap": (r"__trap\(\) at {0}", [r"thread \d+ = \(\d, 2, 0\) of block \(0, 0, 0\)"]),
    "trap_awaited": (r"__trap\(\) at {0}", [r"thread 0 .* of block \(3, 0, 0\)"]),
    "failed_assertion": ('assertion `n > 3 && "too small"\' failed at {0}', []),
    "failed_assertion_by_name": ("assertion `n > 3' failed at {0}", []),
    "misaligned": ("__ldcs of address 0x.* not a multiple of 16, at {0}", []),
    "misaligned_copy": ("cp.async of address 0x.* not a multiple of 16, at {0}", []),
    "copy_size": (
        "__pipeline_memcpy_async of 12 bytes, 12 of them from the source; .* at {0}",
        [],
    ),
    "zero_filled": ("cp.async of 8 bytes, 12 of them from the source; .* at {0}", []),
    "misaligned_row": ("ldmatrix of address 0x.* not a multiple of 16, at {0}", []),
    "partial_matrix_warp": ("mma.* in a warp of fewer than 32 lanes at {0}", []),
    "divergent_mma": (
        "divergent warp operation",
        ["threads 0-15: .* mma.sync.m16n8k16.f16 at {0}", "thread 16: .* at {1}"],
    ),
    "incomplete_tile": (
        "deadlock",
        [
            "threads 0-4, 6-12, .*: waiting in thread_block_tile::shfl at {0}",
            "threads 5, 13, 21, 29: waiting in thread_block::sync at {1}",
        ],
    ),
}
WITHOUT_ARGUMENTS = {
    "two_barriers",
    "different_masks",
    "trap",
    "failed_assertion",
    "failed_assertion_by_name",
    "misaligned",
    "misaligned_copy",
    "copy_size",
    "zero_filled",
}
KERNELS = {"deadlock": "deadlock_kernel<float, 3>"}


def marked_lines(fault: str) -> list[str]:
    """Lists every line of faults.cu that ends with the fault's name, as "file:line"."""
    path = SOURCES / "faults.cu"
    lines = path.read_text(encoding="utf-8").splitlines()
    return [
        f"{path}:{number}"
        for number, line in enumerate(lines, 1)
        if line.endswith(f"// {fault}")
    ]


# An endless loop takes a second of processor time, so it runs only once.
FAULTS_AND_ORDERS = [
    (fault, order)
    for fault, order in itertools.product(FAULTS, ORDERS)
    if fault != "endless_loop" or order == "forward"
]


@pytest.mark.parametrize(("fault", "thread_order"), FAULTS_AND_ORDERS)
def test_fault_is_reported(
    library: Library, fault: str, thread_order: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TWIN_EMULATOR_ORDER", thread_order)
    step_limit = "20000" if fault.startswith("endless") else "1000000000000"
    monkeypatch.setenv("TWIN_EMULATOR_STEP_LIMIT", step_limit)
    monkeypatch.setenv("TWIN_EMULATOR_TIME_LIMIT", "1")
    arguments = [] if fault in WITHOUT_ARGUMENTS else [zeros(1)]
    with pytest.raises(RuntimeError) as caught:
        library(fault, *arguments)
    message = str(caught.value)
    headline, details = FAULTS[fault]
    kernel = KERNELS.get(fault, f"{fault}_kernel")
    sites = [re.escape(site) for site in marked_lines(fault)]

    def fill(pattern: str) -> str:
        for number, site in enumerate(sites):
            pattern = pattern.replace(f"{{{number}}}", site)
        return pattern

    assert re.match(f"{re.escape(kernel)}: {fill(headline)}", message), message
    assert "block (" in message
    for detail in details if thread_order == "forward" else []:
        assert re.search(fill(detail), message), message

    # The failure does not affect the next launch.
    out = zeros(40)
    library("partial_warp", out)
    assert out[0] == 32


@pytest.mark.parametrize(
    ("grid", "block", "shared", "code", "message"),
    [
        ((0, 1, 1), (32, 1, 1), 0, 9, r"grid \(0, 1, 1\)"),
        ((1, 65536, 1), (32, 1, 1), 0, 9, r"grid \(1, 65536, 1\)"),
        ((1, 1, 1), (0, 1, 1), 0, 9, r"block size \(0, 1, 1\)"),
        ((1, 1, 1), (1025, 1, 1), 0, 9, "1024"),
        ((1, 1, 1), (32, 33, 1), 0, 9, "1024"),
        ((1, 1, 1), (1, 1, 65), 0, 9, r"\(1024, 1024, 64\)"),
        ((1, 1, 1), (1, 1, 1), 48 * 1024 + 1, 1, "49153 bytes .* is 49152"),
    ],
)
def test_impossible_launch(
    library: Library,
    grid: tuple[int, ...],
    block: tuple[int, ...],
    shared: int,
    code: int,
    message: str,
) -> None:
    arguments = (array(grid, np.uint32), array(block, np.uint32), shared)
    assert library.result("launch_nothing", *arguments)[0] == code
    assert library.result("last_error")[0] == code
    assert library.result("last_error")[0] == 0
    with pytest.raises(RuntimeError, match=f"^nothing_kernel: impossible.*{message}"):
        library("launch_nothing", *arguments)


def test_largest_shared_memory(library: Library) -> None:
    limit = 232448
    out = zeros(limit, dtype=np.uint8)
    with pytest.raises(RuntimeError, match="100000 bytes of dynamic shared memory"):
        library("shared_bytes", out, 100_000, -1)
    with pytest.raises(
        RuntimeError, match=r"232449 bytes .* a block can have at most 232448"
    ):
        library("shared_bytes", out, limit, limit + 1)
    library("shared_bytes", out, limit, limit)
    np.testing.assert_array_equal(out, np.arange(limit).astype(np.uint8))


def test_unsupported_launches_are_refused(library: Library) -> None:
    error = zeros(1)
    library("nested", error)
    assert error[0] == 801
    with pytest.raises(RuntimeError, match=r"nothing_kernel: .* not model coop"):
        library("cooperative")


def test_messages_belong_to_the_thread(library: Library) -> None:
    messages: dict[str, str] = {}

    def fail(name: str) -> None:
        try:
            library(name)
        except RuntimeError as error:
            messages[name] = str(error)

    names = ["trap", "failed_assertion"]
    for _ in range(10):
        threads = [threading.Thread(target=fail, args=(name,)) for name in names]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for name in names:
            assert messages.pop(name).startswith(f"{name}_kernel: ")


# ---- Options and environment ---------------------------------------------------------


def started(library: Library, blocks: int) -> np.ndarray:
    """The order in which threads run, before and after a barrier."""
    ticket, out = zeros(1, dtype=np.uint32), zeros(blocks * 32, dtype=np.uint32)
    library("order", ticket, out, blocks)
    return out


def test_orders(library: Library, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TWIN_EMULATOR_WORKERS", "1")
    by_order = {}
    for order in ORDERS:
        monkeypatch.setenv("TWIN_EMULATOR_ORDER", order)
        by_order[order] = started(library, 4)
        np.testing.assert_array_equal(started(library, 4), by_order[order])
    blocks = np.arange(64).reshape(4, 16)
    forward = np.concatenate([blocks, blocks], axis=1).ravel()
    np.testing.assert_array_equal(by_order["forward"], forward)
    reverse = np.concatenate([blocks[::-1, ::-1]] * 2, axis=1).ravel()
    np.testing.assert_array_equal(by_order["reverse"], reverse)
    distinct = {values.tobytes() for values in by_order.values()}
    assert len(distinct) == len(ORDERS)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("TWIN_EMULATOR_ORDER", "backwards"),
        ("TWIN_EMULATOR_ORDER", "random:"),
        ("TWIN_EMULATOR_WORKERS", "0"),
        ("TWIN_EMULATOR_STEP_LIMIT", "1e6"),
        ("TWIN_EMULATOR_TIME_LIMIT", "-1"),
        ("TWIN_EMULATOR_ASYNC", "lazy"),
    ],
)
def test_wrong_option(
    library: Library, name: str, value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, value)
    with pytest.raises(RuntimeError, match=f"{name} must be .* not '{value}'"):
        library("trap")


def test_kernels_keep_denormals(library: Library) -> None:
    x, flushes = array([1e-38], np.float32), zeros(1)
    library("halve_while_flushing", x, flushes)
    assert 0 < x[0] < 1e-38
    assert flushes[0] == 1


def test_launches_after_a_fork(library: Library) -> None:
    arrived, out = zeros(1, dtype=np.uint32), zeros(4, dtype=np.uint32)
    library("launch_in_child", arrived, out)


def test_example_of_the_readme(tmp_path: Path) -> None:
    readme = (EMULATOR / "README.md").read_text(encoding="utf-8")
    source = tmp_path / "example.cu"
    source.write_text(readme.split("```cpp")[1].split("```")[0], encoding="utf-8")
    compile_object(source, tmp_path / "example.o")
    program = tmp_path / "example"
    example = tmp_path / "example.o"
    objects = [example, object_of(cuda_inline.emulator())]
    run(COMPILER, "-rdynamic", "-pthread", *objects, "-o", program)
    assert run(*RUNNER, program) == "no error, 255\n"
