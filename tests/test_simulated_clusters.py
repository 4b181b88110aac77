"""The simulator's clusters: blocks that load for each other, and release remotely."""

from __future__ import annotations

import functools
import re
from pathlib import Path
from typing import Any

import emulated
import numpy as np
import pytest
import shared
from emulated import SOURCES, integers
from test_emulator_hopper import column_sums
from test_simulated_memory import OUT, X, fault, map_of, numbers
from together import in_one_test

from compare.assembly.listing import Listing, parse_ptx
from compare.ptx_simulator import (
    Buffer,
    Contents,
    Launch,
    Order,
    Simulation,
    TensorArgument,
    TensorMap,
    simulate,
)

ORDERS: tuple[Order, ...] = ("", "forward", "reverse", "random:1")
N_CLUSTERS, ROWS, COLUMNS = 2, 16, 64
SIZES = (2, 4)  # of clusters
KERNEL = "multicast_kernelILi{size}ELNS_5FaultE{fault}E"
# Of multicast.cuh, in its order; the first is none.
FAULTS = (
    "none",
    "more_bytes",
    "own_bytes",
    "no_arrival",
    "own_arrivals",
    "no_end",
    "no_wait",
)


def compile_kernels(folder: Path) -> None:
    """The kernel of multicast.cuh, with and without its faults, as nvcc compiles it."""
    instances = "".join(
        f"template __global__ void multicast::multicast_kernel<{size}, "
        f"multicast::Fault::{fault}>"
        "(const __grid_constant__ CUtensorMap, float*, int64_t);\n"
        for size in SIZES
        for fault in FAULTS
    )
    source = folder / "kernels.cu"
    source.write_text('#include "multicast.cuh"\n' + instances)
    options = ["-ptx", "-arch=sm_90a", "-lineinfo", f"-I{SOURCES}"]
    emulated.nvcc(*options, source, "-o", folder / "kernels.ptx")


@functools.cache
def kernel(size: int, fault: str = "none") -> Listing:
    text = (shared.once("multicast-ptx", compile_kernels) / "kernels.ptx").read_text()
    name = KERNEL.format(size=size, fault=FAULTS.index(fault))
    found = re.search(rf"\.entry (\w+{name}\w+)\(", text)
    assert found
    return parse_ptx(text, found[1])


def run_kernel(
    size: int, fault: str = "none", n_tiles: int = 7, order: Order | None = ""
) -> tuple[np.ndarray, np.ndarray, Simulation]:
    """What it should write and what it writes, and the run.

    Without an order, None, tensors have no contents.
    """
    x = integers(N_CLUSTERS, n_tiles, ROWS, COLUMNS)
    out = np.full((N_CLUSTERS * size, n_tiles, COLUMNS), np.nan, np.float32)
    n_rows = N_CLUSTERS * n_tiles * ROWS
    row_bytes = 4 * COLUMNS
    launch = Launch(
        grid=(N_CLUSTERS * size, 1, 1),
        block=(96, 1, 1),
        parameters=(X, OUT, n_tiles),
        tensors=(
            TensorArgument("out", 1, OUT, out.nbytes),
            TensorArgument("x", 0, X, x.nbytes),
        ),
        dynamic_shared_bytes=2 * (ROWS * row_bytes + 2 * 8),
        tensor_maps=(
            TensorMap(
                position=0,
                address=X,
                element_bytes=4,
                sizes=(COLUMNS, n_rows, 1),
                strides=(row_bytes, n_rows * row_bytes),
                box=(COLUMNS, ROWS // size, 1),
            ),
        ),
        cluster=(size, 1, 1),
    )
    listing = kernel(size, fault)
    if order is None:
        return column_sums(x, size), out, simulate(listing, launch)
    written = np.zeros(out.nbytes, np.bool_)
    contents = Contents(
        [
            Buffer("out", OUT, out.reshape(-1).view(np.uint8), written),
            Buffer("x", X, x.reshape(-1).view(np.uint8)),
        ]
    )
    done = simulate(listing, launch, contents=contents, order=order)
    return column_sums(x, size), out, done


# ---- Blocks that load for each other -------------------------------------------------


@in_one_test("size", "n_tiles", "order")
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("n_tiles", [1, 2, 7])
@pytest.mark.parametrize("order", ORDERS)
def test_blocks_load_for_each_other(size: int, n_tiles: int, order: Order) -> None:
    expected, out, done = run_kernel(size, n_tiles=n_tiles, order=order)
    assert done.is_exact
    assert not done.faults, done.faults
    np.testing.assert_array_equal(out, expected)


@pytest.mark.parametrize("size", SIZES)
def test_each_byte_is_loaded_once_for_all_blocks(size: int) -> None:
    """Without contents, what is loaded is counted where that is started."""
    *_, done = run_kernel(size, n_tiles=7, order=None)
    assert done.is_exact
    loads = [each for each in done.accesses if each.argument == "x"]
    tile_bytes = 4 * ROWS * COLUMNS
    n_clusters = done.blocks / size
    assert sum(each.bytes for each in loads) == n_clusters * 7 * tile_bytes
    assert not any(each.unknown for each in done.accesses)
    assert not done.out_of_bounds


# What the first report of each fault says, and the line that it is of.
REPORTS = {
    "more_bytes": ("waits for ever: the phase never ends", "mbarrier_wait"),
    "own_bytes": ("waits for ever: the phase never ends", "mbarrier_wait"),
    "no_arrival": ("waits for ever: the phase never ends", "mbarrier_wait"),
    "own_arrivals": ("writes shared memory that another .*, in no order", "multicast"),
    "no_end": ("of the cluster, which may have ended", "mbarrier_arrive_remote"),
    "no_wait": ("reads shared memory at byte .*, never written", r"x\[row"),
}


@in_one_test("size", "name", "order")
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", REPORTS)
@pytest.mark.parametrize("order", ORDERS[1:])
def test_a_fault_is_told(size: int, name: str, order: Order) -> None:
    *_, done = run_kernel(size, name, order=order)
    what, line = REPORTS[name]
    first = done.faults[0]
    assert re.search(what, first.what), done.faults
    assert re.search(line, line_of(kernel(size, name), first.index)), first


def line_of(listing: Listing, index: int) -> str:
    """The line of multicast.cuh that an instruction comes from."""
    source = (SOURCES / "multicast.cuh").read_text().splitlines()
    places = [
        each
        for each in listing.instructions[index].frames
        if each.file.endswith("multicast.cuh")
    ]
    return " ".join(source[each.line - 1] for each in places)


# ---- Blocks that must not end too early ----------------------------------------------

PAIR: dict[str, Any] = {"grid": (2, 1, 1), "cluster": (2, 1, 1), "threads": 16}

# The second of two blocks reads what the first one has in its shared memory, and tells
# it that it has; END is what the first one does then.
READ = """
    mov.u32 %r1, %cluster_ctarank; mov.u32 %r2, tile; add.s32 %r3, %r2, 64;
    mov.u32 %r4, %tid.x; setp.eq.u32 %p1, %r4, 0; setp.eq.u32 %p2, %r1, 1;
    @%p1 mbarrier.init.shared::cta.b64 [%r3], 1;
    @%p1 st.shared.u32 [%r2], 7;
    barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;
    @!%p2 bra first;
    @!%p1 bra over;
    mov.u32 %r5, 0;
    mapa.shared::cluster.u32 %r6, %r2, %r5;
    mapa.shared::cluster.u32 %r7, %r3, %r5;
    ld.shared::cluster.u32 %r8, [%r6];
    st.global.u32 [%d1], %r8;
    mbarrier.arrive.shared::cluster.b64 _, [%r7];
    bra over;
    first: END
    over:
"""
END = """
    mbarrier.try_wait.parity.shared::cta.b64 %p3, [%r3], 0;
    @!%p3 bra first;
"""


@in_one_test("order")
@pytest.mark.parametrize("order", ORDERS)
def test_a_block_waits_for_its_reader(order: Order) -> None:
    body = READ.replace("END", END)
    assert numbers(body, out_bytes=4, order=order, **PAIR) == [7]


@in_one_test("order")
@pytest.mark.parametrize("order", ORDERS[1:])
def test_a_block_that_does_not_wait_for_its_reader_is_told(order: Order) -> None:
    body = READ.replace("END", "")
    found = fault(body, out_bytes=4, order=order, **PAIR)
    assert found == "reaches into block 0 of the cluster, which may have ended"


# ---- Masks of blocks -----------------------------------------------------------------

# The first of two blocks has 64 bytes of x copied to all that the MASK names. Each of
# them waits for its own, and copies them to out.
MULTICAST = """
    mov.u32 %r1, %cluster_ctarank; mov.u32 %r2, tile; add.s32 %r3, %r2, 1024;
    mov.u32 %r4, %tid.x; setp.eq.u32 %p1, %r4, 0; setp.eq.u32 %p2, %r1, 0;
    and.pred %p2, %p1, %p2;
    @%p1 mbarrier.init.shared::cta.b64 [%r3], 1;
    @%p1 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r3], 64;
    barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;
    mov.b16 %h1, MASK; mov.u32 %r5, 0;
    mov.u64 %d6, p2; cvta.param.u64 %d6, %d6;
    COPY
    again: mbarrier.try_wait.parity.shared::cta.b64 %p3, [%r3], 0;
    @!%p3 bra again;
    shl.b32 %r6, %r4, 2; add.s32 %r6, %r2, %r6;
    ld.shared.u32 %r7, [%r6];
    mad.lo.u32 %r8, %r1, 16, %r4; mul.wide.u32 %d3, %r8, 4; add.s64 %d3, %d1, %d3;
    st.global.u32 [%d3], %r7;
"""
ONTO = "shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster"
COPIES = {
    "box": f"@%p2 cp.async.bulk.tensor.2d.{ONTO} "
    "[%r2], [%d6, {%r5, %r5}], [%r3], %h1;",
    "bytes": f"@%p2 cp.async.bulk.{ONTO} [%r2], [%d2], 64, [%r3], %h1;",
}


def multicast(copy: str, mask: int) -> str:
    return MULTICAST.replace("COPY", COPIES[copy]).replace("MASK", str(mask))


X_ROWS = np.arange(32, dtype=np.uint32).reshape(2, 16)


@in_one_test("copy", "order")
@pytest.mark.parametrize("copy", COPIES)
@pytest.mark.parametrize("order", ORDERS)
def test_one_copy_comes_to_several_blocks(copy: str, order: Order) -> None:
    found = numbers(
        multicast(copy, 0b11),
        X_ROWS,
        out_bytes=128,
        tensor_maps=[map_of(X_ROWS, (1, 16))],
        order=order,
        **PAIR,
    )
    assert found == 2 * list(range(16))


@in_one_test("copy", "mask")
@pytest.mark.parametrize("copy", COPIES)
@pytest.mark.parametrize(
    ("mask", "what"),
    [
        (0b00, "copies to blocks 0b0 of a cluster of 2"),
        (0b110, "copies to blocks 0b110 of a cluster of 2"),
        (0b01, "waits for ever: the phase never ends"),
    ],
)
def test_a_wrong_mask_is_told(copy: str, mask: int, what: str) -> None:
    maps = [map_of(X_ROWS, (1, 16))]
    body = multicast(copy, mask)
    assert fault(body, X_ROWS, out_bytes=128, tensor_maps=maps, **PAIR) == what
