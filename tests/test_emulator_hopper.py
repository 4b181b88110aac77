"""The emulator's model of Hopper, against independent definitions.

Mbarriers, the tensor memory accelerator, wgmma and clusters. Where there is a GPU with
sm_90, every such test runs on it as well, which shows that the test is right.
"""

from __future__ import annotations

import math
import operator
import time
from collections.abc import Callable
from pathlib import Path
from threading import Thread

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


def product(
    library: Library,
    kind: str,
    a: np.ndarray,
    b: np.ndarray,
    layouts: tuple[int, int],
    tile: int,
) -> np.ndarray:
    out = np.full((a.shape[0], b.shape[1]), np.nan, np.float32)
    stored = [
        narrow(kind, np.ascontiguousarray(x.T if transposed else x))
        for x, transposed in zip((a, b), layouts, strict=True)
    ]
    sizes = (a.shape[0], b.shape[1], a.shape[1])
    library(f"hopper_matmul_{kind}", out, *stored, *sizes, *layouts, tile)
    return out


# ---- wgmma, fed by a ring of stages --------------------------------------------------

# Whether a and b are transposed, and the columns of a tile.
LAYOUTS = [
    ((0, 0), 64),
    ((0, 1), 64),
    ((1, 0), 64),
    ((1, 1), 64),
    ((0, 1), 128),
    ((1, 0), 128),
    ((0, 0), 256),
]


@in_one_test("layouts", "tile")
@pytest.mark.usefixtures("schedule")
@pytest.mark.parametrize(("layouts", "tile"), LAYOUTS)
def test_matrix_product(machine: Library, layouts: tuple[int, int], tile: int) -> None:
    # The last tiles are not full, and there are more than a ring has stages.
    a, b = integers(72, 264), integers(264, 72 if tile < 256 else 264)
    np.testing.assert_array_equal(product(machine, "bf16", a, b, layouts, tile), a @ b)


@in_one_test("layouts", "tile")
@pytest.mark.parametrize(("layouts", "tile"), LAYOUTS)
def test_matrix_product_of_halves(
    machine: Library, layouts: tuple[int, int], tile: int
) -> None:
    a, b = integers(72, 72), integers(72, 136)
    np.testing.assert_array_equal(product(machine, "half", a, b, layouts, tile), a @ b)


@pytest.mark.parametrize("kind", ["half", "bf16"])
def test_products_of_random_numbers(machine: Library, kind: str) -> None:
    random = np.random.default_rng(0)
    a, b = random.standard_normal((2, 128, 128), np.float32)
    bits = [narrow(kind, x) for x in (a, b)]
    if kind == "half":
        a, b = (x.view(np.float16).astype(np.float64) for x in bits)
    else:
        a, b = ((x.astype(np.uint32) << 16).view(np.float32) for x in bits)
    out = product(machine, kind, a.astype(np.float32), b.astype(np.float32), (0, 0), 64)
    a, b = a.astype(np.float64), b.astype(np.float64)
    assert (abs(out - a @ b) <= 2.0**-20 * (abs(a) @ abs(b))).all()


# ---- wgmma of tf32 -------------------------------------------------------------------


def round_to_tf32(x: np.ndarray) -> np.ndarray:
    """The nearest numbers with 10 bits behind the point, ties to even."""
    significand, exponent = np.frexp(x.astype(np.float64))
    with np.errstate(over="ignore"):  # what becomes infinite
        rounded: np.ndarray = np.ldexp(np.rint(significand * 2**11), exponent - 11)
        return rounded.astype(np.float32)


def truncate_to_tf32(x: np.ndarray) -> np.ndarray:
    bits: np.ndarray = x.view(np.uint32) & 0xFFFFE000
    return bits.view(np.float32)


@in_one_test("tile")
@pytest.mark.usefixtures("schedule")
@pytest.mark.parametrize("tile", [64, 128, 256])
def test_matrix_product_of_tf32(machine: Library, tile: int) -> None:
    # As above, with integers that 16 bits do not hold.
    a, b = 300 * integers(72, 132), integers(132, 72 if tile < 256 else 264)
    for kind in ("tf32", "float"):
        found = product(machine, kind, a, b, (0, 1), tile)
        np.testing.assert_array_equal(found, a @ b)


@pytest.mark.parametrize(
    ("kind", "narrowed"), [("tf32", round_to_tf32), ("float", truncate_to_tf32)]
)
def test_copies_round_and_tensor_cores_truncate(
    machine: Library, kind: str, narrowed: Callable[[np.ndarray], np.ndarray]
) -> None:
    """Products by the identity show what each element counts for."""
    random = np.random.default_rng(4)
    a, b = random.standard_normal((2, 64, 64), np.float32)
    assert (round_to_tf32(a) != truncate_to_tf32(a)).mean() > 0.4
    identity = np.eye(64, dtype=np.float32)
    left = product(machine, kind, a, identity, (0, 1), 64)
    right = product(machine, kind, identity, b, (0, 1), 64)
    np.testing.assert_array_equal(left, narrowed(a))
    np.testing.assert_array_equal(right, narrowed(b))


def test_products_of_random_tf32(machine: Library) -> None:
    random = np.random.default_rng(5)
    a, b = random.standard_normal((2, 128, 128), np.float32)
    out = product(machine, "tf32", a, b, (0, 1), 128)
    a, b = (round_to_tf32(x).astype(np.float64) for x in (a, b))
    assert (abs(out - a @ b) <= 2.0**-20 * (abs(a) @ abs(b))).all()


# The bits of numbers, and of what is left of them; the first ones lie half-way.
ROUNDED_BITS = np.array(
    [
        [0x3F801000, 0x3F800000],
        [0x3F803000, 0x3F804000],
        [0xBF801000, 0xBF800000],
        [0xBF803000, 0xBF804000],
        [0x3F800FFF, 0x3F800000],
        [0x3F801001, 0x3F802000],
        [0x3FFFF000, 0x40000000],
        [0x3FFFEFFF, 0x3FFFE000],
        # Subnormal, and zero.
        [0x00001000, 0x00000000],
        [0x00003000, 0x00004000],
        [0x807FF000, 0x80800000],
        [0x80000000, 0x80000000],
        # The largest numbers, and infinity.
        [0x7F7FEFFF, 0x7F7FE000],
        [0x7F7FF000, 0x7F800000],
        [0xFF7FFFFF, 0xFF800000],
        [0xFF800000, 0xFF800000],
    ],
    np.uint32,
)


def rounding_box(machine: Library, bits: np.ndarray, is_stored: bool) -> np.ndarray:
    """What a box of numbers is after it was loaded by a map of tf32; others are 0."""
    x = bits.reshape(-1, 8).view(np.float32)
    out = np.full((64, 8), np.nan, np.float32)
    machine("rounding_box", out, x, len(x), int(is_stored))
    return out.view(np.uint32).reshape(-1)


def test_how_a_load_rounds_to_tf32(machine: Library) -> None:
    bits, expected = np.ascontiguousarray(ROUNDED_BITS.T)
    found = rounding_box(machine, bits, is_stored=False)
    np.testing.assert_array_equal(found[: bits.size], expected)
    assert not found[bits.size :].any()


def test_a_load_that_rounds_leaves_nan_a_nan(machine: Library) -> None:
    nan = np.array([0x7FC00000, 0x7F800001, 0xFFFFFFFF, 0x7FFFF000] * 2, np.uint32)
    found = rounding_box(machine, nan, is_stored=False)[:8]
    assert np.isnan(found.view(np.float32)).all()


def test_a_store_by_a_map_of_tf32_is_refused(emulator: Library) -> None:
    words = "tma_store by a tensor map of tf32, which is for loads"
    with pytest.raises(RuntimeError, match=words):
        rounding_box(emulator, ROUNDED_BITS[:, 0].copy(), is_stored=True)


# ---- Numbers that are not finite -----------------------------------------------------


BOTH_WIDTHS = pytest.mark.parametrize(
    ("kind", "layouts"), [("half", (0, 0)), ("tf32", (0, 1))]
)


@BOTH_WIDTHS
def test_infinity_and_nan(
    machine: Library, kind: str, layouts: tuple[int, int]
) -> None:
    a, b = np.ones((64, 64), np.float32), np.ones((64, 64), np.float32)
    a[0, 1], a[1, 2], a[2, 3], a[3, :2] = np.inf, -np.inf, np.nan, np.inf
    b[0, 0] = -1
    with np.errstate(invalid="ignore"):
        expected = a @ b
    np.testing.assert_array_equal(product(machine, kind, a, b, layouts, 64), expected)


@BOTH_WIDTHS
def test_nan_leaves_the_sums_of_other_elements_as_they_are(
    machine: Library, kind: str, layouts: tuple[int, int]
) -> None:
    random = np.random.default_rng(3)
    a, b = random.standard_normal((2, 64, 64), np.float32).astype(np.float16)
    a, b = a.astype(np.float32), b.astype(np.float32)
    before = product(machine, kind, a, b, layouts, 64)
    a[5, 7], b[20, 9] = np.nan, np.inf
    after = product(machine, kind, a, b, layouts, 64)
    others = np.ones(after.shape, bool)
    others[5], others[:, 9] = False, False
    assert not np.isfinite(after[~others]).any()
    np.testing.assert_array_equal(after[others], before[others])


# ---- The tensor memory accelerator ---------------------------------------------------


def swizzled(x: np.ndarray, kind: int) -> np.ndarray:
    """Rows of 16-bit numbers in their swizzled order; kind is CUDA's number."""
    chunks = x.reshape(-1, 8)
    place = np.arange(len(chunks))
    mask = (1 << kind) - 1
    result = np.empty_like(chunks)
    result[place ^ (place >> 3 & mask)] = chunks
    return result.reshape(-1)


@pytest.mark.parametrize(
    ("swizzle", "width"),
    [(0, 8), (0, 64), (0, 256), (1, 16), (2, 32), (3, 64)],
)
def test_how_a_box_lies_in_shared_memory(
    machine: Library, swizzle: int, width: int
) -> None:
    x = np.arange(width * 40, dtype=np.uint16)
    out = zeros(x.size, dtype=np.uint16)
    machine("loaded_box", out, x, width, 40, swizzle)
    np.testing.assert_array_equal(out, swizzled(x, swizzle))


SHAPE, PITCH, N_BOXES = (3, 13, 200), 208, 4


def copy_boxes(
    machine: Library, begin: tuple[int, ...], end: tuple[int, ...], swizzle: int = 0
) -> tuple[np.ndarray, np.ndarray]:
    """Returns a tensor, and another with copies of its boxes, increased by one."""
    x = np.random.default_rng(1).integers(0, 60000, (3, 13, PITCH)).astype(np.uint16)
    out = zeros(*x.shape, dtype=np.uint16)
    sizes = (*reversed(SHAPE), PITCH)
    machine("box_copies", out, x, *sizes, *begin, *end, N_BOXES, swizzle)
    return x, out


@in_one_test("begin", "end", "swizzle")
@pytest.mark.usefixtures("schedule")
@pytest.mark.parametrize(
    ("begin", "end"),
    [
        ((0, 0, 0), (0, 0, 0)),
        ((-16, -3, 1), (8, 5, 1)),
        ((104, 9, 2), (104, 9, 2)),
        ((0, 0, -1), (0, 13, 0)),
        ((0, 13, 0), (0, 0, 3)),
        ((400, 0, 0), (400, 0, 0)),
    ],
)
@pytest.mark.parametrize("swizzle", [0, 3])
def test_boxes_there_and_back(
    machine: Library, begin: tuple[int, ...], end: tuple[int, ...], swizzle: int
) -> None:
    """Elements outside of the tensor load as 0, and are not stored."""
    x, out = copy_boxes(machine, begin, end, swizzle)
    margins = (1, 16, 512)
    wide = np.pad(x[:, :, : SHAPE[2]], [(margin, margin) for margin in margins])
    (x1, y1, z1) = end
    x0, y0, z0 = map(operator.add, begin, reversed(margins))
    boxes = wide[z0, y0 : y0 + 8, x0 : x0 + 64 * N_BOXES] + 1
    expected = np.zeros_like(x)
    if z1 < SHAPE[0]:
        kept = expected[z1, y1 : y1 + 8, x1 : min(x1 + 64 * N_BOXES, SHAPE[2])]
        kept[...] = boxes[: kept.shape[0], : kept.shape[1]]
    np.testing.assert_array_equal(out, expected)


@pytest.mark.parametrize(
    ("begin", "end", "words"),
    [
        ((4, 0, 0), (0, 0, 0), "tma_load of a box at column 4, not a multiple of 16"),
        ((0, 0, 0), (-4, 0, 0), "tma_store of a box at column -4, not a multiple of"),
        ((0, 0, 0), (-8, 0, 0), r"a box that begins before the tensor, at \(-8, 0, 0"),
        ((0, 0, 0), (0, -3, 0), r"a box that begins before the tensor, at \(0, -3, 0"),
        ((0, 0, 0), (0, 0, -1), r"a box that begins before the tensor, at \(0, 0, -1"),
    ],
)
def test_boxes_that_are_an_illegal_instruction_on_a_gpu(
    emulator: Library, begin: tuple[int, ...], end: tuple[int, ...], words: str
) -> None:
    with pytest.raises(RuntimeError, match=words):
        copy_boxes(emulator, begin, end)


MAP_FAULTS = [
    r"size 0 of the tensor is \d+, expected 1 to 2",
    r"stride 0 is \d+ bytes, expected a multiple of 16",
    r"stride 1 is \d+ bytes, expected a multiple of 16",
    "a row of the box has 144 bytes, expected at most 128 with this swizzle",
    "a row of the box has 8 bytes, expected a multiple of 16",
    "size 1 of the box is 257, expected 1 to 256",
    "the tensor's address is 0x.*, expected a multiple of 16",
]


@in_one_test("fault")
@pytest.mark.parametrize("fault", range(len(MAP_FAULTS) + 1))
def test_tensor_maps_that_are_refused(machine: Library, fault: int) -> None:
    x = torch.zeros(64 * 64 + 64, dtype=torch.int16).numpy().view(np.uint16)
    x = x[-x.ctypes.data % 128 // 2 :][: 64 * 64 + 8]
    if fault == 0:
        machine("map_with_fault", x, fault)
        return
    # The driver gives no reason.
    on_gpu = isinstance(machine, emulated.GpuLibrary)
    words = "invalid argument" if on_gpu else MAP_FAULTS[fault - 1]
    with pytest.raises(RuntimeError, match=words):
        machine("map_with_fault", x, fault)


# ---- stmatrix ------------------------------------------------------------------------


def test_stmatrix(machine: Library) -> None:
    random = np.random.default_rng(0)
    fragments = random.permutation(256).astype(np.uint16).reshape(32, 4, 2)
    places = (8 * random.permutation(32)).astype(np.int32)
    out = zeros(256, dtype=np.uint16)
    machine("store_matrices", out, fragments, places)
    for matrix in range(4):
        for row in range(8):
            place = places[8 * matrix + row]
            expected = fragments[4 * row : 4 * row + 4, matrix].reshape(-1)
            np.testing.assert_array_equal(out[place : place + 8], expected)


# ---- Clusters ------------------------------------------------------------------------


@in_one_test("cluster", "grid")
@pytest.mark.usefixtures("schedule")
@pytest.mark.parametrize(
    ("cluster", "grid"),
    [
        ((1, 1, 1), (2, 1, 1)),
        ((2, 1, 1), (6, 1, 1)),
        ((1, 3, 1), (2, 6, 1)),
        ((2, 2, 2), (4, 2, 4)),
    ],
)
def test_blocks_of_a_cluster_read_each_others_memory(
    machine: Library, cluster: tuple[int, ...], grid: tuple[int, ...]
) -> None:
    blocks = math.prod(grid)
    x = np.random.default_rng(blocks).integers(0, 100, (blocks, 64), np.int32)
    out = zeros(blocks, 64, 2)
    machine("cluster_sums", out, x, *cluster, *grid)
    # Along z, y and x: the number of the cluster, and that of its block.
    split = [
        n
        for size, part in zip(grid[::-1], cluster[::-1], strict=True)
        for n in (size // part, part)
    ]
    parts = x.reshape(*split, 64)
    sums = np.broadcast_to(parts.sum(axis=(1, 3, 5), keepdims=True), parts.shape)
    np.testing.assert_array_equal(out[..., 0], sums.reshape(blocks, 64))
    ranks = np.arange(math.prod(cluster)).reshape(1, cluster[2], 1, cluster[1], 1, -1)
    expected = np.broadcast_to(ranks[..., None], parts.shape).reshape(blocks, 64)
    np.testing.assert_array_equal(out[..., 1], expected)


@in_one_test("n_rows")
@pytest.mark.usefixtures("schedule")
@pytest.mark.parametrize("n_rows", [1, 2, 9])
def test_stores_in_the_memory_of_other_blocks(machine: Library, n_rows: int) -> None:
    x = np.random.default_rng(n_rows).integers(0, 100, (n_rows, 128))
    out = zeros(n_rows, 128, dtype=np.float32)
    machine("remote_stores", out, x.astype(np.float32), n_rows)
    sums = np.broadcast_to(6.0 * x.sum(axis=1, keepdims=True), out.shape)
    np.testing.assert_array_equal(out, sums)


@pytest.mark.usefixtures("schedule")
def test_matrix_product_of_a_cluster(machine: Library) -> None:
    a, b = integers(200, 296), integers(296, 150)
    out = np.full((200, 150), np.nan, np.float32)
    stored = [narrow("bf16", np.ascontiguousarray(x)) for x in (a, b.T)]
    machine("cluster_matmul", out, *stored, 200, 150, 296)
    np.testing.assert_array_equal(out, a @ b)


def column_sums(x: np.ndarray, n_blocks: int) -> np.ndarray:
    """Sums over the rows of x (clusters, tiles, rows, columns), by the block's rank."""
    sums = x.sum(axis=2)[:, np.newaxis]
    ranks = np.arange(1, n_blocks + 1, dtype=np.float32)
    of_blocks: np.ndarray = sums * ranks[:, np.newaxis, np.newaxis]
    return of_blocks.reshape(-1, *sums.shape[2:])


# Fewer tiles than a ring has stages, as many, and more, in several rounds.
@in_one_test("n_blocks", "n_tiles")
@pytest.mark.usefixtures("schedule")
@pytest.mark.parametrize("n_blocks", [2, 4])
@pytest.mark.parametrize("n_tiles", [1, 2, 7])
def test_blocks_load_for_each_other(
    machine: Library, n_blocks: int, n_tiles: int
) -> None:
    n_clusters = 3
    x = integers(n_clusters, n_tiles, 16, 64)
    out = np.full((n_clusters * n_blocks, n_tiles, 64), np.nan, np.float32)
    machine("multicast_sums", out, x, n_tiles, n_clusters, n_blocks)
    np.testing.assert_array_equal(out, column_sums(x, n_blocks))


@pytest.mark.parametrize(
    ("cluster", "grid"), [((2, 1, 1), (3, 1, 1)), ((16, 1, 1), (16, 1, 1))]
)
def test_impossible_clusters(
    emulator: Library, cluster: tuple[int, ...], grid: tuple[int, ...]
) -> None:
    out, x = zeros(16, 64, 2), zeros(16, 64)
    with pytest.raises(RuntimeError, match="impossible launch: clusters of"):
        emulator("cluster_sums", out, x, *cluster, *grid)


# Signals of several timers would pile up on the stack of one emulated thread.
@pytest.mark.skipif(bool(emulated.RUNNER), reason="the timers are of another process")
def test_blocks_of_a_cluster_share_one_timer(
    emulator: Library, monkeypatch: pytest.MonkeyPatch
) -> None:
    def count() -> int:
        return Path("/proc/self/timers").read_text().count("notify:")

    monkeypatch.setenv("TWIN_EMULATOR_WORKERS", "1")
    others, flag = count(), zeros(1)
    launch = Thread(target=emulator, args=("cluster_waits", flag))
    launch.start()
    try:
        while launch.is_alive() and count() == others:
            time.sleep(0.001)
        time.sleep(0.05)  # for more
        assert count() == others + 1
    finally:
        flag[0] = 1
        launch.join()


# ---- Waits that are too weak ---------------------------------------------------------


def weak_waits(library: Library, weakness: int) -> tuple[bool, bool]:
    """Whether the sums, and what is stored, are right."""
    x = integers(2, 64, 64)
    sums, out = np.zeros((64, 64), np.float32), zeros(2, 64, 64, dtype=np.uint16)
    bits = narrow("bf16", x)
    library("weak_waits", sums, out, bits, weakness)
    expected = x[0] @ x[0].T + x[1] @ x[1].T
    return np.array_equal(sums, expected), np.array_equal(out, bits)


@pytest.mark.usefixtures("schedule")
def test_waits_that_are_strong_enough(machine: Library) -> None:
    assert weak_waits(machine, 0) == (True, True)


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize(
    ("weakness", "right"), [(1, (False, True)), (3, (True, False))]
)
def test_a_wait_that_is_too_weak_shows(
    emulator: Library,
    weakness: int,
    right: tuple[bool, bool],
    order: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TWIN_EMULATOR_ORDER", order)
    assert weak_waits(emulator, weakness) == right


def test_a_stage_that_is_filled_too_early_shows(emulator: Library) -> None:
    assert weak_waits(emulator, 2) == (False, True)
