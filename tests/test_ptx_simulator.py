"""The PTX simulator: single instructions, memory, whole kernels."""

from __future__ import annotations

import functools
import inspect
import math
import operator
import random
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import launches
import numpy as np
import pytest
import torch
import triton
import triton.language as tl
from together import in_one_test

from bindings.op import Op
from bindings.registry import OPS
from bindings.toolchain import find_cuda_home
from bindings.trials import TRIALS
from compare.assembly.listing import Listing, parse_ptx
from compare.code.architectures import ARCHITECTURES, Architecture
from compare.code.kernel_code import KernelCode, inspect_cuda, inspect_triton
from compare.code.triton_offline import record_launches
from compare.judge.cases import Case
from compare.ptx_simulator import (
    Launch,
    MemoryAccess,
    Simulation,
    TensorArgument,
    TensorMap,
    machine,
    simulate,
)
from compare.ptx_simulator.batch import Memory
from compare.ptx_simulator.bounds import Bounds
from compare.ptx_simulator.contents import Contents
from compare.ptx_simulator.counters import Counters
from compare.ptx_simulator.group import Layout
from compare.ptx_simulator.machine import Machine
from compare.ptx_simulator.meter import Meter
from compare.ptx_simulator.program import Program
from compare.ptx_simulator.sectors import bytes_and_sectors
from compare.ptx_simulator.values import Value

Number = int | None  # None: unknown
Triple = tuple[int, int, int]

needs_nvcc = pytest.mark.skipif(find_cuda_home() is None, reason="needs nvcc")

OUT = TensorArgument("out", position=0, address=1 << 44, bytes=4096)
X = TensorArgument("x", position=1, address=2 << 44, bytes=4096)


def listing_of(body: str, module: str = "") -> Listing:
    """A kernel of two pointers and a number, %d1, %d2 and %r1."""
    return parse_ptx(f"""
.version 8.7
.target sm_90a
.address_size 64
{module}
.visible .entry k(
    .param .u64 .ptr .global .align 16 k_param_0,
    .param .u64 k_param_1,
    .param .u32 k_param_2
)
{{
    .reg .pred %p<16>;
    .reg .b16 %h<32>;
    .reg .b32 %r<64>;
    .reg .b64 %d<64>;
    ld.param.u64 %d1, [k_param_0];
    ld.param.u64 %d2, [k_param_1];
    ld.param.u32 %r1, [k_param_2];
    {body}
    ret;
}}
""")


def run(
    body: str,
    *,
    module: str = "",
    number: int = 0,
    grid: Triple = (1, 1, 1),
    block: Triple = (32, 1, 1),
    shared_bytes: int = 4096,
    tensor_maps: tuple[TensorMap, ...] = (),
    **options: Any,
) -> Simulation:
    launch = Launch(
        grid=grid,
        block=block,
        parameters=(OUT.address, X.address, number),
        tensors=(OUT, X),
        dynamic_shared_bytes=shared_bytes,
        tensor_maps=tensor_maps,
    )
    return simulate(listing_of(body, module), launch, **options)


def registers_after(
    body: str,
    inputs: Mapping[str, Sequence[Number]] | None = None,
    threads: int = 32,
    module: str = "",
) -> Callable[[str], list[Number]]:
    """The contents of registers by lane, after a kernel that starts with others."""
    parameters = (OUT.address, X.address, 0)
    launch = Launch((1, 1, 1), (threads, 1, 1), parameters, (OUT, X), 4096)
    program = Program(listing_of(body, module))

    def slot(name: str) -> int:
        found = program.decoder.register(0, name)
        assert found is not None
        return found

    given = {slot(name): numbers for name, numbers in (inputs or {}).items()}
    meter = Meter(launch, Bounds(launch, 4096), counts_stores=False)
    memory = Memory(
        parameters=dict(zip(program.decoder.parameters, parameters, strict=True)),
        tensor_maps={},
        contents=None,
        constants=Contents([]),
        is_late=False,
        faults=[],
    )
    counters = Counters()
    layout = Layout(launch, [0])
    threads_of = Machine(program, layout, meter, memory, counters, is_traced=False)
    registers = threads_of.batch.registers
    for place, numbers in given.items():
        dtype = program.decoder.dtypes[place]
        mask = (1 << 8 * dtype.itemsize) - 1
        bits = np.array([(each or 0) & mask for each in numbers], np.uint64)
        known = np.array([each is not None for each in numbers])
        registers[place] = Value(bits.astype(dtype), bool(known.all()) or known)
    threads_of.run()
    assert counters.is_complete

    def values(name: str) -> list[Number]:
        bits, known = registers[slot(name)]
        return [
            int(number) if is_known else None
            for number, is_known in zip(
                np.broadcast_to(bits, layout.lanes),
                np.broadcast_to(known, layout.lanes),
                strict=True,
            )
        ]

    return values


# ---- Arithmetic ----------------------------------------------------------------------

PREFIX = {"1": "%p", "16": "%h", "32": "%r", "64": "%d"}


def numbers(name: str, generator: random.Random) -> list[int]:
    """32 numbers of a type: the ends of its range, then random; `n` is a bit count."""
    if name[0] == "n":
        return [0, 1, 31, 32, 33, 63, 64, 255, *generator.choices(range(72), k=24)]
    width = int(name[1:])
    top = 1 << width - 1
    found = [
        *generator.sample((0, 1, 2, 7, top - 1, top, top + 1, 2 * top - 1), 8),
        *(generator.getrandbits(width) for _ in range(14)),
        *(generator.getrandbits(generator.randint(1, width)) for _ in range(10)),
    ]
    return (
        [each - (each >> width - 1 << width) for each in found]
        if (name[0] == "s")
        else found
    )


def quotient(a: int, b: int) -> Number:
    return None if b == 0 else abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


def remainder(a: int, b: int) -> Number:
    return None if b == 0 else abs(a) % abs(b) * (1 if a >= 0 else -1)


def clamped(number: int, name: str) -> int:
    top = 1 << int(name[1:]) - (name[0] == "s")
    return max(-top if name[0] == "s" else 0, min(number, top - 1))


def field(number: int, start: int, length: int, width: int, *, is_signed: bool) -> int:
    """Like bfe of the PTX ISA: the sign or zero fills the bits above the number."""
    bits = [
        number >> place & 1 if place < width else int(number < 0)
        for place in range(start, start + min(length, width))
    ]
    value = sum(bit << place for place, bit in enumerate(bits))
    return value - (1 << len(bits)) if is_signed and bits and bits[-1] else value


def with_field(source: int, into: int, start: int, length: int, width: int) -> int:
    for place in range(min(length, max(0, width - start))):
        into &= ~(1 << start + place)
        into |= (source >> place & 1) << start + place
    return into


def highest(number: int, width: int, *, shifts: bool) -> int:
    length = (~number if number < 0 else number).bit_length()
    return 0xFFFFFFFF if length == 0 else width - length if shifts else length - 1


def permuted(low: int, high: int, selector: int) -> int:
    pair, result = low | high << 32, 0
    for place in range(4):
        choice = selector >> 4 * place & 15
        byte = pair >> 8 * (choice & 7) & 255
        result |= (255 * (byte >> 7) if choice & 8 else byte) << 8 * place
    return result


PERMUTATIONS = {  # tables of the PTX manual, the uppermost byte first
    "f4e": (0x3210, 0x4321, 0x5432, 0x6543),
    "b4e": (0x5670, 0x6701, 0x7012, 0x0123),
    "rc8": (0x0000, 0x1111, 0x2222, 0x3333),
    "ecl": (0x3210, 0x3211, 0x3222, 0x3333),
    "ecr": (0x0000, 0x1110, 0x2210, 0x3210),
    "rc16": (0x1010, 0x3232, 0x1010, 0x3232),
}


def looked_up(table: int, a: int, b: int, c: int) -> int:
    return sum(
        (table >> ((a >> i & 1) * 4 + (b >> i & 1) * 2 + (c >> i & 1)) & 1) << i
        for i in range(32)
    )


Reference = Callable[..., Any]
# By opcode: the types of the result and of the operands, and the function.
CASES: dict[str, tuple[str, Reference]] = {}


def add_cases_of(name: str) -> None:
    """Adds the opcodes with a signed and an unsigned form."""
    width, is_signed = int(name[1:]), name[0] == "s"
    one, two, three = (" ".join([name] * count) for count in (2, 3, 4))
    CASES[f"add.{name}"] = two, lambda a, b: a + b
    CASES[f"sub.{name}"] = two, lambda a, b: a - b
    CASES[f"mul.lo.{name}"] = two, lambda a, b: a * b
    CASES[f"mul.hi.{name}"] = two, lambda a, b: a * b >> width
    CASES[f"mad.lo.{name}"] = three, lambda a, b, c: a * b + c
    CASES[f"mad.hi.{name}"] = three, lambda a, b, c: (a * b >> width) + c
    CASES[f"div.{name}"] = two, quotient
    CASES[f"rem.{name}"] = two, remainder
    CASES[f"min.{name}"] = two, min
    CASES[f"max.{name}"] = two, max
    CASES[f"sad.{name}"] = three, lambda a, b, c: c + abs(a - b)
    CASES[f"shr.{name}"] = f"{name} {name} n32", lambda a, n: a >> n
    for comparison in ("eq", "ne", "lt", "le", "gt", "ge"):
        compare = getattr(operator, comparison)
        CASES[f"setp.{comparison}.{name}"] = f"p1 {name} {name}", compare
        CASES[f"set.{comparison}.u32.{name}"] = (
            f"u32 {name} {name}",
            lambda a, b, compare=compare: -compare(a, b),
        )
    for to in INTEGERS:
        CASES[f"cvt.{to}.{name}"] = f"{to} {name}", lambda a: a
        CASES[f"cvt.sat.{to}.{name}"] = (
            f"{to} {name}",
            lambda a, to=to: clamped(a, to),
        )
    if width < 64:
        wide = f"{name[0]}{2 * width}"
        CASES[f"mul.wide.{name}"] = f"{wide} {name} {name}", lambda a, b: a * b
        CASES[f"mad.wide.{name}"] = (
            f"{wide} {name} {name} {wide}",
            lambda a, b, c: a * b + c,
        )
    if width > 16:
        CASES[f"bfe.{name}"] = (
            f"{name} {name} n32 n32",
            lambda a, b, c: field(a, b, c, width, is_signed=is_signed),
        )
        for way in ("", ".shiftamt"):
            CASES[f"bfind{way}.{name}"] = (
                f"u32 {name}",
                lambda a, way=way: highest(a, width, shifts=bool(way)),
            )
    if is_signed:
        CASES[f"abs.{name}"] = one, abs
        CASES[f"neg.{name}"] = one, lambda a: -a


def add_cases_of_bits(width: int) -> None:
    """Adds the opcodes that treat operands as bits."""
    name = f"b{width}"
    one, two = f"{name} {name}", f"{name} {name} {name}"
    CASES[f"and.{name}"] = two, lambda a, b: a & b
    CASES[f"or.{name}"] = two, lambda a, b: a | b
    CASES[f"xor.{name}"] = two, lambda a, b: a ^ b
    CASES[f"not.{name}"] = one, lambda a: ~a
    CASES[f"cnot.{name}"] = one, lambda a: a == 0
    CASES[f"shl.{name}"] = f"{one} n32", lambda a, n: a << n
    if width > 16:
        CASES[f"popc.{name}"] = f"u32 {name}", lambda a: f"{a:b}".count("1")
        CASES[f"clz.{name}"] = f"u32 {name}", lambda a: width - a.bit_length()
        CASES[f"brev.{name}"] = one, lambda a: int(f"{a:0{width}b}"[::-1], 2)
        CASES[f"bfi.{name}"] = (
            f"{two} n32 n32",
            lambda a, b, c, d: with_field(a, b, c, d, width),
        )


def add_other_cases() -> None:
    """Adds the opcodes that exist for 32 bits only."""
    three = "u32 u32 u32 u32"
    for unsigned, name in (("lo", "lt"), ("ls", "le"), ("hi", "gt"), ("hs", "ge")):
        CASES[f"setp.{unsigned}.u32"] = "p1 u32 u32", getattr(operator, name)
    CASES["add.sat.s32"] = "s32 s32 s32", lambda a, b: clamped(a + b, "s32")
    CASES["sub.sat.s32"] = "s32 s32 s32", lambda a, b: clamped(a - b, "s32")
    CASES["slct.b32.s32"] = "u32 u32 u32 s32", lambda a, b, c: a if c >= 0 else b
    CASES["prmt.b32"] = three, permuted
    for mode, table in PERMUTATIONS.items():
        CASES[f"prmt.b32.{mode}"] = (
            three,
            lambda a, b, c, table=table: permuted(a, b, table[c & 3]),
        )
    for truth in (0x00, 0x80, 0xF0, 0x96, 0xE8, 0xFE, 0xCA, 0xFF):
        CASES[f"lop3.b32 {truth:#x}"] = (
            three,
            lambda a, b, c, truth=truth: looked_up(truth, a, b, c),
        )
    limits: dict[str, Reference] = {
        "wrap": lambda n: n % 32,
        "clamp": lambda n: min(n, 32),
    }
    for name, limit in limits.items():
        for letter in ("l", "r"):
            CASES[f"shf.{letter}.{name}.b32"] = (
                "u32 u32 u32 n32",
                lambda a, b, n, limit=limit, left=letter == "l": (
                    (a | b << 32) << limit(n) >> 32
                    if left
                    else (a | b << 32) >> limit(n)
                ),
            )
        CASES[f"bmsk.{name}.b32"] = (
            "u32 n32 n32",
            lambda a, b, name=name, limit=limit: (
                (1 << limit(b)) - 1 << (a % 32 if name == "wrap" else a)
            ),
        )
        for kind in ("u32", "s32"):
            CASES[f"szext.{name}.{kind}"] = (
                f"{kind} {kind} n32",
                lambda a, n, limit=limit, kind=kind: field(
                    a, 0, limit(n), 32, is_signed=kind == "s32"
                ),
            )


INTEGERS = tuple(f"{kind}{width}" for kind in "us" for width in (16, 32, 64))
for each_integer in INTEGERS:
    add_cases_of(each_integer)
for each_width in (16, 32, 64):
    add_cases_of_bits(each_width)
add_other_cases()


def test_arithmetic_is_that_of_python() -> None:
    for opcode, (types, reference) in CASES.items():
        assert_arithmetic_is_that_of(reference, opcode, types)


def assert_arithmetic_is_that_of(reference: Reference, opcode: str, types: str) -> None:
    result_type, *operand_types = types.split()
    generator = random.Random(opcode)
    operands = [numbers(each, generator) for each in operand_types]
    expected = [
        None
        if (value := reference(*each)) is None
        else int(value) & (1 << int(result_type[1:])) - 1
        for each in zip(*operands, strict=True)
    ]
    names = [f"{PREFIX[each[1:]]}{9 + i}" for i, each in enumerate(operand_types)]
    result = f"{PREFIX[result_type[1:]]}8"
    stem, _, table = opcode.partition(" ")
    body = f"{stem} {', '.join([result, *names, *table.split()])};"
    inputs = dict(zip(names, operands, strict=True))
    assert registers_after(body, inputs)(result) == expected, body
    # A number that all lanes share is stored and computed once.
    for lane in (0, *generator.sample(range(1, 32), 2)):
        uniform = {name: [values[lane]] for name, values in inputs.items()}
        found = registers_after(body, uniform)(result)
        assert found == [expected[lane]] * 32, (body, uniform)


def test_numbers_of_many_limbs() -> None:
    generator = random.Random(0)
    a, b = ([generator.getrandbits(96) for _ in range(32)] for _ in range(2))
    a[0], b[0], a[1], b[1] = (1 << 96) - 1, 1, 0, (1 << 96) - 1
    inputs = {
        f"%r{10 * number + limb}": [each >> 32 * limb & 0xFFFFFFFF for each in values]
        for number, values in ((1, a), (2, b))
        for limb in range(3)
    }
    for name, exact in (
        ("add", [x + y for x, y in zip(a, b, strict=True)]),
        ("sub", [x - y for x, y in zip(a, b, strict=True)]),
    ):
        values = registers_after(
            f"""
            {name}.cc.u32 %r30, %r10, %r20;
            {name}c.cc.u32 %r31, %r11, %r21;
            {name}c.u32 %r32, %r12, %r22;
            """,
            inputs,
        )
        for limb in range(3):
            expected = [each >> 32 * limb & 0xFFFFFFFF for each in exact]
            assert values(f"%r{30 + limb}") == expected


def test_narrow_numbers_in_wide_registers() -> None:
    values = registers_after(
        """
        cvt.u32.u8 %r9, %r8;
        cvt.s32.s8 %r10, %r8;
        cvt.s8.s32 %r11, %r8;
        cvt.u8.u32 %r12, %r8;
        cvt.sat.s8.s32 %r13, %r8;
        mov.b32 {%h1, %h2}, %r8;
        mov.b64 %d9, {%r9, %r10};
        mov.b32 {_, %h3}, %r10;
        mov.b64 %d10, {%r8, %r14};
        """,
        {"%r8": [0x1234_56F0], "%r14": [None, *[1] * 31]},
    )
    assert values("%d10")[:2] == [None, 1 << 32 | 0x1234_56F0]
    assert [values(f"%r{i}")[0] for i in range(9, 14)] == [
        *(0xF0, 0xFFFF_FFF0, 0xFFFF_FFF0, 0xF0),
        0x7F,
    ]
    assert (values("%h1")[0], values("%h2")[0]) == (0x56F0, 0x1234)
    assert values("%d9")[0] == 0xFFFF_FFF0_0000_00F0
    assert values("%h3")[0] == 0xFFFF


@pytest.mark.parametrize(
    ("instruction", "expected"),
    [
        ("add.s32 %r8, %r9, %r10", [None, None, None]),
        ("and.b32 %r8, %r9, %r10", [None, 0, None]),
        ("and.b32 %r8, %r10, %r9", [None, 0, None]),
        ("or.b32 %r8, %r9, %r10", [None, None, 0xFFFFFFFF]),
        ("mul.lo.s32 %r8, %r9, %r10", [None, 0, None]),
        ("mad.lo.s32 %r8, %r9, %r10, 7", [None, 7, None]),
        ("mad.lo.s32 %r8, %r10, %r10, %r9", [None, None, None]),
        ("selp.b32 %r8, %r9, 5, %p1", [None, 5, 5]),
        ("selp.b32 %r8, %r10, 0, %p2", [None, 0, None]),
        ("div.u32 %r8, 5, %r10", [0, None, 0]),
        # Only a register that bytes are picked from has to be known.
        ("prmt.b32 %r8, 0x87654321, %r9, 0x0123U", [0x21436587] * 3),
        ("prmt.b32 %r8, %r9, 0x87654321, 0x4567U", [0x21436587] * 3),
        ("prmt.b32 %r8, 0x87654321, %r9, 0x0124", [None, None, None]),
        ("prmt.b32 %r8, %r9, 0x87654321, 0x4563", [None, None, None]),
        ("prmt.b32 %r8, 1, 2, %r9", [None, None, None]),
        ("prmt.b32 %r8, 0x87654321, %r9, %r10", [None, 0x21212121, None]),
        (
            "prmt.b32.rc8 %r8, 0x87654321, %r9, %r10",
            [0x65656565, 0x21212121, 0x87878787],
        ),
        ("add.f32 %r8, %r9, %r9", [None, None, None]),
        ("ex2.approx.ftz.f32 %r8, %r9", [None, None, None]),
        ("mov.f32 %r8, 0f3F800000", [0x3F800000] * 3),
    ],
)
def test_unknown_operands_make_unknown_results_unless_they_do_not_matter(
    instruction: str, expected: list[Number]
) -> None:
    inputs: dict[str, list[Number]] = {
        "%r9": [None] * 32,
        "%r10": [6, 0, 0xFFFFFFFF, *[1] * 29],
        "%p1": [1, 0, 0, *[0] * 29],
        "%p2": [None] * 32,
    }
    assert registers_after(f"{instruction};", inputs)("%r8")[:3] == expected


@pytest.mark.parametrize(
    ("instruction", "expected"),
    [
        # A known or unknown predicate, combined with an unknown one.
        ("setp.eq.and.u32 %p8, %r9, 1, %p9", [None, 0]),
        ("setp.eq.or.u32 %p8, %r9, 1, %p9", [1, None]),
        ("setp.eq.xor.u32 %p8, %r9, 1, %p9", [None, None]),
        ("setp.eq.u32 %p7|%p8, %r9, 1", [0, 1]),
        ("setp.eq.and.u32 %p8, %r9, 1, !%p10", [0, 0]),
        ("setp.lt.f32 %p8, %r9, %r9", [0, 0]),
        ("and.pred %p8, %p9, %p11", [None, 0]),
        ("not.pred %p8, %p11", [0, 1]),
    ],
)
def test_predicates_are_combined(instruction: str, expected: list[Number]) -> None:
    inputs: dict[str, list[Number]] = {
        "%r9": [1, 2, *[0] * 30],
        "%p9": [None] * 32,
        "%p10": [1] * 32,
        "%p11": [1, 0] * 16,
    }
    assert registers_after(f"{instruction};", inputs)("%p8")[:2] == expected


def test_special_registers() -> None:
    body = """
        mov.u32 %r2, %tid.x;
        mov.u32 %r3, %tid.y;
        mov.u32 %r4, %tid.z;
        mad.lo.u32 %r5, %r4, 100, %r3;
        mad.lo.u32 %r5, %r5, 100, %r2;
        mov.u32 %r6, %ctaid.y;
        mad.lo.u32 %r5, %r6, 10000, %r5;
        mov.u32 %r6, %ctaid.x;
        mad.lo.u32 %r5, %r6, 100000, %r5;
        mov.u32 %r6, %ntid.y;
        mad.lo.u32 %r5, %r6, 1000000, %r5;
        mov.u32 %r6, %nctaid.x;
        mad.lo.u32 %r5, %r6, 10000000, %r5;
        cvt.u64.u32 %d3, %r5;
        add.s64 %d3, %d3, %d1;
        st.global.u8 [%d3], %r5;
    """
    found = run(body, grid=(2, 3, 1), block=(4, 2, 3), blocks=[5]).out_of_bounds[6]
    assert (found.block, found.thread) == ((1, 2, 0), (2, 1, 0))
    assert found.offset == 22_120_102
    values = registers_after(
        "mov.u32 %r8, %laneid; mov.u32 %r9, %warpid; mov.u32 %r10, %lanemask_lt;"
        "mov.u32 %r11, %smid; mov.u64 %d8, %clock64; mov.u32 %r12, %lanemask_ge;",
        threads=64,
    )
    assert values("%r8")[33] == 1
    assert values("%r9")[33] == 1
    assert values("%r10")[33] == 1
    assert values("%r10")[31] == 0x7FFFFFFF
    assert values("%r12")[63] == 0x80000000
    assert values("%r11")[0] is None
    assert values("%d8")[0] is None


# ---- Warps ---------------------------------------------------------------------------


def shuffled(mode: str, lane: int, amount: int, clamp: int) -> tuple[int, bool]:
    """shfl.sync, by the pseudocode of the PTX ISA."""
    segment, limit = clamp >> 8 & 31, clamp & 31
    last, first = (lane & segment) | (limit & ~segment), lane & segment
    source = {
        "up": lane - amount,
        "down": lane + amount,
        "bfly": lane ^ amount,
        "idx": first | (amount & ~segment),
    }[mode]
    is_there = source >= last if mode == "up" else source <= last
    return (source if is_there else lane), is_there


@pytest.mark.parametrize("mode", ["up", "down", "bfly", "idx"])
@pytest.mark.parametrize("width", [32, 8])
def test_shuffles(mode: str, width: int) -> None:
    clamp = (32 - width) << 8 | (0 if mode == "up" else 31)
    values_of = [lane * lane + 5 for lane in range(64)]
    for amount in (1, 3, 7, 16, 31):
        values = registers_after(
            f"shfl.sync.{mode}.b32 %r8|%p1, %r9, {amount}, {clamp}, -1;",
            {"%r9": values_of},
            threads=64,
        )
        found = [shuffled(mode, lane % 32, amount, clamp) for lane in range(64)]
        assert values("%p1") == [is_there for _, is_there in found]
        assert values("%r8") == [
            values_of[lane // 32 * 32 + source]
            for lane, (source, _) in enumerate(found)
        ]


def test_shuffles_of_values_unknown_in_some_lanes() -> None:
    inputs: dict[str, list[Number]] = {"%r9": [None, 5, *[7] * 30], "%r10": [7]}
    body = """
        shfl.sync.bfly.b32 %r8, %r9, 1, 31, -1;
        shfl.sync.idx.b32 %r11, %r10, %r9, 31, -1;
        setp.lt.u32 %p1, %r12, 16;
        @%p1 shfl.sync.bfly.b32 %r13, %r12, 16, 31, 65535;
        mov.b32 %r14, 0;
        @%p1 shfl.sync.bfly.b32 %r14, %r12, 8, 31, 65535;
    """
    values = registers_after(body, {**inputs, "%r12": list(range(32))})
    assert values("%r8")[:3] == [5, None, 7]
    assert values("%r11")[:3] == [None, 7, 7]
    assert values("%r13")[:16] == [None] * 16  # read from lanes outside of the mask
    assert values("%r14") == [*range(8, 16), *range(8), *[0] * 16]


def test_votes_and_reductions() -> None:
    lanes = range(32)
    signed = [lane * 7 % 5 - 2 for lane in lanes]
    values = registers_after(
        """
        vote.sync.ballot.b32 %r8, %p1, -1;
        vote.sync.any.pred %p2, %p1, -1;
        vote.sync.all.pred %p3, %p1, -1;
        vote.sync.uni.pred %p4, %p5, -1;
        redux.sync.add.s32 %r10, %r9, -1;
        redux.sync.min.s32 %r11, %r9, -1;
        redux.sync.max.u32 %r12, %r9, -1;
        redux.sync.and.b32 %r13, %r9, -1;
        redux.sync.xor.b32 %r14, %r9, -1;
        match.any.sync.b32 %r15, %r9, -1;
        match.all.sync.b32 %r16|%p6, %r9, -1;
        activemask.b32 %r17;
        elect.sync %r18|%p7, -1;
        redux.sync.add.s32 %r19, %r9, %r20;
        redux.sync.max.f32 %r21, %r9, -1;
        """,
        {
            "%r9": signed,
            "%p1": [int(lane % 3 == 0) for lane in lanes],
            "%p5": [1],
            "%r20": [0xFFFF if lane < 16 else 0xFFFF0000 for lane in lanes],
        },
    )
    bits = [number & 0xFFFFFFFF for number in signed]
    expected = {
        "%r8": [sum(1 << lane for lane in lanes if lane % 3 == 0)] * 32,
        "%p2": [1] * 32,
        "%p3": [0] * 32,
        "%p4": [1] * 32,
        "%r10": [sum(signed) & 0xFFFFFFFF] * 32,
        "%r11": [min(signed) & 0xFFFFFFFF] * 32,
        "%r12": [max(bits)] * 32,
        "%r13": [functools.reduce(operator.and_, bits)] * 32,
        "%r14": [functools.reduce(operator.xor, bits)] * 32,
        "%r15": [
            sum(1 << lane for lane in lanes if signed[lane] == number)
            for number in signed
        ],
        "%r16": [0] * 32,
        "%p6": [0] * 32,
        "%r17": [0xFFFFFFFF] * 32,
        "%r18": [0] * 32,
        "%p7": [1, *[0] * 31],
        "%r19": [sum(signed[lane // 16 * 16 :][:16]) & 0xFFFFFFFF for lane in lanes],
        "%r21": [2] * 32,
    }
    assert {name: values(name) for name in expected} == expected


def test_votes_that_one_lane_decides() -> None:
    inputs: dict[str, list[Number]] = {
        "%p1": [None, 1, *[0] * 30],
        "%p2": [None, 1, *[1] * 30],
    }
    values = registers_after(
        """
        vote.sync.ballot.b32 %r8, %p1, -1;
        vote.sync.any.pred %p3, %p1, -1;
        vote.sync.all.pred %p4, %p1, -1;
        vote.sync.uni.pred %p5, %p1, -1;
        vote.sync.all.pred %p6, %p2, -1;
        """,
        inputs,
    )
    found = [values(name)[0] for name in ("%r8", "%p3", "%p4", "%p5", "%p6")]
    assert found == [None, 1, 0, 0, None]


def test_lanes_of_a_vote_that_not_all_warps_know() -> None:
    values = registers_after(
        """
        mov.u32 %r2, %tid.x;
        setp.gt.u32 %p1, %r2, 31;
        @%p1 bra DONE;
        mov.u32 %r3, -1;
        setp.eq.u32 %p2, %r2, 5;
        vote.sync.any.pred %p3, %p2, %r3;
        DONE:
        """,
        {},
        threads=64,
    )
    assert values("%p3")[:32] == [1] * 32


# ---- Control flow --------------------------------------------------------------------


def executed(simulation: Simulation, listing: Listing, opcode: str) -> list[int]:
    """The number of threads that executed each instruction with an opcode."""
    return [
        count
        for each, count in zip(listing.instructions, simulation.executed, strict=True)
        if each.opcode == opcode
    ]


DIVERGENT = """
    mov.u32 %r2, %tid.x;
    setp.lt.u32 %p1, %r2, 10;
    @%p1 bra SHORT;
    add.u32 %r3, %r2, 1;
    bra.uni DONE;
SHORT:
    mul.lo.u32 %r3, %r2, 3;
DONE:
    xor.b32 %r4, %r3, 0;
"""


def test_the_paths_of_a_branch_reconverge() -> None:
    simulation = run(DIVERGENT)
    listing = listing_of(DIVERGENT)
    assert executed(simulation, listing, "add.u32") == [22]
    assert executed(simulation, listing, "mul.lo.u32") == [10]
    assert executed(simulation, listing, "xor.b32") == [32]
    # The warp executed it once, so all lanes had reconverged.
    assert set(simulation.warp_executed) == {1}
    assert simulation.is_exact
    assert simulation.traces[0] == tuple(range(len(listing.instructions)))
    values = registers_after(DIVERGENT)
    assert values("%r4") == [3 * t if t < 10 else t + 1 for t in range(32)]


def test_reconverged_lanes_are_in_order() -> None:
    body = """
        mov.u32 %r2, %tid.x;
        and.b32 %r3, %r2, 3;
        setp.eq.u32 %p1, %r3, 0;
        @%p1 ret;
        setp.eq.u32 %p2, %r3, 1;
        @%p2 bra MEET;
        add.u32 %r4, %r2, 1;
    MEET:
        mul.wide.u32 %d3, %r2, 4;
        add.s64 %d4, %d1, %d3;
        ld.global.u32 %r5, [%d4];
    """
    simulation = run(body, block=(64, 1, 1))
    (access,) = simulation.accesses
    assert (access.requests, access.sectors, access.bytes) == (2, 8, 48 * 4)
    assert simulation.warp_executed[access.index] == 2


LOOP = """
    mov.u32 %r2, %tid.x;
    mov.u32 %r3, 0;
LOOP:
    add.u32 %r3, %r3, %r2;
    sub.u32 %r4, %r2, 1;
    max.s32 %r2, %r4, 0;
    setp.ne.u32 %p1, %r2, 0;
    @%p1 bra LOOP;
    xor.b32 %r5, %r3, 0;
"""


def test_a_loop_of_different_lengths() -> None:
    values = registers_after(LOOP, threads=40)
    assert values("%r5")[:40] == [t * (t + 1) // 2 for t in range(40)]
    simulation = run(LOOP, block=(40, 1, 1))
    listing = listing_of(LOOP)
    turns = 1 + sum(range(1, 40))
    assert executed(simulation, listing, "max.s32") == [turns]
    assert executed(simulation, listing, "bra") == [turns]
    assert executed(simulation, listing, "xor.b32") == [40]
    assert simulation.traces[0].count(simulation.traces[0][5]) == 31
    assert simulation.executed_per_thread == sum(simulation.executed) / 40


def test_threads_that_end_early() -> None:
    body = """
        mov.u32 %r2, %tid.x;
        setp.ge.u32 %p1, %r2, 50;
        @%p1 ret;
        bar.sync 0;
        xor.b32 %r3, %r2, 0;
    """
    simulation = run(body, block=(70, 1, 1))
    assert executed(simulation, listing_of(body), "xor.b32") == [50]
    assert executed(simulation, listing_of(body), "ret") == [20, 50]
    assert simulation.is_complete


EXCHANGE = """
    mov.u32 %r2, %tid.x;
    shl.b32 %r3, %r2, 2;
    mul.lo.u32 %r5, %r2, 11;
    setp.ge.u32 %p1, %r2, 32;
    @%p1 bra LATE;
WRITE:
    st.shared.u32 [%r3], %r5;
    {barrier}
    xor.b32 %r6, %r3, 252;
    ld.shared.u32 %r7, [%r6];
    bra.uni DONE;
LATE:
    add.u32 %r5, %r5, 1;
    bra.uni WRITE;
DONE:
"""


def test_a_barrier_lets_no_thread_pass_alone() -> None:
    stored = [11 * t + (t >= 32) for t in range(64)]
    for barrier in ("bar.sync 0;", "barrier.sync.aligned 3, 64;"):
        values = registers_after(EXCHANGE.format(barrier=barrier), threads=64)
        assert values("%r7") == stored[::-1]
    # Without the barrier the first warp reads before the second has written.
    values = registers_after(EXCHANGE.format(barrier=""), threads=64)
    assert values("%r7") == [*[None] * 32, *stored[31::-1]]


def test_producers_only_arrive_at_a_barrier() -> None:
    body = """
        mov.u32 %r2, %tid.x;
        shl.b32 %r3, %r2, 2;
        setp.ge.u32 %p1, %r2, 32;
        @%p1 bra PRODUCER;
        bar.sync 1, 64;
        ld.shared.u32 %r7, [%r3+128];
        bra.uni DONE;
    PRODUCER:
        st.shared.u32 [%r3], %r2;
        bar.arrive 1, 64;
        xor.b32 %r8, %r2, 0;
    DONE:
    """
    assert registers_after(body, threads=64)("%r7")[:32] == list(range(32, 64))
    simulation = run(body, block=(64, 1, 1))
    assert executed(simulation, listing_of(body), "xor.b32") == [32]
    assert simulation.is_exact


def test_a_barrier_that_some_threads_never_reach() -> None:
    body = """
        mov.u32 %r2, %tid.x;
        setp.ge.u32 %p1, %r2, 32;
        @%p1 bra DONE;
        bar.sync 0, 64;
    DONE:
    """
    simulation = run(body, block=(64, 1, 1))
    assert not simulation.is_complete
    assert not simulation.is_exact


def test_lanes_of_a_warp_wait_for_each_other() -> None:
    # The first half of the warp jumps back to the shuffle.
    body = """
        mov.u32 %r2, %tid.x;
        setp.lt.u32 %p1, %r2, 16;
        @%p1 bra BEHIND;
    TOGETHER:
        shfl.sync.bfly.b32 %r3, %r2, 16, 31, -1;
        bra.uni DONE;
    BEHIND:
        add.u32 %r2, %r2, 100;
        bra.uni TOGETHER;
    DONE:
    """
    values = registers_after(body)
    assert values("%r3") == [*range(16, 32), *range(100, 116)]
    simulation = run(body)
    shuffle = next(
        each.index for each in listing_of(body).instructions if "shfl" in each.opcode
    )
    assert simulation.warp_executed[shuffle] == 1
    assert simulation.executed[shuffle] == 32


UNKNOWN_BRANCH = """
    mov.u32 %r2, %tid.x;
    ld.global.u32 %r3, [%d1];
    mov.u32 %r4, 1;
    mov.u32 %r5, 2;
    mov.u32 %r9, 5;
    setp.eq.u32 %p1, %r3, 7;
    @%p1 bra SKIP;
    mov.u32 %r4, 3;
    mov.u32 %r6, 4;
    st.shared.u32 [0], %r6;
    st.global.u32 [%d2+8192], %r5;
SKIP:
    ld.shared.u32 %r7, [0];
    add.u32 %r8, %r9, %r5;
    mov.u32 %r9, 6;
"""


def test_an_unknown_branch_is_marked_and_its_effects_are_unknown() -> None:
    listing, simulation = listing_of(UNKNOWN_BRANCH), run(UNKNOWN_BRANCH)
    (branch,) = simulation.unknown_branches
    assert listing.instructions[branch].opcode == "bra"
    assert not simulation.is_exact
    assert simulation.is_complete
    # It is not taken; results that depend on it are unknown, and raise no finding.
    assert executed(simulation, listing, "st.shared.u32") == [32]
    assert simulation.out_of_bounds == ()
    values = registers_after(UNKNOWN_BRANCH)
    assert values("%r4") == [None] * 32
    assert values("%r7") == [None] * 32
    assert values("%r8") == [7] * 32  # written before and after the branch
    known = UNKNOWN_BRANCH.replace("setp.eq.u32 %p1, %r3, 7", "setp.eq.u32 %p1, 8, 7")
    assert registers_after(known)("%r4") == [3] * 32
    assert registers_after(known)("%r7") == [4] * 32
    assert len(run(known).out_of_bounds) == 8


def test_an_unknown_loop_is_left() -> None:
    body = """
        mov.u32 %r4, 0;
    AGAIN:
        add.u32 %r4, %r4, 1;
        ld.global.u32 %r3, [%d1];
        setp.eq.u32 %p1, %r3, 0;
        @%p1 bra AGAIN;
    """
    assert run(body).is_complete
    assert registers_after(body)("%r4") == [None] * 32


@pytest.mark.parametrize("target", ["FAILED", "GOOD"])
def test_an_unknown_branch_does_not_end_the_kernel(target: str) -> None:
    good = "GOOD: add.u32 %r4, %r4, 1; xor.b32 %r5, %r4, 0; ret;"
    failed = "FAILED: trap;"
    ways = (good, failed) if target == "FAILED" else (failed, good)
    body = f"""
        ld.global.u32 %r3, [%d1];
        setp.eq.u32 %p1, %r3, 0;
        @%p1 bra {target};
        {ways[0]}
        {ways[1]}
    """
    simulation = run(body)
    assert executed(simulation, listing_of(body), "xor.b32") == [32]
    assert len(simulation.unknown_branches) == 1


def test_an_unknown_predicate_is_marked() -> None:
    body = """
        ld.global.u32 %r3, [%d1];
        setp.eq.u32 %p1, %r3, 7;
        mov.u32 %r4, 1;
        @%p1 mov.u32 %r4, 2;
        mov.u32 %r5, 3;
        @%p1 st.shared.u32 [0], %r5;
        ld.shared.u32 %r6, [0];
        @%p1 st.global.u32 [%d1+4096], %r5;
    """
    simulation, listing = run(body), listing_of(body)
    marked = [listing.instructions[each].opcode for each in simulation.unknown_branches]
    assert marked == ["mov.u32", "st.shared.u32", "st.global.u32"]
    assert simulation.out_of_bounds == ()
    values = registers_after(body)
    assert values("%r4") == [None] * 32
    assert values("%r6") == [None] * 32


def test_an_endless_loop_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "MOST_STEPS", 1000)
    simulation = run("AGAIN: bra.uni AGAIN;", grid=(4, 1, 1))
    assert not simulation.is_complete
    assert not simulation.is_exact


@pytest.mark.parametrize(("count", "is_complete"), [(300, True), (600, False)])
def test_each_warp_may_execute_as_much(
    count: int, is_complete: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of warps that take turns: together these four go on for longer."""
    monkeypatch.setattr(machine, "MOST_STEPS", 1000)
    body = f"""
        mov.u32 %r1, 0;
    AGAIN:
        add.u32 %r1, %r1, 1;
        setp.lt.u32 %p1, %r1, {count};
        @%p1 bra AGAIN;
    """
    simulation = run(body, block=(128, 1, 1), order="forward")
    assert simulation.is_complete == is_complete


def test_waiting_at_an_mbarrier_ends() -> None:
    body = """
        mbarrier.init.shared::cta.b64 [0], 1;
        mbarrier.arrive.shared::cta.b64 %d8, [0];
        {
        .reg .pred complete;
    WAIT:
        mbarrier.try_wait.parity.shared::cta.b64 complete, [0], 0;
        mov.pred %p1, complete;
        @%p1 bra DONE;
        bra.uni WAIT;
    DONE:
        }
        {
        .reg .pred complete;
    WAIT:
        mbarrier.try_wait.parity.shared::cta.b64 complete, [0], 1;
        mov.pred %p2, complete;
        @!%p2 bra WAIT;
        }
    """
    simulation = run(body)
    assert simulation.is_exact
    assert simulation.traces[0] == tuple(
        each.index
        for each in listing_of(body).instructions
        if each.text != "bra.uni WAIT"
    )


def test_threads_that_wait_at_an_mbarrier_run_last() -> None:
    body = """
        mov.u32 %r2, %tid.x;
        mov.u32 %r3, 77;
        setp.ge.u32 %p1, %r2, 32;
        @%p1 bra PRODUCER;
    WAIT:
        mbarrier.try_wait.parity.shared::cta.b64 %p2, [0], 0;
        @!%p2 bra WAIT;
        ld.shared.u32 %r4, [64];
        bra.uni DONE;
    PRODUCER:
        bar.sync 1, 32;
        st.shared.u32 [64], %r3;
        mbarrier.arrive.shared::cta.b64 %d8, [0];
    DONE:
    """
    assert registers_after(body, threads=64)("%r4")[:32] == [77] * 32


def test_names_belong_to_their_scopes() -> None:
    body = """
        mov.u32 %r8, 1;
        mov.u32 %r9, 0;
        {
        .reg .b32 %r8, sum;
        mov.u32 %r8, 2;
        mov.u32 sum, 5;
    AGAIN:
        add.u32 %r9, %r9, %r8;
        setp.lt.u32 %p1, %r9, 10;
        @%p1 bra AGAIN;
        }
        {
        .reg .b32 sum;
    AGAIN:
        add.u32 %r9, %r9, 100;
        setp.lt.u32 %p1, %r9, 400;
        @%p1 bra AGAIN;
        mov.u32 sum, 6;
        }
    """
    values = registers_after(body)
    assert values("%r8")[0] == 1
    assert values("%r9")[0] == 410


def test_a_jump_through_a_table() -> None:
    body = """
        mov.u32 %r2, %tid.x;
        and.b32 %r3, %r2, 3;
        min.u32 %r3, %r3, 2;
    TABLE: .branchtargets ZERO, ONE, MANY;
        brx.idx %r3, TABLE;
    ZERO:
        mov.u32 %r4, 10;
        bra.uni DONE;
    ONE:
        mov.u32 %r4, 11;
        bra.uni DONE;
    MANY:
        mov.u32 %r4, 12;
    DONE:
        xor.b32 %r5, %r4, 0;
    """
    assert registers_after(body)("%r5") == [10, 11, 12, 12] * 8
    assert run(body).is_exact
    unknown = body.replace("min.u32 %r3", "ld.global.u32 %r3, [%d1]; min.u32 %r3")
    assert registers_after(unknown)("%r5") == [None] * 32
    simulation, listing = run(unknown), listing_of(unknown)
    assert len(simulation.unknown_branches) == 1
    last = next(each.index for each in listing.instructions if "MANY" in each.labels)
    assert simulation.executed[last] == 32


def test_instructions_that_are_not_simulated_are_named() -> None:
    body = """
        mov.u32 %r4, 1;
        mov.u32 %r5, 2;
        st.shared.u32 [0], %r4;
        vadd4.u32.u32.u32 %r4, %r5, %r5, %r5;
        ld.shared.u32 %r6, [0];
        setp.eq.u32 %p1, %r5, 3;
        @%p1 frobnicate.b32 %r5, 1;
        call.uni (%r7), helper, (%r5);
    """
    simulation = run(body)
    assert simulation.unknown_opcodes == ("call.uni", "vadd4.u32.u32.u32")
    assert not simulation.is_exact
    values = registers_after(body)
    assert [values(f"%r{i}")[0] for i in (4, 5, 6)] == [None, 2, None]


def test_a_launch_has_the_kernels_parameters() -> None:
    launch = Launch((1, 1, 1), (32, 1, 1), (1, 2), ())
    with pytest.raises(ValueError, match="k has 3 parameters, the launch has 2"):
        simulate(listing_of(""), launch)


# ---- Memory --------------------------------------------------------------------------


def access_of(simulation: Simulation, **wanted: Any) -> MemoryAccess:
    """The one access with these attributes."""
    (found,) = (
        each
        for each in simulation.accesses
        if all(getattr(each, name) == value for name, value in wanted.items())
    )
    return found


def strided(instruction: str, stride: int, space: str) -> Simulation:
    """Runs an instruction whose address is a stride times the lane from %d3 on."""
    base = {"global": "add.s64 %d3, %d1, %d3;", "shared": ""}[space]
    return run(f"""
        mov.u32 %r2, %tid.x;
        mul.wide.u32 %d3, %r2, {stride};
        {base}
        {instruction}
    """)


@in_one_test("instruction", "stride", "sectors", "ideal")
@pytest.mark.parametrize(
    ("instruction", "stride", "sectors", "ideal"),
    [
        ("ld.global.f32 %r3, [%d3]", 4, 4, 4),
        ("ld.global.f32 %r3, [%d3]", 32, 32, 4),
        ("ld.global.f32 %r3, [%d3]", 128, 32, 4),
        ("ld.global.f32 %r3, [%d3]", 8, 8, 4),
        ("ld.global.f32 %r3, [%d3]", 0, 1, 1),
        ("ld.global.f32 %r3, [%d3+16]", 4, 5, 4),
        ("ld.global.u8 %r3, [%d3]", 1, 1, 1),
        ("ld.global.nc.L1::no_allocate.v4.f32 {%r3, %r4, %r5, %r6}, [%d3]", 16, 16, 16),
        ("ld.global.v2.b64 {%d4, %d5}, [%d3]", 32, 32, 16),
        ("st.global.v2.b16 [%d3], {%h1, %h2}", 4, 4, 4),
        ("st.global.v8.b32 [%d3], {%r3,%r4,%r5,%r6,%r7,%r8,%r9,%r10}", 32, 32, 32),
        ("st.global.b128 [%d3], %d4", 16, 16, 16),
        ("ld.v4.u32 {%r3, %r4, %r5, %r6}, [%d3]", 16, 16, 16),
    ],
)
def test_sectors(instruction: str, stride: int, sectors: int, ideal: int) -> None:
    access = access_of(strided(f"{instruction};", stride, "global"), argument="out")
    assert (access.sectors, access.ideal_sectors) == (sectors, ideal)
    assert (access.requests, access.unknown) == (1, 0)
    assert access.space == "global"
    assert access.is_store == instruction.startswith("st")
    assert access.bytes == 32 * access.bytes_per_thread


def test_first_addresses() -> None:
    simulation = run("""
        mov.u32 %r2, %tid.x;
        mul.wide.u32 %d3, %r2, 8;
        add.s64 %d3, %d1, %d3;
        mov.u32 %r3, 0;
    $again:
        setp.lt.u32 %p1, %r3, %r2;
        @%p1 ld.global.f32 %r4, [%d3];
        add.s64 %d3, %d3, 4;
        add.u32 %r3, %r3, 1;
        setp.lt.u32 %p2, %r3, 3;
        @%p2 bra $again;
    """)
    (access,) = simulation.accesses
    assert access.first_addresses is not None
    every_lane = [OUT.address + 8 * lane for lane in range(32)]
    assert access.first_addresses.tolist() == [-1, *every_lane[1:]]
    assert access.address_bits == OUT.address | 0b111111100


def test_sectors_of_shuffled_lanes() -> None:
    simulation = run("""
        mov.u32 %r2, %tid.x;
        xor.b32 %r2, %r2, 21;
        mul.wide.u32 %d3, %r2, 4;
        add.s64 %d3, %d1, %d3;
        ld.global.f32 %r3, [%d3];
        setp.lt.u32 %p1, %r2, 3;
        @%p1 ld.global.f32 %r3, [%d3+128];
    """)
    whole, part = simulation.accesses
    assert (whole.sectors, whole.ideal_sectors) == (4, 4)
    assert (part.sectors, part.ideal_sectors, part.bytes) == (1, 1, 12)
    assert part.requests == 1


@in_one_test("instruction", "stride", "wavefronts", "conflicts")
@pytest.mark.parametrize(
    ("instruction", "stride", "wavefronts", "conflicts"),
    [
        ("ld.shared.u32 %r3, [%d3]", 4, 1, 0),
        ("ld.shared.u32 %r3, [%d3]", 8, 2, 1),
        ("ld.shared.u32 %r3, [%d3]", 128, 32, 31),
        ("ld.shared.u32 %r3, [%d3]", 132, 1, 0),
        ("ld.shared.u32 %r3, [%d3]", 0, 1, 0),
        ("st.shared.u32 [%d3], %r3", 64, 16, 15),
        ("ld.shared.u16 %h3, [%d3]", 2, 1, 0),
        ("ld.shared.u16 %h3, [%d3]", 128, 32, 31),
        ("ld.shared.u8 %h3, [%d3]", 1, 1, 0),
        ("ld.shared.b64 %d4, [%d3]", 8, 2, 0),
        ("ld.shared.b64 %d4, [%d3]", 16, 4, 2),
        ("ld.shared.b64 %d4, [%d3]", 128, 32, 30),
        ("ld.shared.v2.u32 {%r3, %r4}, [%d3]", 0, 2, 0),
        ("ld.shared.v4.u32 {%r3, %r4, %r5, %r6}, [%d3]", 16, 4, 0),
        ("ld.shared.v4.u32 {%r3, %r4, %r5, %r6}, [%d3]", 32, 8, 4),
        ("st.shared::cta.v4.b32 [%d3], {%r3, %r4, %r5, %r6}", 128, 32, 28),
    ],
)
def test_bank_conflicts(
    instruction: str, stride: int, wavefronts: int, conflicts: int
) -> None:
    access = access_of(strided(f"{instruction};", stride, "shared"))
    assert (access.wavefronts, access.bank_conflicts) == (wavefronts, conflicts)
    assert (access.space, access.sectors) == ("shared", 0)


def test_bank_conflicts_add_up_over_blocks() -> None:
    # Blocks that all conflict alike, then blocks that differ.
    same = "mov.u32 %r2, %tid.x; shl.b32 %r3, %r2, 3; ld.shared.u32 %r4, [%r3];"
    access = access_of(run(same, grid=(5, 1, 1), block=(64, 1, 1)))
    assert (access.requests, access.bank_conflicts) == (10, 10)
    assert access.wavefronts == 20
    other = """
        mov.u32 %r2, %tid.x;
        mov.u32 %r3, %ctaid.x;
        add.u32 %r3, %r3, 2;
        shl.b32 %r4, %r2, %r3;
        ld.shared.u32 %r5, [%r4];
    """
    access = access_of(run(other, grid=(4, 1, 1)))
    assert access.bank_conflicts == 0 + 1 + 3 + 7
    # Addresses that a half warp accesses in one block, and a whole warp in the next.
    shifted = """
        mov.u32 %r2, %tid.x;
        mov.u32 %r3, %ctaid.x;
        shl.b32 %r3, %r3, 3;
        sub.u32 %r2, %r2, %r3;
        setp.lt.u32 %p1, %r2, 16;
        shl.b32 %r4, %r2, 3;
        @%p1 ld.shared.b64 %d3, [%r4];
    """
    assert access_of(run(shifted, grid=(2, 1, 1))).wavefronts == 1 + 2


def test_shared_memory_holds_known_values() -> None:
    values = registers_after(
        """
        mov.u32 %r2, %tid.x;
        shl.b32 %r3, %r2, 3;
        st.shared.v2.u32 [%r3], {%r2, %r9};
        mov.u32 %r4, table;
        cvta.shared.u64 %d3, %d4;
        cvt.u64.u32 %d5, %r3;
        add.s64 %d3, %d3, %d5;
        st.u8 [%d3+1], 255;
        ld.shared.s16 %r5, [%r3];
        ld.shared.b64 %d6, [%r3];
        ld.shared.v2.u32 {%r6, %r7}, [%r3];
        st.shared.u32 [512], %r2;
        ld.shared.u32 %r8, [512];
        atom.shared.add.u32 %r10, [0], 1;
        ld.shared.u32 %r11, [%r3];
        """,
        {"%r9": [None, *range(100, 131)], "%d4": [0]},
        module=".shared .align 4 .b8 table[512];",
    )
    assert values("%r4")[0] == 0
    assert values("%r5") == [0xFFFFFF00 + t for t in range(32)]
    assert values("%r6") == [0xFF00 + t for t in range(32)]
    assert values("%r7") == [None, *range(100, 131)]
    assert values("%d6")[:2] == [None, 100 << 32 | 0xFF01]
    assert values("%r8") == [None] * 32  # the order of the stores is undefined
    assert values("%r10") == [None] * 32
    assert values("%r11")[:2] == [None, 0xFF01]


def test_a_store_to_an_unknown_address_makes_all_values_unknown() -> None:
    values = registers_after("""
        mov.u32 %r2, 7;
        st.shared.u32 [16], %r2;
        ld.shared.u32 %r3, [16];
        ld.global.u32 %r4, [%d1];
        st.shared.u32 [%r4], %r2;
        ld.shared.u32 %r5, [16];
    """)
    assert (values("%r3")[0], values("%r5")[0]) == (7, None)


def test_variables_lie_apart() -> None:
    module = """
        .shared .align 4 .b8 first[100];
        .shared .align 16 .f32 second[4][2];
        .extern .shared .align 16 .b8 dynamic[];
        .global .align 4 .u32 counter;
        .const .align 4 .b8 constants[8] = {1, 2, 3, 4, 5, 6, 7, 8};
        .shared .align 4 .b8 of_another_kernel[64];
    """
    body = """
        mov.u32 %r2, first;
        mov.u32 %r3, second;
        mov.u32 %r4, dynamic;
        st.shared.u32 [second+4], %r2;
        ld.const.u32 %r5, [constants+4];
        atom.global.add.u32 %r6, [counter], 1;
        st.shared.u32 [dynamic+4092], %r2;
        st.shared.u32 [dynamic+4096], %r2;
    """
    values = registers_after(body, module=module)
    assert [values(f"%r{i}")[0] for i in (2, 3, 4)] == [0, 112, 144]
    simulation = run(body, module=module)
    assert {each.argument for each in simulation.out_of_bounds} == {"shared memory"}
    assert {each.offset for each in simulation.out_of_bounds} == {144 + 4096}
    counted = [each for each in simulation.accesses if each.space == "global"]
    assert [(each.argument, each.is_store) for each in counted] == [
        ("", False),
        ("", True),
    ]


def test_local_memory_belongs_to_a_thread() -> None:
    body = """
        .local .align 16 .b8 frame[64];
        mov.u32 %r2, %tid.x;
        mov.u64 %d3, frame;
        cvta.local.u64 %d4, %d3;
        and.b32 %r3, %r2, 15;
        mul.wide.u32 %d5, %r3, 4;
        add.s64 %d6, %d3, %d5;
        st.local.u32 [%d6], %r2;
        add.s64 %d7, %d4, %d5;
        ld.u32 %r4, [%d7];
        st.local.u32 [%d3], %r2;
        isspacep.local %p1, %d7;
        isspacep.shared %p2, %d7;
        isspacep.global %p3, %d2;
    """
    values = registers_after(body)
    assert values("%r4") == list(range(32))
    assert [values(f"%p{i}")[0] for i in (1, 2, 3)] == [1, 0, 1]
    simulation = run(body)
    scattered, back, same = simulation.accesses
    assert (scattered.space, scattered.sectors, back.space) == ("local", 32, "local")
    # Local memory interleaves the lanes: a word of all lanes is contiguous.
    assert (same.sectors, same.ideal_sectors, same.bytes) == (4, 4, 128)


def test_one_block_stands_for_all_of_its_cluster() -> None:
    values = registers_after("""
        .shared .align 16 .b8 shared[64];
        mov.u64 %d3, shared;
        cvta.shared.u64 %d4, %d3;
        mov.u32 %r2, %tid.x;
        mapa.u64 %d5, %d4, %r2;
        st.u32 [%d5+8], 7;
        mov.u32 %r3, shared;
        mapa.shared::cluster.u32 %r4, %r3, 1;
        ld.shared::cluster.u32 %r5, [%r4+8];
        ld.shared.u32 %r6, [%r3+8];
    """)
    assert values("%r5") == values("%r6") == [7] * 32


def test_parameters_of_all_kinds() -> None:
    text = """
.version 8.7
.target sm_80
.visible .entry k(
    .param .u64 k_param_0,
    .param .align 8 .b8 k_param_1[24],
    .param .u8 k_param_2,
    .param .f32 k_param_3
)
{
    .reg .b32 %r<9>;
    .reg .b64 %d<9>;
    ld.param.u64 %d1, [k_param_0];
    ld.param.u32 %r1, [k_param_1+8];
    ld.param.s16 %r2, [k_param_1+12];
    ld.param.v2.u32 {%r3, %r4}, [k_param_1+16];
    ld.param.s8 %d2, [k_param_2];
    ld.param.f32 %r5, [k_param_3];
    cvt.u64.u32 %d3, %r1;
    add.s64 %d3, %d1, %d3;
    st.global.u8 [%d3], %r1;
    cvt.s64.s32 %d3, %r2;
    add.s64 %d3, %d1, %d3;
    st.global.u8 [%d3], %r1;
    cvt.u64.u32 %d3, %r4;
    add.s64 %d3, %d1, %d3;
    st.global.u8 [%d3], %r1;
    add.s64 %d3, %d1, %d2;
    st.global.u8 [%d3], %r1;
    cvt.u64.u32 %d3, %r5;
    add.s64 %d3, %d1, %d3;
    st.global.u8 [%d3], %r1;
    ret;
}
"""
    structure = b"".join(
        each.to_bytes(4, "little") for each in (1, 2, 33, 0xFFFE, 5, 66)
    )
    parameters = (
        OUT.address,
        int.from_bytes(structure, "little"),
        0xFD,
        0x40000000,
    )
    nothing = TensorArgument("out", 0, OUT.address, 0)
    launch = Launch((1, 1, 1), (1, 1, 1), parameters, (nothing,))
    found = simulate(parse_ptx(text), launch).out_of_bounds
    assert [each.offset for each in found] == [33, -2, 66, -3, 0x40000000]


def test_asynchronous_copies_read_their_source_bytes() -> None:
    simulation = run("""
        mov.u32 %r2, %tid.x;
        shl.b32 %r3, %r2, 4;
        mul.wide.u32 %d3, %r2, 16;
        add.s64 %d4, %d2, %d3;
        setp.lt.u32 %p1, %r2, 8;
        selp.b32 %r4, 16, 0, %p1;
        st.shared.u32 [%r3], %r2;
        cp.async.cg.shared.global [%r3], [%d4], 16;
        cp.async.cg.shared.global [%r3], [%d4], 16, %r4;
        cp.async.ca.shared.global.L2::128B [%r3], [%d4], 4, %p1;
        cp.async.cg.shared.global.L2::cache_hint [%r3], [%d4], 16, %d9;
        cp.async.commit_group;
        cp.async.wait_group 0;
        add.s64 %d5, %d4, 4096;
        cp.async.cg.shared.global [%r3], [%d5], 16, 0;
        ld.shared.u32 %r5, [%r3];
    """)
    reads = [each for each in simulation.accesses if each.argument == "x"]
    assert [each.bytes for each in reads] == [512, 128, 96, 512, 0]
    assert [each.sectors for each in reads] == [16, 4, 12, 16, 0]
    assert [each.bytes_per_thread for each in reads] == [16, 16, 4, 16, 16]
    stores = [each for each in simulation.accesses if each.is_store][1:]
    assert [each.wavefronts for each in stores] == [4, 4, 4, 4, 4]
    assert [each.bank_conflicts for each in stores] == [0, 0, 3, 0, 0]
    assert simulation.out_of_bounds == ()


def test_bulk_copies() -> None:
    simulation = run("""
        mov.u32 %r2, %tid.x;
        mov.u32 %r3, 5;
        st.shared.u32 [0], %r3;
        setp.eq.u32 %p1, %r2, 0;
        @%p1 cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes
            [0], [%d2], 1024, [2048];
        ld.shared.u32 %r4, [0];
        @%p1 cp.async.bulk.global.shared::cta.bulk_group [%d1+4000], [0], 128;
        @%p1 cp.async.bulk.tensor.2d.shared::cta.global.mbarrier::complete_tx::bytes
            [0], [%d2, {%r2, %r3}], [2048];
        cp.async.bulk.commit_group;
    """)
    load = access_of(simulation, argument="x")
    assert (load.bytes, load.sectors, load.requests) == (1024, 32, 1)
    store = access_of(simulation, argument="out")
    assert (store.bytes, store.is_store) == (128, True)
    assert [each.offset for each in simulation.out_of_bounds] == [4000]
    assert sum(each.unknown for each in simulation.accesses) == 1


# Tensors with rows of 40 16-bit numbers at a pitch of 96 bytes.
MAPS = tuple(
    TensorMap(each.position, each.address, 2, (40, 10, 3), (96, 1056), (32, 8, 1))
    for each in (OUT, X)
)
MAP_ADDRESSES = """
        mov.b64 %d3, k_param_0;
        cvta.param.u64 %d4, %d3;
        mov.b64 %d5, k_param_1;
        cvta.param.u64 %d6, %d5;
        mov.u32 %r2, %tid.x;
        setp.eq.u32 %p1, %r2, 0;
        mov.b32 %r3, -1;
        mov.b32 %r4, 16;
"""
LOAD_BOX = "cp.async.bulk.tensor.3d.shared::cta.global.mbarrier::complete_tx::bytes"
STORE_BOX = "cp.async.bulk.tensor.3d.global.shared::cta.tile.bulk_group"


@pytest.mark.parametrize(
    ("corner", "n_bytes", "sectors", "fewest"),
    [
        ("0, 0, 0", 8 * 64, 16, 16),
        ("%r4, 4, 2", 6 * 48, 12, 9),  # clipped on two sides
        ("%r3, %r3, 1", 7 * 62, 14, 14),  # clipped on the other two
        ("40, 0, 0", 0, 0, 0),
        ("0, 0, %r3", 0, 0, 0),
    ],
)
def test_copies_of_boxes(corner: str, n_bytes: int, sectors: int, fewest: int) -> None:
    body = f"""
        {MAP_ADDRESSES}
        @%p1 {LOAD_BOX} [0], [%d6, {{{corner}}}], [2048];
        @%p1 {STORE_BOX} [%d4, {{{corner}}}], [0];
    """
    simulation = run(body, tensor_maps=MAPS, counts_stores=True)
    assert simulation.is_exact
    assert simulation.out_of_bounds == ()
    for access, name in zip(simulation.accesses, ["x", "out"], strict=True):
        assert (access.argument, access.is_store) == (name, name == "out")
        assert (access.requests, access.unknown) == (1, 0)
        assert (access.bytes, access.sectors) == (n_bytes, sectors)
        assert access.ideal_sectors == fewest
    assert simulation.store_counts["out"].sum() == n_bytes


def test_boxes_at_unknown_places() -> None:
    simulation = run(
        f"""
        {MAP_ADDRESSES}
        ld.global.u32 %r5, [%d2];
        @%p1 {LOAD_BOX} [0], [%d6, {{%r5, 0, 0}}], [2048];
        @%p1 {LOAD_BOX} [0], [%d4, {{0, 0, 0}}], [2048];
        @%p1 {LOAD_BOX.replace(".mb", ".im2col.mb")} [0], [%d6, {{0, 0, 0}}], [2048];
        @%p1 {LOAD_BOX.replace("3d", "2d")} [0], [%d6, {{0, 0}}], [2048];
    """,
        tensor_maps=MAPS[1:],
    )
    assert [each.unknown for each in simulation.accesses] == [0, 1, 1, 1, 1]
    assert {each.bytes for each in simulation.accesses[1:]} == {0}


def test_a_tensor_map_larger_than_its_tensor() -> None:
    wrong = replace(MAPS[1], sizes=(40, 10, 4))
    simulation = run(
        f"{MAP_ADDRESSES} @%p1 {LOAD_BOX} [0], [%d6, {{%r4, 7, 3}}], [2048];",
        tensor_maps=(wrong,),
    )
    (outside,) = simulation.out_of_bounds
    assert (outside.argument, outside.thread) == ("x", (0, 0, 0))
    assert outside.offset == 3 * 1056 + 9 * 96 + 16 * 2


@pytest.mark.parametrize(
    "statement",
    [
        "cp.async.bulk.shared::cta.global [0], [%d2]",
        "ldmatrix.sync.aligned.shared.b16 {%r3}, [%r2]",
        "getctarank.shared::cluster.u32 %r3, %r2",
        "frobnicate.sync.aligned.m8n8 {%r3, %r4}, [%r2], %d9, 5",
    ],
)
def test_unknown_instructions_are_named(statement: str) -> None:
    simulation = run(f"mov.u32 %r2, 5; {statement}; st.global.u32 [%d1], %r3;")
    assert simulation.unknown_opcodes == (statement.partition(" ")[0],)
    assert simulation.is_complete
    assert not simulation.is_exact
    assert access_of(simulation, argument="out").requests == 1


def test_traces_of_warps_with_other_registers() -> None:
    body = """
        mov.u32 %r2, %tid.x;
        setp.ge.u32 %p1, %r2, 256;
        @%p1 bra PRODUCER;
        setmaxnreg.inc.sync.aligned.u32 232;
        bra.uni DONE;
    PRODUCER:
        setmaxnreg.dec.sync.aligned.u32 40;
    DONE:
    """
    simulation = run(body, block=(384, 1, 1), grid=(2, 1, 1))
    place = {
        each.opcode.split(".")[1]: each.index
        for each in listing_of(body).instructions
        if each.opcode.startswith("setmaxnreg")
    }
    assert sorted(simulation.traces) == [0, 8]
    assert place["inc"] in simulation.traces[0]
    assert place["dec"] not in simulation.traces[0]
    assert place["dec"] in simulation.traces[8]
    assert place["inc"] not in simulation.traces[8]


def test_a_barrier_of_each_half() -> None:
    simulation = run(
        """
        mov.u32 %r2, %tid.x;
        setp.ge.u32 %p1, %r2, 96;
        @%p1 bra DONE;
        shr.u32 %r3, %r2, 6;
        add.s32 %r4, %r3, 1;
        barrier.sync %r4, 64;
        st.global.u32 [%d1], %r2;
    DONE:
    """,
        block=(160, 1, 1),
    )
    assert not simulation.is_complete  # the second half is one of 32
    assert access_of(simulation, argument="out").requests == 2
    assert simulation.unknown_branches == ()


def test_bytes_that_several_lanes_read_count_once() -> None:
    simulation = run("""
        mov.u32 %r2, %tid.x;
        shl.b32 %r3, %r2, 4;
        setp.eq.u32 %p1, %r2, 0;
        selp.b32 %r4, 512, 16, %p1;
        mul.wide.u32 %d3, %r2, 16;
        add.s64 %d4, %d2, %d3;
        cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes
            [%r3], [%d4], %r4, [0];
    """)
    load = access_of(simulation)
    assert (load.bytes, load.sectors, load.ideal_sectors) == (512 + 31 * 16, 16, 16)


@pytest.mark.parametrize(
    ("padding", "number", "wavefronts", "conflicts"),
    [(16, "x4", 4, 0), (0, "x4", 32, 28), (16, "x2", 2, 0), (0, "x1", 8, 7)],
)
def test_matrices_are_loaded_by_rows(
    padding: int, number: str, wavefronts: int, conflicts: int
) -> None:
    registers = {"x1": "%r3", "x2": "%r3, %r4", "x4": "%r3, %r4, %r5, %r6"}[number]
    simulation = run(
        f"""
        mov.u32 %r2, %tid.x;
        mul.lo.u32 %r2, %r2, {128 + padding};
        ldmatrix.sync.aligned.m8n8.{number}.shared.b16 {{{registers}}}, [%r2];
        stmatrix.sync.aligned.m8n8.{number}.shared.b16 [%r2], {{{registers}}};
    """,
        shared_bytes=8192,
    )
    load, store = simulation.accesses
    assert (load.wavefronts, load.bank_conflicts) == (wavefronts, conflicts)
    assert load.bytes == 8 * int(number[1]) * 16
    assert (store.wavefronts, store.is_store) == (wavefronts, True)


def test_atomics_load_and_store() -> None:
    simulation = run("""
        mov.u32 %r2, %tid.x;
        mul.wide.u32 %d3, %r2, 4;
        add.s64 %d4, %d1, %d3;
        atom.global.add.u32 %r3, [%d4], 1;
        red.relaxed.gpu.global.add.f32 [%d4], %r3;
        red.global.add.noftz.v2.f16x2 [%d4], {%r4, %r5};
    """)
    found = [
        (each.is_store, each.bytes_per_thread, each.bytes)
        for each in simulation.accesses
    ]
    assert found == [
        *((False, 4, 128), (True, 4, 128)),
        *((False, 4, 128), (True, 4, 128)),
        *((False, 8, 256), (True, 8, 256)),
    ]


def test_an_unknown_address_is_counted_as_such() -> None:
    simulation = run("""
        mov.u32 %r2, %tid.x;
        mul.wide.u32 %d3, %r2, 8;
        add.s64 %d4, %d1, %d3;
        ld.global.u64 %d5, [%d4];
        setp.lt.u32 %p1, %r2, 4;
        selp.b64 %d6, %d4, %d5, %p1;
        ld.global.u32 %r3, [%d6];
    """)
    known = access_of(simulation, argument="out", bytes_per_thread=4)
    assert (known.bytes, known.sectors, known.unknown) == (16, 1, 0)
    unknown = access_of(simulation, argument="")
    assert (unknown.bytes, unknown.sectors, unknown.unknown) == (112, 0, 1)


def test_accesses_out_of_bounds_are_reported_at_most_a_few_times() -> None:
    body = """
        mov.u32 %r2, %tid.x;
        mov.u32 %r3, %ctaid.x;
        mov.u32 %r4, %ntid.x;
        mad.lo.s32 %r5, %r3, %r4, %r2;
        setp.gt.s32 %p1, %r5, %r1;
        @%p1 bra DONE;
        mul.wide.s32 %d3, %r5, 4;
        add.s64 %d4, %d1, %d3;
        st.global.f32 [%d4], %r2;
    DONE:
    """
    simulation = run(body, number=1024, grid=(17, 1, 1), block=(64, 1, 1))
    (found,) = simulation.out_of_bounds
    assert (found.argument, found.offset, found.is_store) == ("out", 4096, True)
    assert (found.block, found.thread) == ((16, 0, 0), (0, 0, 0))
    assert run(body, number=1023, grid=(17, 1, 1)).out_of_bounds == ()
    assert len(run(body, number=1100, grid=(40, 1, 1)).out_of_bounds) == 8
    before = body.replace("[%d4]", "[%d4+-8]")
    found = run(before, number=10).out_of_bounds[0]
    assert (found.argument, found.offset) == ("out", -8)


def test_stores_to_each_byte_are_counted_on_request() -> None:
    body = """
        mov.u32 %r2, %tid.x;
        shr.u32 %r3, %r2, 1;
        mul.wide.u32 %d3, %r3, 8;
        add.s64 %d4, %d1, %d3;
        st.global.v2.f32 [%d4], {%r2, %r2};
    """
    counts = run(body, counts_stores=True).store_counts
    assert counts["out"].tolist() == [2] * 128 + [0] * (4096 - 128)
    assert not counts["x"].any()
    assert run(body).store_counts == {}


def test_a_large_launch_is_sampled() -> None:
    body = "mov.u32 %r2, %ctaid.x; add.u32 %r2, %r2, 1;"
    some = run(body, grid=(1_000_000, 1, 1))
    assert 256 <= some.blocks < some.total_blocks == 1_000_000
    assert set(some.executed) == {32 * some.blocks}
    few = run(body, grid=(1_000_000, 1, 1), blocks=[3, 999_999])
    assert (few.blocks, set(few.executed)) == (2, {64})
    every = run(body, grid=(100, 3, 1))
    assert every.blocks == every.total_blocks == 300
    many = run(body, grid=(2000, 1, 1), blocks=range(2000))  # in several batches
    assert many.blocks == 2000
    assert many.traces[0] == tuple(range(len(listing_of(body).instructions)))


# Ranges in ascending order, with and without gaps; then in any order, some empty.
@pytest.mark.parametrize("is_sorted", [True, False])
def test_bytes_and_sectors_of_ranges(is_sorted: bool) -> None:
    generator = np.random.default_rng(20261123)
    for most in (1, 4, 16, 40):
        lengths = generator.integers(is_sorted, most + 1, (20, 32))
        steps = lengths + generator.integers(0, 2, lengths.shape) * 20
        starts = generator.integers(0, 64, (20, 1)) + np.cumsum(steps, axis=1) - lengths
        if not is_sorted:
            starts = generator.integers(0, 600, lengths.shape)
        n_bytes, n_sectors = bytes_and_sectors(starts, starts + lengths)
        for row, (begins, sizes) in enumerate(zip(starts, lengths, strict=True)):
            touched = {
                place
                for begin, size in zip(begins, sizes, strict=True)
                for place in range(begin, begin + size)
            }
            assert n_bytes[row] == len(touched)
            assert n_sectors[row] == len({place // 32 for place in touched})


# ---- Kernels -------------------------------------------------------------------------

INSPECT = {"cuda": inspect_cuda, "triton": inspect_triton}
# An op, its case, and how often each side reads every element.
WHOLE_LAUNCHES: list[tuple[str, Case, dict[str, float]]] = [
    ("add", Case((1000,)), {"cuda": 1, "triton": 1}),
    ("add", Case((1000003,)), {"cuda": 1, "triton": 1}),
    ("add", Case((129, 130), layout="sliced"), {"cuda": 1, "triton": 1}),
    ("gelu", Case((4099,), dtype=torch.float16), {"cuda": 1, "triton": 1}),
    ("gelu", Case((333, 257), layout="transposed"), {"cuda": 1, "triton": 1}),
    ("softmax", Case((1, 1)), {"cuda": 1, "triton": 1}),
    ("softmax", Case((200, 64)), {"cuda": 1, "triton": 1}),
    ("softmax", Case((33, 781)), {"cuda": 1, "triton": 1}),
    ("softmax", Case((66, 1000), dtype=torch.bfloat16), {"cuda": 1, "triton": 1}),
    # Triton reads a row again from the L1, but keeps a single tile in registers.
    ("softmax", Case((5, 16384)), {"cuda": 1, "triton": 1}),
    ("softmax", Case((3, 32768)), {"cuda": 1, "triton": 1}),
    # Beyond that it keeps the beginning of a row in registers.
    ("softmax", Case((3, 40000)), {"cuda": 1, "triton": 2 - 32768 / 40000}),
    ("softmax", Case((2, 131072)), {"cuda": 1, "triton": 2 - 32768 / 131072}),
]
ON_OTHER_ARCHITECTURES: list[tuple[str, Case, dict[str, float]]] = [
    ("add", Case((100003,)), {"cuda": 1, "triton": 1}),
    ("gelu", Case((100003,)), {"cuda": 1, "triton": 1}),
    ("softmax", Case((33, 781)), {"cuda": 1, "triton": 1}),
]
# Without clusters a block keeps what fits of a long row, and reads the rest twice.
LAUNCHES = {90: WHOLE_LAUNCHES} | {
    number: [
        *ON_OTHER_ARCHITECTURES,
        ("softmax", Case((2, 131072)), {"cuda": reads, "triton": 2 - 32768 / 131072}),
    ]
    for number, reads in ((80, 2 - 40960 / 131072), (120, 1))
}
KERNELS = [
    pytest.param(
        OPS[name],
        tried,
        ARCHITECTURES[number],
        side,
        reads[side],
        id=f"{name}-{'x'.join(map(str, tried.shape))}-sm_{number}-{side}",
        marks=needs_nvcc if side == "cuda" else (),
    )
    for number, of_number in LAUNCHES.items()
    for name, tried, reads in of_number
    for side in INSPECT
]
launches.announce(
    (OPS[name], tried, ARCHITECTURES[number])
    for number, of_number in LAUNCHES.items()
    for name, tried, _ in of_number
)


def code_of(op: Op, tried: Case, architecture: Architecture, side: str) -> KernelCode:
    if side == "cuda":
        launches.compile_with_nvcc(op.source, architecture)
    arguments = launches.arguments_of((op, tried, architecture))
    return INSPECT[side](op, arguments, architecture)


@pytest.mark.parametrize(("each_op", "tried", "architecture", "side", "reads"), KERNELS)
def test_a_kernel_moves_what_its_op_must_move(
    each_op: Op, tried: Case, architecture: Architecture, side: str, reads: float
) -> None:
    code = code_of(each_op, tried, architecture, side)
    blocks = range(code.launch.blocks)
    simulation = simulate(code.ptx, code.launch, blocks, counts_stores=True)
    assert simulation.is_complete
    assert simulation.out_of_bounds == ()
    assert simulation.unknown_opcodes == ()
    # Only erf branches on data, and no address depends on it.
    assert simulation.is_exact or each_op.source == "gelu"
    moved = {True: 0, False: 0}
    for access in simulation.accesses:
        assert access.unknown == 0
        assert access.sectors >= access.ideal_sectors
        if access.space == "global":
            moved[access.is_store] += access.bytes
            assert (
                access.argument == "out" if access.is_store else access.argument in "xy"
            )
    traffic = TRIALS[each_op.name].traffic(tried.shape, tried.dtype.itemsize)
    assert moved[False] == round(reads * traffic.read_bytes)
    assert moved[True] == traffic.written_bytes
    out = simulation.store_counts["out"]
    assert len(out) == math.prod(tried.shape) * tried.dtype.itemsize
    assert (out == 1).all()


# A product loads each byte once for every tile that needs it.
PRODUCTS = [((64, 136, 128), 90), ((3, 65, 264, 72), 90), ((65, 72, 40), 80)]
MATMULS = [
    pytest.param(shape, number, side, marks=needs_nvcc if side == "cuda" else ())
    for shape, number in PRODUCTS
    for side in INSPECT
]
RUNGS = {90: "twin", 80: "tensor_cores"}
launches.announce(
    (
        OPS["matmul"].on_rung(RUNGS[number]),
        Case(shape, torch.bfloat16),
        ARCHITECTURES[number],
    )
    for shape, number in PRODUCTS
)


@pytest.mark.parametrize(("shape", "number", "side"), MATMULS)
def test_a_product_is_stored_once(
    shape: tuple[int, ...], number: int, side: str
) -> None:
    tried = Case(shape, torch.bfloat16)
    op = OPS["matmul"].on_rung(RUNGS[number])
    code = code_of(op, tried, ARCHITECTURES[number], side)
    assert bool(code.ptx.in_category("tensor copy")) == (number == 90)
    blocks = range(code.launch.blocks)
    simulation = simulate(code.ptx, code.launch, blocks, counts_stores=True)
    assert simulation.is_exact
    assert simulation.out_of_bounds == ()
    assert sum(each.unknown for each in simulation.accesses) == 0
    assert (simulation.store_counts["out"] == 1).all()
    traffic = TRIALS["matmul"].traffic(shape, 2)
    loaded = sum(
        each.bytes
        for each in simulation.accesses
        if each.space == "global" and not each.is_store
    )
    assert loaded >= traffic.read_bytes
    if shape == (64, 136, 128) and side == "triton":
        # The tiles form one row and two columns.
        assert loaded == 2 * (2 * 64 * 128 + 128 * 136)


@needs_nvcc
def test_wide_coalesced_accesses_need_no_sector_twice() -> None:
    for side in INSPECT:
        code = code_of(OPS["softmax"], Case((64, 1024)), ARCHITECTURES[90], side)
        for access in code.simulation.accesses:
            if access.space == "global":
                assert access.bytes_per_thread == 16
                assert access.sectors == access.ideal_sectors == access.bytes // 32


def assert_one_too_many(
    simulation: Simulation, listing: Listing, lines: tuple[int, int]
) -> None:
    """The accesses to element 1000 are reported, at these lines of the source."""
    load, store = sorted(simulation.out_of_bounds, key=lambda each: each.is_store)
    assert (load.argument, load.is_store) == ("x", False)
    assert (store.argument, store.is_store) == ("out", True)
    for found, line in zip((load, store), lines, strict=True):
        assert (found.block, found.offset) == ((7, 0, 0), 4 * 1000)
        frames = listing.instructions[found.index].frames
        assert line in [frame.line for frame in frames]


CUDA_SOURCE = """
__global__ void one_too_many(float* out, const float* x, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i <= n) out[i] = x[i];
}
"""


@needs_nvcc
@pytest.mark.parametrize("architecture", ["sm_80", "sm_90a", "sm_100a", "sm_120"])
def test_an_off_by_one_index_is_found_in_cuda(
    tmp_path: Path, architecture: str
) -> None:
    home = find_cuda_home()
    assert home
    source, ptx = tmp_path / "kernel.cu", tmp_path / "kernel.ptx"
    source.write_text(CUDA_SOURCE)
    flags = [f"-arch={architecture}", "-lineinfo", "-ptx", "-o", str(ptx)]
    subprocess.run([str(home / "bin/nvcc"), *flags, str(source)], check=True)
    listing = parse_ptx(ptx.read_text())
    out, x = (replace(each, bytes=4 * 1000) for each in (OUT, X))
    for n, is_wrong in ((1000, True), (999, False)):
        parameters = (out.address, x.address, n)
        launch = Launch((8, 1, 1), (128, 1, 1), parameters, (out, x))
        simulation = simulate(listing, launch)
        if is_wrong:
            assert_one_too_many(simulation, listing, (4, 4))
        else:
            assert simulation.out_of_bounds == ()
            assert simulation.is_exact


def _one_too_many(
    out_ptr: tl.tensor,
    x_ptr: tl.tensor,
    n: tl.tensor,
    BLOCK: tl.constexpr,  # noqa: N803
) -> None:
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    values = tl.load(x_ptr + offsets, mask=offsets <= n)
    tl.store(out_ptr + offsets, values, mask=offsets <= n)


one_too_many: Any = triton.jit(_one_too_many)


@pytest.mark.parametrize("number", [80, 90, 100, 120])
def test_an_off_by_one_index_is_found_in_triton(number: int) -> None:
    tensors = [torch.empty(1000, device="meta") for _ in range(2)]

    def launcher(*arguments: Any) -> None:
        one_too_many[(8,)](*arguments, BLOCK=128, enable_fp_fusion=True)

    (recorded,) = record_launches(launcher, (*tensors, 1000), ARCHITECTURES[number])
    listing = parse_ptx(recorded.ptx, recorded.kernel)
    out, x = (replace(each, bytes=4 * 1000) for each in (OUT, X))
    _, first_line = inspect.getsourcelines(_one_too_many)
    for n, is_wrong in ((1000, True), (999, False)):
        parameters = (out.address, x.address, n, 0, 0)
        launch = Launch(recorded.grid, recorded.block, parameters, (out, x))
        simulation = simulate(listing, launch)
        if is_wrong:
            lines = first_line + 7, first_line + 8
            assert_one_too_many(simulation, listing, lines)
        else:
            assert simulation.out_of_bounds == ()
            assert simulation.is_exact
