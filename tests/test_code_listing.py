"""Reading PTX and SASS: instructions, source lines, categories, loops, names."""

from __future__ import annotations

import re

import pytest
from handicaps.by_hand import sass_of
from together import in_one_test

from compare.assembly.classify import CATEGORIES, access_bytes_of, category_of
from compare.assembly.control_flow import END, find_loops, flow_graph
from compare.assembly.listing import (
    Frame,
    Listing,
    parse_ptx,
    parse_sass,
    separate_entries,
)
from compare.assembly.mix import mix_of
from compare.assembly.normalize import normalize

# What nvcc writes: the chain of inlining as `inlined_at`, files at the end, some
# statements on one line or with braces of their own.
NVCC_PTX = """
.version 9.0
.target sm_90a
.visible .entry _Z4axpyPfS_(
\t.param .u64 _Z4axpyPfS__param_0,
\t.param .u64 _Z4axpyPfS__param_1
)
.maxntid 128, 1, 1
{
\t.reg .pred \t%p<2>;
\t.reg .f32 \t%f<9>;
\t.loc\t1 10 0
\tld.param.u64 \t%rd1, [_Z4axpyPfS__param_0];
\tmov.u32 \t%r1, %tid.x;
$L__BB0_1:
\t.loc\t2 33 5, function_name $L__info_string0, inlined_at 1 12 7
\t.loc\t3 44 9, function_name $L__info_string1, inlined_at 2 33 5
\tld.global.nc.v4.f32 \t{%f1, %f2, %f3, %f4}, [%rd1+16];
\t.loc\t1 0 0
\t{ cvt.f32.bf16 %f5, %rs1;}
\t.loc\t1 13 3
\tadd.s32 \t%r1, %r1, 1; setp.lt.s32 \t%p1, %r1, 9;
\t@%p1 bra \t$L__BB0_1;
\tcall.uni (retval0),
\tvprintf,
\t(param0);
\tret;
}
\t.file\t1 "src/axpy.cu"
\t.file\t2 "src/common/../vec.cuh"
\t.file\t3 "include/vendor.hpp"
"""

# What Triton 3.9 writes: LLVM counts lines of inline assembly on top of the source's.
TRITON_PTX = """
.visible .entry axpy_kernel(
\t.param .u64 .ptr .global .align 1 axpy_kernel_param_0
)
.reqntid 128
{
\t.reg .b32 \t%r<9>;
\t.loc\t1 20 9                          // axpy.py:20:9
\tmov.b32 \t%r2, 0;
\t// begin inline asm
\t.loc\t1 20 9
\tmov.u32 %r1, %r2;
\t.loc\t1 21 9
\t@!%p1 ld.global.v2.b32 { %r1, %r3 }, [ %rd1 + 0 ];
\t// end inline asm
\t// begin inline asm

{
\t.reg .pred complete;
\t.loc\t1 33 9
\twait:
\t.loc\t1 34 9
\tmbarrier.try_wait.parity.shared::cta.b64 complete, [%r1], %r2;
\t@!complete bra.uni wait;
}

\t// end inline asm
\tret;
}
\t.file\t1 "kernels/axpy.py"
"""

# What Triton 3.6 writes: the chain of inlining in the comment alone.
OLD_TRITON_PTX = """
.visible .entry axpy_kernel(
)
{
\t.loc\t2 170 27   // standard.py:170:27 @[ standard.py:191:40 @[ axpy.py:21:19 ] ]
\tmax.f32 \t%f1, %f2, %f3;
\tret;
}
\t.file\t1 "kernels/axpy.py"
\t.file\t2 "triton/language/standard.py"
"""

SASS = """
\t.section\t.text._Z4axpyPfS_,"ax",@progbits
.text._Z4axpyPfS_:
\t//## File "include/vendor.hpp", line 44 inlined at "src/axpy.cu", line 12
\t//## File "src/axpy.cu", line 12
\t//## File ".nv_debug_ptx_txt", line 18
        /*0000*/         @!P2 LDG.E.128.CONSTANT R4, desc[UR6][R2.64] &wr=0x0 ?trans1;
.L_x_0:
        /*0010*/                   IADD3 R0, R0.reuse, 0x1, RZ ;
        /*0020*/               @P0 BRA `(.L_x_0) ;
        /*0030*/                   EXIT ;
.L_x_1:
        /*0040*/                   BRA `(.L_x_1);
        /*0050*/                   NOP;
.L_x_2:
"""


def opcodes(listing: Listing) -> list[str]:
    return [each.opcode for each in listing.instructions]


def test_ptx_instructions() -> None:
    listing = parse_ptx(NVCC_PTX)
    assert listing.kernel == "_Z4axpyPfS_"
    assert opcodes(listing) == [
        "ld.param.u64",
        "mov.u32",
        "ld.global.nc.v4.f32",
        "cvt.f32.bf16",
        "add.s32",
        "setp.lt.s32",
        "bra",
        "call.uni",
        "ret",
    ]
    load, branch, call = (listing.instructions[index] for index in (2, 6, 7))
    assert load.operands == ("{%f1, %f2, %f3, %f4}", "[%rd1+16]")
    assert load.labels == ("$L__BB0_1",)
    assert (branch.predicate, branch.branch_target) == ("%p1", "$L__BB0_1")
    assert call.operands == ("(retval0)", "vprintf", "(param0)")
    assert NVCC_PTX.split("\n")[load.text_line - 1].lstrip().startswith("ld.global.nc")


def test_ptx_source_lines_of_nvcc() -> None:
    frames = [each.frames for each in parse_ptx(NVCC_PTX).instructions]
    assert frames[0] == (Frame("src/axpy.cu", 10),)
    chain = (
        Frame("include/vendor.hpp", 44),
        Frame("src/vec.cuh", 33),
        Frame("src/axpy.cu", 12),
    )
    # Line 0 stands for no line: what was said before holds.
    assert frames[2] == frames[3] == chain
    assert frames[4] == (Frame("src/axpy.cu", 13),)
    # Nor does it where two calls became one: what they call has its line.
    merged = NVCC_PTX.replace("inlined_at 1 12 7", "inlined_at 1 0 7")
    assert parse_ptx(merged).instructions[2].frames == chain[:2]


def test_ptx_source_lines_of_triton() -> None:
    listing = parse_ptx(TRITON_PTX)
    lines = [each.frames[0].line for each in listing.instructions]
    assert lines == [20, 20, 20, 30, 30, 30]
    load = listing.instructions[2]
    assert (load.predicate, load.operands[0]) == ("!%p1", "{ %r1, %r3 }")

    listing = parse_ptx(OLD_TRITON_PTX)
    assert listing.instructions[0].frames == (
        Frame("triton/language/standard.py", 170),
        Frame("triton/language/standard.py", 191),
        Frame("kernels/axpy.py", 21),
    )


def test_ptx_without_the_kernel() -> None:
    with pytest.raises(ValueError, match="no entry gemm"):
        parse_ptx(NVCC_PTX, "gemm")


def test_ptx_of_several_kernels() -> None:
    # A .cu file with two, of which the second's name begins like the first's.
    head, entry, rest = NVCC_PTX.partition(".visible")
    body, end, files = rest.partition("\n}\n")
    kernel = entry + body + end
    text = head + kernel + kernel.replace("_Z4axpyPfS_", "_Z4axpyPfS_i") + files
    separate = separate_entries(text)
    assert list(separate) == ["_Z4axpyPfS_", "_Z4axpyPfS_i"]
    for name, own in separate.items():
        assert own.count(".entry") == own.count("vprintf") == 1
        assert all(map(own.__contains__, (".version", ".target", "vendor.hpp")))
        # Lines have the numbers that they had, and come from the same places.
        listing = parse_ptx(own, name)
        assert listing.instructions == parse_ptx(text, name).instructions
        with pytest.raises(ValueError, match="no entry"):
            parse_ptx(own, next(each for each in separate if each != name))


def test_ptx_that_ends_within_a_kernel() -> None:
    with pytest.raises(ValueError, match="has no end"):
        separate_entries(NVCC_PTX.partition("\n}\n")[0])


def test_sass_instructions() -> None:
    listing = parse_sass(SASS)
    assert listing.kernel == "_Z4axpyPfS_"
    assert opcodes(listing) == ["LDG.E.128.CONSTANT", "IADD3", "BRA", "EXIT"]
    load, add, branch, _ = listing.instructions
    assert load.operands == ("R4", "desc[UR6][R2.64]")
    assert (load.predicate, load.access_bytes, load.ptx_line) == ("!P2", 16, 18)
    assert load.frames == (Frame("include/vendor.hpp", 44), Frame("src/axpy.cu", 12))
    assert add.labels == (".L_x_0",)
    assert branch.branch_target == ".L_x_0"


def test_sass_takes_its_source_lines_from_the_ptx() -> None:
    ptx = parse_ptx(NVCC_PTX)
    sass = parse_sass(
        SASS.replace("line 18", f"line {ptx.instructions[4].text_line}"), ptx
    )
    assert sass.instructions[0].frames == (Frame("src/axpy.cu", 13),)


@in_one_test("text", "category", "access_bytes")
@pytest.mark.parametrize(
    ("text", "category", "access_bytes"),
    [
        ("ld.global.v4.b32 {%r1, %r2, %r3, %r4}, [%rd1]", "global load", 16),
        ("ld.global.nc.L1::no_allocate.v2.f64 {%fd1, %fd2}, [%rd1]", "global load", 16),
        ("ld.volatile.global.u8 %rs1, [%rd1]", "global load", 1),
        ("st.global.b16 [%rd1], %rs1", "global store", 2),
        ("ld.shared::cta.v4.f32 {%f1, %f2, %f3, %f4}, [%r1]", "shared load", 16),
        ("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r1}, [%r2]", "shared load", 16),
        ("st.shared.f16x2 [%r1], %r2", "shared store", 4),
        ("ld.local.b32 %r1, [%SPL]", "local memory", 4),
        ("ld.f32 %f1, [%rd1]", "generic memory", 4),
        ("cp.async.cg.shared.global [%r1], [%rd1], 16, %r2", "async copy", 16),
        (
            "cp.async.bulk.tensor.3d.shared::cta.global.tile.mbarrier::complete_tx::bytes"
            " [%r1], [%rd1, {%r2, %r3, %r4}], [%r5]",
            "tensor copy",
            0,
        ),
        ("cp.async.bulk.prefetch.tensor.2d.L2.global [%rd1, {%r2}]", "cache hint", 0),
        ("prefetch.tensormap [%rd1]", "cache hint", 0),
        ("mbarrier.try_wait.parity.shared::cta.b64 %p1, [%r1], %r2", "mbarrier", 0),
        ("cp.async.mbarrier.arrive.shared::cta.b64 [%r1]", "mbarrier", 0),
        ("cp.async.bulk.wait_group.read 0", "fence / wait", 0),
        ("setmaxnreg.dec.sync.aligned.u32 40", "fence / wait", 0),
        ("wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 {%f1}", "tensor core", 0),
        ("wgmma.fence.sync.aligned", "fence / wait", 0),
        ("elect.sync %r1|%p1, -1", "shuffle / vote", 0),
        ("cp.async.wait_group 0", "fence / wait", 0),
        ("ld.param.u64 %rd1, [k_param_0]", "parameter / constant", 0),
        ("atom.global.add.f32 %f1, [%rd1], %f2", "atomic", 0),
        ("redux.sync.max.f32 %r1, %r2, -1", "shuffle / vote", 0),
        ("bar.sync 0", "barrier", 0),
        ("bar.warp.sync -1", "fence / wait", 0),
        ("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%r1}", "tensor core", 0),
        ("ex2.approx.ftz.f32 %f1, %f2", "special function", 0),
        ("tanh.approx.f32 %f1, %f2", "special function", 0),
        ("div.full.f32 %f1, %f2, %f3", "division", 0),
        ("div.s64 %rd1, %rd2, %rd3", "integer / address", 0),
        ("add.f64 %fd1, %fd2, %fd3", "float64", 0),
        ("cvt.f64.f32 %fd1, %f2", "float64", 0),
        ("mov.f64 %fd1, %fd2", "move", 0),
        ("fma.rn.f32x2 %rd1, %rd2, %rd3, %rd4", "fp math", 0),
        ("max.bf16x2 %r1, %r2, %r3", "fp math", 0),
        ("max.s32 %r1, %r2, %r3", "integer / address", 0),
        ("cvt.rn.bf16x2.f32 %r1, %f1, %f2", "conversion", 0),
        ("cvt.u64.u32 %rd1, %r1", "integer / address", 0),
        ("cvta.to.global.u64 %rd1, %rd2", "integer / address", 0),
        ("and.pred %p1, %p2, %p3", "compare / select", 0),
        ("bra.uni $L1", "branch / control", 0),
        ("frobnicate.f32 %f1", "other", 0),
    ],
)
def test_ptx_categories(text: str, category: str, access_bytes: int) -> None:
    assert category_of("ptx", text) == category
    listing = parse_ptx(f".entry k(\n)\n{{\n{text};\n}}")
    assert listing.instructions[0].category == category
    assert listing.instructions[0].access_bytes == access_bytes


@in_one_test("text", "category", "access_bytes")
@pytest.mark.parametrize(
    ("text", "category", "access_bytes"),
    [
        ("LDG.E.LTC128B.64.CONSTANT R2, desc[UR4][R2.64]", "global load", 8),
        ("LDG.E.U16 R2, [R2.64]", "global load", 2),
        ("STG.E desc[UR4][R2.64], R5", "global store", 4),
        ("LDSM.16.M88.4 R4, [R2]", "shared load", 16),
        ("LDGSTS.E.BYPASS.128 [R1], [R2.64]", "async copy", 16),
        ("UTMALDG.3D [UR40], [UR4]", "tensor copy", 0),
        ("UTMASTG.3D [UR8], [UR4]", "tensor copy", 0),
        ("UBLKCP.S.G [UR4], [UR6], UR8", "async copy", 0),
        ("UTMACMDFLUSH", "fence / wait", 0),
        ("SYNCS.PHASECHK.TRANS64.TRYWAIT P0, [UR4], R2", "mbarrier", 0),
        ("HGMMA.64x128x16.F32 R24, gdesc[UR4], R24", "tensor core", 0),
        ("WARPGROUP.DEPBAR.LE gsb0, 0x1", "fence / wait", 0),
        ("USETMAXREG.DEALLOC.CTAPOOL 0x28", "fence / wait", 0),
        ("ELECT P0, URZ, PT", "shuffle / vote", 0),
        ("STL.64 [R1], R2", "local memory", 8),
        ("LDC.64 R2, c[0x0][0x210]", "parameter / constant", 0),
        ("REDUX.MAX UR4, R2", "shuffle / vote", 0),
        ("RED.E.ADD.F32.FTZ.RN.STRONG.GPU [R2.64], R5", "atomic", 0),
        ("BAR.SYNC.DEFER_BLOCKING 0x0", "barrier", 0),
        ("MUFU.EX2 R4, R4", "special function", 0),
        ("MUFU.RCP64H R4, R5", "float64", 0),
        ("DFMA R2, R4, R6, R8", "float64", 0),
        ("F2F.F64.F32 R2, R4", "float64", 0),
        ("HFMA2.MMA R5, -RZ, RZ, 1.875, 0", "move", 0),
        ("HFMA2.MMA R5, R2, R3, R4", "fp math", 0),
        ("HADD2.F32 R5, -RZ, R4.H0_H0", "conversion", 0),
        ("IMAD.MOV.U32 R1, RZ, RZ, c[0x0][0x28]", "move", 0),
        ("UI2F.U32.RP UR4, UR5", "conversion", 0),
        ("FMNMX3 R1, R2, R3, R4, PT", "fp math", 0),
        ("WARPSYNC.ALL", "fence / wait", 0),
        ("FROB R1", "other", 0),
    ],
)
def test_sass_categories(text: str, category: str, access_bytes: int) -> None:
    opcode, _, operands = text.partition(" ")
    assert category_of("sass", text) == category
    found = access_bytes_of("sass", opcode, tuple(operands.split(", ")), category)
    assert found == access_bytes


def test_mix_counts_by_category_and_width() -> None:
    mix = mix_of(parse_ptx(NVCC_PTX))
    assert mix.total == 9 == sum(mix.counts.values())
    assert mix.widths == {"global load": {16: 1}}
    assert list(mix.counts) == [name for name in CATEGORIES if name in mix.counts]


def ptx_of(*statements: str) -> Listing:
    lines = "\n".join(statements)
    return parse_ptx(f".entry k(\n)\n{{\n{lines}\nret;\n}}")


def test_loops_are_nested_and_found_by_their_heads() -> None:
    listing = ptx_of(
        "mov.b32 %r1, 0;",
        "$OUTER:",
        "add.s32 %r1, %r1, 1;",
        "$INNER:",
        "add.s32 %r2, %r2, 1;",
        "@%p1 bra $INNER;",
        "@%p2 bra $OUTER;",
    )
    outer, inner = find_loops(listing)
    assert (outer.head, outer.body) == (1, frozenset({1, 2, 3, 4}))
    assert (inner.head, inner.body) == (2, frozenset({2, 3}))


def test_a_jump_back_from_rare_code_is_no_loop() -> None:
    listing = ptx_of(
        "@%p1 bra $RARE;",
        "$BACK:",
        "add.s32 %r1, %r1, 1;",
        "ret;",
        "$RARE:",
        "mov.b32 %r1, 0;",
        "bra.uni $BACK;",
    )
    assert find_loops(listing) == ()


def test_a_branch_whose_condition_is_an_operand_may_be_passed() -> None:
    listing = sass_of("BRA.DIV UR5, `(.L_x_1)", "FADD R1, R1, R1", "EXIT")
    assert set(flow_graph(listing).edges) == {(0, END), (0, 1), (1, 2), (2, END)}


def test_normal_names_of_ptx() -> None:
    listing = parse_ptx(NVCC_PTX)
    lines = normalize(listing)
    assert lines[0].text == "ld.param.u64 %rd0, [param_0]"
    assert lines[1].text == "mov.u32 %r0, %tid.x"
    assert lines[2].text == "ld.global.nc.v4.f32 {%r1, %r2, %r3, %r4}, [%rd0+16]"
    assert lines[2].labels == ("L0",)
    assert lines[6].text == "@%p0 bra L0"


def test_normal_operands_have_no_padding() -> None:
    lines = normalize(
        ptx_of(
            "ld.global.v2.b32 { %r1, %r3 }, [ %rd1 + 0 ];",
            "st.global.b32 [ %rd1 + 16 ], { %r1 };",
            "ld.shared.b32 %r1, [%r3+-16];",
            "mov.b32 %r1, [%rd1+08];",
        )
    )
    assert [each.text for each in lines[:4]] == [
        "ld.global.v2.b32 {%r0, %r1}, [%rd0]",
        "st.global.b32 [%rd0+16], {%r0}",
        "ld.shared.b32 %r0, [%r1+-16]",
        "mov.b32 %r0, [%rd0+08]",
    ]


def test_normal_names_of_sass() -> None:
    lines = normalize(parse_sass(SASS))
    assert [each.text for each in lines] == [
        "@!P0 LDG.E.128.CONSTANT R0, desc[UR0][R1.64]",
        "IADD3 R2, R2, 0x1, RZ",
        "@P1 BRA L0",
        "EXIT",
    ]


def test_normal_labels_of_a_jump_table() -> None:
    """Where a kernel is compiled among others, its labels have other numbers."""
    table = SASS.replace(
        "@P0 BRA `(.L_x_0)", 'BRX R13 -0x20 (*"BRANCH_TARGETS .L_x_0,.L_x_9"*)'
    )
    texts = [
        [(each.labels, each.text) for each in normalize(parse_sass(text))]
        for text in (table, re.sub(r"(?<=L_x_)(?=\d)", "7", table))
    ]
    assert texts[0] == texts[1]
    assert texts[0][2][1] == 'BRX R3 -0x20 (*"BRANCH_TARGETS L0,L1"*)'


def test_normal_listings_do_not_depend_on_the_kernels_name() -> None:
    renamed = NVCC_PTX.replace("_Z4axpyPfS_", "other").replace("BB0_1", "BB7_3")
    texts = [
        [each.text for each in normalize(parse_ptx(text))]
        for text in (NVCC_PTX, renamed)
    ]
    assert texts[0] == texts[1]


def test_predicates_of_inline_assembly_have_no_percent_sign() -> None:
    ptx = parse_ptx(
        ".entry k(\n)\n{\n{\n.reg .pred p;\nsetp.lt.s32 p, %r1, %r2;\n"
        "@!p bra $L;\n@p add.s32 %r1, %r1, 1;\n}\n$L:\nret;\n}"
    )
    assert [(each.predicate, each.opcode) for each in ptx.instructions] == [
        ("", "setp.lt.s32"),
        ("!p", "bra"),
        ("p", "add.s32"),
        ("", "ret"),
    ]
