"""`tcgen05` in the PTX simulator: Triton's products for sm_100, and the manual's words.

What is expected comes from products in float64, from the PTX manual's tables of
descriptors and of lanes, and from the C++ emulator, whose tensor cores are an H100's.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from common import assert_accepted, leave_out, random_inputs, triton_version
from emulated import integers
from test_simulated_matrices import (
    Layout,
    bits_of,
    chain_of_the_emulator,
    depth_of,
    each_of,
    image_of,
    layout_of,
    registers,
    results,
    run,
    to_shared,
    transfers,
)
from together import in_one_test
from torch import Tensor

import bindings
from bindings.registry import OPS
from compare.code import simulated_calls
from compare.errors import SimulationFault
from compare.ptx_simulator import Order, Simulation
from compare.ptx_simulator.batch import NOT_SIMULATED

Array = npt.NDArray[Any]

# ---- What Triton makes of the matrix product -----------------------------------------

# Tiles that the copy engine brings, tiles that threads copy, and a single product.
TWIN, COPIED, SINGLE = (256, 256, 128), (130, 70, 66), (1, 1, 1)


def matrix(
    n_rows: int, n_cols: int, dtype: torch.dtype, seed: int, *, is_transposed: bool
) -> Tensor:
    """Small integers, of which sums up to 256 are exact in all dtypes."""
    generator = torch.Generator().manual_seed(seed)
    shape = (n_cols, n_rows) if is_transposed else (n_rows, n_cols)
    x = torch.randint(-1, 2, shape, generator=generator).to(dtype)
    return x.mT if is_transposed else x


def assert_is_exact(
    shape: tuple[int, int, int],
    dtype: torch.dtype,
    layouts: tuple[bool, bool],
    precision: str = "ieee",
    order: Order = "",
) -> None:
    n_rows, n_cols, depth = shape
    a = matrix(n_rows, depth, dtype, 0, is_transposed=layouts[0])
    b = matrix(depth, n_cols, dtype, 1, is_transposed=layouts[1])
    out = torch.empty(n_rows, n_cols, dtype=dtype)
    op = OPS["matmul"].on_rung("twin" if shape == TWIN else "tensor_cores")
    arguments = op.arguments(out, a, b, None, None, precision)
    simulated_calls.run(
        "triton", op, arguments, "sm_100a", unwritten=[out], order=order
    )
    assert torch.equal(out, (a.double() @ b.double()).to(dtype))


# A matrix's layout is its own matter; warp by warp, both have the first one.
@pytest.mark.parametrize("layouts", [(False, True), (True, False)])
@pytest.mark.parametrize(
    ("shape", "dtype"), [(TWIN, torch.bfloat16), (COPIED, torch.float16)]
)
def test_products_of_integers_are_exact(
    shape: tuple[int, int, int], dtype: torch.dtype, layouts: tuple[bool, bool]
) -> None:
    assert_is_exact(shape, dtype, layouts)


@pytest.mark.parametrize("layouts", [(False, False), (True, True)])
def test_products_in_tf32_are_exact(layouts: tuple[bool, bool]) -> None:
    """Their a is in tensor memory."""
    assert_is_exact(COPIED, torch.float32, layouts, "tf32")


OF_COPIES = {torch.float16: "reverse", torch.float32: "forward"}


def test_a_single_product_is_exact() -> None:
    assert_is_exact(SINGLE, torch.bfloat16, (False, False))


# All orders are tried on what warps do most differently, on the others one of them.
@leave_out(
    lambda each: each["shape"] != TWIN and each["order"] != OF_COPIES[each["dtype"]]
)
@pytest.mark.parametrize("order", ["forward", "reverse", "random:1"])
@pytest.mark.parametrize(
    ("shape", "dtype", "precision"),
    [
        (TWIN, torch.bfloat16, "ieee"),
        (COPIED, torch.float16, "ieee"),
        (COPIED, torch.float32, "tf32"),
    ],
)
def test_warp_by_warp_they_are_exact(
    shape: tuple[int, int, int], dtype: torch.dtype, precision: str, order: Order
) -> None:
    # Before 3.7, Triton has tcgen05.mma read what cp.async has written, with no
    # fence.proxy.async between, which the PTX ISA demands of other than bulk copies.
    lacks_fence = triton_version() < (3, 7) and dtype == torch.float16
    says = r"no fence\.proxy\.async has shown it, at .*: @%p\d+ tcgen05\.mma"
    expected = pytest.raises(SimulationFault, match=says)
    with expected if lacks_fence else contextlib.nullcontext():
        assert_is_exact(shape, dtype, (False, False), precision, order)


@pytest.mark.parametrize(
    ("dtype", "params"),
    [
        (torch.bfloat16, {"activation": "gelu"}),
        (torch.float16, {}),
        (torch.float32, {"precision": "tf32"}),
    ],
)
def test_products_of_random_numbers_are_accepted(
    dtype: torch.dtype, params: dict[str, str], generator: torch.Generator
) -> None:
    """Of several tiles a program, with a bias."""
    inputs = random_inputs(OPS["matmul"], (130, 72, 200), dtype, "cpu", generator)
    with bindings.simulated("sm_100a"):
        assert_accepted(OPS["matmul"], "triton", inputs, params)


# ---- Kernels by hand -----------------------------------------------------------------

# Behind all matrices in shared memory.
ADDRESS, MBARRIER = 65520, 65528
WAIT_ST, WAIT_LD = (f"tcgen05.wait::{each}.sync.aligned;" for each in ("st", "ld"))


def allocate(columns: int, register: str = "%r20", place: int = ADDRESS) -> str:
    """Has the first warp ask for columns; all threads get their address."""
    alloc = "tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32"
    return f"""
        setp.lt.u32 %p2, %r3, 32;
        @%p2 {alloc} [%r59+{place}], {columns};
        bar.sync 0;
        ld.shared.b32 {register}, [%r59+{place}];
        bar.sync 0;
    """


def free(columns: int, register: str = "%r20") -> str:
    dealloc = "tcgen05.dealloc.cta_group::1.sync.aligned.b32"
    return f"bar.sync 0; @%p2 {dealloc} {register}, {columns};"


# The address of the 32 lanes that the thread's warp reaches; mbarrier and first thread.
OWN_LANES = """
    shr.u32 %r22, %r3, 5; and.b32 %r22, %r22, 3; shl.b32 %r22, %r22, 21;
    add.u32 %r22, %r22, %r20;
"""
BEGIN = f"""
    {OWN_LANES}
    setp.eq.u32 %p1, %r3, 0; setp.eq.u32 %p0, %r3, %r3; add.u32 %r21, %r59, {MBARRIER};
    @%p1 mbarrier.init.shared::cta.b64 [%r21], 1;
    bar.sync 0;
"""
COMMIT = "@%p1 tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64"
AWAIT = """
    AWAIT: mbarrier.try_wait.parity.shared::cta.b64 %p3, [%r21], 0;
    @!%p3 bra AWAIT;
"""


def store(vector: str, place: str = "%r22") -> str:
    count = len(each_of(vector))
    return f"tcgen05.st.sync.aligned.32x32b.x{count}.b32 [{place} + 0], {vector};"


def load(vector: str, place: str = "%r22") -> str:
    count = len(each_of(vector))
    return f"tcgen05.ld.sync.aligned.32x32b.x{count}.b32 {vector}, [{place} + 0];"


def form_of(
    inputs: str,
    n_rows: int,
    n_cols: int,
    *,
    is_a_k_major: bool = True,
    is_b_k_major: bool = True,
    sums: str = "f32",
) -> int:
    """The instruction descriptor: the manual's table for f16 and tf32."""
    number = {"f16": 0, "bf16": 1, "tf32": 2}[inputs]
    fields = [(int(sums == "f32"), 4), (number, 7), (number, 10)]
    fields += [(int(not is_a_k_major), 15), (int(not is_b_k_major), 16)]
    fields += [(n_cols >> 3, 17), (n_rows >> 4, 24)]
    return sum(value << bit for value, bit in fields)


def descriptor_of(layout: Layout) -> int:
    """In which tcgen05 takes a matrix in shared memory."""
    mode = {16: 0, 128: 2, 64: 4, 32: 6}[layout.swizzle_bytes]
    places = (layout.start, 0), (layout.leading, 16), (layout.stride, 32)
    return mode << 61 | 1 << 46 | sum((each >> 4) << bit for each, bit in places)


def mma(
    inputs: str,
    form: int,
    a: Layout | str,
    b: Layout,
    *,
    d: str = "%r20",
    accumulates: str = "%p0",
) -> str:
    """One product by the first thread; a that is no layout is in tensor memory."""
    kind = "tf32" if inputs == "tf32" else "f16"
    left, descriptors = f"[ {a} + 0 ]", ""
    if isinstance(a, Layout):
        left = "%d20"
        descriptors = f"add.s64 %d20, %d59, {descriptor_of(a)};"
    return f"""
        {descriptors} add.s64 %d21, %d59, {descriptor_of(b)}; mov.b32 %r24, {form};
        @%p1 tcgen05.mma.cta_group::1.kind::{kind} [ {d} + 0 ], {left}, %d21, %r24,
            {accumulates};
    """


def lanes_of(n_rows: int, first: int = 0) -> Array:
    """The lane of each row: of 64, the manual's layout F, and of 128, layout D."""
    rows = np.arange(n_rows)
    return rows if n_rows == 128 else rows // 16 * 32 + rows % 16 + first


def cells_after(
    body: str, image: Array, sums: Array, inputs: Sequence[Array] = (), **options: Any
) -> Array:
    """What is in the cells of tensor memory, by lane, that held sums before."""
    columns = sums.shape[-1]
    vector = registers("e", columns)
    return results(
        f"""
        {allocate(512)}
        {to_shared(1, image.size)}
        {BEGIN}
        {transfers("ld", 2, vector)} {store(vector)} {WAIT_ST}
        bar.sync 0;
        {body}
        {COMMIT} [%r21];
        {AWAIT}
        {load(vector)} {WAIT_LD} {transfers("st", 0, vector)}
        {free(512)}
        """,
        [image, sums, *inputs],
        columns,
        **options,
    )


def floats(words: Array) -> Array:
    return words.view(np.float32)


MAJORS = list(itertools.product([True, False], repeat=2))


@in_one_test("swizzle_bytes", "n_rows")
@pytest.mark.parametrize("n_rows", [64, 128])
@pytest.mark.parametrize("swizzle_bytes", [16, 32, 64, 128])
@pytest.mark.parametrize(
    ("inputs", "is_a_k_major", "is_b_k_major"),
    [*(("bf16", *each) for each in MAJORS), ("f16", True, False), ("tf32", True, True)],
)
def test_matrices_lie_as_the_manual_says(
    inputs: str,
    is_a_k_major: bool,
    is_b_k_major: bool,
    swizzle_bytes: int,
    n_rows: int,
) -> None:
    depth = depth_of(inputs)
    a, b, c = integers(n_rows, depth), integers(depth, 32), integers(128, 32)
    a_layout = layout_of(n_rows, swizzle_bytes, 0, is_k_major=is_a_k_major)
    b_layout = layout_of(32, swizzle_bytes, 32768, is_k_major=is_b_k_major)
    image = image_of(
        [(bits_of(a, inputs), a_layout), (bits_of(b.T, inputs), b_layout)], 61440
    )
    form = form_of(
        inputs, n_rows, 32, is_a_k_major=is_a_k_major, is_b_k_major=is_b_k_major
    )
    expected = c.copy()
    expected[lanes_of(n_rows)] += a @ b
    found = cells_after(mma(inputs, form, a_layout, b_layout), image, c)
    np.testing.assert_array_equal(floats(found), expected)


A, B = Layout(0, 128, 0, 1024), Layout(32768, 128, 0, 1024)


def image_for(a: Array, b: Array, inputs: str) -> Array:
    matrices = (bits_of(a, inputs), A), (bits_of(b.T, inputs), B)
    return image_of(matrices, 61440)


@pytest.mark.parametrize("n_cols", [8, 128])
@pytest.mark.parametrize(("n_rows", "first"), [(64, 0), (64, 16), (128, 0)])
@pytest.mark.parametrize("inputs", ["f16", "tf32"])
def test_a_in_tensor_memory(inputs: str, n_rows: int, first: int, n_cols: int) -> None:
    """In eight columns, each with one number or two, behind those of the sums."""
    depth = depth_of(inputs)
    a, b, c = integers(n_rows, depth), integers(depth, n_cols), integers(128, n_cols)
    words = np.zeros((128, 8), np.uint32)
    words[lanes_of(n_rows, first)] = bits_of(a, inputs).view(np.uint32)
    vector, form = registers("a", 8), form_of(inputs, n_rows, n_cols)
    body = f"""
        {transfers("ld", 3, vector)}
        add.u32 %r23, %r22, 256; {store(vector, "%r23")} {WAIT_ST}
        bar.sync 0;
        add.u32 %r25, %r20, {first << 16}; add.u32 %r26, %r25, 256;
        {mma(inputs, form, "%r26", B, d="%r25")}
    """
    expected = c.copy()
    expected[lanes_of(n_rows, first)] += a @ b
    found = cells_after(body, image_of([(bits_of(b.T, inputs), B)], 61440), c, [words])
    np.testing.assert_array_equal(floats(found), expected)


def test_a_product_that_is_not_added() -> None:
    """Nor is what was there before, of which nothing need be known."""
    a, b = integers(128, 16), integers(16, 32)
    body = f"""
        add.u32 %r25, %r20, 64; setp.ne.u32 %p3, %r3, %r3;
        {mma("f16", form_of("f16", 128, 32), A, B, d="%r25", accumulates="%p3")}
        add.u32 %r22, %r22, 64;
    """
    found = cells_after(body, image_for(a, b, "f16"), np.zeros((128, 32), np.float32))
    np.testing.assert_array_equal(floats(found), a @ b)


def test_sums_in_float16() -> None:
    """Each has a cell of its own."""
    a, b, c = integers(128, 16), integers(16, 32), integers(128, 32)
    form = form_of("f16", 128, 32, sums="f16")
    words = c.astype(np.float16).view(np.uint16).astype(np.uint32)
    found = cells_after(mma("f16", form, A, B), image_for(a, b, "f16"), words)
    np.testing.assert_array_equal(found.astype(np.uint16).view(np.float16), a @ b + c)


def test_a_chain_of_products_is_the_emulators() -> None:
    """Of random numbers, bit for bit; by four instructions, one behind the other."""
    bits, expected = chain_of_the_emulator("bf16", "bf16")
    form = form_of("bf16", 64, 64)
    body = "".join(
        mma("bf16", form, A._replace(start=32 * i), B._replace(start=B.start + 32 * i))
        for i in range(4)
    )
    image = image_of(list(zip(bits, (A, B), strict=True)), 61440)
    found = cells_after(body, image, np.zeros((128, 64), np.float32))
    np.testing.assert_array_equal(found[lanes_of(64)], expected.view(np.uint32))


def test_blocks_multiply_matrices_of_their_own() -> None:
    a, b, c = integers(2, 128, 16), integers(16, 32), integers(256, 32)
    images = np.stack([image_for(each, b, "f16") for each in a])
    multiply = mma("f16", form_of("f16", 128, 32), A, B)
    vector = registers("e", 32)
    found = results(
        f"""
        mov.u32 %r7, %ctaid.x;
        mul.wide.u32 %d10, %r7, {images[0].size}; add.s64 %d10, %d10, %d1;
        {allocate(32)}
        {to_shared(10, images[0].size)}
        {BEGIN}
        {transfers("ld", 2, vector)} {store(vector)} {WAIT_ST}
        bar.sync 0;
        {multiply} {COMMIT} [%r21]; {AWAIT}
        {load(vector)} {WAIT_LD} {transfers("st", 0, vector)}
        {free(32)}
        """,
        [images, c],
        32,
        blocks=2,
    )
    expected = (a @ b + c.reshape(2, 128, 32)).reshape(256, 32)
    np.testing.assert_array_equal(floats(found), expected)


def test_halves_of_a_warp_may_share_lanes() -> None:
    """`16x32bx2`: the second half of a warp has the same lanes, and later columns."""
    x = np.arange(128 * 32, dtype=np.uint32).reshape(128, 32)
    vector, half = registers("e", 32), registers("b", 4)
    found = results(
        f"""
        {allocate(32)} {OWN_LANES}
        {transfers("ld", 1, vector)} {store(vector)} {WAIT_ST}
        add.u32 %r23, %r22, {16 << 16};
        tcgen05.ld.sync.aligned.16x32bx2.x4.b32 {half}, [%r23 + 2], 4;
        {WAIT_LD}
        tcgen05.st.sync.aligned.16x32bx2.x4.b32 [%r22 + 0], 16, {half};
        {WAIT_ST} {load(vector)} {transfers("st", 0, vector)}
        {free(32)}
        """,
        [x],
        32,
    )
    expected = x.copy()
    for lane in range(128):
        if lane % 32 < 16:
            expected[lane, 0:4] = x[lane + 16, 2:6]
            expected[lane, 16:20] = x[lane + 16, 6:10]
    np.testing.assert_array_equal(found, expected)


def test_lanes_of_a_warp_wait_for_each_other() -> None:
    """Half of them take a way that leads back from behind."""
    found = results(
        f"""
        {allocate(32)} {OWN_LANES}
        setp.lt.u32 %p1, %r4, 16; @%p1 bra FAR;
        NEAR: {store("{%r3}")} {WAIT_ST} {load("{%r5}")} {transfers("st", 0, "{%r5}")}
        ret;
        FAR: bra NEAR;
        """,
        [],
        1,
    )
    np.testing.assert_array_equal(found[:, 0], np.arange(128))


# ---- Columns -------------------------------------------------------------------------


def test_columns_that_are_free_are_given() -> None:
    """The first ones that fit, and never those of another allocation."""
    found = results(
        f"""
        {allocate(64, "%r10")} {allocate(32, "%r11")} {allocate(64, "%r12")}
        {free(32, "%r11")} {free(64, "%r10")}
        {allocate(32, "%r13")} {allocate(32, "%r14")} {allocate(32, "%r15")}
        {transfers("st", 0, "{%r10, %r11, %r12, %r13, %r14, %r15}")}
        """,
        [],
        6,
        threads=32,
        blocks=2,
    )
    np.testing.assert_array_equal(found, 64 * [[0, 64, 96, 0, 32, 64]])


def test_what_was_given_back_is_unwritten() -> None:
    faults = faults_of(
        f"""
        {allocate(32)} {OWN_LANES} {store("{%r4}")} {WAIT_ST}
        {free(32)} {allocate(32)} {load("{%r5}")}
        """
    )
    assert faults == ["reads tensor memory in lane 0, column 0, never written"]


# ---- What must not be done -----------------------------------------------------------


def simulation_of(body: str, order: Order = "", threads: int = 128) -> Simulation:
    return run(body, [], 1, threads=threads, order=order)[2]


def faults_of(body: str, order: Order = "", threads: int = 128) -> list[str]:
    return [each.what for each in simulation_of(body, order, threads).faults]


FOUR = "{%r4, %r4, %r4, %r4}"
RELINQUISH = "tcgen05.relinquish_alloc_permit.cta_group::1.sync.aligned;"
ABSENT = "tensor memory that its block does not have"
REFUSED = "asks for columns of tensor memory that its block cannot have"
UNREACHED = "lanes of tensor memory that its warp does not reach"
NOT_THEIRS = "gives back columns of tensor memory that it was not given"
FORM = form_of("f16", 64, 8)


@in_one_test("body", "fault")
@pytest.mark.parametrize(
    ("body", "fault"),
    [
        (load(registers("a", 64)), f"reads {ABSENT}"),
        (f"add.u32 %r22, %r22, 30; {store(FOUR)}", f"writes {ABSENT}"),
        (f"{free(32)} {store(FOUR)}", f"writes {ABSENT}"),
        (f"{store(FOUR, '%r20')}", f"writes {UNREACHED}"),
        (f"{load(FOUR, '%r20')}", f"reads {UNREACHED}"),
        (f"add.u32 %r22, %r22, {16 << 16}; {store(FOUR)}", f"writes {UNREACHED}"),
        (f"and.b32 %r5, %r3, 1; add.u32 %r22, %r22, %r5; {store(FOUR)}", UNREACHED),
        (
            f"tcgen05.st.sync.aligned.16x32bx2.x4.b32 [%r22], {32 << 16}, {FOUR};",
            f"writes {UNREACHED}",
        ),
        (
            f"add.u32 %r22, %r22, {8 << 16};"
            f"tcgen05.st.sync.aligned.16x32bx2.x4.b32 [%r22], 4, {FOUR};",
            f"writes {UNREACHED}",
        ),
        (
            f"{store(FOUR)} {WAIT_ST} {load(registers('a', 8))}",
            "reads tensor memory in lane 0, column 4, never written",
        ),
        (allocate(48, "%r19"), REFUSED),
        (allocate(512, "%r19"), REFUSED),
        (allocate(16, "%r19"), REFUSED),
        (allocate(32, "%r19", 1 << 16), "writes at byte 65536 of shared memory"),
        (RELINQUISH + allocate(32, "%r19"), REFUSED),
        (free(64), NOT_THEIRS),
        (free(32) + free(32), NOT_THEIRS),
        (f"add.u32 %r20, %r20, 1; {free(32)}", NOT_THEIRS),
        (f"{COMMIT} [%r20];", "names what is no mbarrier"),
    ],
)
def test_faults(body: str, fault: str) -> None:
    faults = faults_of(f"{allocate(32)} {BEGIN} {body}")
    assert fault in faults[0]


@pytest.mark.parametrize(
    ("d", "a", "fault"),
    [
        (32, A, f"adds to {ABSENT}"),
        (16 << 16, A, f"adds to {ABSENT}"),  # where 64 rows would begin
        (8 << 16, A, "lanes of tensor memory at which no matrix can begin"),
        (0, "%r26", "lanes of tensor memory at which no matrix can begin"),
        (0, "%r27", f"reads {ABSENT}"),
        (0, "%r28", "reads tensor memory in lane 0, column 16, never written"),
    ],
)
def test_faults_of_products(d: int, a: Layout | str, fault: str) -> None:
    body = f"""
        add.u32 %r25, %r20, {d}; add.u32 %r26, %r20, {16 << 16};
        add.u32 %r27, %r20, 32; add.u32 %r28, %r20, 16;
        {mma("f16", form_of("f16", 128, 8), a, B, d="%r25")}
    """
    image, vector = image_for(np.ones((128, 16)), np.ones((16, 8)), "f16"), "{%r5}"
    _, _, simulation = run(
        f"""
        {allocate(32)} {to_shared(1, image.size)} {BEGIN} mov.b32 %r5, 0;
        {"".join(f"add.u32 %r6, %r22, {i}; {store(vector, '%r6')}" for i in range(8))}
        {WAIT_ST} bar.sync 0; {body}
        """,
        [image],
        1,
    )
    assert fault in simulation.faults[0].what


def test_sums_that_nobody_has_written() -> None:
    image = image_for(np.ones((64, 16)), np.ones((16, 8)), "f16")
    body = f"""
        {allocate(32)} {to_shared(1, image.size)} {BEGIN}
        {mma("f16", FORM, A, B)} {COMMIT} [%r21]; {AWAIT} {load("{%r5}")}
    """
    _, _, simulation = run(body, [image], 1)
    what = "reads tensor memory in lane 0, column 0, never written"
    # So does what reads the sums.
    assert [each.what for each in simulation.faults] == 2 * [what]


def test_a_matrix_that_nobody_has_written() -> None:
    image = image_for(np.ones((64, 16)), np.ones((16, 8)), "f16")
    body = mma("f16", FORM, A._replace(start=61440), B)
    sums = np.zeros((128, 8), np.float32)
    with pytest.raises(AssertionError, match="never written"):
        cells_after(body, image, sums)


KIND = "tcgen05.mma.cta_group::1.kind::f16"
PLAIN = mma("f16", FORM, A, B)
OF_B = descriptor_of(B)


@in_one_test("body")
@pytest.mark.parametrize(
    "body",
    [
        PLAIN.replace(KIND, "tcgen05.mma.cta_group::1.kind::f8f6f4"),
        PLAIN.replace(KIND, "tcgen05.mma.ws.cta_group::1.kind::f16"),
        PLAIN.replace(KIND, "tcgen05.mma.cta_group::2.kind::f16"),
        PLAIN.replace("%p0;", "%p0, 3;"),  # scales the sums
        PLAIN.replace(str(OF_B), str(OF_B | 1 << 61)),  # another swizzle
        PLAIN.replace(str(OF_B), str(OF_B | 1 << 49)),  # a base offset
        PLAIN.replace(str(OF_B), str(OF_B & ~(1 << 46))),
        PLAIN.replace(f"{FORM};", f"{FORM | 1 << 13};"),  # negates a
        PLAIN.replace(f"{FORM};", f"{FORM | 1 << 2};"),  # a sparse a
        PLAIN.replace(f"{FORM};", f"{FORM | 1 << 7};"),  # a and b of two formats
        mma("f16", form_of("f16", 64, 264), A, B),
        mma("f16", form_of("f16", 32, 8), A, B),
        mma("bf16", form_of("bf16", 64, 8, sums="f16"), A, B),
        mma("f16", form_of("f16", 64, 8, is_a_k_major=False), "%r20", B),
        mma("tf32", form_of("tf32", 64, 8, is_b_k_major=False), A, B),
        "tcgen05.ld.sync.aligned.16x64b.x1.b32 {%r5}, [%r20];",
        "tcgen05.ld.sync.aligned.32x32b.x1.pack::16b.b32 {%r5}, [%r20];",
        "tcgen05.cp.cta_group::1.128x256b [%r20], %d20;",
        "tcgen05.commit.cta_group::2.mbarrier::arrive::one.b64 [%r21];",
    ],
)
def test_what_is_not_simulated_is_told(body: str) -> None:
    assert faults_of(f"{allocate(32)} {BEGIN} {body}") == [NOT_SIMULATED]


def test_without_contents_nothing_is_known_and_all_is_executed() -> None:
    vector = registers("e", 8)
    _, written, simulation = run(
        f"""
        {allocate(32)} {BEGIN} {store(vector)} {WAIT_ST}
        {PLAIN} {COMMIT} [%r21]; {AWAIT}
        {load(vector)} {WAIT_LD} {transfers("st", 0, vector)} {free(32)}
        """,
        [],
        8,
        has_contents=False,
    )
    assert simulation.is_exact
    assert not written.any()
    assert all(simulation.executed)


def test_without_contents_the_address_is_unknown() -> None:
    body = f"""
        mov.b32 %r5, 0; st.shared.b32 [%r59+{ADDRESS}], %r5; {allocate(32)}
        setp.eq.u32 %p1, %r20, 0; @%p1 bra THERE; mov.b32 %r5, 0; THERE:
    """
    _, _, simulation = run(body, [], 1, has_contents=False)
    assert len(simulation.unknown_branches) == 1


# ---- When it is done -----------------------------------------------------------------

ONES = image_for(np.ones((64, 16)), np.ones((16, 8)), "f16")
FIVES = np.full((128, 8), 5.0, np.float32)
VECTOR = registers("e", 8)
READ = f"{load(VECTOR)} {WAIT_LD} {transfers('st', 0, VECTOR)}"


def sums_of(body: str, order: Order) -> tuple[set[float], Simulation]:
    """What a kernel finds in lane 0: 5, and 16 more for each product that is done."""
    out, _, simulation = run(
        f"""
        {allocate(32)} {to_shared(1, ONES.size)} {BEGIN}
        {transfers("ld", 2, VECTOR)} {store(VECTOR)} {WAIT_ST}
        bar.sync 0;
        {body}
        """,
        [ONES, FIVES],
        8,
        order=order,
    )
    return set(floats(out)[0].tolist()), simulation


@pytest.mark.parametrize(("order", "expected"), [("", {37.0}), ("forward", {21.0})])
def test_a_product_that_nobody_waits_for(order: Order, expected: set[float]) -> None:
    """The checking mode does what was committed before the mbarrier's phase."""
    body = f"{PLAIN} {COMMIT} [%r21]; {PLAIN} {AWAIT} {READ}"
    assert sums_of(body, order)[0] == expected


@pytest.mark.parametrize(("order", "expected"), [("", {53.0}), ("forward", {21.0})])
def test_each_thread_multiplies_and_commits_on_its_own(
    order: Order, expected: set[float]
) -> None:
    """Three of them multiply one after the other, and the first one commits."""
    by_three = PLAIN.replace("@%p1", "@%p2")
    body = f"setp.lt.u32 %p2, %r3, 3; {by_three} {COMMIT} [%r21]; {AWAIT} {READ}"
    assert sums_of(body, order)[0] == expected


@pytest.mark.parametrize("order", ["", "forward", "reverse"])
def test_a_commit_tracks_all_before_it(order: Order) -> None:
    found, simulation = sums_of(
        f"{PLAIN} {PLAIN} {COMMIT} [%r21]; {AWAIT} {READ}", order
    )
    assert found == {37.0}
    assert not simulation.faults


def test_a_store_that_nobody_waits_for() -> None:
    """In the checking mode it comes too late for the product."""
    zeros = f"mov.b32 %r5, 0; {store('{' + ', '.join(8 * ['%r5']) + '}')}"
    multiply = f"bar.sync 0; {PLAIN} {COMMIT} [%r21]; {AWAIT} {READ}"
    assert sums_of(f"{zeros} {WAIT_ST} {multiply}", "forward")[0] == {16.0}
    assert sums_of(f"{zeros} {multiply}", "forward")[0] == {21.0}


TWOS = "mov.b32 %r5, 0x40004000; @%p2 st.shared.v4.b32 [%r6], {%r5, %r5, %r5, %r5};"


def overwrite(first: int) -> str:
    """Makes all of b twos, by the threads of a warp: rows of 32 bytes in 128."""
    return f"""
        sub.u32 %r6, %r3, {first}; setp.lt.u32 %p2, %r6, 32;
        mad.lo.u32 %r6, %r6, 32, %r59; add.u32 %r6, %r6, {B.start}; {TWOS}
        add.u32 %r6, %r6, 16; {TWOS}
    """


@pytest.mark.parametrize("order", ["forward", "reverse"])
@pytest.mark.parametrize("first", [0, 32])
def test_a_matrix_that_is_overwritten_too_early(first: int, order: Order) -> None:
    """By the warp that multiplies, or by another one."""
    multiply, change = f"{PLAIN} {COMMIT} [%r21];", overwrite(first)
    early, in_time = (
        sums_of(each, order)
        for each in (
            f"{multiply} {change} bar.sync 0; {AWAIT} {READ}",
            f"{multiply} {AWAIT} {change} {READ}",
        )
    )
    assert early[0] == {37.0}
    assert early[1].faults
    assert in_time[0] == {21.0}
    assert not in_time[1].faults


def test_a_matrix_that_the_async_proxy_has_not_been_shown() -> None:
    body = f"bar.sync 0; {PLAIN} {COMMIT} [%r21]; {AWAIT} {READ}"
    change = overwrite(32)
    fence = "fence.proxy.async.shared::cta;"
    _, shown = sums_of(f"{change} {fence} {body}", "forward")
    _, hidden = sums_of(f"{change} {body}", "forward")
    assert not shown.faults
    assert "no fence.proxy.async has shown it" in hidden.faults[0].what
