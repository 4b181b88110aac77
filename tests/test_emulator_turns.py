"""The emulator's model of what attention needs of Hopper beyond matrix products.

A left matrix in registers, boxes of tensors with four dimensions, copies of
neighbouring bytes, sums in memory, arrivals at named barriers. Where there is a GPU
with sm_90, tests without a fault run on it as well.
"""

from __future__ import annotations

import emulated
import numpy as np
import pytest
import torch
from emulated import (
    MACHINES,
    ORDERS,
    Library,
    gpu_library,
    integers,
    narrow,
    zeros,
)
from together import in_one_test

NO_FAULT, NO_FENCE, OPERAND = range(3)


@pytest.fixture(params=MACHINES)
def machine(request: pytest.FixtureRequest) -> Library:
    if request.param == "emulator":
        return emulated.load_kernels()
    if torch.cuda.get_device_capability() != (9, 0):
        pytest.skip("the kernels are for sm_90a")
    return gpu_library()


@pytest.fixture
def emulator() -> Library:
    return emulated.load_kernels()


@pytest.fixture(
    params=[(order, when) for order in ORDERS for when in ("eager", "late")],
    ids="-".join,
)
def schedule(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    order, when = request.param
    monkeypatch.setenv("TWIN_EMULATOR_ORDER", order)
    monkeypatch.setenv("TWIN_EMULATOR_ASYNC", when)


# ---- A left matrix in registers ------------------------------------------------------


def left_registers(
    library: Library,
    kind: str,
    n: int,
    n_rows: int,
    heads_first: bool,
    fault: int = NO_FAULT,
) -> tuple[np.ndarray, np.ndarray]:
    """Twice a product, and what it is; b has n_rows of 64 rows, the others are 0."""
    a, b = integers(64, 64), integers(2, n_rows, 3, n)
    head, batch = 2, 1
    stored = np.ascontiguousarray(b.transpose(0, 2, 1, 3) if heads_first else b)
    out = np.full((64, n), np.nan, np.float32)
    library(
        f"left_registers_{kind}",
        *(out, narrow(kind, a), narrow(kind, stored), n, n_rows, 3, int(heads_first)),
        *(head, batch, fault),
    )
    return out, 2 * a[:, :n_rows] @ b[batch, :, head]


@in_one_test("n")
@pytest.mark.usefixtures("schedule")
@pytest.mark.parametrize("n", [64, 96, 128, 192, 256])
def test_a_left_matrix_in_registers(machine: Library, n: int) -> None:
    np.testing.assert_array_equal(*left_registers(machine, "bf16", n, 64, False))


@pytest.mark.parametrize("heads_first", [False, True])
@pytest.mark.parametrize("kind", ["half", "bf16"])
def test_rows_past_the_end_are_zeros(
    machine: Library, kind: str, heads_first: bool
) -> None:
    np.testing.assert_array_equal(*left_registers(machine, kind, 128, 41, heads_first))


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        (
            NO_FENCE,
            r"of a matrix in registers without a wgmma_fence\(\) since the wait",
        ),
        (OPERAND, r"registers with the left matrix .* written to while it was in"),
    ],
)
def test_registers_that_are_written_to_at_the_wrong_time(
    emulator: Library, fault: int, words: str
) -> None:
    with pytest.raises(RuntimeError, match=words):
        left_registers(emulator, "bf16", 64, 64, False, fault)


@pytest.mark.parametrize("kind", ["half", "bf16"])
def test_a_product_of_80_columns(machine: Library, kind: str) -> None:
    a, b = integers(64, 64), integers(80, 64)
    out = np.full((64, 80), np.nan, np.float32)
    machine("narrow_product", out, narrow(kind, a), narrow(kind, b), kind == "half")
    np.testing.assert_array_equal(out, a @ b.T)


# ---- Boxes of tensors with four dimensions -------------------------------------------


@in_one_test("row", "to_row")
@pytest.mark.usefixtures("schedule")
@pytest.mark.parametrize(
    ("row", "to_row"), [(0, 0), (3, 5), (8, 0), (-2, 3), (2, 9), (40, 0), (0, 40)]
)
def test_rows_of_a_head_there_and_back(machine: Library, row: int, to_row: int) -> None:
    shape = (2, 12, 3, 24)
    n_rows = shape[1]
    x = np.arange(np.prod(shape), dtype=np.uint16).reshape(shape) + 1
    out = zeros(*shape, dtype=np.uint16)
    head, batch = 1, 1
    machine("head_rows", out, x, *shape, row, head, batch, to_row)
    expected = np.zeros_like(out)
    for i in range(8):
        if to_row + i < n_rows and 0 <= row + i < n_rows:
            expected[batch, to_row + i, head] = x[batch, row + i, head]
    np.testing.assert_array_equal(out, expected)


# ---- Copies of neighbouring bytes, and sums in memory --------------------------------


def aligned(values: np.ndarray) -> np.ndarray:
    """The same values at an address that is a multiple of 16, whatever NumPy gave."""
    memory = zeros(values.size + 4, dtype=values.dtype)
    start = -memory.ctypes.data % 16 // values.itemsize
    memory[start : start + values.size] = values
    return memory[start : start + values.size]


@in_one_test("begin", "to", "n_bytes")
@pytest.mark.usefixtures("schedule")
@pytest.mark.parametrize(
    ("begin", "to", "n_bytes"),
    [(0, 0, 512), (16, 0, 16), (32, 480, 32), (240, 64, 272)],
)
def test_neighbouring_bytes(
    machine: Library, begin: int, to: int, n_bytes: int
) -> None:
    x, out = aligned(np.arange(128, dtype=np.uint32) + 1), zeros(128, dtype=np.uint32)
    machine("bulk_copy", out, x, begin, to, n_bytes)
    expected = zeros(128, dtype=np.uint32)
    expected[to // 4 : (to + n_bytes) // 4] = x[begin // 4 : (begin + n_bytes) // 4]
    np.testing.assert_array_equal(out, expected)


@pytest.mark.parametrize(
    ("begin", "to", "n_bytes", "words"),
    [
        (4, 0, 16, "bulk_load of address 0x.*, which is not a multiple of 16"),
        (0, 8, 16, "bulk_load of address 0x.*, which is not a multiple of 16"),
        (0, 0, 24, "bulk_load of 24 bytes to .*, expected a multiple of 16"),
        (0, 0, 0, "bulk_load of 0 bytes to .*, expected a multiple of 16"),
        (0, 512, 16, "a multiple of 16 that ends within the block's 520 bytes"),
    ],
)
def test_bytes_that_cannot_be_copied(
    emulator: Library, begin: int, to: int, n_bytes: int, words: str
) -> None:
    x, out = aligned(np.arange(128, dtype=np.uint32)), zeros(128, dtype=np.uint32)
    with pytest.raises(RuntimeError, match=words):
        emulator("bulk_copy", out, x, begin, to, n_bytes)


@pytest.mark.usefixtures("schedule")
def test_sums_of_many_threads(machine: Library) -> None:
    x = integers(256, 4)
    sums = aligned(np.arange(32, dtype=np.float32))
    expected = sums.reshape(8, 4) + x.reshape(32, 8, 4).sum(0)
    machine("vector_sums", sums, x, 0)
    np.testing.assert_array_equal(sums.reshape(8, 4), expected)


def test_four_sums_begin_at_a_multiple_of_16_bytes(emulator: Library) -> None:
    sums = aligned(np.zeros(34, np.float32))
    with pytest.raises(RuntimeError, match=r"add_in_memory of .* of 16"):
        emulator("vector_sums", sums, integers(256, 4), 2)


# ---- Turns by named barriers ---------------------------------------------------------


@pytest.mark.usefixtures("schedule")
def test_warps_take_turns(machine: Library) -> None:
    out = zeros(20)
    machine("turns", out, 10, -1, -1)
    assert out.tolist() == list(range(20))


@pytest.mark.parametrize("order", ORDERS)
def test_a_turn_that_is_not_passed_on_shows(
    emulator: Library, order: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TWIN_EMULATOR_ORDER", order)
    with pytest.raises(RuntimeError, match=r"barrier 1 with 32 of 64 threads"):
        emulator("turns", zeros(20), 10, 5, -1)


@pytest.mark.parametrize("order", ORDERS)
def test_a_turn_that_is_passed_on_twice_shows(
    emulator: Library, order: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TWIN_EMULATOR_ORDER", order)
    with pytest.raises(RuntimeError, match="at which the thread has arrived before"):
        emulator("turns", zeros(20), 10, -1, 4)
