"""Kernels that the simulator runs on contents: memory, copies, barriers, and faults."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import emulated
import numpy as np
import numpy.typing as npt
import pytest
from test_emulator_hopper import ROUNDED_BITS, rounding_box
from together import in_one_test

from compare.assembly.listing import parse_ptx
from compare.ptx_simulator import (
    Buffer,
    Contents,
    Launch,
    Order,
    Simulation,
    TensorArgument,
    TensorMap,
    machine,
    simulate,
)

Array = npt.NDArray[Any]
Triple = tuple[int, int, int]

ORDERS: tuple[Order, ...] = ("", "forward", "reverse")
OUT, X = 1 << 44, 2 << 44

# What most kernels here begin with: the thread's number, and its places in x and out.
PLACES = """
    mov.u32 %r1, %tid.x;
    mul.wide.u32 %d3, %r1, 4;
    add.s64 %d4, %d2, %d3;
    add.s64 %d5, %d1, %d3;
"""


def run(
    body: str,
    x: Array | None = None,
    out_bytes: int = 512,
    *,
    module: str = "",
    threads: int = 128,
    grid: Triple = (1, 1, 1),
    cluster: Triple = (1, 1, 1),
    tensor_maps: Sequence[TensorMap] = (),
    order: Order = "",
) -> tuple[Array, Simulation]:
    """The bytes that a kernel of out, %d1, and x, %d2, leaves in out."""
    listing = parse_ptx(f"""
.version 8.7
.target sm_90a
.address_size 64
{module}
.visible .entry k(
    .param .u64 p0, .param .u64 p1, .param .align 64 .b8 p2[128],
    .param .align 64 .b8 p3[128]
)
{{
    .reg .pred %p<16>;
    .reg .b16 %h<32>;
    .reg .b32 %r<64>;
    .reg .b64 %d<64>;
    .shared .align 1024 .b8 tile[8192];
    .local .align 16 .b8 own[64];
    ld.param.u64 %d1, [p0];
    ld.param.u64 %d2, [p1];
    {body}
    ret;
}}
""")
    x = np.arange(128, dtype=np.uint32) if x is None else x
    content = x.reshape(-1).view(np.uint8)
    out = np.zeros(out_bytes, np.uint8)
    launch = Launch(
        grid=grid,
        block=(threads, 1, 1),
        parameters=(OUT, X, X, OUT),
        tensors=(
            TensorArgument("out", 0, OUT, out.size),
            TensorArgument("x", 1, X, content.size),
        ),
        tensor_maps=tuple(tensor_maps),
        cluster=cluster,
    )
    written = np.zeros(out.size, np.bool_)
    contents = Contents(
        [Buffer("out", OUT, out, written), Buffer("x", X, content.copy())]
    )
    return out, simulate(listing, launch, contents=contents, order=order)


def numbers(body: str, x: Array | None = None, **options: Any) -> list[int]:
    """The 32-bit numbers that a kernel without a fault leaves in out."""
    out, done = run(body, x, **options)
    assert done.is_exact, done
    assert not done.faults, done.faults
    return list(map(int, out.view(np.uint32)))


def fault(body: str, x: Array | None = None, **options: Any) -> str:
    """The first fault of a kernel: the instruction, and what is wrong with it."""
    _, done = run(body, x, **options)
    assert done.faults
    return done.faults[0].what


# ---- Loads and stores ----------------------------------------------------------------


@in_one_test("space", "n_bytes")
@pytest.mark.parametrize("space", ["global", "shared", "local"])
@pytest.mark.parametrize("n_bytes", [1, 2, 4, 8, 16])
def test_what_is_stored_is_loaded(space: str, n_bytes: int) -> None:
    """Widths by vectors too, at odd places of the space, and signs are kept."""
    kind, vector = (
        (f"u{8 * n_bytes}", "") if n_bytes < 8 else ("u32", f".v{n_bytes // 4}")
    )
    register = "%h" if n_bytes < 4 else "%r"
    names = [f"{register}{10 + i}" for i in range(max(1, n_bytes // 4))]
    listed = "{" + ", ".join(names) + "}" if vector else names[0]
    base = {"global": "mov.u64 %d8, %d5;", "shared": "mov.u64 %d8, tile;"}
    through = base.get(space, "mov.u64 %d8, own;")
    step = (
        f"mul.wide.u32 %d9, %r1, {n_bytes};" if space == "shared" else "mov.u64 %d9, 0;"
    )
    scale = f"mul.wide.u32 %d3, %r1, {n_bytes};"
    body = f"""
        mov.u32 %r1, %tid.x; {scale}
        add.s64 %d4, %d2, %d3; add.s64 %d5, %d1, %d3;
        {through} {step} add.s64 %d8, %d8, %d9;
        ld.global{vector}.{kind} {listed}, [%d4];
        st.{space}{vector}.{kind} [%d8], {listed};
        ld.{space}{vector}.{kind} {listed}, [%d8];
        st.global{vector}.{kind} [%d5], {listed};
    """
    rng = np.random.default_rng(0)
    x = rng.integers(0, 256, 128 * n_bytes, np.uint8)
    out, done = run(body, x, 128 * n_bytes)
    assert not done.faults
    assert np.array_equal(out, x)


def test_a_narrow_signed_number_keeps_its_sign() -> None:
    body = PLACES + "ld.global.s8 %r2, [%d4]; st.global.u32 [%d5], %r2;"
    x = np.full(128, 0x80, np.uint32)
    assert set(numbers(body, x)) == {0xFFFFFF80}


def test_constants_and_variables_hold_what_the_module_says() -> None:
    module = """
        .const .align 4 .b32 table[4] = {3, -1, 0x10, 0f3f800000};
        .global .align 2 .u16 step = 7;
    """
    body = (
        PLACES
        + """
        ld.const.b32 %r2, [table+4]; ld.const.b32 %r3, [table+12];
        ld.global.u16 %h1, [step]; cvt.u32.u16 %r4, %h1;
        add.s32 %r5, %r2, %r3; add.s32 %r5, %r5, %r4;
        st.global.u32 [%d5], %r5;
    """
    )
    assert set(numbers(body, module=module)) == {0x3F800000 + 6}


def test_a_register_of_32_bits_may_stand_for_less_than_0() -> None:
    """What is added to it comes back to memory that exists."""
    body = (
        PLACES
        + """
        shl.b32 %r2, %r1, 2; mov.u32 %r3, tile; add.u32 %r2, %r2, %r3;
        st.shared.u32 [%r2], %r1; add.u32 %r2, %r2, -131072;
        ld.shared.u32 %r4, [%r2+131072];
        st.global.u32 [%d5], %r4;
    """
    )
    assert numbers(body) == list(range(128))


def test_a_part_that_nobody_writes_or_reads_is_no_fault() -> None:
    body = (
        PLACES
        + """
        mov.b64 %d8, {%r1, %r40}; mov.b64 {%r2, _}, %d8;
        st.global.u32 [%d5], %r2;
    """
    )
    assert numbers(body) == list(range(128))


def test_parameters_are_read_by_a_computed_address() -> None:
    body = (
        PLACES
        + """
        mov.u64 %d8, p1; and.b32 %r2, %r1, 1; mul.wide.u32 %d9, %r2, 4;
        add.s64 %d8, %d8, %d9; ld.param.u32 %r3, [%d8];
        st.global.u32 [%d5], %r3;
    """
    )
    assert numbers(body)[:2] == [X & 0xFFFFFFFF, X >> 32]


@in_one_test("operation", "combine", "space")
@pytest.mark.parametrize(
    ("operation", "combine"),
    [
        ("add.u32", lambda old, new: old + new),
        ("max.u32", max),
        ("min.s32", min),
        ("xor.b32", lambda old, new: old ^ new),
        ("exch.b32", lambda old, new: new),
        ("inc.u32", lambda old, most: 0 if old >= most else old + 1),
    ],
)
@pytest.mark.parametrize("space", ["global", "shared"])
def test_atomics_come_one_after_the_other(
    operation: str, combine: Any, space: str
) -> None:
    """Four lanes at each of 32 places, in the order of the lanes."""
    place = "%d7" if space == "global" else "%d8"
    body = (
        PLACES
        + f"""
        and.b32 %r2, %r1, 31; mul.wide.u32 %d6, %r2, 4; add.s64 %d7, %d1, %d6;
        mov.u64 %d8, tile; add.s64 %d8, %d8, %d6;
        mov.u32 %r3, 5; st.{space}.u32 [{place}], %r3; bar.sync 0;
        ld.global.u32 %r4, [%d4];
        atom.{space}.{operation} %r5, [{place}], %r4; bar.sync 0;
        ld.{space}.u32 %r6, [{place}];
        shl.b32 %r5, %r5, 16; or.b32 %r6, %r6, %r5;
        bar.sync 0; st.global.u32 [%d5], %r6;
    """
    )
    x = np.arange(128, dtype=np.uint32) * 7 % 31
    found = numbers(body, x)
    for place_number in range(32):
        now, before = 5, []
        for lane in range(place_number, 128, 32):
            before.append(now)
            now = combine(now, int(x[lane]))
        for each, lane in zip(before, range(place_number, 128, 32), strict=True):
            assert found[lane] == now | each << 16


def test_atomics_of_a_vector_add_to_each_number() -> None:
    """Each 8th thread adds to the same four numbers."""
    body = (
        PLACES
        + """
        and.b32 %r2, %r1, 7; mul.wide.u32 %d6, %r2, 16; add.s64 %d7, %d1, %d6;
        mov.b32 %r3, 0; st.global.b32 [%d5], %r3; bar.sync 0;
        ld.global.b32 %r4, [%d4]; mov.b32 %r5, 0x3F800000;
        red.relaxed.gpu.global.add.v2.f32 [%d7], {%r4, %r5};
        atom.global.add.v2.f32 {%r6, %r7}, [%d7+8], {%r5, %r4};
    """
    )
    x = (np.arange(128) * 5 % 23).astype(np.float32)
    found = np.array(numbers(body, x), np.uint32).view(np.float32)
    sums, count = x.reshape(16, 8).sum(0), np.full(8, 16, np.float32)
    assert (found[:32] == np.stack([sums, count, count, sums], 1).reshape(-1)).all()


# ---- Faults --------------------------------------------------------------------------

STORE = "st.global.u32 [%d5], %r2;"


@pytest.mark.parametrize(
    ("body", "what"),
    [
        (
            "ld.global.u32 %r2, [%d4+4]; " + STORE,
            "reads at byte 512 of x, out of bounds",
        ),
        (
            "ld.global.u32 %r2, [%d4]; st.global.u32 [%d5+-4], %r2;",
            "writes at byte -4 of out, out of bounds",
        ),
        ("ld.global.u32 %r2, [%d5]; " + STORE, "reads global memory, never written"),
        (
            "ld.shared.u32 %r2, [tile+8]; " + STORE,
            "reads shared memory at byte 8, never written",
        ),
        (
            "ld.shared.u32 %r2, [tile+8192]; " + STORE,
            "reads at byte 8192 of shared memory, out of bounds",
        ),
        (
            "ld.local.u32 %r2, [own]; " + STORE,
            "reads local memory at byte 0, never written",
        ),
        (
            "wmma.mma.sync.aligned.row.row.m16n16k16.f32.f32 {%r2}, {%r1}, {%r1},"
            " {%r1};",
            "is not simulated",
        ),
        ("mbarrier.arrive.shared.b64 _, [tile];", "names what is no mbarrier"),
        ("bar.red.popc.u32 %r2, 0, %p1;" + STORE, "is not simulated"),
    ],
)
def test_a_fault_is_told_where_it_happens(body: str, what: str) -> None:
    assert fault(PLACES + body) == what


def test_what_is_done_before_a_mask_is_no_fault() -> None:
    body = (
        PLACES
        + """
        setp.lt.u32 %p1, %r1, 100; mov.u32 %r2, 0;
        @%p1 ld.global.u32 %r2, [%d4];
        st.global.u32 [%d5], %r2;
    """
    )
    x = np.arange(100, dtype=np.uint32)
    assert numbers(body, x) == [*range(100), *[0] * 28]


EXCHANGE = (
    PLACES
    + """
    ld.global.u32 %r2, [%d4];
    shl.b32 %r3, %r1, 2; mov.u32 %r4, tile; add.s32 %r5, %r4, %r3;
    xor.b32 %r6, %r3, 256; add.s32 %r6, %r4, %r6;
    st.shared.u32 [%r5], %r2;
    bar.sync 0;
    ld.shared.u32 %r7, [%r6];
    st.global.u32 [%d5], %r7;
"""
)


@pytest.mark.parametrize("order", ORDERS)
def test_threads_exchange_through_shared_memory(order: Order) -> None:
    assert numbers(EXCHANGE, order=order) == [lane ^ 64 for lane in range(128)]


@pytest.mark.parametrize("order", ["forward", "reverse"])
def test_a_missing_barrier_shows(order: Order) -> None:
    text = EXCHANGE.replace("bar.sync 0;", "")
    assert "never written" in fault(text, order=order)


def test_threads_that_wait_for_ever_are_told() -> None:
    body = PLACES + "setp.lt.u32 %p1, %r1, 64; @%p1 bar.sync 0, 128;"
    _, done = run(body)
    assert not done.is_complete
    assert [each.what for each in done.faults] == [
        "waits for ever: not all come to the barrier"
    ]


# ---- Asynchronous work ---------------------------------------------------------------


COPY = (
    PLACES
    + """
    shl.b32 %r3, %r1, 4; mov.u32 %r4, tile; add.s32 %r5, %r4, %r3;
    mul.wide.u32 %d6, %r1, 16; add.s64 %d6, %d2, %d6;
    setp.lt.u32 %p1, %r1, 100; selp.b32 %r6, 16, SIZE, %p1;
    cp.async.cg.shared.global [%r5], [%d6], 16, %r6;
    cp.async.commit_group;
    WAIT
    ld.shared.u32 %r7, [%r5+12];
    st.global.u32 [%d5], %r7;
"""
)


@in_one_test("order", "wait", "size")
@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("wait", ["cp.async.wait_group 0;", "cp.async.wait_all;"])
@pytest.mark.parametrize("size", [0, 6, 12])
def test_copies_of_threads_fill_up_with_zeros(
    order: Order, wait: str, size: int
) -> None:
    x = np.arange(1, 513, dtype=np.uint32)
    text = COPY.replace("WAIT", wait).replace("SIZE", str(size))
    expected = [4 * (lane + 1) if lane < 100 else 0 for lane in range(128)]
    assert numbers(text, x, order=order) == expected


@pytest.mark.parametrize("operands", ["[%d30], 16, %r6;", "[%d6], 16, %r30;"])
def test_a_copy_by_what_nothing_defines_is_told(operands: str) -> None:
    x = np.arange(1, 513, dtype=np.uint32)
    text = COPY.replace("WAIT", "cp.async.wait_all;").replace("SIZE", "0")
    text = text.replace("[%d6], 16, %r6;", operands)
    what = "copies by an address or a size that nothing defines"
    assert fault(text, x) == what


def test_a_copy_of_nothing_needs_no_address() -> None:
    text = COPY.replace("WAIT", "cp.async.wait_all;")
    assert numbers(text.replace("[%d6], 16, %r6;", "[%d30], 16, 0;")) == [0] * 128


@pytest.mark.parametrize("wait", ["", "cp.async.wait_group 1;"])
def test_a_copy_that_is_not_waited_for_shows(wait: str) -> None:
    x = np.arange(1, 513, dtype=np.uint32)
    text = COPY.replace("WAIT", wait).replace("SIZE", "0")
    assert "never written" in fault(text, x, order="forward")


# One thread has a box copied to shared memory, which an mbarrier tells; all read it.
BOX = (
    PLACES
    + """
    mov.u32 %r2, tile; add.s32 %r3, %r2, 4096; setp.eq.u32 %p1, %r1, 0;
    @%p1 mbarrier.init.shared::cta.b64 [%r3], 1;
    bar.sync 0;
    mov.u64 %d6, p2; cvta.param.u64 %d6, %d6;
    mov.u32 %r4, COLUMN; mov.u32 %r5, ROW;
    @%p1 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r3], BYTES;
    @%p1 cp.async.bulk.tensor.2d.shared::cta.global.mbarrier::complete_tx::bytes """
    + """
        [%r2], [%d6, {%r4, %r5}], [%r3];
    mov.u32 %r6, PHASE;
    again: mbarrier.try_wait.parity.shared::cta.b64 %p2, [%r3], %r6;
    @!%p2 bra again;
    shl.b32 %r7, %r1, 2; add.s32 %r8, %r2, %r7;
    ld.shared.u32 %r9, [%r8];
    st.global.u32 [%d5], %r9;
"""
)


def box(column: int, row: int, *, n_bytes: int = 512, phase: int = 0) -> str:
    values: Mapping[str, int] = {
        "COLUMN": column,
        "ROW": row,
        "BYTES": n_bytes,
        "PHASE": phase,
    }
    text = BOX
    for name, value in values.items():
        text = text.replace(name, str(value))
    return text


def map_of(x: Array, shape: tuple[int, int], swizzle: int = 0) -> TensorMap:
    """Boxes of so many rows and columns of x."""
    rows, columns = shape
    width = x.itemsize
    return TensorMap(
        position=2,
        address=X,
        element_bytes=width,
        sizes=x.shape[::-1],
        strides=(x.shape[1] * width,),
        box=(columns, rows),
        swizzle_bytes=swizzle,
    )


@in_one_test("order", "corner")
@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("corner", [(0, 0), (3, 2), (12, 9), (-2, -1)])
def test_a_box_is_clipped_at_the_tensors_edges(
    order: Order, corner: tuple[int, int]
) -> None:
    x = np.arange(1, 10 * 14 + 1, dtype=np.uint32).reshape(10, 14)
    column, row = corner
    padded = np.zeros((40, 40), np.uint32)
    padded[10:20, 10:24] = x
    expected = padded[row + 10 : row + 18, column + 10 : column + 26]
    found = numbers(box(column, row), x, tensor_maps=[map_of(x, (8, 16))], order=order)
    assert found == expected.reshape(-1).tolist()


@pytest.mark.parametrize("swizzle", [32, 64, 128])
def test_a_swizzle_moves_chunks_of_sixteen_bytes(swizzle: int) -> None:
    """As the CUDA driver API's manual has it: by the number of the row of 128 bytes."""
    columns = swizzle // 4
    x = np.arange(512 // swizzle * columns, dtype=np.uint32).reshape(-1, columns)
    found = numbers(box(0, 0), x, tensor_maps=[map_of(x, x.shape, swizzle)])
    expected = np.zeros(128, np.uint32)
    for row, column in np.ndindex(x.shape):
        chunk, rest = divmod(column, 4)
        line = (row * swizzle) // 128 % 8
        chunk ^= line % (swizzle // 16)
        expected[row * columns + 4 * chunk + rest] = x[row, column]
    assert found == expected.tolist()


def test_a_load_that_rounds_to_tf32_is_the_emulators() -> None:
    """Of any bits, and of those that the emulator's own test has."""
    bits = np.random.default_rng(0).integers(0, 1 << 32, 128, np.uint32)
    bits[: len(ROUNDED_BITS)] = ROUNDED_BITS[:, 0]
    bits[-2:] = 0x7F80_0000, 0xFFC0_1001  # infinity and NaN
    x = bits.reshape(8, 16)
    rounding = replace(map_of(x, x.shape), rounds_to_tf32=True)
    found = numbers(box(0, 0), x, tensor_maps=[rounding])
    expected = rounding_box(emulated.load_kernels(), bits, is_stored=False)
    assert found == expected[: bits.size].tolist()
    assert np.mean(found != bits) > 0.9
    assert numbers(box(0, 0), x, tensor_maps=[map_of(x, x.shape)]) == bits.tolist()


def test_a_store_never_rounds() -> None:
    """CUDA's maps of float32 look alike, whether they are for loads or for stores."""
    body = (
        PLACES
        + """
        ld.global.u32 %r2, [%d4];
        mov.u32 %r3, tile; shl.b32 %r4, %r1, 2; add.s32 %r5, %r3, %r4;
        st.shared.u32 [%r5], %r2;
        fence.proxy.async; bar.sync 0;
        mov.u64 %d6, p3; cvta.param.u64 %d6, %d6;
        mov.u32 %r6, 0; setp.eq.u32 %p1, %r1, 0;
        @%p1 cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group
            [%d6, {%r6, %r6}], [%r3];
        @%p1 cp.async.bulk.commit_group;
        @%p1 cp.async.bulk.wait_group.read 0;
    """
    )
    x = np.random.default_rng(0).integers(0, 1 << 32, (8, 16), np.uint32)
    map_of_out = replace(
        map_of(x, x.shape), position=3, address=OUT, rounds_to_tf32=True
    )
    assert numbers(body, x, tensor_maps=[map_of_out]) == x.reshape(-1).tolist()


def test_a_phase_that_never_ends_is_told() -> None:
    x = np.zeros((8, 16), np.uint32)
    _, done = run(box(0, 0, n_bytes=516), x, tensor_maps=[map_of(x, (8, 16))])
    assert [each.what for each in done.faults] == [
        "waits for ever: the phase never ends"
    ]
    assert not done.is_complete


def test_a_wait_for_the_wrong_phase_reads_too_early() -> None:
    x = np.zeros((8, 16), np.uint32)
    found = fault(
        box(0, 0, phase=1), x, tensor_maps=[map_of(x, (8, 16))], order="forward"
    )
    assert found == "reads shared memory at byte 0, never written"


@pytest.mark.parametrize("order", ORDERS)
def test_blocks_of_a_cluster_reach_each_other(order: Order) -> None:
    """Each writes its rank into the next one's memory, whose mbarrier tells it."""
    body = """
        mov.u32 %r1, %cluster_ctarank; mov.u32 %r2, tile; add.s32 %r3, %r2, 64;
        mov.u32 %r9, %tid.x; setp.eq.u32 %p1, %r9, 0;
        @%p1 mbarrier.init.shared::cta.b64 [%r3], 1;
        @%p1 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r3], 4;
        barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;
        add.s32 %r4, %r1, 1; and.b32 %r4, %r4, 3;
        mapa.shared::cluster.u32 %r5, %r2, %r4;
        mapa.shared::cluster.u32 %r6, %r3, %r4;
        @%p1 st.async.shared::cluster.mbarrier::complete_tx::bytes.b32
            [%r5], %r1, [%r6];
        again: mbarrier.try_wait.parity.shared::cta.b64 %p2, [%r3], 0;
        @!%p2 bra again;
        ld.shared.u32 %r7, [%r2];
        mov.u32 %r8, %ctaid.x; mul.wide.u32 %d3, %r8, 4; add.s64 %d3, %d1, %d3;
        @%p1 st.global.u32 [%d3], %r7;
    """
    found = numbers(
        body, out_bytes=32, grid=(8, 1, 1), cluster=(4, 1, 1), threads=64, order=order
    )
    assert found == [3, 0, 1, 2, 3, 0, 1, 2]


# ---- Blocks that wait for each other -------------------------------------------------

# The first thread of a block waits until x[0] is what the block's turn is, adds 1 to it
# times 10 in out, and passes the turn on. Blocks count down, so that all wait for those
# behind them.
TAKE_TURNS = """
    mov.u32 %r1, %tid.x;
    mov.u32 %r2, %ctaid.x;
    sub.s32 %r3, 3, %r2;
    setp.eq.u32 %p1, %r1, 0;
    @!%p1 bra OVER;
AGAIN:
    {ask}
    setp.ne.u32 %p2, %r4, %r3;
    @%p2 bra AGAIN;
    ld.global.u32 %r5, [%d1];
    mad.lo.u32 %r5, %r5, 10, %r3;
    st.global.u32 [%d1], %r5;
    add.u32 %r6, %r3, 1;
    {tell}
OVER:
    bar.sync 0;
"""
WAYS_TO_ASK = {
    "acquire": "ld.acquire.gpu.global.u32 %r4, [%d2];",
    "volatile": "ld.volatile.global.u32 %r4, [%d2];",
    "an atomic": "atom.global.add.u32 %r4, [%d2], 0;",
    "sleep": "ld.relaxed.gpu.global.u32 %r4, [%d2]; nanosleep.u32 32;",
}


@in_one_test("ask", "order")
@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("ask", WAYS_TO_ASK)
def test_blocks_wait_for_each_other(ask: str, order: Order) -> None:
    body = TAKE_TURNS.format(
        ask=WAYS_TO_ASK[ask], tell="st.release.gpu.global.u32 [%d2], %r6;"
    )
    x = np.zeros(1, np.uint32)
    found = numbers(
        f"st.global.u32 [%d1], 0; bar.sync 0; {body}",
        x,
        out_bytes=4,
        grid=(4, 1, 1),
        order=order,
    )
    assert found == [123]


def test_who_waits_for_a_block_for_ever_is_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(machine, "MOST_QUESTIONS", 20)
    body = TAKE_TURNS.format(ask=WAYS_TO_ASK["acquire"], tell="")
    x = np.zeros(1, np.uint32)
    _, done = run(f"st.global.u32 [%d1], 0; {body}", x, grid=(4, 1, 1))
    assert not done.is_complete
    assert done.faults[0].what == "waits for ever for what no block writes"
    assert done.faults[0].block == (0, 0, 0)  # the first of three
