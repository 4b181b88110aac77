"""Pairs of a few lines of PTX: what a rule says of them, and where it says nothing."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from compare.assembly.listing import Listing, parse_ptx, parse_sass
from compare.code.kernel_code import KernelCode, Side
from compare.ptx_simulator import Launch, TensorArgument

LOAD = "ld.global.v4.b32 {%r1, %r2, %r3, %r4}, [%rd1]"
STORE = "st.global.v4.b32 [%rd2], {%r1, %r2, %r3, %r4}"
_REGISTERS = ".reg .b64 %rd<9>;\n.reg .b32 %r<10>;\n.reg .pred %p<9>"
BASE = "ld.param.u64 %rd1, [k_param_0]"
ADD = "add.f32 %f1, %f1, %f2"
FAST_EXP = ("mul.f32 %f1, %f2, 0f3FB8AA3B", "ex2.approx.f32 %f1, %f1")
ERF = ("setp.ge.f32 %p1, %f1, 0f3F8060FE", "fma.rn.f32 %f3, %f1, %f2, %f2")
ROUND = ("$L:", LOAD, ADD, STORE, "@%p1 bra $L")


def ptx_of(*statements: str) -> Listing:
    lines = "\n".join(f"{each};" if each[-1] != ":" else each for each in statements)
    return parse_ptx(f".entry k(\n)\n{{\n{lines}\nret;\n}}")


def sass_of(*instructions: str) -> Listing:
    return parse_sass("".join(f"/*0000*/ {each} ;\n" for each in instructions))


def kernel_of(ptx: Listing) -> KernelCode:
    return KernelCode(
        side="cuda",
        language="cuda",
        name="CUDA",
        arch="sm_90a",
        kernel="k",
        title="k<float>",
        kernels=("k<float>",),
        number=0,
        compiler="nvcc 13.0",
        elements=5120,
        registers=32,
        spill_store_bytes=0,
        spill_load_bytes=0,
        stack_bytes=0,
        static_shared_bytes=0,
        ptx=ptx,
        read_sass=lambda: sass_of("FADD R4, R4, R5"),
        launch=Launch(
            grid=(10, 1, 1),
            block=(128, 1, 1),
            parameters=(),
            tensors=(
                TensorArgument("out", 0, 1 << 32, 5120 * 4),
                TensorArgument("x", 1, 2 << 32, 5120 * 4),
            ),
        ),
    )


def with_ptx(*statements: str) -> KernelCode:
    return kernel_of(ptx_of(*statements))


def with_pointer(*statements: str) -> KernelCode:
    """A kernel that loads a pointer to x as BASE, so that it can be simulated."""
    text = "\n".join(f"{each};" for each in (_REGISTERS, BASE, *statements))
    ptx = parse_ptx(f".entry k(\n.param .u64 k_param_0\n)\n{{\n{text}\nret;\n}}")
    tensor = TensorArgument("x", 0, 2 << 32, 5120 * 4)
    return launched(kernel_of(ptx), parameters=(tensor.address,), tensors=(tensor,))


def launched(code: KernelCode, **changes: Any) -> KernelCode:
    """The same kernel, launched otherwise."""
    return replace(code, launch=replace(code.launch, **changes))


CLEAN = with_ptx(LOAD, ADD, STORE)


# By what is particular to the two: both sides, the rule, whom it is about, what it
# says, and instructions of the CUDA side that prove it.
PAIRS: dict[str, tuple[KernelCode, KernelCode, str, Side | None, str, tuple[int, ...]]]
PAIRS = {
    "scalar loads": (
        with_ptx("ld.global.f32 %f1, [%rd1]", ADD, STORE),
        CLEAN,
        "vector width",
        "cuda",
        "A thread loads 4 bytes at a time in CUDA, 16 in Triton; it stores 16 bytes at"
        " a time on both sides (CUDA: ld.global.f32 and st.global.v4.b32;"
        " Triton: ld.global.v4.b32 and st.global.v4.b32).",
        (0,),
    ),
    "some scalar stores": (
        with_ptx(LOAD, ADD, STORE, "st.global.b32 [%rd2], %r1"),
        CLEAN,
        "vector width",
        None,
        "A thread loads 16 bytes at a time on both sides; it stores 16 and 4 bytes at a"
        " time in CUDA, 16 in Triton (CUDA: ld.global.v4.b32, st.global.v4.b32 and"
        " st.global.b32; Triton: ld.global.v4.b32 and st.global.v4.b32).",
        (2, 3),
    ),
    "stores with conditions": (
        with_pointer(
            "@%p1 st.global.b32 [%rd1], %r1",
            "@%p2 st.global.b32 [%rd1+4], %r2",
        ),
        CLEAN,
        "merging",
        "cuda",
        "CUDA stores one by one what lies side by side: 2 times st.global.b32, not 8"
        " bytes at once, since each has a condition of its own.",
        (1, 2),
    ),
    "loads of unknown alignment": (
        with_pointer(
            *(f"ld.global.b32 %r{i}, [%rd1+{4 * i}]" for i in range(4)),
        ),
        CLEAN,
        "merging",
        "cuda",
        "CUDA loads one by one what lies side by side: 4 times ld.global.b32, not 16"
        " bytes at once, since nothing tells the compiler that their address is a"
        " multiple of 16.",
        (1, 2, 3, 4),
    ),
    "loads of a thread's own pair": (
        with_pointer(
            "mov.u32 %r9, %tid.x",
            "mad.wide.u32 %rd1, %r9, 8, %rd1",
            "ld.global.b32 %r1, [%rd1]",
            "ld.global.b32 %r2, [%rd1+4]",
        ),
        CLEAN,
        "merging",
        "cuda",
        "CUDA loads one by one what lies side by side: 2 times ld.global.b32, not 8"
        " bytes at once, since nothing tells the compiler that their address is a"
        " multiple of 8.",
        (3, 4),
    ),
    "read-only path": (
        with_ptx(LOAD.replace("global", "global.nc"), ADD, STORE),
        CLEAN,
        "read-only path",
        "cuda",
        "CUDA loads through the read-only data cache (ld.global.nc), which it may"
        " because nothing writes there during the launch; Triton by plain ld.global.",
        (0,),
    ),
    "cache hints": (
        with_ptx(LOAD, ADD, STORE.replace("global", "global.cs")),
        CLEAN,
        "cache hints",
        "cuda",
        "Hints to the caches: CUDA by st.global.cs.v4.b32, Triton gives none.",
        (2,),
    ),
    "copies through registers": (
        with_ptx(LOAD, "mov.b32 %r9, %r1", "st.shared.b32 [%r8], %r9", ADD, STORE),
        with_ptx(
            "cp.async.cg.shared.global [%r1], [%rd1], 16",
            "cp.async.commit_group",
            "cp.async.wait_group 2",
            ADD,
            STORE,
        ),
        "asynchronous copies",
        "cuda",
        "CUDA copies from global to shared memory through registers (ld.global.v4.b32"
        " and st.shared.b32); Triton asynchronously (cp.async.cg). While it computes, a"
        " thread has at most 32 bytes of copies under way.",
        (0, 2),
    ),
    "copies of different depth": (
        with_ptx(
            *2 * ("cp.async.cg.shared.global [%r1], [%rd1], 16",),
            "cp.async.commit_group",
            "cp.async.wait_group 1",
        ),
        with_ptx(
            "cp.async.ca.shared.global [%r1], [%rd1], 8",
            "cp.async.commit_group",
            "cp.async.wait_group 2",
        ),
        "asynchronous copies",
        "triton",
        "Both copy from global to shared memory asynchronously (CUDA: cp.async.cg;"
        " Triton: cp.async.ca). While it computes, a thread has at most 32 bytes of"
        " copies under way in CUDA, 16 in Triton.",
        (0, 1, 2, 3),
    ),
    "float64": (
        with_ptx(LOAD, "cvt.f64.f32 %fd1, %f1", "mul.f64 %fd1, %fd1, %fd2", ADD, STORE),
        CLEAN,
        "float64",
        "cuda",
        "CUDA computes in float64, by cvt.f64.f32 and mul.f64.",
        (1, 2),
    ),
    "tensor cores": (
        with_ptx(LOAD, "fma.rn.f32 %f1, %f2, %f3, %f1", STORE),
        with_ptx(
            LOAD, "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%f1}", STORE
        ),
        "tensor cores",
        "cuda",
        "Triton multiplies matrices on tensor cores, by mma m16n8k16; CUDA does not, it"
        " multiplies and adds by fma.rn.f32.",
        (1,),
    ),
    "two kinds of tensor core instructions": (
        with_ptx("wmma.mma.sync.aligned.row.row.m16n16k16.f32.f32 {%f1}"),
        with_ptx("tcgen05.mma.cta_group::1.kind::f16 [%r1], %rd1, %rd2, %r2, %p1"),
        "tensor cores",
        None,
        "Both multiply matrices on tensor cores: CUDA by wmma m16n16k16, Triton by"
        " tcgen05.mma.",
        (0,),
    ),
    "tensor cores as before Hopper": (
        with_ptx("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%f1}, {%r1}"),
        with_ptx("wgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16 {%f1}, %rd1"),
        "tensor cores",
        None,
        "Both multiply matrices on tensor cores: CUDA by mma m16n8k16, Triton by wgmma"
        " m64n128k16; wgmma is Hopper's own: four warps at once, by operands in shared"
        " memory.",
        (0,),
    ),
    "copies of boxes and of vectors": (
        with_ptx(
            "cp.async.bulk.tensor.3d.shared::cta.global.mbarrier::complete_tx::bytes"
            " [%r1], [%rd1, {%r2, %r3, %r4}], [%r5]",
            "cp.async.bulk.tensor.3d.global.shared::cta.bulk_group"
            " [%rd2, {%r2, %r3, %r4}], [%r1]",
        ),
        with_ptx("cp.async.cg.shared.global [%r1], [%rd1], 16"),
        "asynchronous copies",
        None,
        "Both copy from global to shared memory asynchronously"
        " (CUDA: cp.async.bulk.tensor.3d; Triton: cp.async.cg).",
        (0,),
    ),
    "warps with work of their own": (
        with_ptx(
            "setmaxnreg.dec.sync.aligned.u32 40", "setmaxnreg.inc.sync.aligned.u32 232"
        ),
        CLEAN,
        "specialisation",
        "cuda",
        "CUDA gives warps of a block different things to do, and to their threads 40"
        " and 232 registers (setmaxnreg); Triton all the same.",
        (0, 1),
    ),
    "warps with work of their own on both sides": (
        with_ptx(
            "setmaxnreg.dec.sync.aligned.u32 40", "setmaxnreg.inc.sync.aligned.u32 232"
        ),
        with_ptx("setmaxnreg.dec.sync.aligned.u32 24"),
        "specialisation",
        None,
        "Warps of a block do different things, and share out its registers for that"
        " (setmaxnreg): a thread has 40 and 232 registers in CUDA, 24 registers in"
        " Triton.",
        (0, 1),
    ),
    "loop": (
        with_ptx(*ROUND),
        CLEAN,
        "loops",
        "cuda",
        "CUDA has 1 loop; Triton none: its code runs straight to the end.",
        (0,),
    ),
    "masks": (
        with_ptx(f"@%p1 {LOAD}", ADD, f"@%p1 {STORE}"),
        with_ptx("@%p1 bra $L", LOAD, ADD, STORE, "$L:"),
        "guards",
        None,
        "CUDA masks its global accesses by predicates (2 of 2 in PTX); Triton branches"
        " around them (1 branch).",
        (0, 2),
    ),
    "reductions": (
        with_ptx(LOAD, ADD, "shfl.sync.bfly.b32 %r1, %r2, 16, 31, -1", STORE),
        with_ptx(
            LOAD,
            ADD,
            "redux.sync.max.f32 %r1, %r2, -1",
            "st.shared.b32 [%r9], %r1",
            "bar.sync 0",
            "ld.shared.b32 %r1, [%r9]",
            STORE,
        ),
        "reduction",
        None,
        "CUDA reduces a warp's 128 elements within the warp: 1 shuffle and no barriers."
        " Triton within the warp, then through shared memory: 1 redux instruction, 1"
        " barrier and 2 accesses to it.",
        (2,),
    ),
    "exp": (
        with_ptx(LOAD, *FAST_EXP, ADD, STORE),
        with_ptx(
            LOAD,
            "mov.f32 %f9, 0f32A57060",
            "fma.rn.f32 %f1, %f2, %f9, %f3",
            "ex2.approx.ftz.f32 %f4, %f1",
            ADD,
            STORE,
        ),
        "exp",
        "triton",
        "Triton computes exp(x) as expf does: it brings x into a small range first, and"
        " scales the result, around ex2.approx.ftz.f32; CUDA takes 2^(x * log2 e) at"
        " once, by mul.f32 and ex2.approx.f32.",
        (1, 2),
    ),
    "exp of a pair": (
        with_ptx(
            LOAD,
            "mov.b64 %rd9, 0xBFB8AA3BBFB8AA3B",
            "mul.f32x2 %rd8, %rd7, %rd9",
            "mov.b64 {%f1, %f2}, %rd8",
            "ex2.approx.f32 %f3, %f2",
            ADD,
            STORE,
        ),
        with_ptx(LOAD, *FAST_EXP, ADD, STORE),
        "exp",
        None,
        "Both compute exp(x) as 2^(x * log2 e), by mul.f32x2 and ex2.approx.f32 in"
        " CUDA, mul.f32 and ex2.approx.f32 in Triton.",
        (2, 4),
    ),
    "erf": (
        with_ptx(LOAD, *ERF, "@%p1 bra $L", "ex2.approx.f32 %f4, %f3", "$L:", STORE),
        with_ptx(
            LOAD,
            *ERF,
            *3 * ("selp.f32 %f5, 0f38EB4C3A, 0f38B1E96A, %p1",),
            "ex2.approx.f32 %f4, %f3",
            STORE,
        ),
        "erf",
        None,
        "Both compute erf by libdevice's erff: one of two polynomials, and an ex2"
        " where |x| is above 1.003. In PTX, CUDA chooses the polynomial by branches,"
        " Triton by selp.",
        (1,),
    ),
    "only one erf": (
        with_ptx(LOAD, *ERF, STORE),
        CLEAN,
        "erf",
        "cuda",
        "CUDA computes erf by libdevice's erff: one of two polynomials, and an ex2"
        " where |x| is above 1.003; Triton does without erff.",
        (1,),
    ),
    "tanh": (
        with_ptx(LOAD, "tanh.approx.f32 %f1, %f1", STORE),
        with_ptx(
            LOAD,
            "mul.f32 %f2, %f1, 0f4038AA3B",
            "ex2.approx.ftz.f32 %f3, %f2",
            "setp.ge.f32 %p2, %f1, 0f3F19999A",
            STORE,
        ),
        "tanh",
        "triton",
        "Triton computes tanh by libdevice's tanhf: a polynomial up to 0.6, then an ex2"
        " and a reciprocal; CUDA by one tanh.approx.f32.",
        (1,),
    ),
    "division": (
        with_ptx(LOAD, "div.rn.f32 %f1, %f2, %f3", ADD, STORE),
        with_ptx(LOAD, "rcp.approx.ftz.f32 %f1, %f2", ADD, STORE),
        "division",
        "cuda",
        "Division: CUDA takes div.rn.f32 (rounded as IEEE 754 asks); Triton"
        " rcp.approx.ftz.f32 (a reciprocal within 1 ulp, subnormals taken for 0).",
        (1,),
    ),
    "pairs": (
        with_ptx(LOAD, "add.rn.f32x2 %rd1, %rd2, %rd3", STORE),
        CLEAN,
        "packed math",
        "triton",
        "CUDA computes on two numbers by one instruction (add.rn.f32x2);"
        " Triton on one.",
        (1,),
    ),
    "subnormals": (
        with_ptx(LOAD, ADD, "mul.ftz.f32 %f1, %f1, %f2", STORE),
        CLEAN,
        "subnormals",
        None,
        "CUDA takes subnormal numbers for 0 in 1 of its 2 floating-point instructions"
        " (.ftz); Triton in none.",
        (2,),
    ),
    "special functions": (
        with_ptx(LOAD, ADD, "lg2.approx.f32 %f1, %f1", STORE),
        CLEAN,
        "special functions",
        None,
        "Special functions: CUDA lg2.approx.f32; Triton none.",
        (2,),
    ),
    "spills": (
        replace(
            CLEAN,
            spill_store_bytes=8,
            spill_load_bytes=12,
            stack_bytes=8,
            read_sass=lambda: sass_of("STL [R1], R2", "LDL R2, [R1]"),
        ),
        CLEAN,
        "spills",
        "cuda",
        "CUDA runs out of registers and spills: a thread stores 8 bytes to local memory"
        " and loads 12.",
        (0, 1),
    ),
    "array in local memory": (
        replace(CLEAN, stack_bytes=64),
        CLEAN,
        "spills",
        "cuda",
        "CUDA keeps 64 bytes of a thread in local memory, though no register is"
        " spilled.",
        (),
    ),
    "registers": (
        replace(CLEAN, registers=40),
        replace(CLEAN, registers=36),
        "occupancy",
        None,
        "A thread takes 40 registers in CUDA, 36 in Triton. An SM holds 48 of at most"
        " 64 warps, limited by registers.",
        (),
    ),
    "shared memory": (
        launched(replace(CLEAN, static_shared_bytes=128), dynamic_shared_bytes=256),
        CLEAN,
        "shared memory",
        None,
        "Shared memory of a block: CUDA 128 bytes that the kernel declares and"
        " 256 bytes that the launch asks for; Triton none.",
        (),
    ),
    "more elements for a thread": (
        launched(CLEAN, grid=(5, 1, 1)),
        CLEAN,
        "elements per thread",
        None,
        "Elements of the output for each thread of the launch: CUDA 8 (5 blocks of"
        " 128 threads), Triton 4 (10 blocks of 128 threads).",
        (),
    ),
}

# By what is particular to the two: the rule, and both sides.
SHUFFLE = "shfl.sync.bfly.b32 %r1, %r2, 16, 31, -1"
SILENT = {
    "no loads and stores": ("vector width", with_ptx(ADD), CLEAN),
    "copies by TMA have no width": (
        "vector width",
        with_ptx("cp.async.bulk.tensor.2d.shared::cta.global [%r1], [%rd1]"),
        with_ptx(LOAD),
    ),
    "the same work for all warps": ("specialisation", CLEAN, CLEAN),
    "copies by TMA beside narrow loads": (
        "vector width",
        with_ptx(
            "cp.async.bulk.tensor.2d.shared::cta.global [%r1], [%rd1]",
            "ld.global.b32 %r1, [%rd1]",
        ),
        with_ptx(LOAD),
    ),
    "neighbours with a gap": (
        "merging",
        with_pointer("ld.global.b32 %r1, [%rd1]", "ld.global.b32 %r2, [%rd1+8]"),
        CLEAN,
    ),
    "neighbours of other threads": (
        "merging",
        with_pointer(
            "mov.u32 %r9, %tid.x",
            "mad.wide.u32 %rd1, %r9, 4, %rd1",
            "ld.global.b32 %r1, [%rd1]",
            "ld.global.b32 %r2, [%rd1+4]",
        ),
        CLEAN,
    ),
    "neighbours on two sides of a barrier": (
        "merging",
        with_pointer(
            "ld.global.b32 %r1, [%rd1]",
            "bar.sync 0",
            "ld.global.b32 %r2, [%rd1+4]",
        ),
        CLEAN,
    ),
    "the assembler has merged them": (
        "merging",
        replace(
            with_pointer("ld.global.b32 %r1, [%rd1]", "ld.global.b32 %r2, [%rd1+4]"),
            read_sass=lambda: sass_of("LDG.E.64 R4, [R2.64]"),
        ),
        CLEAN,
    ),
    "the end of a tensor, beside wide loads": (
        "merging",
        with_pointer(
            "ld.global.v2.b32 {%r1, %r2}, [%rd1]",
            "ld.global.b32 %r3, [%rd1+8]",
            "ld.global.b32 %r4, [%rd1+12]",
        ),
        CLEAN,
    ),
    "both by the read-only path": (
        "read-only path",
        with_ptx("ld.global.nc.f32 %f1, [%rd1]"),
        with_ptx("ld.global.nc.f32 %f1, [%rd1]"),
    ),
    "the same hints": (
        "cache hints",
        with_ptx("ld.global.cs.f32 %f1, [%rd1]"),
        with_ptx("ld.global.cs.b32 %r1, [%rd1]"),
    ),
    "what is stored to shared memory is computed": (
        "asynchronous copies",
        with_ptx(LOAD, "add.s32 %r9, %r1, %r2", "st.shared.b32 [%r8], %r9"),
        with_ptx("cp.async.cg.shared.global [%r1], [%rd1], 16"),
    ),
    "no float64": ("float64", CLEAN, CLEAN),
    "no products at all": (
        "tensor cores",
        CLEAN,
        with_ptx("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%f1}"),
    ),
    "as many loops": ("loops", with_ptx(*ROUND), with_ptx(*ROUND)),
    "both by predicates": (
        "guards",
        with_ptx(f"@%p1 {LOAD}"),
        with_ptx(f"@%p2 {LOAD}"),
    ),
    "branches around something else": (
        "guards",
        with_ptx(f"@%p1 {LOAD}"),
        with_ptx("@%p1 bra $L", ADD, "$L:", LOAD),
    ),
    "shuffles that do not reduce": (
        "reduction",
        with_ptx(
            LOAD, "shfl.sync.idx.b32 %r1, %r2, 0, 31, -1", "elect.sync %r1|%p1, -1"
        ),
        CLEAN,
    ),
    "shared memory with other contents": (
        "reduction",
        with_ptx(LOAD, SHUFFLE),
        with_ptx(LOAD, "st.shared.b32 [%r9], %r1", "bar.sync 0"),
    ),
    "ex2 of who knows what": (
        "exp",
        with_ptx(LOAD, "ex2.approx.f32 %f9, %f8"),
        with_ptx(LOAD, *FAST_EXP),
    ),
    "ex2 as a part of erf": ("exp", *2 * (with_ptx(*ERF, "ex2.approx.f32 %f4, %f3"),)),
    "no erf": ("erf", CLEAN, CLEAN),
    "tanh on one side alone": (
        "tanh",
        with_ptx("tanh.approx.f32 %f1, %f1"),
        CLEAN,
    ),
    "the same division": (
        "division",
        *2 * (with_ptx("div.full.f32 %f1, %f2, %f3"),),
    ),
    "pairs on both sides": (
        "packed math",
        *2 * (with_ptx("add.rn.f32x2 %rd1, %rd2, %rd3"),),
    ),
    "subnormals on both sides": (
        "subnormals",
        *2 * (with_ptx("mul.ftz.f32 %f1, %f1, %f2"),),
    ),
    "the same special functions": (
        "special functions",
        *2 * (with_ptx("sin.approx.f32 %f1, %f1"),),
    ),
    "functions that other rules tell": (
        "special functions",
        with_ptx(*FAST_EXP, "rcp.rn.f32 %f1, %f1", "tanh.approx.f32 %f1, %f1"),
        CLEAN,
    ),
    "no local memory": ("spills", CLEAN, CLEAN),
    "no shared memory": ("shared memory", CLEAN, CLEAN),
    "the same launch": ("elements per thread", CLEAN, CLEAN),
}
