"""Whether generated code keeps what the description of its op promises of it."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import torch

from bindings.op import Op
from bindings.trial import CodeContract
from bindings.trials import TRIALS
from compare.assembly.classify import is_copy_to_global
from compare.assembly.listing import Instruction
from compare.assembly.places import in_sources
from compare.code import memory
from compare.code.findings.evidence import Subject
from compare.code.words import listed, opcodes
from compare.judge.cases import Case

if TYPE_CHECKING:  # importing the model imports Triton
    from compare.code.kernel_code import KernelCode

# The accesses to global memory, by the contract's word for them.
_GLOBAL = {
    "load": ("global load", "async copy"),
    "store": ("global store",),
}


def cases(op: Op, dtype: torch.dtype) -> tuple[Case, ...]:
    """The cases of an op's contract, if it has one: its shapes, in all variants."""
    trial = TRIALS[op.name]
    if trial.code_contract is None:
        return ()
    return tuple(
        Case(shape, dtype, params=params, direction=op.direction)
        for params in trial.variants
        for shape in trial.code_contract.shapes or (trial.large_shape,)
    )


def applies(op: Op, case: Case) -> bool:
    """Whether the contract of an op speaks of a case."""
    return any(
        replace(each, params=_params(op, each))
        == replace(case, params=_params(op, case))
        for each in cases(op, case.dtype)
    )


def _params(op: Op, case: Case) -> dict[str, object]:
    """The op's parameters, with the defaults of those that the case leaves out."""
    parameters = inspect.signature(op.allocate).parameters.values()
    return {**{each.name: each.default for each in parameters}, **case.params}


def violations(contract: CodeContract, code: KernelCode) -> tuple[str, ...]:
    """Finds breaches of an op's contract in the code of a case that it speaks of.

    Returns:
        A sentence for each: the side, the architecture, the kernel, what is expected,
        what is found, and where it comes from in the project's sources.
    """
    side = Subject(code)
    broken = [*_local_memory(code), *_float64(code), *_out_of_bounds(code)]
    if not any(each in code.title for each in contract.wasteful_kernels):
        broken += _widths(code, contract)
        broken += _missing(code, contract)
        broken += _waste(side, contract)
    return tuple(f"{side.name}, {code.arch}, {code.title}: {each}" for each in broken)


def _sentence(
    what: str, expected: object, found: object, proof: Sequence[Instruction] = ()
) -> str:
    places = in_sources(proof)
    at = f", at {listed(places)}" if places else ""
    return f"{what}: expected {expected}, found {found}{at}"


def _local_memory(code: KernelCode) -> Iterator[str]:
    if code.spill_bytes:
        what, found = "bytes that a thread spills", code.spill_bytes
    elif code.stack_bytes:
        what, found = "bytes of a thread in local memory", code.stack_bytes
    else:
        return
    yield _sentence(what, 0, found, code.sass.in_category("local memory"))


def _float64(code: KernelCode) -> Iterator[str]:
    # Moves and conversions as well.
    if proof := [each for each in code.ptx.instructions if ".f64" in each.opcode]:
        yield _sentence("float64", "no instructions", opcodes(proof), proof)


def _widths(code: KernelCode, contract: CodeContract) -> Iterator[str]:
    """The widest accesses of the PTX, which the assembler follows here.

    Narrow ones beside them are for ends that fill no vector.
    """
    if any(each in code.title for each in contract.narrow_kernels):
        return
    copies = code.ptx.in_category("tensor copy")
    for kind, categories in _GLOBAL.items():
        is_store = kind == "store"
        if (is_store and contract.is_reduction) or any(
            is_copy_to_global(each.opcode) == is_store for each in copies
        ):
            continue
        accesses = code.ptx.in_category(*categories)
        widest = max((each.access_bytes for each in accesses), default=0)
        if widest != contract.access_bytes:
            what = f"bytes of the widest global {kind}"
            proof = [each for each in accesses if each.access_bytes == widest]
            yield _sentence(what, contract.access_bytes, widest, proof)


def _missing(code: KernelCode, contract: CodeContract) -> Iterator[str]:
    """Instructions that the machine code has to have, and has not."""
    for name, patterns in contract.instructions.items():
        if name in code.title:
            opcodes_of_code = {each.opcode for each in code.sass.instructions}
            for pattern in patterns:
                if not any(re.match(pattern, each) for each in opcodes_of_code):
                    yield _sentence("instructions", pattern, "none")


def _out_of_bounds(code: KernelCode) -> Iterator[str]:
    first = {each.index: each for each in reversed(code.simulation.out_of_bounds)}
    for index, each in sorted(first.items()):
        yield _sentence(
            f"{'stores' if each.is_store else 'loads'} out of bounds",
            "none",
            f"thread {each.thread} of block {each.block} at byte {each.offset:,} of"
            f" {each.argument}",
            [code.ptx.instructions[index]],
        )


def _waste(side: Subject, contract: CodeContract) -> Iterator[str]:
    """Sectors and passes beyond those that warps need."""
    if side.accesses("global") is None or side.accesses("shared") is None:
        yield _sentence("accesses that cannot be counted", "none", _doubt(side))
        return
    may_conflict = any(each in side.code.title for each in contract.conflicting_kernels)
    for each in memory.movements(side.code.simulation):
        kind = "stores to" if each.is_store else "loads of"
        proof = [side.code.ptx.instructions[index] for index in each.instructions]
        is_free = each.is_store and contract.is_reduction
        if each.sectors > each.fewest_sectors and not is_free:
            what = f"32-byte sectors that {kind} {each.argument} touch"
            fewest, sectors = f"{each.fewest_sectors:,}", f"{each.sectors:,}"
            yield _sentence(what, fewest, sectors, proof)
        if each.bank_conflicts and not may_conflict:
            what = f"bank conflicts in {kind} {each.argument}"
            yield _sentence(what, 0, f"{each.bank_conflicts:,}", proof)


def _doubt(side: Subject) -> str:
    """Why some accesses cannot be counted."""
    simulation = side.code.simulation
    if not simulation.is_complete:
        return "threads that do not come to their end"
    if simulation.unknown_opcodes:
        return f"what the simulator does not know: {listed(simulation.unknown_opcodes)}"
    return "some that depend on data, or are made by no single thread"
