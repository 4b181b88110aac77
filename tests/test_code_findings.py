"""The rules: each reports its finding on a pair made for it, and none elsewhere."""

from __future__ import annotations

import copy
from dataclasses import replace
from pathlib import Path
from typing import Any

import launches
import pytest
from handicaps.build import EVERY, FOLDER, compiled
from handicaps.by_hand import (
    ADD,
    CLEAN,
    LOAD,
    PAIRS,
    ROUND,
    SILENT,
    STORE,
    launched,
    with_ptx,
)
from handicaps.catalogue import CLEAN as CLEAN_KERNELS
from handicaps.catalogue import HANDICAPS, Handicap, Kernel
from together import in_one_test

from bindings.toolchain import find_cuda_home
from compare.assembly.places import in_sources
from compare.code.findings import RULES, Finding, find
from compare.code.kernel_code import KernelCode, Side, inspect_cuda, inspect_triton
from compare.code.occupancy import Occupancy
from compare.code.rungs import SIDES
from compare.code.words import LANGUAGE_NAMES
from compare.ptx_simulator import MemoryAccess, Simulation

needs_nvcc = pytest.mark.skipif(find_cuda_home() is None, reason="needs nvcc")


def simulation_of(
    code: KernelCode, *accesses: MemoryAccess, times: int = 1
) -> Simulation:
    """The simulation of one block whose threads execute everything `times` times."""
    count = len(code.ptx.instructions)
    return Simulation(
        blocks=1,
        total_blocks=10,
        threads=128,
        executed=(times * 128,) * count,
        warp_executed=(times * 4,) * count,
        accesses=accesses,
        out_of_bounds=(),
        unknown_branches=(),
        unknown_opcodes=(),
        is_complete=True,
        traces={0: ()},
    )


def access(index: int, *, is_store: bool = False, **changes: int) -> MemoryAccess:
    """Four coalesced requests for 16 bytes in each lane."""
    numbers: dict[str, Any] = {
        "requests": 4,
        "bytes": 128 * 16,
        "sectors": 64,
        "ideal_sectors": 64,
        "wavefronts": 0,
        "bank_conflicts": 0,
        "unknown": 0,
        **changes,
    }
    return MemoryAccess(
        index=index,
        space="global",
        is_store=is_store,
        argument="out" if is_store else "x",
        bytes_per_thread=16,
        **numbers,
    )


CLEAN_SIMULATION = simulation_of(CLEAN, access(0), access(2, is_store=True))


def knowing(code: KernelCode, **known: Simulation | Occupancy) -> KernelCode:
    """The code with cached properties set, which it would else compute."""
    knows = copy.copy(code)
    vars(knows).update(known)
    return knows


def accesses_of(code: KernelCode) -> tuple[MemoryAccess, ...]:
    """Those of a kernel that can be simulated, for it has its parameters."""
    return code.simulation.accesses if code.launch.parameters else ()


def find_in(
    cuda: KernelCode,
    triton: KernelCode,
    simulations: tuple[Simulation, Simulation] | None = None,
) -> tuple[Finding, ...]:
    """The findings; without simulations, those of kernels that do not end."""
    codes = cuda, triton
    if simulations is None:
        stopped = [
            replace(simulation_of(each, *accesses_of(each)), is_complete=False)
            for each in codes
        ]
        simulations = stopped[0], stopped[1]
    return find(
        *(
            knowing(on_side(side, code), simulation=simulation)
            for side, code, simulation in zip(SIDES, codes, simulations, strict=True)
        )
    )


def on_side(side: Side, code: KernelCode) -> KernelCode:
    """A kernel as that of a side, with what is known of it."""
    placed = copy.copy(code)
    vars(placed).update(side=side, language=side, name=LANGUAGE_NAMES[side])
    return placed


def found_of(
    cuda: KernelCode,
    triton: KernelCode = CLEAN,
    simulations: tuple[Simulation, Simulation] | None = None,
) -> dict[str, Finding]:
    """The findings by rule."""
    return {each.rule: each for each in find_in(cuda, triton, simulations)}


def compiled_pair(handicap: Handicap, architecture: int) -> dict[str, Finding]:
    cuda = compiled(
        handicap.kernel if handicap.side == "cuda" else handicap.clean,
        "cuda",
        architecture,
    )
    triton = compiled(
        handicap.kernel if handicap.side == "triton" else handicap.clean,
        "triton",
        architecture,
    )
    return everything(cuda, triton)


def everything(cuda: KernelCode, triton: KernelCode) -> dict[str, Finding]:
    """The findings on two kernels, with their own simulations."""
    return found_of(cuda, triton, (cuda.simulation, triton.simulation))


# ---- The bank ------------------------------------------------------------------------

ON_ARCHITECTURES = [
    pytest.param(each, number, id=f"{each.name}-{each.rule}-sm_{number}")
    for each in HANDICAPS
    for number in each.architectures
]


@needs_nvcc
@pytest.mark.parametrize(("handicap", "architecture"), ON_ARCHITECTURES)
def test_a_handicap_is_named(handicap: Handicap, architecture: int) -> None:
    found = compiled_pair(handicap, architecture)[handicap.rule]
    assert found.side == handicap.side
    if handicap.rule != "occupancy":  # which no single instruction proves
        assert found.cuda if handicap.side == "cuda" else found.triton


CLEAN_PAIRS = {
    (each.clean, number): {
        other.rule
        for other in HANDICAPS
        if other.clean == each.clean and number in other.architectures
    }
    for each in HANDICAPS
    for number in each.architectures
}


@needs_nvcc
@pytest.mark.parametrize(
    ("kernel", "architecture", "rules"),
    [(*key, rules) for key, rules in CLEAN_PAIRS.items()],
    ids=[f"{kernel.name}-sm_{number}" for kernel, number in CLEAN_PAIRS],
)
def test_neither_side_is_blamed_where_both_are_clean(
    kernel: Kernel, architecture: int, rules: set[str]
) -> None:
    cuda, triton = (
        compiled(kernel, "cuda", architecture),
        compiled(kernel, "triton", architecture),
    )
    blamed = {each.rule for each in everything(cuda, triton).values() if each.side}
    assert not blamed & rules


def test_the_bank_is_complete() -> None:
    for side, suffix in (("cuda", ".cu"), ("triton", ".py")):
        files = {each.stem for each in (FOLDER / side).glob(f"*{suffix}")}
        named = {each.kernel.name for each in HANDICAPS if each.side == side}
        assert files - {EVERY} == named | {each.name for each in CLEAN_KERNELS}
    assert {each.rule for each in HANDICAPS} <= {each.name for each in RULES}
    assert len({each.rule for each in HANDICAPS}) >= 14


@in_one_test("path")
@pytest.mark.parametrize(
    "path", sorted(FOLDER.glob("*/*.[cp][uy]")), ids=lambda path: path.name
)
def test_a_kernel_begins_with_what_is_wrong_with_it(path: Path) -> None:
    assert path.read_text().startswith(("// ", '"""'))


# ---- Findings ------------------------------------------------------------------------


def test_what_two_equal_sides_have_in_common() -> None:
    assert {rule: each.text for rule, each in found_of(CLEAN).items()} == {
        "vector width": (
            "A thread loads and stores 16 bytes at a time on both sides"
            " (CUDA: ld.global.v4.b32 and st.global.v4.b32;"
            " Triton: ld.global.v4.b32 and st.global.v4.b32)."
        ),
        "occupancy": (
            "A thread takes 32 registers on both sides. An SM holds 64 of at most 64"
            " warps."
        ),
    }


@in_one_test("cuda", "triton", "rule", "side", "text", "evidence")
@pytest.mark.parametrize(
    ("cuda", "triton", "rule", "side", "text", "evidence"),
    PAIRS.values(),
    ids=PAIRS.keys(),
)
def test_what_a_rule_says(
    cuda: KernelCode,
    triton: KernelCode,
    rule: str,
    side: Side | None,
    text: str,
    evidence: tuple[int, ...],
) -> None:
    found = found_of(cuda, triton)[rule]
    assert (found.text, found.side) == (text, side)
    assert set(evidence) <= set(found.cuda)


def test_rules_know_no_favourite_side() -> None:
    other = {"cuda": "triton", "triton": "cuda", None: None}
    for cuda, triton, *_ in PAIRS.values():
        forward, backward = find_in(cuda, triton), find_in(triton, cuda)
        assert [each.rule for each in forward] == [each.rule for each in backward]
        assert [each.cuda for each in forward] == [each.triton for each in backward]
        assert [other[each.side] for each in forward] == [
            each.side for each in backward
        ]


# ---- Findings on executed instructions -----------------------------------------------


def test_bytes_for_each_element() -> None:
    twice = simulation_of(CLEAN, access(0, bytes=2 * 2048), access(2, is_store=True))
    found = found_of(CLEAN, simulations=(twice, CLEAN_SIMULATION))["bytes moved"]
    assert found.side == "cuda"
    assert found.text == (
        "CUDA moves 12 bytes of global memory for each element of the output (8 loaded,"
        " 4 stored), Triton 8 (4 loaded, 4 stored): CUDA loads x 2 times as often."
    )
    found = found_of(CLEAN, simulations=(twice, twice))["bytes moved"]
    assert found.side is None
    assert found.text.endswith("8 loaded, 4 stored, where the tensors have 8.")


def test_threads_with_more_elements_move_no_more_for_each() -> None:
    half = launched(CLEAN, grid=(5, 1, 1))
    simulation = simulation_of(
        half, access(0, bytes=4096), access(2, is_store=True, bytes=4096)
    )
    found = found_of(half, simulations=(simulation, CLEAN_SIMULATION))["bytes moved"]
    assert found.text == (
        "Both move 8 bytes of global memory for each element of the output: 4 loaded, 4"
        " stored, as many as the tensors have."
    )


def test_sectors() -> None:
    scattered = simulation_of(CLEAN, access(0, sectors=128), access(2, is_store=True))
    found = found_of(CLEAN, simulations=(CLEAN_SIMULATION, scattered))["coalescing"]
    assert (found.side, found.triton) == ("triton", (0,))
    assert found.text == (
        "Triton touches 1.5 times the sectors (32 bytes) of global memory that it"
        " needs: 32 for a warp's load of x, where 16 would hold as much. CUDA touches"
        " what it needs."
    )
    found = found_of(CLEAN, simulations=(scattered, scattered))["coalescing"]
    assert found.side is None
    assert found.text.startswith("Both touch 1.5 times the sectors (32 bytes)")


def test_bank_conflicts() -> None:
    code = with_ptx(LOAD, "st.shared.b32 [%r9], %r1", STORE)
    conflict = replace(
        access(1, is_store=True, wavefronts=8, bank_conflicts=4, sectors=0),
        space="shared",
    )
    free = replace(conflict, wavefronts=4, bank_conflicts=0)
    simulations = simulation_of(code, conflict), simulation_of(code, free)
    found = found_of(code, code, simulations)["bank conflicts"]
    assert (found.side, found.cuda, found.triton) == ("cuda", (1,), ())
    assert found.text == (
        "In CUDA lanes of a warp ask for different words of one bank of shared memory:"
        " a store takes 2 passes, where 1 would do. In Triton they never do."
    )
    found = found_of(code, code, (simulations[0], simulations[0]))["bank conflicts"]
    assert (found.side, found.text[:13]) == (None, "On both sides")


def test_masked_lanes() -> None:
    masked = with_ptx(ADD, f"@%p1 {LOAD}", STORE)
    around = with_ptx("@%p1 bra $L", LOAD, "$L:", STORE)
    simulations = (
        replace(simulation_of(masked), executed=(128, 64, 128, 128)),
        replace(simulation_of(around), executed=(128, 64, 128, 128)),
    )
    clean = simulation_of(masked), simulation_of(around)
    found = found_of(masked, around, (simulations[0], clean[1]))["padding"]
    assert (found.side, found.cuda) == ("cuda", (1,))
    assert found.text == (
        "25% of the lanes that come to a load or store of global memory are masked off"
        " in CUDA, 0% in Triton."
    )
    assert found_of(masked, around, (clean[0], simulations[1]))[
        "padding"
    ].text.endswith("in Triton, 0% in CUDA; Triton's tiles are powers of two.")
    assert found_of(masked, around, simulations)["padding"].side is None
    assert "padding" not in found_of(masked, around, clean)


def test_rounds_of_loops() -> None:
    loop = with_ptx(*ROUND)
    once, often = simulation_of(loop), simulation_of(loop, times=8)
    found = found_of(loop, CLEAN, (often, CLEAN_SIMULATION))["loops"]
    assert "CUDA has 1 loop (8 rounds in each thread)" in found.text
    found = found_of(loop, loop, (often, simulation_of(loop, times=2)))["loops"]
    assert (found.side, found.text) == (
        "cuda",
        "Each thread goes round 8 times in CUDA (1 loop), 2 times in Triton (1 loop).",
    )
    # A loop of one round is none, and equal numbers of rounds per element are alike.
    assert "loops" not in found_of(loop, CLEAN, (once, CLEAN_SIMULATION))
    longer = launched(loop, grid=(5, 1, 1))
    both = often, simulation_of(longer, times=16)
    assert "loops" not in found_of(loop, longer, both)


def test_what_a_warp_executes_counts_and_not_what_stands_in_the_code() -> None:
    shuffle = with_ptx(LOAD, ADD, "shfl.sync.bfly.b32 %r1, %r2, 16, 31, -1", STORE)
    simulations = simulation_of(shuffle, times=3), simulation_of(shuffle)
    found = found_of(shuffle, shuffle, simulations)["reduction"]
    assert "elements within the warp: 3 shuffles" in found.text
    assert found.side == "cuda"


def test_divisions_of_integers() -> None:
    code = with_ptx(LOAD, "div.u32 %r5, %r6, %r7", "rem.u32 %r8, %r6, %r7", STORE)
    found = found_of(code, simulations=(simulation_of(code), CLEAN_SIMULATION))
    assert (found["address arithmetic"].side, found["address arithmetic"].text) == (
        "cuda",
        "CUDA divides integers (div.u32 and rem.u32), 0.5 times for each element. No"
        " GPU has an instruction for that: each becomes a sequence of others.",
    )


def test_a_rare_division_is_told_and_not_blamed() -> None:
    exact, fast = (
        with_ptx(LOAD, f"div.{each}.f32 %f1, %f2, %f3", STORE)
        for each in ("rn", "full")
    )
    simulations = simulation_of(exact), simulation_of(fast)
    assert found_of(exact, fast, simulations)["division"].side == "cuda"
    rare = replace(exact, elements=10 * 128 * 64), replace(fast, elements=10 * 128 * 64)
    found = found_of(*rare, simulations)["division"]
    assert found.side is None
    assert "div.rn.f32 (rounded as IEEE 754 asks, one for 64 elements)" in found.text


def test_occupancy() -> None:
    full = Occupancy(16, 64, 64, 1.0, ("threads",))
    half = Occupancy(8, 32, 64, 0.5, ("registers", "blocks"))
    quarter = replace(half, warps_per_sm=16, fraction=0.25)
    registers = "A thread takes 32 registers on both sides."

    def said(cuda: Occupancy, triton: Occupancy) -> tuple[Side | None, str]:
        sides = [knowing(CLEAN, occupancy=each) for each in (cuda, triton)]
        found = found_of(sides[0], sides[1])["occupancy"]
        assert found.text.startswith(registers)
        return found.side, found.text.removeprefix(f"{registers} ")

    limits = "limited by registers and the number of blocks"
    assert said(full, half) == (
        "triton",
        f"An SM holds 64 of at most 64 warps in CUDA; 32 in Triton, {limits}.",
    )
    assert said(quarter, half) == (
        "cuda",
        f"An SM holds 16 of at most 64 warps in CUDA, 32 in Triton, both {limits}.",
    )
    assert said(half, half) == (None, f"An SM holds 32 of at most 64 warps, {limits}.")
    assert said(full, full) == (None, "An SM holds 64 of at most 64 warps.")


# ---- Silence -------------------------------------------------------------------------


@in_one_test("rule", "cuda", "triton")
@pytest.mark.parametrize(("rule", "cuda", "triton"), SILENT.values(), ids=SILENT.keys())
def test_what_is_not_certain_is_not_said(
    rule: str, cuda: KernelCode, triton: KernelCode
) -> None:
    assert rule not in found_of(cuda, triton)
    assert rule not in found_of(triton, cuda)


EXECUTED = {"bytes moved", "coalescing", "bank conflicts", "padding"}


def test_without_a_simulation_no_finding_is_on_execution() -> None:
    for cuda, triton, *_ in PAIRS.values():
        assert not EXECUTED & found_of(cuda, triton).keys()


def test_clean_sides_touch_no_more_than_they_need() -> None:
    found = found_of(CLEAN, simulations=(CLEAN_SIMULATION, CLEAN_SIMULATION))
    assert EXECUTED & found.keys() == {"bytes moved"}
    assert "address arithmetic" not in found


@pytest.mark.parametrize(
    "simulation",
    [
        replace(CLEAN_SIMULATION, is_complete=False),
        replace(CLEAN_SIMULATION, unknown_opcodes=("multimem.red",)),
        replace(CLEAN_SIMULATION, unknown_branches=(2,)),
        simulation_of(CLEAN, access(0, unknown=4), access(2, is_store=True)),
        simulation_of(CLEAN, replace(access(0), space="generic", unknown=4)),
    ],
    ids=["stopped", "unknown opcode", "unknown mask", "unknown address", "generic"],
)
def test_uncertain_simulations_give_no_finding(simulation: Simulation) -> None:
    found = found_of(CLEAN, simulations=(simulation, CLEAN_SIMULATION))
    assert not EXECUTED & found.keys()


def test_behind_an_unknown_branch_nothing_is_known_until_its_ways_meet() -> None:
    code = with_ptx("@%p1 bra $L", LOAD, "$L:", STORE)
    simulation = simulation_of(code, access(1), access(2, is_store=True))
    both = simulation, simulation
    assert "bytes moved" in found_of(code, code, both)
    unsure = replace(simulation, unknown_branches=(0,))
    assert "bytes moved" not in found_of(code, code, (unsure, simulation))
    behind = with_ptx("@%p1 bra $L", ADD, "$L:", LOAD, STORE)
    known = replace(
        simulation_of(behind, access(2), access(3, is_store=True)),
        unknown_branches=(0,),
    )
    assert "bytes moved" in found_of(behind, behind, (known, known))


def test_stores_of_tensor_cores_are_not_counted_so_nothing_is_said_of_bytes() -> None:
    code = with_ptx(LOAD, "wmma.store.d.sync.aligned.row.m16n16k16.global.f32 [%rd1]")
    simulation = simulation_of(code, access(0))
    assert "bytes moved" not in found_of(code, code, (simulation, simulation))


def test_instructions_that_are_never_executed_do_not_count() -> None:
    code = with_ptx(LOAD, "ld.global.b32 %r1, [%rd1]", STORE)
    simulation = replace(
        simulation_of(code, access(0), access(2, is_store=True)),
        executed=(128, 0, 128, 128),
    )
    found = found_of(code, CLEAN, (simulation, CLEAN_SIMULATION))["vector width"]
    assert found.text.startswith("A thread loads and stores 16 bytes at a time on both")
    assert found.cuda == (0, 2)


# ---- All together --------------------------------------------------------------------


def test_most_telling_first() -> None:
    cuda, triton, *_ = PAIRS["float64"]
    found = find_in(replace(cuda, registers=200), triton)
    assert found[0].rule == "float64"
    order = [(each.side is None, -each.weight) for each in found]
    assert order == sorted(order)


def test_every_rule_is_tested_to_speak_and_to_be_silent() -> None:
    names = {each.name for each in RULES}
    assert len(names) == len(RULES)
    only_executed = EXECUTED | {"address arithmetic"}
    assert {rule for _, _, rule, *_ in PAIRS.values()} | only_executed == names
    always = {"occupancy"}
    assert {rule for rule, *_ in SILENT.values()} | only_executed | always == names


def test_the_order_of_rules_is_that_of_their_weights() -> None:
    weights = [each.about_one for each in RULES]
    assert weights == sorted(weights, reverse=True)
    assert all(0 < each.about_both <= each.about_one <= 100 for each in RULES)


@needs_nvcc
@pytest.mark.parametrize(
    "launch",
    [*launches.SOFTMAX, *launches.SHORT_SOFTMAX],
    ids=lambda each: f"{each[1].shape}-{each[2].name}",
)
def test_what_is_always_said_of_softmax(launch: launches.Launch) -> None:
    op, _, architecture = launch
    launches.compile_with_nvcc("softmax", architecture)
    sides = [
        inspect(op, launches.arguments_of(launch), architecture)
        for inspect in (inspect_cuda, inspect_triton)
    ]
    found = list(everything(*sides).values())
    common = {"vector width", "bytes moved", "reduction", "exp", "occupancy"}
    assert common <= {each.rule for each in found}
    (moved,) = (each for each in found if each.rule == "bytes moved")
    assert "Both move 8 bytes" in moved.text
    places = [
        in_sources(side.ptx.instructions[index] for index in indices)
        for side, indices in zip(sides, (moved.cuda, moved.triton), strict=True)
    ]
    assert any(each.startswith("csrc/common/vec.cuh:") for each in places[0])
    assert all(each.startswith("triton_kernels/common/tile.py:") for each in places[1])
