"""Compiled kernels, simulated as they are or with a fault planted in their PTX."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import launches
import numpy as np
import torch

from bindings.op import as_tuple
from bindings.registry import OPS
from bindings.sources import ROOT
from compare.assembly import places
from compare.assembly.listing import Instruction, Listing, parse_ptx
from compare.code import simulated_calls
from compare.code.architectures import ARCHITECTURES
from compare.code.kernel_code import Side
from compare.code.simulated_calls import KernelLaunch
from compare.judge.cases import Case, make_arguments
from compare.ptx_simulator import Buffer, Contents, Order, simulate


@dataclass(frozen=True)
class Subject:
    """A kernel that an op launches."""

    side: Side
    op: str
    shape: tuple[int, ...]
    dtype: torch.dtype
    kernel: int = 0  # its number among the op's launches
    # Blocks in x, if not as many as the op launches: fewer have more to do, each.
    blocks: int | None = None
    architecture: int = 90
    rung: str = ""  # what a call takes, or one of the op's
    precision: str = ""  # of float32, where the op has several

    @property
    def launch(self) -> launches.Launch:
        """The op's call, as `launches` takes it."""
        params = {"precision": self.precision} if self.precision else {}
        case = Case(self.shape, self.dtype, params=params)
        op = OPS[self.op].on_rung(self.rung) if self.rung else OPS[self.op]
        return op, case, ARCHITECTURES[self.architecture]

    def __str__(self) -> str:
        """What a test of it is called."""
        shape = "x".join(map(str, self.shape))
        kernel = f"-{self.kernel}" if self.kernel else ""
        precision = f"-{self.precision}" if self.precision else ""
        return (
            f"{self.side}-{self.op}-{shape}{precision}-sm_{self.architecture}{kernel}"
        )


@dataclass(frozen=True)
class Report:
    """What a run tells of an instruction, and of another one that takes part."""

    what: str
    lines: tuple[str, ...]  # the text of all source lines that the two come from
    places: tuple[str, ...]  # those in the op's own folder: "csrc/sum/twin.cuh:57"


@dataclass(frozen=True)
class Outcome:
    """A run of a kernel."""

    reports: tuple[Report, ...]
    is_complete: bool
    results: tuple[bytes, ...]  # all that was written

    @property
    def is_clean(self) -> bool:
        """Whether there is nothing to report."""
        return self.is_complete and not self.reports


# ---- Runs ----------------------------------------------------------------------------


@dataclass(frozen=True)
class _Kernel:
    """A kernel, and the memory that it is run on, before and during a run."""

    compiled: KernelLaunch
    before: tuple[Buffer, ...]
    during: tuple[Buffer, ...]


@functools.cache
def _kernel_of(subject: Subject) -> _Kernel:
    op, case, architecture = subject.launch
    if subject.side == "cuda":
        launches.compile_with_nvcc(op.source, architecture)
    arguments = make_arguments(op, case)
    outs = as_tuple(op.allocate(*arguments))
    memory, kernels = simulated_calls.launches_of(
        subject.side, op, op.arguments(*outs, *arguments), architecture, outs
    )
    for each in kernels[: subject.kernel]:
        simulate(each.listing, each.launch, contents=Contents(memory.buffers))
    compiled = kernels[subject.kernel]
    if subject.blocks is not None:
        launch = compiled.launch
        fewer = replace(launch, grid=(subject.blocks, *launch.grid[1:]))
        compiled = replace(compiled, launch=fewer)
    before = tuple(
        replace(
            each,
            content=each.content.copy(),
            written=None if each.written is None else each.written.copy(),
        )
        for each in memory.buffers
    )
    return _Kernel(compiled, before, memory.buffers)


def listing_of(subject: Subject) -> Listing:
    """The kernel's PTX."""
    return _kernel_of(subject).compiled.listing


def run(
    subject: Subject,
    order: Order,
    ptx: str | None = None,
    *,
    ends_at_fault: bool = False,
) -> Outcome:
    """Runs a kernel, which may have other PTX than its own."""
    kernel = _kernel_of(subject)
    for old, new in zip(kernel.before, kernel.during, strict=True):
        new.content[:] = old.content
        if old.written is not None and new.written is not None:
            new.written[:] = old.written
    listing = kernel.compiled.listing
    if ptx is not None:
        listing = parse_ptx(ptx, listing.kernel)
    contents = Contents(kernel.during)
    done = simulate(
        listing,
        kernel.compiled.launch,
        contents=contents,
        ends_at_fault=ends_at_fault,
        order=order,
    )
    told = [
        (each.what, [i for i in (each.index, each.other) if i is not None])
        for each in done.faults
    ]
    told += [("goes an unknown way", [index]) for index in done.unknown_branches]
    return Outcome(
        reports=tuple(_report(listing, *each) for each in told),
        is_complete=done.is_complete,
        results=tuple(
            np.where(each.written, each.content, 0).tobytes()
            for each in kernel.during
            if each.written is not None
        ),
    )


def _report(listing: Listing, what: str, indices: Sequence[int]) -> Report:
    instructions = [listing.instructions[index] for index in indices]
    lines = [line for each in instructions for line in source_lines(each)]
    return Report(what, tuple(lines), places.in_op(instructions))


def source_lines(instruction: Instruction) -> tuple[str, ...]:
    """The text of the project's lines that an instruction comes from.

    Triton 3.6 takes some lines for those of another file, which may have fewer.
    """
    return tuple(
        line.strip()
        for frame in instruction.frames
        if (file := places.project_file(frame.file))
        for line in _lines_of(file)[frame.line - 1 : frame.line]
    )


@functools.cache
def _lines_of(file: str) -> list[str]:
    return (ROOT / file).read_text(encoding="utf-8").splitlines()


# ---- Edits ---------------------------------------------------------------------------

Edit = Callable[[str], str]  # takes the text of a statement, and gives what replaces it


def planted(listing: Listing, chosen: Sequence[Instruction], edit: Edit) -> str:
    """The PTX with some statements edited, each of which has a line of its own."""
    lines = listing.text.split("\n")
    for each in chosen:
        line = lines[each.text_line - 1]
        assert each.opcode in line, line
        assert line.count(";") == 1, line
        lines[each.text_line - 1] = edit(line)
    return "\n".join(lines)


def dropped(statement: str) -> str:
    """Nothing."""
    return ""


def unguarded(statement: str) -> str:
    """The statement without its predicate."""
    return re.sub(r"@!?%\w+\s+", "", statement)


def replaced(old: str, new: str) -> Edit:
    """The statement with other text for what a pattern matches."""

    def edit(statement: str) -> str:
        result, count = re.subn(old, new, statement)
        assert count, f"no {old} in {statement}"
        return result

    return edit


def shifted(n_bytes: int) -> Edit:
    """The statement with its first address so many bytes further on."""

    def edit(statement: str) -> str:
        found = re.search(r"\[ ?(%\w+)\s*(?:\+\s*(-?\d+))?\s*\]", statement)
        assert found, statement
        address = f"[{found[1]}+{int(found[2] or 0) + n_bytes}]"
        return statement.replace(found[0], address)

    return edit


def wrapped(n_bytes: int) -> Edit:
    """The statement with its address, which nobody needs again, in so many first bytes.

    n_bytes: A power of two.
    """

    def edit(statement: str) -> str:
        found = re.search(r"\[(%\w+)(?:\+(\d+))?\]", statement)
        assert found, statement
        address, offset = found[1], found[2] or 0
        placed = statement.replace(found[0], f"[{address}]")
        added = f"add.s32 {address}, {address}, {offset};"
        return f"{added} and.b32 {address}, {address}, {n_bytes - 1}; {placed}"

    return edit


def one_more_pending(statement: str) -> str:
    """A `wait_group` that is content with one group less."""
    return re.sub(r"(\d+);", lambda found: f"{int(found[1]) + 1};", statement)


def more_bytes(number: int) -> Edit:
    """An `expect_tx` of so many bytes more."""

    def edit(statement: str) -> str:
        found = re.search(r"(%?\w+);", statement)
        assert found, statement
        if found[1].isdigit():
            return statement.replace(found[0], f"{int(found[1]) + number};")
        change = f"add.s32 {found[1]}, {found[1]}, "
        return f"{change}{number}; {statement} {change}{-number};"

    return edit


def no_wait(statement: str) -> str:
    """A `try_wait` that takes every phase for ended."""
    return re.sub(r"mbarrier\S* (\w+),.*;", r"setp.eq.u32 \1, 0, 0;", statement)


def other_parity(statement: str) -> str:
    """A `try_wait` for the phase before or behind the right one."""
    found = re.search(r"(%\w+);", statement)
    assert found, statement
    flip = f"xor.b32 {found[1]}, {found[1]}, 1;"
    return f"{flip} {statement} {flip}"
