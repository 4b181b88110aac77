"""The rules: each says what it should of a pair made for it, and else is silent."""

from __future__ import annotations

from dataclasses import replace

import pytest

from compare.codegen.emulation import Launch
from compare.codegen.findings import RULES, Finding, find
from compare.codegen.listing import Listing, parse_ptx, parse_sass
from compare.codegen.mix import mix_of
from compare.codegen.model import KernelCode

LOAD = "ld.global.v4.b32 {%r1, %r2, %r3, %r4}, [%rd1]"
STORE = "st.global.v4.b32 [%rd2], {%r1, %r2, %r3, %r4}"
ADD = "add.f32 %f1, %f1, %f2"


def ptx_of(*statements: str) -> Listing:
    lines = "\n".join(f"{each};" if each[-1] != ":" else each for each in statements)
    return parse_ptx(f".entry k(\n)\n{{\n{lines}\nret;\n}}")


def sass_of(*instructions: str) -> Listing:
    return parse_sass("".join(f"/*0000*/ {each} ;\n" for each in instructions))


CLEAN = KernelCode(
    side="cuda",
    arch="sm_90a",
    kernel="k",
    title="k<float>",
    compiler="nvcc 13.0",
    grid=(10, 1, 1),
    block=(128, 1, 1),
    elements=5120,
    registers=32,
    spill_store_bytes=0,
    spill_load_bytes=0,
    stack_bytes=0,
    static_shared_bytes=0,
    dynamic_shared_bytes=0,
    ptx=ptx_of(LOAD, ADD, STORE),
    sass=sass_of("LDG.E.128 R4, [R2.64]", "FADD R4, R4, R5", "STG.E.128 [R2.64], R4"),
    ptx_mix=mix_of(ptx_of(LOAD, ADD, STORE)),
    sass_mix=mix_of(sass_of()),
    launch=Launch((10, 1, 1), (128, 1, 1), (), ()),
)


def with_ptx(*statements: str) -> KernelCode:
    return replace(CLEAN, ptx=ptx_of(*statements))


def told(cuda: KernelCode, triton: KernelCode = CLEAN) -> dict[str, Finding]:
    """What is found beyond what is found of two clean sides, by the sentence."""
    common = {each.text for each in find(CLEAN, CLEAN)}
    return {each.text: each for each in find(cuda, triton) if each.text not in common}


def test_what_two_equal_sides_have_in_common() -> None:
    assert [each.text for each in find(CLEAN, CLEAN)] == [
        "Both load 16 bytes per instruction and thread:"
        " CUDA by ld.global.v4.b32, Triton by ld.global.v4.b32.",
        "Both store 16 bytes per instruction and thread:"
        " CUDA by st.global.v4.b32, Triton by st.global.v4.b32.",
        "Elements of the output for each thread of the launch:"
        " 4 (10 blocks of 128 threads) on both.",
    ]


PAIRS = {
    "scalar loads": (
        with_ptx("ld.global.f32 %f1, [%rd1]", ADD, STORE),
        CLEAN,
        "CUDA loads 4 bytes per instruction and thread (ld.global.f32),"
        " Triton 16 (ld.global.v4.b32).",
        (0,),
    ),
    "scalar stores": (
        CLEAN,
        with_ptx(LOAD, ADD, STORE, "st.global.b32 [%rd2], %r1"),
        "CUDA stores 16 bytes per instruction and thread (st.global.v4.b32),"
        " Triton 16 and 4 (st.global.b32 and st.global.v4.b32).",
        (2,),
    ),
    "read-only path": (
        with_ptx(LOAD.replace("global", "global.nc"), ADD, STORE),
        CLEAN,
        "CUDA loads through the read-only data cache (ld.global.nc), which it may"
        " because nothing writes there during the launch; Triton by plain ld.global.",
        (0,),
    ),
    "cache hints": (
        with_ptx(LOAD, ADD, STORE.replace("global", "global.cs")),
        CLEAN,
        "Hints to the caches: CUDA by st.global.cs.v4.b32, Triton gives none.",
        (2,),
    ),
    "float64": (
        with_ptx(LOAD, "cvt.f64.f32 %fd1, %f1", "mul.f64 %fd1, %fd1, %fd2", ADD, STORE),
        CLEAN,
        "CUDA computes in float64: cvt.f64.f32 and mul.f64.",
        (1, 2),
    ),
    "loop": (
        with_ptx("$L:", LOAD, ADD, STORE, "@%p1 bra $L"),
        CLEAN,
        "CUDA has 1 loop, Triton none: it is straight-line code, so numbers of"
        " instructions do not compare.",
        (0,),
    ),
    "masks": (
        with_ptx(f"@%p1 {LOAD}", ADD, f"@%p1 {STORE}"),
        with_ptx("@%p1 bra $L", LOAD, ADD, STORE, "$L:"),
        "CUDA masks its global accesses by predicates (2 of 2 in PTX); Triton branches"
        " around them (1 branch).",
        (0, 2),
    ),
    "reductions": (
        with_ptx(LOAD, ADD, "shfl.sync.bfly.b32 %r1, %r2, 16, 31, -1", STORE),
        with_ptx(LOAD, ADD, "redux.sync.max.f32 %r1, %r2, -1", "bar.sync 0", STORE),
        "CUDA has 1 warp shuffle and no block barriers; Triton has no warp shuffles,"
        " 1 warp-wide reduction (redux) and 1 block barrier.",
        (2,),
    ),
    "exp": (
        with_ptx(
            LOAD, "mul.f32 %f1, %f2, 0f3FB8AA3B", "ex2.approx.f32 %f1, %f1", ADD, STORE
        ),
        with_ptx(
            LOAD,
            "fma.rn.f32 %f1, %f2, 0f32A57060, %f3",
            "ex2.approx.ftz.f32 %f4, %f1",
            ADD,
            STORE,
        ),
        "exp(x): CUDA computes ex2.approx.f32 of x * log2(e); Triton computes"
        " ex2.approx.ftz.f32 after a reduction of x to a small range (expf).",
        (2,),
    ),
    "exp of a pair": (
        with_ptx(
            LOAD,
            "mov.b64 %rd9, 0x3FB8AA3B3FB8AA3B",
            "mul.f32x2 %rd8, %rd7, %rd9",
            "mov.b64 {%f1, %f2}, %rd8",
            "ex2.approx.f32 %f3, %f2",
            ADD,
            STORE,
        ),
        with_ptx(
            LOAD, "mul.f32 %f1, %f2, 0f3FB8AA3B", "ex2.approx.f32 %f1, %f1", ADD, STORE
        ),
        "Both compute exp(x) as ex2.approx.f32 of x * log2(e).",
        (4,),
    ),
    "division": (
        with_ptx(LOAD, "div.rn.f32 %f1, %f2, %f3", ADD, STORE),
        with_ptx(LOAD, "div.full.f32 %f1, %f2, %f3", ADD, STORE),
        "Division: CUDA takes div.rn.f32 (rounded as IEEE 754 asks);"
        " Triton div.full.f32 (within 2 ulp).",
        (1,),
    ),
    "pairs": (
        with_ptx(LOAD, "add.rn.f32x2 %rd1, %rd2, %rd3", STORE),
        CLEAN,
        "CUDA computes on two numbers by one instruction (add.rn.f32x2);"
        " Triton on one.",
        (1,),
    ),
    "subnormals": (
        with_ptx(LOAD, ADD, "mul.ftz.f32 %f1, %f1, %f2", STORE),
        CLEAN,
        "CUDA takes subnormal numbers for 0 in 1 of its 2 floating-point instructions"
        " (.ftz); Triton in none.",
        (2,),
    ),
    "special functions": (
        with_ptx(LOAD, ADD, "tanh.approx.f32 %f1, %f1", STORE),
        CLEAN,
        "Special functions: CUDA tanh.approx.f32; Triton none.",
        (2,),
    ),
    "spills": (
        replace(
            CLEAN,
            spill_store_bytes=8,
            spill_load_bytes=12,
            stack_bytes=8,
            sass=sass_of("STL [R1], R2", "LDL R2, [R1]", "FADD R2, R2, R2"),
        ),
        CLEAN,
        "CUDA runs out of registers and spills: a thread stores 8 bytes to local memory"
        " and loads 12.",
        (0, 1),
    ),
    "array in local memory": (
        replace(CLEAN, stack_bytes=64),
        CLEAN,
        "CUDA keeps 64 bytes of a thread in local memory, though no register is"
        " spilled.",
        (),
    ),
    "registers": (
        replace(CLEAN, registers=48),
        CLEAN,
        "Registers of a thread: CUDA 48, Triton 32.",
        (),
    ),
    "shared memory": (
        replace(CLEAN, static_shared_bytes=128, dynamic_shared_bytes=256),
        CLEAN,
        "Shared memory of a block: CUDA 128 bytes that the kernel declares and"
        " 256 bytes that the launch asks for; Triton none.",
        (),
    ),
    "more elements for a thread": (
        replace(CLEAN, grid=(5, 1, 1)),
        CLEAN,
        "Elements of the output for each thread of the launch: CUDA 8 (5 blocks of"
        " 128 threads), Triton 4 (10 blocks of 128 threads).",
        (),
    ),
    "overhead": (
        replace(CLEAN, sass=sass_of("IADD3 R1, R1, R2, RZ", "MOV R1, R2", "EXIT")),
        CLEAN,
        "Address arithmetic, moves and constants are 67% of CUDA's SASS and 0% of"
        " Triton's.",
        (0, 1),
    ),
}


@pytest.mark.parametrize(
    ("cuda", "triton", "text", "evidence"), PAIRS.values(), ids=PAIRS.keys()
)
def test_each_rule_speaks(
    cuda: KernelCode, triton: KernelCode, text: str, evidence: tuple[int, ...]
) -> None:
    found = told(cuda, triton)
    assert text in found
    proof = (
        found[text].triton if text.startswith("CUDA stores 16") else found[text].cuda
    )
    assert set(evidence) <= set(proof)


def test_rules_know_no_favourite_side() -> None:
    for cuda, triton, _, _ in PAIRS.values():
        forward, backward = find(cuda, triton), find(triton, cuda)
        assert [each.topic for each in forward] == [each.topic for each in backward]
        assert [each.cuda for each in forward] == [each.triton for each in backward]


def test_what_is_not_certain_is_not_said() -> None:
    # Base-2 exponentials of something, and shuffles that do not reduce.
    cuda = with_ptx(LOAD, ADD, "ex2.approx.f32 %f9, %f8", STORE)
    other = with_ptx(LOAD, ADD, "shfl.sync.idx.b32 %r1, %r2, 0, 31, -1", STORE)
    assert not any("exp(x)" in text for text in told(cuda, cuda))
    assert told(other) == {}


def test_most_telling_first() -> None:
    cuda, triton, *_ = PAIRS["float64"]
    assert "float64" in find(replace(cuda, registers=200), triton)[0].text
    assert len(RULES) >= 12
