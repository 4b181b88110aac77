"""Tiles of matmul that blocks share, cut in many ways, in both languages."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

import pytest
import torch
from common import leave_out
from dependent import assert_waits_first
from test_matmul_model import cuda_tiles
from test_simulated_calls import needs_nvcc
from torch import Tensor

from bindings.backends import native, prebuilt, triton
from bindings.ops.matmul import OP
from compare.code import choices, simulated_calls
from compare.code.architectures import ARCHITECTURES, Architecture
from compare.code.choices import Choice
from compare.code.kernel_code import (
    KernelCode,
    Side,
    inspect_cuda,
    inspect_triton,
    planned_launches,
)
from compare.judge import acceptance
from triton_kernels.matmul import model, tables
from triton_kernels.matmul.call import Cut

Operands = tuple[Tensor, Tensor, Tensor]  # a, b and the bias

# Rows, columns and depth of a step; of clusters, those of all their blocks.
CUDA_TILES = tuple(
    (tile.block_m * tile.cluster_rows, tile.block_n * tile.cluster_cols, 64)
    for tile in cuda_tiles()
)
TILES = {"cuda": CUDA_TILES, "triton": tuple(tile[:3] for tile in tables.TILES)}
# Of the rung tensor_cores. CUDA takes float32 in the last two alone.
CUDA_RUNG_TILES = (
    *((32, 32, 128), (16, 64, 128), (64, 16, 128), (64, 32, 128), (32, 64, 128)),
    *((64, 64, 64), (128, 128, 64)),
)
RUNG_TILES = {
    "cuda": CUDA_RUNG_TILES,
    "triton": tuple(tile[:3] for tile in tables.TENSOR_CORES_TILES),
}
# Of the rung tiled, rows and columns.
TILED_TILES = {
    "cuda": ((128, 128), (64, 256), (128, 256)),
    "triton": tuple(tile[:2] for tile in tables.TILED_TILES),
}
# One of 8 warps that stores in two parts, one of 4, and one whose programs share a
# multiprocessor.
SIMULATED_TILES = (0, 3, 5)
# Each tile alone, and clusters of two and of four, in a column and in a row of out.
CLUSTERS = (8, 9, 14, 17, 19, 20)
ALL_TILES = [
    *(("cuda", n) for n in (*range(6), 18, *CLUSTERS)),
    *(("triton", n) for n in range(len(tables.TILES))),
]


def run_cut(
    side: str,
    cut: Cut,
    operands: Operands,
    order: str = "",
    rung: str = "twin",
    precision: str = "ieee",
) -> Tensor:
    """A rung, cut up like this. On the CPU, Triton's is compiled and simulated."""
    op, out = OP.on_rung(rung), OP.allocate(*operands)
    assert isinstance(out, Tensor)
    arguments = [*op.arguments(out, *operands, None, precision)]
    names = triton.parameters(OP, len(arguments))
    numbers = (cut.tile + 1, cut.n_blocks, cut.n_streamed)
    for name, value in zip(("tile", "n_blocks", "n_streamed"), numbers, strict=True):
        arguments[names.index(name)] = value
    # Where nobody has a part, there is nothing that would have been read.
    for name in ("parts", "copies"):
        memory = arguments[names.index(name)]
        if isinstance(memory, Tensor):
            memory.fill_(math.nan)
    if side == "cuda":
        module = prebuilt.load("_cuda" if out.is_cuda else "_cpu")
        stream = torch.cuda.current_stream().cuda_stream if out.is_cuda else 0
        native.launch(module, op, tuple(arguments), stream)
    elif out.is_cuda:
        triton.launcher(op)(*arguments)
    else:
        simulated_calls.run("triton", op, tuple(arguments), "sm_90a", order=order)
    return out


def integers(
    shape: tuple[int, int, int], device: str, dtype: torch.dtype = torch.float16
) -> Operands:
    """Operands of small whole numbers, whose products and their sums are exact."""
    n_rows, n_cols, depth = shape
    generator = torch.Generator().manual_seed(0)
    a, b, bias = (
        torch.randint(-2, 3, size, generator=generator).to(device, dtype)
        for size in ((n_rows, depth), (depth, n_cols), (n_cols,))
    )
    return a, b, bias


def cuts(side: str, number: int, shape: tuple[int, int, int]) -> Iterable[Cut]:
    """Cuts of a shape into a tile.

    Blocks have one part or several, of one tile or of two, and whole tiles before or
    behind them; tiles have one part to many.
    """
    blocks = (
        -(-n // block) for n, block in zip(shape, TILES[side][number], strict=True)
    )
    n_tile_rows, n_tile_cols, n_steps = blocks
    n_tiles = n_tile_rows * n_tile_cols
    tried = {(2, 1), (n_steps, 1), (3, n_tiles), (2 * n_tiles, n_tiles)}
    if side == "cuda":
        tried |= {(2, 0), (1, 1), (2, n_tiles), (5 * n_tiles, n_tiles), (7, n_tiles)}
    for n_blocks, n_streamed in sorted(tried):
        if n_streamed == 0 or n_blocks <= n_streamed * n_steps:
            yield Cut(number, n_blocks, n_streamed)


def is_simulated_elsewhere(params: Mapping[str, Any]) -> bool:
    """Whether a tile is Triton's and like another one, but for its size."""
    is_simulated = params["side"] == "triton" and params["device"] == "cpu"
    return is_simulated and params["number"] not in SIMULATED_TILES


@leave_out(is_simulated_elsewhere)
@pytest.mark.parametrize(("side", "number"), ALL_TILES)
def test_tiles_that_blocks_share_are_exact(side: str, number: int, device: str) -> None:
    shape = (72, 136, 328) if side == "triton" else (136, 264, 328)
    a, b, bias = operands = integers(shape, device)
    exact = (a.double() @ b.double() + bias.double()).half()
    for cut in cuts(side, number, shape):
        assert torch.equal(run_cut(side, cut, operands), exact), cut


def is_no_tile_for_float32(params: Mapping[str, Any]) -> bool:
    """Whether a tile is for dtypes of two bytes alone."""
    side, number = params["side"], params["number"]
    is_small = (
        number < 5
        if side == "cuda"
        else tables.TENSOR_CORES_TILES[number].element_bytes == 2
    )
    return is_small and bool(params["dtype"] == torch.float32)


def is_compiled_elsewhere(params: Mapping[str, Any]) -> bool:
    """Whether a tile is Triton's, and loads elements as another one does.

    Each tile is compiled for one dtype, and square ones for both: one with aligned rows
    and the other with odd ones.
    """
    if params["side"] != "triton" or params["device"] != "cpu":
        return False
    if params["shape"] == PAIRS:
        return True
    number = params["number"]
    has_odd_rows = params["dtype"] == ODD_DTYPES.get(number)
    return bool(has_odd_rows != (params["shape"] == ODD))


ODD = (71, 137, 327)
PAIRS = (71, 138, 328)  # rows of out are stored in pairs
# Of Triton's tiles that are tried with odd rows, square ones, of few rows and of few
# columns: the dtype. With the other one, if there is one, rows are aligned.
ODD_DTYPES = {0: torch.float32, 2: torch.float16, 4: torch.float16, 7: torch.float16}


# With aligned rows, with rows at odd places, whose elements come one by one, and with
# pairs of them.
@leave_out(is_no_tile_for_float32)
@leave_out(is_compiled_elsewhere)
@pytest.mark.parametrize("dtype", [torch.float16, torch.float32])
@pytest.mark.parametrize("shape", [(72, 136, 328), ODD, PAIRS])
@pytest.mark.parametrize(
    ("side", "number"),
    [(side, n) for side, tiles in RUNG_TILES.items() for n in range(len(tiles))],
)
def test_parts_of_tensor_cores_are_exact(
    side: str, number: int, shape: tuple[int, int, int], dtype: torch.dtype, device: str
) -> None:
    a, b, bias = operands = integers(shape, device, dtype)
    exact = (a.double() @ b.double() + bias.double()).to(dtype)
    block_m, block_n, _ = RUNG_TILES[side][number]
    n_tiles = -(-shape[0] // block_m) * -(-shape[1] // block_n)
    # To Triton each number of parts is another kernel that adds them.
    is_compiled = side == "triton" and device == "cpu"
    for n_parts in (1, 2 + number % 2) if is_compiled else (1, 2, 3):
        cut = Cut(number, n_tiles * n_parts, n_tiles if n_parts > 1 else 0)
        out = run_cut(side, cut, operands, rung="tensor_cores", precision="tf32")
        assert torch.equal(out, exact), cut


# Parts of the rung tiled have whole sums over 256 of K; the last one has fewer.
@pytest.mark.parametrize(
    ("side", "number"),
    [(side, n) for side, tiles in TILED_TILES.items() for n in range(len(tiles))],
)
def test_parts_of_sums_are_exact(side: str, number: int, device: str) -> None:
    shape = (70, 136, 700) if number == 0 else (70, 137, 701)
    a, b, bias = operands = integers(shape, device, torch.float32)
    exact = (a.double() @ b.double() + bias.double()).float()
    block_m, block_n = TILED_TILES[side][number]
    n_tiles = -(-shape[0] // block_m) * -(-shape[1] // block_n)
    # To Triton each number of parts is another kernel that adds them.
    is_compiled = side == "triton" and device == "cpu"
    for n_parts in (1, 2 + number % 2) if is_compiled else (1, 2, 3):
        cut = Cut(number, n_tiles * n_parts, n_tiles if n_parts > 1 else 0)
        out = run_cut(side, cut, operands, rung="tiled")
        assert torch.equal(out, exact), cut


# What nobody has asked to be cut: on Hopper two tiles would leave nearly all idle.
@pytest.mark.parametrize("side", TILED_TILES)
def test_long_sums_of_few_tiles_are_shared_out(side: Side) -> None:
    a, b = torch.empty(64, 9000, device="meta"), torch.empty(9000, 200, device="meta")
    op, out = OP.on_rung(""), OP.allocate(a, b)
    launches = planned_launches(side, op, op.arguments(out, a, b), ARCHITECTURES[90])
    assert [each.kernel for each in launches] == [
        "matmul_tiled_kernel",
        "matmul_sum_kernel",
    ]
    n_tiles = 2  # of 128 columns or less
    assert launches[0].n_blocks >= 16 * n_tiles
    told = choices.sentence(
        op, Choice(launches, op.arguments(out, a, b), ARCHITECTURES[90], False, False)
    )
    assert "K in 36 parts: 2 tiles would leave 130 of 132 multiprocessors idle" in told
    (alone,) = planned_launches(side, op, op.arguments(out, a, b), ARCHITECTURES[80])
    assert alone.n_blocks <= 2 * n_tiles


# Those that have many, which warps add together.
@pytest.mark.parametrize(
    ("side", "cuts"),
    [("cuda", ((0, 12), (1, 6), (5, 23))), ("triton", ((4, 12), (3, 6)))],
)
def test_many_parts_of_tensor_cores_are_exact(
    side: str, cuts: tuple[tuple[int, int], ...], device: str
) -> None:
    a, b, bias = operands = integers((3, 25, 1411), device)
    exact = (a.double() @ b.double() + bias.double()).half()
    for number, n_parts in cuts:
        cut = Cut(number, n_parts, 1)
        out = run_cut(side, cut, operands, rung="tensor_cores")
        assert torch.equal(out, exact), cut


# Rows at odd places are copied for the twin, those of out stored element by element.
@leave_out(is_simulated_elsewhere)
@pytest.mark.parametrize(("side", "number"), ALL_TILES)
def test_operands_at_odd_places_are_copied(side: str, number: int, device: str) -> None:
    shape = (71, 137, 203)
    a, b, bias = operands = integers(shape, device)
    exact = (a.double() @ b.double() + bias.double()).half()
    block_m, block_n, _ = TILES[side][number]
    n_tiles = -(-shape[0] // block_m) * -(-shape[1] // block_n)
    across_k = a.mT.contiguous().mT, b.mT.contiguous().mT, bias
    whole, in_parts = Cut(number, n_tiles, 0), Cut(number, 2 * n_tiles, n_tiles)
    tried = [(operands, whole), (across_k, in_parts)]
    if side == "triton" and device == "cpu":  # where both are compiled
        tried = tried[:1] if number % 2 else tried[1:]
    for each, cut in tried:
        assert torch.equal(run_cut(side, cut, each), exact), cut


# Float32 has tiles of its own, whose rows are those of the left operand.
FLOAT32_TILES = {"tf32": tables.TF32_TILES, "tf32x3": tables.TF32X3_TILES}
ALL_FLOAT32_TILES = [
    (side, precision, n)
    for side in TILES
    for precision, tiles in FLOAT32_TILES.items()
    for n in range(len(tiles))
]
LAYOUTS = ("kk", "oo", "ko", "ok")  # whether a and b lie along k


def laid_out(operands: Operands, layout: str) -> Operands:
    """The same numbers, along k ("k") or not ("o")."""
    a, b, bias = operands
    if layout[0] == "o":
        a = a.mT.contiguous().mT
    if layout[1] == "k":
        b = b.mT.contiguous().mT
    return a, b, bias


# Fewer rows or columns than a tile has: of one box, of some boxes, and of a few rows
# that the first blocks of a cluster copy alone.
@pytest.mark.parametrize("shape", [(8, 200, 136), (136, 40, 72), (1, 3, 64)])
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("number", [n for side, n in ALL_TILES if side == "cuda"])
def test_small_matrices_are_exact(
    number: int, layout: str, shape: tuple[int, int, int], device: str
) -> None:
    a, b, bias = integers(shape, device)
    exact = (a.double() @ b.double() + bias.double()).half()
    tile = cuda_tiles()[number]
    block_m, block_n = model.cluster_tile(tile)
    n_tiles = -(-shape[0] // block_m) * -(-shape[1] // block_n)
    out = run_cut("cuda", Cut(number, n_tiles, 0), laid_out((a, b, bias), layout))
    assert torch.equal(out, exact)


# Rows of an even number of elements are copied word by word: those of a and b, one of
# them, or none. Of aligned rows that are longer than k, a step's last ones are.
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(
    "shape", [(70, 22, 190), (70, 21, 190), (69, 22, 190), (70, 22, 189), (6, 2, 2)]
)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_words_bypass_the_registers(
    dtype: torch.dtype, shape: tuple[int, int, int], layout: str, device: str
) -> None:
    a, b, bias = operands = laid_out(integers(shape, device, dtype), layout)
    exact = (a.double() @ b.double() + bias.double()).to(dtype)
    padded_a = torch.nn.functional.pad(a, (0, 200 - shape[2]))[:, : shape[2]]
    assert padded_a.stride(0) % 8 == 0
    for number, tried in ((5, operands), (6, operands), (5, (padded_a, b, bias))):
        # Tiles that are for all dtypes.
        cut = Cut(number, -(-shape[0] // (64, 128)[number - 5]), 0)
        out = run_cut("cuda", cut, tried, "", "tensor_cores", "tf32")
        assert torch.equal(out, exact), cut


@needs_nvcc
def test_words_are_copied_like_chunks() -> None:
    a, b = (
        torch.empty(*shape, device="meta", dtype=torch.bfloat16)
        for shape in ((8, 518), (518, 8))
    )
    op = OP.on_rung("tensor_cores")
    arguments = tuple(op.arguments(OP.allocate(a, b), a, b))
    code = inspect_cuda(op, arguments, ARCHITECTURES[90])
    executed = {
        kind: sum(
            n_times
            for each, n_times in zip(
                code.ptx.instructions, code.simulation.executed, strict=True
            )
            if each.opcode.startswith(f"cp.async.{kind}.")
        )
        for kind in ("ca", "cg")
    }
    assert executed["ca"] > 0  # words of a
    assert executed["cg"] > 0  # chunks of b


def twelve_bits(
    shape: tuple[int, int, int], device: str, wide: int
) -> tuple[Operands, Tensor]:
    """Whole numbers of which those of one operand have a bit more than tf32.

    Their sums are exact in float32.
    """
    operands = list(integers(shape, device, torch.float32))
    generator = torch.Generator().manual_seed(1)
    size = operands[wide].shape
    numbers = torch.randint(-4095, 4096, size, generator=generator)
    operands[wide] = numbers.to(device, torch.float32)
    a, b, bias = operands
    return (a, b, bias), (a.double() @ b.double() + bias.double()).float()


# Read as it is where it lies along k in rows that are aligned, or copied.
@pytest.mark.parametrize(("side", "precision", "number"), ALL_FLOAT32_TILES)
def test_float32_of_any_layout_is_exact(
    side: str, precision: str, number: int, device: str
) -> None:
    tile = FLOAT32_TILES[precision][number]
    block = max(tile.block_m, tile.block_n)  # tiles may lie across
    is_compiled = side == "triton" and device == "cpu"
    # The left operand is b in the first two, where it has a choice, then a. What is
    # compiled for other layouts is compiled for these.
    shapes = {
        (72, 136, 328): ("kk", "ok"),
        (71, 137, 203): ("ko",),
        (136, 72, 328): ("kk",),
    }
    for shape, compiled in shapes.items():
        for i, layout in enumerate(LAYOUTS):
            if is_compiled and layout not in compiled:
                continue
            operands = integers(shape, device, torch.float32)
            a, b, bias = operands
            exact = (a.double() @ b.double() + bias.double()).float()
            if precision == "tf32x3":
                operands, exact = twelve_bits(shape, device, wide=i % 2)
            n_tiles = -(-shape[0] // block) * -(-shape[1] // block)
            whole, in_parts = Cut(number, n_tiles, 0), Cut(number, 2 * n_tiles, n_tiles)
            tried = (whole, in_parts)
            for cut in tried[i % 2 : i % 2 + 1] if is_compiled else tried:
                given = laid_out(operands, layout)
                out = run_cut(side, cut, given, precision=precision)
                assert torch.equal(out, exact), (cut, layout)


@pytest.mark.parametrize("precision", FLOAT32_TILES)
@pytest.mark.parametrize("side", TILES)
def test_float32_of_a_batch_is_exact(side: str, precision: str, device: str) -> None:
    """Of one that shares an operand, which is copied once."""
    a, b, bias = integers((3 * 40, 72, 200), device, torch.float32)
    a = a.unflatten(0, (3, 40))
    batch_of_b = torch.stack((b, -b, b + 1))
    across_k = a.mT.contiguous().mT
    room = torch.zeros(3, 40, 201, device=device)[:, :, 1:]
    for left, right in (
        (a, batch_of_b),
        (a[0], batch_of_b.mT.contiguous().mT),
        (across_k, b),
        (across_k[:1].expand(3, 40, 200), batch_of_b),
        (room.copy_(a), b),
    ):
        exact = (left.double() @ right.double() + bias.double()).float()
        out = run_cut(side, Cut(1, 3, 0), (left, right, bias), precision=precision)
        assert torch.equal(out, exact)


@pytest.mark.parametrize("side", TILES)
def test_tf32x3_is_as_exact_as_float32(side: str, device: str) -> None:
    generator = torch.Generator().manual_seed(2)
    a, b, bias = (
        torch.randn(size, generator=generator).to(device)
        for size in ((64, 1000), (1000, 72), (72,))
    )
    exact = a.double() @ b.double() + bias.double()

    def error_of(out: Tensor) -> float:
        return (out - exact).square().mean().sqrt().item()

    error, of_tf32 = (
        error_of(run_cut(side, Cut(1, 2, 0), (a, b, bias), precision=precision))
        for precision in ("tf32x3", "tf32")
    )
    assert error <= 2 * error_of(a @ b + bias)
    assert of_tf32 >= 100 * error


# Of which rounded parts are infinite, or nearly: the largest of 24 bits, and tiny ones.
@pytest.mark.parametrize(("size", "other"), [(0.99999, 2.0**-100), (2.0**-230, 1e4)])
@pytest.mark.parametrize("side", TILES)
def test_tf32x3_takes_numbers_of_any_size(
    side: str, size: float, other: float, device: str
) -> None:
    generator = torch.Generator().manual_seed(3)
    largest = torch.finfo(torch.float32).max
    a = torch.rand(40, 72, generator=generator) * 0.0001 + 1
    b = torch.randn(72, 40, generator=generator) * other
    a = (a.double() / a.max() * size * largest).float()
    b[:, 0] = torch.eye(72)[0] * other
    for left, right in ((a, b), (b.mT, a.mT)):
        given = left.to(device), right.to(device), torch.zeros(40, device=device)
        out = run_cut(side, Cut(1, 1, 0), given, precision="tf32x3")
        (expected,) = acceptance.expect(OP, (*given, None, "tf32x3"))
        assert acceptance.judge(out, expected).problem == ""


@pytest.mark.parametrize("side", TILES)
def test_tf32x3_has_infinities_where_float64_has_them(side: str, device: str) -> None:
    """Parts of 0 are multiplied with none of them."""
    a, b, bias = (x.to(device) for x in integers((20, 24, 70), "cpu", torch.float32))
    a[a == 0] = 1
    b[b == 0] = 1
    a[3, 5], a[4, 69], a[6, 1] = math.inf, -math.inf, math.nan
    b[7, 9], b[8, 10], b[0, 11] = math.inf, -math.inf, math.nan
    a[8, 2], b[2, 13] = math.inf, 0  # whose product is NaN
    exact = (a.double() @ b.double() + bias.double()).float()
    assert exact.isinf().sum() > 60
    for layout in ("ko", "ok"):
        given = laid_out((a, b, bias), layout)
        out = run_cut(side, Cut(1, 1, 0), given, precision="tf32x3")
        torch.testing.assert_close(out, exact, rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("side", TILES)
def test_only_operands_at_odd_places_are_copied(side: str, device: str) -> None:
    """One of a batch, and one that the batch shares."""
    a, b, bias = integers((3 * 40, 72, 200), device)
    exact = (a.double() @ b.double() + bias.double()).half()
    room = torch.zeros(3, 40, 201, device=device, dtype=torch.float16)
    room[:, :, 1:] = a.unflatten(0, (3, 40))
    moved = torch.zeros(201, 72, device=device, dtype=torch.float16)[1:]
    for left in (room[:, :, 1:], a.unflatten(0, (3, 40))):
        for right in (b, moved.copy_(b)):
            out = run_cut(side, Cut(3, 3, 0), (left, right, bias))
            assert torch.equal(out.flatten(0, 1), exact)


# In a batch that shares b, and with operands that lie across k.
@pytest.mark.parametrize("side", TILES)
def test_tiles_of_a_batch_that_blocks_share_are_exact(side: str, device: str) -> None:
    a, b, bias = integers((3 * 40, 72, 200), device)
    a = a.unflatten(0, (3, 40)).mT.contiguous().mT
    exact = (a.double() @ b.double() + bias.double()).half()
    cut = Cut(3, 5, 3)  # tiles of 64 x 128
    assert torch.equal(run_cut(side, cut, (a, b, bias)), exact)


def test_parts_leave_tritons_sums_in_registers() -> None:
    """Those of the largest tile are half of all registers."""
    a, b = (torch.empty(512, 512, device="meta", dtype=torch.float16) for _ in "ab")
    op, out = OP.on_rung("twin"), OP.allocate(a, b)
    arguments = [*op.arguments(out, a, b)]
    names = triton.parameters(OP, len(arguments))
    for number in SIMULATED_TILES:
        for name, value in (("tile", number + 1), ("n_blocks", 6), ("n_streamed", 1)):
            arguments[names.index(name)] = value
        code = inspect_triton(op, tuple(arguments), ARCHITECTURES[90])
        assert code.kernel == "matmul_kernel"
        assert code.spill_bytes == 0


def test_tritons_sums_of_steps_are_added_with_rounding() -> None:
    """The compiler could have the tensor cores add them, which round nothing."""
    a, b = (torch.empty(512, 512, device="meta") for _ in "ab")
    op = OP.on_rung("twin")
    arguments = [*op.arguments(OP.allocate(a, b), a, b.mT, None, None, "tf32x3")]
    names = triton.parameters(OP, len(arguments))
    for number, tile in enumerate(tables.TF32X3_TILES):
        numbers = {"tile": number + 1, "n_blocks": 6, "n_streamed": 1}
        for name, value in numbers.items():
            arguments[names.index(name)] = value
        code = inspect_triton(op, tuple(arguments), ARCHITECTURES[90], number=1)
        assert code.kernel == "matmul_tf32_kernel"
        assert code.spill_bytes == 0
        n_additions = sum(each.opcode == "add.f32" for each in code.ptx.instructions)
        n_places, n_threads = 2, 128  # steps in the loop, and the one behind it
        assert n_additions * n_threads == n_places * tile.block_m * tile.block_n


@pytest.mark.parametrize("side", [pytest.param("cuda", marks=needs_nvcc), "triton"])
def test_parts_are_read_once_the_launch_before_has_ended(side: str) -> None:
    a, b = (
        torch.empty(*shape, device="meta", dtype=torch.bfloat16)
        for shape in ((8, 512), (512, 8))
    )
    op = OP.on_rung("tensor_cores")
    arguments = [*op.arguments(OP.allocate(a, b), a, b)]
    names = triton.parameters(OP, len(arguments))
    for name, value in (("tile", 1), ("n_blocks", 2), ("n_streamed", 1)):
        arguments[names.index(name)] = value
    inspect = {"cuda": inspect_cuda, "triton": inspect_triton}[side]
    product, sums = (
        inspect(op, tuple(arguments), ARCHITECTURES[90], number=number)
        for number in range(2)
    )
    starting = {each.opcode for each in product.ptx.instructions}
    assert "griddepcontrol.launch_dependents" in starting
    if side == "cuda":  # chunks of out and pairs of a part's sums, not their elements
        assert {"st.global.v4.u32", "st.global.wb.v2.u32"} <= starting
    assert_waits_first(sums)
    if side == "cuda":  # where a tile may have a single part, with nothing to add
        arguments[names.index("n_blocks")] = 1
        assert_waits_first(inspect(op, tuple(arguments), ARCHITECTURES[90], number=1))


def code_of(
    side: str,
    rung: str,
    shapes: tuple[tuple[int, ...], ...],
    architecture: Architecture,
    number: int = 0,
) -> KernelCode:
    """The code of a launch of a product on a rung, of operands of these shapes."""
    operands = [
        torch.empty(*shape, device="meta", dtype=torch.bfloat16) for shape in shapes
    ]
    op = OP.on_rung(rung)
    arguments = tuple(op.arguments(OP.allocate(*operands), *operands))
    inspect = {"cuda": inspect_cuda, "triton": inspect_triton}[side]
    return inspect(op, arguments, architecture, number=number)


# Of each launch, the size and the rung of a call that has it, and which of the call's
# launches it is, the product first. Rows of 520 elements are read in place, those of
# 518 and 517 as words and elements or, by the twin, as copies.
DEPENDENT_LAUNCHES = {
    "product": (520, "twin", 0),
    "copy": (517, "twin", 1),
    "product of copies": (517, "twin", 0),
    "small product": (520, "tensor_cores", 0),
    "small product of words": (518, "tensor_cores", 0),
    "small product of elements": (517, "tensor_cores", 0),
}


@pytest.mark.parametrize("launch", DEPENDENT_LAUNCHES)
@pytest.mark.parametrize("side", [pytest.param("cuda", marks=needs_nvcc), "triton"])
def test_a_launch_touches_nothing_before_the_one_before_it_has_ended(
    side: str, launch: str
) -> None:
    size, rung, number = DEPENDENT_LAUNCHES[launch]
    shapes = (8, size), (size, 24), (24,)
    assert_waits_first(code_of(side, rung, shapes, ARCHITECTURES[90], number))


@pytest.mark.parametrize("side", [pytest.param("cuda", marks=needs_nvcc), "triton"])
def test_before_hopper_no_launch_depends_on_another(side: str) -> None:
    code = code_of(side, "tensor_cores", ((8, 64), (64, 8)), ARCHITECTURES[80])
    assert not any("griddepcontrol" in each.opcode for each in code.ptx.instructions)


# Blocks that come in another order leave the order of the additions as it is.
@pytest.mark.parametrize(
    ("side", "cut"),
    [
        *(("cuda", Cut(*cut)) for cut in ((0, 3, 1), (1, 8, 2), (5, 7, 2), (3, 11, 2))),
        *(("triton", Cut(*cut)) for cut in ((0, 3, 1), (5, 7, 2))),
    ],
)
def test_tiles_that_blocks_share_are_the_same_in_every_run(
    side: str, cut: Cut, device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    generator = torch.Generator().manual_seed(6)
    n_cols, depth = (256, 1000) if side == "cuda" else (128, 520)
    a, b, bias = (
        torch.randn(*shape, generator=generator).to(device, torch.bfloat16)
        for shape in ((64, depth), (depth, n_cols), (n_cols,))
    )
    expected = run_cut(side, cut, (a, b, bias))
    verdict = acceptance.judge(expected, acceptance.expect(OP, (a, b, bias))[0])
    assert verdict.problem == ""
    orders = ["forward"] * 50 if device == "cuda" else ["reverse", "random:1"]
    for order in orders:
        monkeypatch.setenv("TWIN_EMULATOR_ORDER", order)
        monkeypatch.setenv("TWIN_EMULATOR_WORKERS", "1" if order == "reverse" else "3")
        assert torch.equal(run_cut(side, cut, (a, b, bias), order), expected), order
