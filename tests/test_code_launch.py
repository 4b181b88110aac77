"""A launch in numbers and sentences, and its masked threads in kernels made for it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from together import in_one_test

from bindings.registry import OPS
from compare.assembly.listing import Listing, parse_ptx
from compare.code.architectures import ARCHITECTURES
from compare.code.kernel_code import KernelCode, inspect_triton
from compare.code.launch import masked_fraction, sentences
from compare.ptx_simulator import Launch, Simulation, TensorArgument, simulate

HOPPER = ARCHITECTURES[90]  # 132 SMs


# ---- Numbers and sentences ----


@pytest.fixture(scope="module")
def code() -> KernelCode:
    """A kernel, whose launch the tests replace."""
    op = OPS["add"]
    inputs = [torch.empty(1024, device="meta") for _ in range(2)]
    return inspect_triton(op, op.arguments(op.allocate(*inputs), *inputs), HOPPER)


def sentences_of(
    code: KernelCode, blocks: int, body: str = "", **changes: Any
) -> tuple[str, ...]:
    """A launch with 128 threads in a block, and six elements for each of them.

    An SM holds eight blocks. One is simulated, which has 20 elements.
    """
    made_up: dict[str, Any] = {
        "elements": blocks * 128 * 6,
        "registers": 64,
        "static_shared_bytes": 0,
        "launch": Launch((blocks, 1, 1), (32, 4, 1), (), ()),
        "ptx": kernel(body),
    }
    launched = replace(code, **made_up | changes)
    vars(launched)["simulation"] = simulation_of(launched.ptx, 20)
    return sentences(launched)


def test_a_warp_counts_as_a_whole_even_if_it_is_incomplete(code: KernelCode) -> None:
    launch = Launch((1, 1, 1), (33, 1, 1), (), ())
    (first, _) = sentences_of(code, 1, language="cuda", launch=launch)
    assert first.startswith("1 block of 33 threads (2 warps);")


def test_sentences_about_cuda(code: KernelCode) -> None:
    masked = "setp.lt.u32 %p1, %r2, %r1; @%p1 st.global.b32 [%rd3], %r2;"
    assert sentences_of(code, 456, masked, language="cuda") == (
        "456 blocks of 128 threads (4 warps); for each thread 6 elements of the output"
        " on average.",
        "An SM holds 8 blocks at a time (50% of its warps, limited by registers):"
        " 43% of a wave over 132 SMs, so that all 456 run at once.",
        "38% of its loads and stores of global memory are masked off (seen in 1 of 456"
        " blocks).",
    )


def test_sentences_about_triton(code: KernelCode) -> None:
    assert sentences_of(code, 2000, "st.global.b32 [%rd3], %r2;") == (
        "2,000 programs of 128 threads (num_warps=4); for each thread 6 elements of"
        " the output on average.",
        "An SM holds 8 programs at a time (50% of its warps, limited by registers):"
        " 1.89 waves over 132 SMs, the last of them 89% full.",
        "None of its loads and stores of global memory are masked off (seen in 1 of"
        " 2,000 programs).",
    )


def test_masks_that_were_seen_in_every_block(code: KernelCode) -> None:
    *_, last = sentences_of(code, 1, "st.global.b32 [%rd3], %r2;")
    assert last == "None of its loads and stores of global memory are masked off."


@pytest.mark.parametrize(
    ("blocks", "ending"),
    [
        (1, ", but at most 1 of 132 SMs get one."),
        (131, ", but at most 131 of 132 SMs get one."),
        (132, ": 12% of a wave over 132 SMs, so that all 132 run at once."),
        (456, ": 43% of a wave over 132 SMs, so that all 456 run at once."),
        (1055, ": over 99% of a wave over 132 SMs, so that all 1,055 run at once."),
        (1056, ": exactly 1 wave over 132 SMs."),
        (1057, ": 1.00 waves over 132 SMs, the last of them under 1% full."),
        (2000, ": 1.89 waves over 132 SMs, the last of them 89% full."),
        (3168, ": exactly 3 waves over 132 SMs."),
    ],
)
def test_how_the_gpu_is_filled(code: KernelCode, blocks: int, ending: str) -> None:
    sentence = sentences_of(code, blocks)[1]
    assert sentence.partition(")")[2] == ending


def test_what_limits_is_told_unless_nothing_is_left_to_gain(code: KernelCode) -> None:
    def limits(registers: int, threads: int, shared_bytes: int) -> str:
        sentence = sentences_of(
            code,
            2000,
            registers=registers,
            static_shared_bytes=shared_bytes,
            launch=Launch((2000, 1, 1), (threads, 1, 1), (), ()),
        )[1]
        return sentence.partition("(")[2].partition(")")[0]

    assert limits(32, 128, 0) == "100% of its warps"
    assert limits(32, 32, 0) == "50% of its warps, limited by the number of blocks"
    assert limits(16, 736, 0) == "72% of its warps, limited by the number of threads"
    assert limits(255, 64, 56 * 1024) == (
        "12% of its warps, limited by registers and shared memory"
    )


def test_no_sentence_about_masks_where_nothing_is_known(code: KernelCode) -> None:
    assert len(sentences_of(code, 456)) == 2


# ---- Masks ----


def kernel(body: str) -> Listing:
    """A kernel with the thread's number in %r2 and its element's address in %rd3.

    %r1 has the number of elements.
    """
    return parse_ptx(
        f"""
        .visible .entry k(.param .u64 k_out, .param .u32 k_n)
        {{
            .reg .pred %p<4>;
            .reg .b32 %r<8>;
            .reg .b64 %rd<8>;
            ld.param.u64 %rd1, [k_out];
            ld.param.u32 %r1, [k_n];
            mov.u32 %r2, %tid.x;
            mul.wide.u32 %rd2, %r2, 4;
            add.s64 %rd3, %rd1, %rd2;
            {body}
            ret;
        }}
        .file 1 "kernel.cu"
        """
    )


def simulation_of(ptx: Listing, elements: int) -> Simulation:
    """The simulation of one block of 32 threads."""
    address = 1 << 40
    launch = Launch(
        grid=(1, 1, 1),
        block=(32, 1, 1),
        parameters=(address, elements),
        tensors=(TensorArgument("out", 0, address, 4 * elements),),
    )
    return simulate(ptx, launch)


BEYOND = "setp.ge.u32 %p1, %r2, %r1;"
STORE = "st.global.b32 [%rd3], %r2;"

MASKS = {
    "no access": ("", 20, None),
    "no mask": (STORE, 32, 0),
    "predicate": (f"{BEYOND} @!%p1 {STORE}", 20, 12 / 32),
    "branch": (f"{BEYOND} @%p1 bra DONE; {STORE} DONE:", 20, 12 / 32),
    "branch to what it skips otherwise": (
        f"{BEYOND} @!%p1 bra DO; bra.uni DONE; DO: {STORE} DONE:",
        20,
        12 / 32,
    ),
    "early return": (f"{BEYOND} @%p1 ret; {STORE}", 20, 12 / 32),
    # Both stores are of line 7; no thread executes the second one.
    "predicate that no thread satisfies": (
        f"""
        .loc 1 7 0
        {BEYOND} @!%p1 {STORE}
        add.s32 %r3, %r2, 32; setp.lt.u32 %p2, %r3, %r1;
        @%p2 st.global.b32 [%rd3+128], %r2;
        """,
        20,
        44 / 64,
    ),
    "branch around a store that no thread executes": (
        f"""
        .loc 1 7 0
        {BEYOND} @%p1 bra NEXT; {STORE} NEXT:
        add.s32 %r3, %r2, 32; setp.ge.u32 %p2, %r3, %r1;
        @%p2 bra DONE; st.global.b32 [%rd3+128], %r2; DONE:
        """,
        20,
        44 / 64,
    ),
    # Every thread stores 4 bytes, on one path or the other.
    "two paths": (
        f"{BEYOND} @%p1 bra OTHER; {STORE} bra.uni DONE; OTHER: {STORE} DONE:",
        20,
        0,
    ),
    # All threads make two rounds; 8 of 32 are active in the second.
    "tiles of a loop": (
        f"""
        mov.u32 %r3, 0;
        LOOP: {BEYOND} @%p1 bra NEXT; {STORE} NEXT:
        add.s64 %rd3, %rd3, 128; add.u32 %r2, %r2, 32; add.u32 %r3, %r3, 32;
        setp.lt.u32 %p2, %r3, %r1; @%p2 bra LOOP;
        """,
        40,
        24 / 64,
    ),
    "tiles of a loop that tests first": (
        f"""
        mov.u32 %r3, 0;
        LOOP: setp.ge.u32 %p2, %r3, %r1; @%p2 bra DONE;
        {BEYOND} @!%p1 {STORE}
        add.s64 %rd3, %rd3, 128; add.u32 %r2, %r2, 32; add.u32 %r3, %r3, 32;
        bra.uni LOOP; DONE:
        """,
        40,
        24 / 64,
    ),
    # The same elements, but each thread leaves the loop when it is done.
    "threads that leave a loop": (
        f"""
        {BEYOND} @%p1 bra DONE;
        LOOP: {STORE}
        add.s64 %rd3, %rd3, 128; add.u32 %r2, %r2, 32;
        setp.lt.u32 %p2, %r2, %r1; @%p2 bra LOOP;
        DONE:
        """,
        40,
        0,
    ),
    "odd turn of a loop which is not needed": (
        f"""
        .loc 1 7 0
        and.b32 %r3, %r1, 32; setp.eq.u32 %p1, %r3, 0;
        @%p1 bra LOOP; {STORE} add.s64 %rd3, %rd3, 128;
        LOOP: {STORE}
        add.s64 %rd3, %rd3, 128; add.u32 %r2, %r2, 32;
        setp.lt.u32 %p2, %r2, %r1; @%p2 bra LOOP;
        """,
        64,
        0,
    ),
    "part of the source for other launches": (
        f"""
        .loc 1 7 0
        {STORE}
        .loc 1 8 0
        setp.lt.u32 %p1, %r1, 100; @%p1 bra DONE; {STORE} DONE:
        """,
        32,
        0,
    ),
    "predicate that depends on data": (
        f"""
        ld.global.b32 %r3, [%rd3];
        setp.eq.u32 %p1, %r3, 0; @%p1 {STORE}
        """,
        32,
        None,
    ),
    "branch that depends on data": (
        f"""
        ld.global.b32 %r3, [%rd3];
        setp.eq.u32 %p1, %r3, 0; @%p1 bra DONE; {STORE} DONE:
        """,
        32,
        None,
    ),
    "branch that depends on data, around something else": (
        f"""
        {BEYOND} @%p1 ret; ld.global.b32 %r3, [%rd3];
        setp.eq.u32 %p1, %r3, 0; @%p1 bra DONE; add.u32 %r2, %r2, 1; DONE: {STORE}
        """,
        20,
        12 / 32,
    ),
    # Lanes with 16 bytes weigh four times as much as those with 4.
    "weights": (
        f"{STORE} {BEYOND} @!%p1 st.global.v4.b32 [%rd1], {{%r2, %r2, %r2, %r2}};",
        16,
        (16 * 16) / (32 * 4 + 32 * 16),
    ),
}


@in_one_test("body", "elements", "expected")
@pytest.mark.parametrize(("body", "elements", "expected"), MASKS.values(), ids=MASKS)
def test_masks(body: str, elements: int, expected: float | None) -> None:
    ptx = kernel(body)
    assert masked_fraction(ptx, simulation_of(ptx, elements)) == expected


def test_masks_are_unknown_where_threads_came_to_no_end() -> None:
    ptx = kernel(STORE)
    stopped = replace(simulation_of(ptx, 32), is_complete=False)
    assert masked_fraction(ptx, stopped) is None
