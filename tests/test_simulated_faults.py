"""Faults planted in compiled code are found, and code without them gives no report."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import launches
import pytest
import torch
from common import triton_version
from planted_ptx import (
    Edit,
    Outcome,
    Report,
    Subject,
    dropped,
    listing_of,
    more_bytes,
    no_wait,
    one_more_pending,
    other_parity,
    planted,
    replaced,
    run,
    shifted,
    source_lines,
    unguarded,
    wrapped,
)

from bindings.toolchain import find_cuda_home
from compare.assembly import places
from compare.assembly.listing import Instruction

needs_nvcc = pytest.mark.skipif(find_cuda_home() is None, reason="needs nvcc")

# ---- Kernels -------------------------------------------------------------------------

F32, F16, BF16 = torch.float32, torch.float16, torch.bfloat16


def of_both(
    op: str, shape: tuple[int, ...], dtype: torch.dtype, **options: Any
) -> tuple[Subject, Subject]:
    """A kernel of CUDA, and its twin in Triton."""
    return (
        Subject("cuda", op, shape, dtype, **options),
        Subject("triton", op, shape, dtype, **options),
    )


SOFTMAX = of_both("softmax", (2, 2048), F32)
LAYER_NORM = of_both("layer_norm", (2, 2048), BF16)
CROSS_ENTROPY = of_both("cross_entropy", (3, 4096), F32)
SOFTMAX_BACKWARD = of_both("softmax_backward", (3, 4096), F32)
SUM = of_both("sum", (600, 32), F32)
# One block goes through all rows, which are copied some steps ahead.
NORM_BACKWARD = (
    Subject("cuda", "rms_norm_backward", (6, 512), F32, blocks=1),
    Subject("triton", "layer_norm_backward", (3, 2048), F32, blocks=1),
)
# What adds up the results of blocks.
LOSSES = of_both("cross_entropy", (3, 4096), F32, kernel=1)
PARTIALS = of_both("layer_norm_backward", (5, 2048), F32, kernel=1)
# Rows and vectors that end within what a thread has.
SHORT_SOFTMAX = of_both("softmax", (2, 781), F32)
ADD = of_both("add", (1003,), F32)
# A row for the blocks of a cluster.
CLUSTER_SOFTMAX = Subject("cuda", "softmax_backward", (1, 12288), F32)
CLUSTER_NORM = Subject("cuda", "rms_norm_backward", (1, 8192), F32)
# Copies by threads, and products by warps.
# So deep that all barriers of the loop order something.
AMPERE_MATMUL = (
    Subject("cuda", "matmul", (72, 64, 200), F16, architecture=80),
    Subject("triton", "matmul", (72, 64, 104), F16, architecture=80),
)
# Bulk copies, and products by warpgroups. One block computes all tiles, and goes around
# the ring of stages more than once.
HOPPER_MATMUL = (
    Subject("cuda", "matmul", (64, 192, 320), BF16, blocks=1, rung="twin"),
    Subject("triton", "matmul", (64, 192, 640), BF16, blocks=1, rung="twin"),
)

RING = Subject(
    "cuda", "matmul", (64, 64, 832), BF16, rung="twin"
)  # once around, and a bit

# Float32, an operand of which comes to the tensor cores through registers; the first
# launch splits the other operand.
FLOAT32 = of_both(
    *("matmul", (64, 192, 128), F32),
    kernel=1,
    blocks=1,
    rung="twin",
    precision="tf32x3",
)

# 8-bit floats: two tiles, and more steps than stages.
FLOAT8 = Subject("triton", "scaled_matmul", (64, 192, 640), BF16, blocks=1, rung="twin")

# Blocks that take turns; and, in CUDA, more steps than gradients of scores have places.
TURNS = of_both("attention_backward", (1, 300, 140, 1, 1, 64), BF16, kernel=1)
STEPS = Subject("cuda", "attention_backward", (1, 530, 100, 1, 1, 64), BF16, kernel=1)
# The other tile: a step has half as many queries.
SHORT_STEPS = replace(TURNS[1], shape=(1, 300, 140, 1, 1, 128))

ORDERS = ("forward", "reverse")
FOUR_ORDERS = (*ORDERS, "random:1", "random:2")
FIFTY_ORDERS = (*ORDERS, *(f"random:{seed}" for seed in range(1, 49)))
# The more warps, the longer it takes: those of matmul on Ampere, seconds. They are run
# forwards below, with faults, where a report of something else shows as well.
CLEAN = {
    **dict.fromkeys((*SOFTMAX, LAYER_NORM[1]), FIFTY_ORDERS),
    **dict.fromkeys((LAYER_NORM[0], *CROSS_ENTROPY, *SOFTMAX_BACKWARD), FOUR_ORDERS),
    **dict.fromkeys((*SUM, *LOSSES, *PARTIALS, NORM_BACKWARD[0]), FOUR_ORDERS),
    **dict.fromkeys((*SHORT_SOFTMAX, *ADD, *HOPPER_MATMUL, RING), FOUR_ORDERS),
    **dict.fromkeys((NORM_BACKWARD[1], CLUSTER_SOFTMAX, CLUSTER_NORM), ORDERS),
    **dict.fromkeys(AMPERE_MATMUL, ORDERS[1:]),
    **dict.fromkeys(TURNS, FOUR_ORDERS[3:]),
    STEPS: ORDERS[1:],
    **dict.fromkeys((*FLOAT32, FLOAT8), ORDERS),
}

launches.announce(each.launch for each in CLEAN if each.side == "cuda")


def of_subject(subject: Subject, title: str, *values: object) -> Any:
    """Parameters of a test, which is skipped where its kernel cannot be compiled."""
    marks = needs_nvcc if subject.side == "cuda" else ()
    return pytest.param(subject, *values, id=f"{subject}{title}", marks=marks)


# ---- Code without faults -------------------------------------------------------------


@pytest.mark.parametrize("subject", [of_subject(each, "") for each in CLEAN])
def test_clean_code_gives_no_report(subject: Subject) -> None:
    """And the same bits in every order."""
    expected = run(subject, "")
    assert expected.is_clean, expected.reports
    for order in CLEAN[subject]:
        found = run(subject, order)
        assert found.is_clean, (order, found.reports)
        assert found.results == expected.results, order


# ---- Barriers ------------------------------------------------------------------------

# By kernel, the barriers that order nothing, counted from 0. CUDA's reductions end with
# one, before others use the same memory: behind the last none does, and vectors of
# different sizes have memory of their own. Triton does not see that a thread reads what
# it copied itself, or that a warp writes where it alone has read; and behind its loop
# over rows nothing is shared any more. Older releases have some more.
IDLE_BARRIERS = {
    SOFTMAX[0]: {3},
    LAYER_NORM[0]: {1, 3},
    CROSS_ENTROPY[0]: {3},
    SOFTMAX_BACKWARD[0]: {1},
    LOSSES[0]: {1},
    SUM[1]: {0, 1},
    NORM_BACKWARD[1]: {4},
    PARTIALS[1]: {1},
}
if triton_version() < (3, 8):
    IDLE_BARRIERS |= {
        SUM[1]: {0, 1, 2},
        NORM_BACKWARD[1]: {0, 7},
        LOSSES[1]: {1, 3, 4},
        PARTIALS[1]: set(),
    }
elif triton_version() < (3, 9):
    IDLE_BARRIERS |= {SUM[1]: {0, 1, 2}, NORM_BACKWARD[1]: {0, 5}}
WITH_BARRIERS = (
    *SOFTMAX,
    *LAYER_NORM,
    *CROSS_ENTROPY,
    *SOFTMAX_BACKWARD,
    *SUM,
    *NORM_BACKWARD,
    *LOSSES,
    *PARTIALS,
)
NEAR = 8  # lines, between a barrier and an access that it orders


def outcome_of(subject: Subject, ptx: str) -> Outcome:
    """The first run that has something to report, as far as that, or the last."""
    found = run(subject, ORDERS[0], ptx, ends_at_fault=True)
    return found if found.reports else run(subject, ORDERS[1], ptx, ends_at_fault=True)


def test_all_who_wait_are_told() -> None:
    """One warpgroup waits for the other; another program asks for what they add."""
    subject = TURNS[1]
    fault = next(each for each in scores_of_triton() if each.title.endswith("products"))
    found = run(subject, ORDERS[0], fault.planted_in(subject))
    told = {(each.what, line) for each in found.reports for line in each.lines}
    for what, waits in ((ASKS, "is_from_last"), (STUCK, r"wait\(may_multiply")):
        assert any(what == says and re.search(waits, line) for says, line in told)


@needs_nvcc
def test_a_run_may_end_at_its_first_fault() -> None:
    subject = RING
    listing = listing_of(subject)
    inits = [e for e in listing.instructions if e.opcode.startswith("mbarrier.init")]
    ptx = planted(listing, inits, dropped)
    whole = run(subject, ORDERS[0], ptx)
    begun = run(subject, ORDERS[0], ptx, ends_at_fault=True)
    assert len(whole.reports) > 1
    assert begun.reports == whole.reports[:1]
    assert not begun.is_complete
    assert run(subject, ORDERS[0], ends_at_fault=True).is_clean


def is_near(barrier: Instruction, report: Report) -> bool:
    """Whether one of an op's lines that are told is one around a barrier."""
    file, _, line = places.in_op([barrier])[0].rpartition(":")
    told = [place.rpartition(":") for place in report.places]
    return any(
        other == file and abs(int(number) - int(line)) <= NEAR
        for other, _, number in told
    )


@pytest.mark.parametrize("subject", [of_subject(each, "") for each in WITH_BARRIERS])
def test_every_barrier_of_a_reduction_is_missed(subject: Subject) -> None:
    listing = listing_of(subject)
    barriers = [
        each
        for each in listing.instructions
        if each.opcode in ("bar.sync", "barrier.sync")
    ]
    assert barriers
    expected = run(subject, "")
    for number, barrier in enumerate(barriers):
        found = outcome_of(subject, planted(listing, [barrier], dropped))
        if number in IDLE_BARRIERS.get(subject, ()):
            assert found == expected, number
            continue
        assert found.reports, number
        first = found.reports[0]
        assert "in no order" in first.what or "never written" in first.what, number
        assert is_near(barrier, first), (number, first)


# ---- Faults --------------------------------------------------------------------------


@dataclass(frozen=True)
class Fault:
    """A fault, and how it is told."""

    title: str
    pick: str  # matches the text of the instructions that are edited
    line: str  # matches a source line that they come from
    edit: Edit
    says: str  # matches what is told first
    told_at: str  # matches a source line that this is told at
    numbers: tuple[int, ...] = ()  # those of the instructions that are, if not all
    # Counts only those before, or behind, the first instruction that matches this.
    before: str = ""
    behind: str = ""

    def planted_in(self, subject: Subject) -> str:
        """The kernel's PTX with the fault."""
        listing = listing_of(subject)
        instructions = listing.instructions
        end = _first(instructions, self.before) if self.before else None
        begin = _first(instructions, self.behind) if self.behind else 0
        found = [
            each
            for each in instructions[begin:end]
            if re.search(self.pick, each.text)
            and any(re.search(self.line, line) for line in source_lines(each))
        ]
        chosen = [found[number] for number in self.numbers] or found
        assert chosen
        return planted(listing, chosen, self.edit)


def _first(instructions: Sequence[Instruction], pick: str) -> int:
    return next(each.index for each in instructions if re.search(pick, each.text))


ALL: tuple[int, ...] = ()
FIRST, LAST = (0,), (-1,)

OUTSIDE = "out of bounds"
READS_OUTSIDE, WRITES_OUTSIDE = f"reads .*{OUTSIDE}", f"writes .*{OUTSIDE}"
UNWRITTEN = "reads shared memory at byte .*, never written"
RACE = "in no order"
STUCK = "waits for ever: the phase never ends"
ASKS = "waits for ever for what no block writes"
NO_MBARRIER = "names what is no mbarrier"
NOT_AWAITED = "is not waited for before the end"
TOO_EARLY = r"reads accumulators of a wgmma that no wgmma\.wait_group has waited for"
STILL_READ = "writes registers that are read by a wgmma that no wgmma.wait_group has"
UNFENCED = r"uses registers that no wgmma\.fence has handed over to it"

FOR_TWO = replaced(r"(1|%r\d+);", "2;")
ALL_IS_READ = replaced(r"(16|0x10|0x4|4), %r\d+;", r"\1, \1;")


def masks(load: str, store: str, *, are_branches: bool) -> Iterator[Fault]:
    """Loads and stores without a mask; a branch past the last of them is one."""
    pick = ("bra", "bra") if are_branches else (r"ld\.global", r"st\.global")
    edit, which = (dropped, LAST) if are_branches else (unguarded, ALL)
    yield Fault("load-mask", pick[0], load, edit, READS_OUTSIDE, load, which)
    yield Fault("store-mask", pick[1], store, edit, WRITES_OUTSIDE, store, which)


def places_of_rows() -> Iterator[Fault]:
    """A row of vectors that is loaded or stored beside its place."""
    load, store = r"ld\.global", r"st\.global"
    for step, title, which in ((-16, "too-low", FIRST), (16, "too-high", LAST)):
        edit = shifted(step)
        says = READS_OUTSIDE, WRITES_OUTSIDE
        yield Fault(f"load-{title}", load, "", edit, says[0], "load_row", which)
        yield Fault(f"store-{title}", store, "", edit, says[1], "store_row", which)
    between = "is not at a multiple of 16 bytes"
    yield Fault("load-between", load, "", shifted(4), between, "load_row", FIRST)


def slots_of_warps(told_at: str, size: int) -> Iterator[Fault]:
    """A slot for the result of a warp that is not written, or another one."""
    says = f"{UNWRITTEN}|shared memory, {OUTSIDE}"
    store, load = r"st\.shared", r"ld\.shared"
    yield Fault("no-slot", store, "", dropped, says, told_at, FIRST)
    yield Fault("store-next-slot", store, "", shifted(size), says, told_at, FIRST)
    yield Fault("load-next-slot", load, "", shifted(size), says, told_at, FIRST)


def copies(told_at: str) -> Iterator[Fault]:
    """Copies by threads that are not waited for."""
    wait = r"cp\.async\.wait_group"
    yield Fault("no-wait", wait, "", dropped, UNWRITTEN, told_at, FIRST)
    yield Fault("less-wait", wait, "", one_more_pending, UNWRITTEN, told_at, FIRST)


def commits(told_at: str) -> Iterator[Fault]:
    """Copies by threads that are in no group."""
    yield Fault("no-commit", "commit_group", "", dropped, UNWRITTEN, told_at)


def edges(matrix: str, line: str) -> Iterator[Fault]:
    """Copies that read all, where a tile lies across the edge of a matrix."""
    says = f"reads .* of {matrix}, {OUTSIDE}"
    yield Fault(f"all-of-{matrix}", r"cp\.async\.c[ag]", line, ALL_IS_READ, says, line)


def cluster_waits(results: str) -> Iterator[Fault]:
    """Blocks of a cluster that do not wait for each other."""
    wait = r"cluster\.wait"
    yield Fault("no-cluster-wait", wait, "", dropped, RACE, "mbarrier_init")
    yield Fault("no-wait", "try_wait", "", no_wait, UNWRITTEN, results)


def cluster_mbarriers(results: str) -> Iterator[Fault]:
    """The mbarriers of the blocks of a cluster, and what they are told."""
    arrive, init, wait = r"cluster\.arrive", r"mbarrier\.init", "mbarrier_wait"
    yield Fault("no-cluster-arrive", arrive, "", dropped, RACE, "mbarrier_init")
    yield Fault("no-init", init, "", dropped, NO_MBARRIER, "mbarrier_")
    yield Fault("init-for-two", init, "", FOR_TWO, STUCK, wait)
    yield Fault("no-bytes", "expect_tx", "", dropped, STUCK, wait)
    yield Fault("more-bytes", "expect_tx", "", more_bytes(4), STUCK, wait)
    yield Fault("no-send", r"st\.async", "", dropped, STUCK, wait)
    yield Fault("other-phase", "try_wait", "", other_parity, UNWRITTEN, results)


def phases_of_cuda() -> Iterator[Fault]:
    """The mbarriers of CUDA's ring of stages: each is full, or empty."""
    init, either = r"mbarrier\.init", r"mbarrier_wait\(&shared\.(full|empty)"
    full, empty = r"mbarrier_wait\(&shared\.full", r"mbarrier_wait\(&shared\.empty"
    product = "wgmma_m64k16"
    yield Fault("no-init", init, r"shared\.full", dropped, NO_MBARRIER, "full", FIRST)
    # Where two threads load, the other one waits for an empty stage meanwhile.
    yield Fault("full-for-two", init, r"shared\.full", FOR_TWO, STUCK, either)
    yield Fault("empty-for-two", init, r"shared\.empty", FOR_TWO, STUCK, empty)
    barrier = r"bar\.sync|barrier\.cluster"
    yield Fault("no-block-barrier", barrier, "", dropped, RACE, "mbarrier_init")
    yield Fault("no-wait-for-full", "try_wait", full, no_wait, UNWRITTEN, product)
    yield Fault("other-full", "try_wait", full, other_parity, UNWRITTEN, product)
    # The copies are a whole phase ahead of who waits for them.
    yield Fault("no-wait-for-empty", "try_wait", empty, no_wait, STUCK, full)
    yield Fault("other-empty", "try_wait", empty, other_parity, STUCK, either)
    yield Fault("no-bytes", "expect_tx", "", dropped, STUCK, either)
    yield Fault("more-bytes", "expect_tx", "", more_bytes(16), STUCK, either)
    half = more_bytes(-8192)
    yield Fault("half-the-bytes", "expect_tx", "", half, f"{RACE}|{UNWRITTEN}", product)
    arrive = r"mbarrier\.arrive\.shared"
    yield Fault("no-release", arrive, "", dropped, STUCK, empty)


def work_of_cuda() -> Iterator[Fault]:
    """Products of CUDA's warpgroups, and how their results are stored."""
    some, all_ = r"wgmma\.wait_group\S* 2", r"wgmma\.wait_group\S* 0"
    yield Fault("no-wait", some, "", dropped, RACE, "tma_load")
    yield Fault("less-wait", some, "", one_more_pending, RACE, "tma_load")
    rounded, product = "from_float<T>", "wgmma_m64k16"
    yield Fault("no-last-wait", all_, "", dropped, TOO_EARLY, rounded)
    commit, fence = r"wgmma\.commit_group", r"wgmma\.fence"
    yield Fault("no-commit", commit, "", dropped, TOO_EARLY, rounded)
    yield Fault("no-fence-of-registers", fence, "", dropped, UNFENCED, product)
    store = "tma_store"
    read = r"bulk\.wait_group\.read 1"
    yield Fault("no-wait-for-store", read, "", dropped, RACE, store)
    yield Fault("less-wait-for-store", read, "", one_more_pending, RACE, store)
    barrier = r"barrier\.sync"
    yield Fault("no-barrier-before", barrier, "", dropped, RACE, "stmatrix", (0, 3))
    yield Fault("no-barrier-behind", barrier, "", dropped, RACE, store, (1, 4))
    yield Fault("no-fence", r"fence\.proxy", "", dropped, r"fence\.proxy\.async", store)
    commit, end = r"bulk\.commit_group", r"bulk\.wait_group\.read 0"
    says = f"{RACE}|{NOT_AWAITED}"
    yield Fault("no-commit-of-store", commit, "", dropped, says, store)
    yield Fault("no-wait-before-end", end, "", dropped, NOT_AWAITED, store)


def work_on_float32() -> Iterator[Fault]:
    """Fragments, products and stores of CUDA's twin for float32."""
    full, empty = r"mbarrier_wait\(&shared\.full", r"mbarrier_wait\(&shared\.empty"
    fragment, product = "float x =", "wgmma_m64k8"
    yield Fault("no-wait-for-full", "try_wait", full, no_wait, UNWRITTEN, fragment)
    yield Fault("other-full", "try_wait", full, other_parity, UNWRITTEN, fragment)
    yield Fault("no-wait-for-empty", "try_wait", empty, no_wait, STUCK, full)
    arrive = r"mbarrier\.arrive\.shared"
    yield Fault("no-release", arrive, "", dropped, STUCK, empty)
    wait, commit, fence = r"wgmma\.wait_group", r"wgmma\.commit_group", r"wgmma\.fence"
    yield Fault("no-wait", wait, "", dropped, STILL_READ, product)
    yield Fault("no-commit", commit, "", dropped, STILL_READ, product)
    yield Fault("no-fence-of-registers", fence, "", dropped, UNFENCED, product)
    barrier, store = r"barrier\.sync", "tma_store"
    read = r"bulk\.wait_group\.read"
    yield Fault("no-wait-for-store", read, "", dropped, RACE, store, FIRST)
    yield Fault("no-wait-before-end", read, "", dropped, NOT_AWAITED, store, LAST)
    yield Fault("no-barrier-before", barrier, "", dropped, RACE, "place", FIRST)
    yield Fault("no-barrier-behind", barrier, "", dropped, RACE, store, LAST)
    yield Fault("no-fence", r"fence\.proxy", "", dropped, r"fence\.proxy\.async", store)


def bulk_of_triton() -> Iterator[Fault]:
    """The mbarriers that Triton makes, and the work that they tell of."""
    init, product, store = r"mbarrier\.init", r"tl\.dot", "out.store"
    wait = r"a_place|tl\.range"
    yield Fault("no-init", init, "", dropped, NO_MBARRIER, r"tl\.range", FIRST)
    yield Fault("init-for-two", init, "", FOR_TWO, STUCK, wait)
    # All before the loop: each orders what begins the mbarriers and who waits there.
    barrier, title = r"bar\.sync", "no-block-barriers"
    yield Fault(title, barrier, "", dropped, RACE, wait, before="try_wait")
    yield Fault("no-wait-for-full", "try_wait", "", no_wait, UNWRITTEN, product)
    yield Fault("other-full", "try_wait", "", other_parity, UNWRITTEN, product)
    yield Fault("no-bytes", "expect_tx", "", dropped, STUCK, wait)
    yield Fault("more-bytes", "expect_tx", "", more_bytes(16), STUCK, wait)
    half = more_bytes(-16384)
    yield Fault("half-the-bytes", "expect_tx", "", half, f"{RACE}|{UNWRITTEN}", product)
    some = r"wgmma\.wait_group\S* 1"
    yield Fault("no-wait", some, "", dropped, RACE, product)
    yield Fault("less-wait", some, "", one_more_pending, RACE, product)
    last, commit, fence = r"wgmma\.wait_group\S* 0", r"wgmma\.commit", r"wgmma\.fence"
    rounded = "epilogue"
    yield Fault("no-last-wait", last, "", dropped, TOO_EARLY, rounded)
    yield Fault("no-commit", commit, "", dropped, TOO_EARLY, rounded)
    yield Fault("no-fence-of-registers", fence, "", dropped, UNFENCED, product)
    # The last one is behind the loop over tiles.
    awaited = r"bulk\.wait_group(\.read)? 0"
    yield Fault("no-wait-for-store", awaited, "", dropped, RACE, store, FIRST)
    fence = r"fence\.proxy"
    before, behind = "no-barrier-before", "no-barrier-behind"
    yield Fault(before, barrier, "", dropped, RACE, store, LAST, before=fence)
    yield Fault(behind, barrier, "", dropped, RACE, store, FIRST, behind=fence)
    yield Fault("no-fence", fence, "", dropped, r"fence\.proxy\.async", store)
    commit = r"bulk\.commit_group"
    yield Fault("no-commit-of-store", commit, "", dropped, NOT_AWAITED, store)
    yield Fault("no-wait-before-end", awaited, "", dropped, NOT_AWAITED, store, LAST)


def work_of_gluon(reads: str, adds: str) -> Iterator[Fault]:
    """Stages, products and stores of Triton's twins whose warps differ.

    `reads` is the line that reads what has come, `adds` the one that has products.
    """
    full, empty, product, store = (
        "wait_for_tile",
        "wait_until_empty",
        "mma",
        "tma_store",
    )
    init, either = r"mbarrier\.init", f"{full}|{empty}"
    told_at = f"{either}|expect|nbytes"
    yield Fault("no-init", init, "", dropped, NO_MBARRIER, told_at, FIRST)
    yield Fault("init-for-two", init, "", FOR_TWO, STUCK, either, FIRST)
    yield Fault("no-wait-for-full", "try_wait", full, no_wait, UNWRITTEN, reads)
    yield Fault("other-full", "try_wait", full, other_parity, UNWRITTEN, reads)
    # The copies are a whole phase ahead of who waits for them.
    yield Fault("no-wait-for-empty", "try_wait", empty, no_wait, STUCK, full)
    yield Fault("no-bytes", "expect_tx", "", dropped, STUCK, either)
    half, says = more_bytes(-8192), f"{RACE}|{UNWRITTEN}|{STUCK}"
    told_at = f"{reads}|{product}|{full}"
    yield Fault("half-the-bytes", "expect_tx", "", half, says, told_at)
    arrive = r"mbarrier\.arrive\.shared"
    yield Fault("no-release", arrive, r"^release\(", dropped, STUCK, empty)
    wait, commit, fence = r"wgmma\.wait_group", r"wgmma\.commit", r"wgmma\.fence"
    says = f"{TOO_EARLY}|{STILL_READ}"
    yield Fault("no-wait", wait, "", dropped, says, f"{adds}|{reads}|{product}")
    yield Fault("no-commit", commit, "", dropped, says, f"{adds}|{reads}|{product}")
    yield Fault("no-fence-of-registers", fence, "", dropped, UNFENCED, product)
    read, fence = r"bulk\.wait_group(\.read)? 0", r"fence\.proxy"
    yield Fault("no-wait-for-store", read, "", dropped, RACE, store, FIRST)
    yield Fault("no-wait-before-end", read, "", dropped, NOT_AWAITED, store, LAST)
    told_at = f"{store}|{reads}"
    yield Fault("no-fence", fence, "", dropped, r"fence\.proxy\.async", told_at)


def fragments_of_gluon() -> Iterator[Fault]:
    """Fragments of the left operand that lie beside their place."""
    load, line = r"ld\.shared", r"load\(FRAGMENTS\)"
    far = shifted(1 << 17)
    yield Fault("load-beside", load, line, far, f"{UNWRITTEN}|{OUTSIDE}", line, FIRST)


def rows_without_copies() -> Iterator[Fault]:
    """Rows that are multiplied, and that nothing fills."""
    told_at = r"warpgroup_mma\("
    yield Fault("no-zeros", r"st\.shared", "zeros", dropped, UNWRITTEN, told_at)


def turns_of_cuda() -> Iterator[Fault]:
    """Blocks that do not tell of their turns, or not themselves."""
    arrive, told_at = r"mbarrier\.arrive", "load_acquire"
    coming, over = r"mbarrier_arrive\(&turn\.has_come", r"mbarrier_arrive\(&is_over"
    yield Fault("no-turn-told", r"red\.release", "", dropped, ASKS, told_at)
    yield Fault("turn-not-asked", arrive, coming, dropped, ASKS, told_at, FIRST)
    yield Fault("turn-not-let", arrive, coming, dropped, ASKS, told_at, LAST)
    yield Fault("turn-not-over", arrive, over, dropped, ASKS, told_at, FIRST)


def scores_of_cuda() -> Iterator[Fault]:
    """Gradients of scores that a warpgroup has not stored yet."""
    # The call's arguments are on the next line.
    wait, product = r"mbarrier_wait\($", "start_last_part"
    says = f"{RACE}|{UNWRITTEN}"
    yield Fault("no-wait-for-scores", "try_wait", wait, no_wait, says, product, FIRST)
    yield Fault("no-last-wait", "try_wait", wait, no_wait, says, product, LAST)
    barrier, own = r"named_barrier_sync\(2 \+", "start_grad_k|wgmma_m64k16"
    yield Fault("no-barrier-of-scores", r"barrier\.sync", barrier, dropped, says, own)
    fence = r"^ptx::fence_async_proxy\(\);$"
    title = "no-fence-of-scores"
    yield Fault(title, r"fence\.proxy", fence, dropped, r"fence\.proxy\.async", own)


def scores_of_triton() -> Iterator[Fault]:
    """Gradients of scores that a warpgroup has not stored yet, or the other multiplies.

    Those of three steps come first in shared memory, 32 KiB each.
    """
    wait, product = r"last_scores\(exchange, (count|n_all)\)$", "start_last_part"
    says = f"{RACE}|{UNWRITTEN}"
    yield Fault("no-wait-for-scores", "try_wait", wait, no_wait, says, product)
    store, two = r"store\(grad_scores\)", wrapped(2 * 32768)
    yield Fault("scores-of-two-steps", "stmatrix", store, two, RACE, product)
    # One program never goes on, and others ask whether it has added its parts.
    arrive, may = r"mbarrier\.arrive", r"arrive\(may_multiply"
    yield Fault("no-turn-of-products", arrive, may, dropped, ASKS, "is_from_last")


def place_of_step(line: str) -> Iterator[Fault]:
    """A step that is loaded before its place is free: its program never goes on."""
    yield Fault("no-wait-for-place", "try_wait", line, no_wait, ASKS, "is_from_last")


def barriers_of_products(lines: dict[int, str]) -> Iterator[Fault]:
    """Barriers of products by warps, by number: where each is told."""
    says = f"{RACE}|{UNWRITTEN}"
    for number, line in lines.items():
        title = f"no-barrier-{number}"
        yield Fault(title, r"bar\.sync", "", dropped, says, line, (number,))


def end_of_products() -> Iterator[Fault]:
    """Zeros are still on their way to where results are put, which have a mask."""
    wait, store = "wait_group 0", r"st\.global"
    yield Fault("no-last-wait", wait, "", dropped, RACE, "load_tile")
    yield Fault("store-mask", store, "", unguarded, WRITES_OUTSIDE, r"tl\.store")


FAULTS: list[tuple[Subject, Iterator[Fault]]] = [
    (ADD[0], masks("load_vec", r"store\(", are_branches=True)),
    (ADD[1], masks(r"x = load\(", r"store\(", are_branches=False)),
    (SHORT_SOFTMAX[0], masks("load_row", "store_row", are_branches=True)),
    (SHORT_SOFTMAX[1], masks("load_row", "store_row", are_branches=False)),
    *((each, places_of_rows()) for each in SOFTMAX),
    (SOFTMAX[0], slots_of_warps("block_reduce", 4)),
    (SOFTMAX[1], slots_of_warps(r"tl\.max", 4)),
    (SUM[0], slots_of_warps("column_reduce", 16)),
    (SUM[1], copies(r"tl\.load")),
    (SUM[1], commits(r"tl\.load")),
    (NORM_BACKWARD[0], copies("load_all")),
    (NORM_BACKWARD[0], commits("load_all")),
    (AMPERE_MATMUL[0], edges("b", r"b\.copy_to")),
    (AMPERE_MATMUL[0], barriers_of_products({0: "load_fragment", 2: r"store\("})),
    (AMPERE_MATMUL[1], copies(r"load_tile|tl\.load")),
    (AMPERE_MATMUL[1], edges("a", "a = load_tile")),
    (AMPERE_MATMUL[1], barriers_of_products({2: "load_tile", 4: "load_tile"})),
    (AMPERE_MATMUL[1], end_of_products()),
    (CLUSTER_SOFTMAX, cluster_waits(r"results\[")),
    (CLUSTER_SOFTMAX, cluster_mbarriers(r"results\[")),
    (CLUSTER_NORM, cluster_waits(r"results_\[")),
    (HOPPER_MATMUL[0], phases_of_cuda()),
    (HOPPER_MATMUL[0], work_of_cuda()),
    (FLOAT32[0], work_on_float32()),
    (FLOAT32[1], work_of_gluon(r"load\(FRAGMENTS\)", r"sums \+= products")),
    (FLOAT32[1], fragments_of_gluon()),
    (HOPPER_MATMUL[1], bulk_of_triton()),
    (FLOAT8, work_of_gluon(r"warpgroup_mma\(", r"sums \+ step_sums")),
    (FLOAT8, rows_without_copies()),
    (TURNS[0], turns_of_cuda()),
    (STEPS, scores_of_cuda()),
    (TURNS[1], scores_of_triton()),
    (TURNS[1], place_of_step(r"may_multiply\.index\(\d\), count & 1")),
    (SHORT_STEPS, place_of_step(r"last_scores\(exchange, count - N")),
]


@pytest.mark.parametrize(
    ("subject", "fault"),
    [
        of_subject(subject, f"-{fault.title}", fault)
        for subject, faults in FAULTS
        for fault in faults
    ],
)
def test_a_fault_is_told_with_its_source_line(subject: Subject, fault: Fault) -> None:
    found = outcome_of(subject, fault.planted_in(subject))
    assert found.reports
    first = found.reports[0]
    assert re.search(fault.says, first.what), first
    assert any(re.search(fault.told_at, line) for line in first.lines), first
