"""Addresses of PTX as sums, so that one sees which of them lie side by side."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from compare.assembly.listing import Instruction
from compare.code.findings.dataflow import (
    ALL_BITS,
    REGISTER_BITS,
    Dataflow,
    constant,
    integer,
)

_ADDRESS = re.compile(r"\[\s*(%\w+)\s*(?:\+\s*(-?\d+))?\s*\]")
_FLOATING = re.compile(r"\.b?f(?:16|32|64)(?:x2)?\b")
# The bits that the numbers of a thread can have.
_PLACES = {"%tid.x": 1023, "%tid.y": 1023, "%tid.z": 63, "%laneid": 31}


@dataclass(frozen=True)
class Sum:
    """An integer as a sum: of terms, each with a factor, and of a number.

    Two addresses with the same terms are always as far apart as their numbers.
    """

    terms: Mapping[int, int]  # their factors, by the instruction that computes the term
    number: int  # what is added to them

    def times(self, factor: int) -> Sum:
        """The product."""
        terms = {term: each * factor for term, each in self.terms.items()}
        return Sum(terms, self.number * factor)

    def plus(self, other: Sum) -> Sum:
        """The sum."""
        terms = dict(self.terms)
        for term, factor in other.terms.items():
            terms[term] = terms.get(term, 0) + factor
        kept = {term: factor for term, factor in terms.items() if factor}
        return Sum(kept, self.number + other.number)


@dataclass(frozen=True)
class _Value:
    """Knowledge of an integer."""

    sum: Sum | None
    bits: int  # those that can be set


class Addresses:
    """The addresses in one listing, on the assumption that nothing overflows."""

    def __init__(self, flow: Dataflow) -> None:
        """Follows the values of all instructions, in the order of the text."""
        self._flow = flow
        self._results: dict[int, _Value] = {}
        for each in flow.instructions:
            if each.operands:
                self._results[each.index] = self._result(each)

    def of(self, access: Instruction) -> Sum | None:
        """Where a load or store goes; None if that is no register and number."""
        for operand in access.operands:
            found = _ADDRESS.fullmatch(operand)
            if found and (base := self._operand(found[1], access.index).sum):
                return base.plus(Sum({}, int(found[2] or 0)))
        return None

    def unit(self, term: int) -> int:
        """A power of two that divides a term, whatever its value."""
        bits = self._results[term].bits
        return bits & -bits or 1 << REGISTER_BITS

    def is_place(self, term: int) -> bool:
        """Whether a term says which thread it is, and depends on no argument."""
        seen: set[int] = set()
        waiting = [self._flow.instructions[term]]
        while waiting:
            each = waiting.pop()
            if each.category == "parameter / constant" or each.access_bytes:
                return False
            if each.index not in seen:
                seen.add(each.index)
                waiting += self._flow.sources(each)
        return True

    def _result(self, instruction: Instruction) -> _Value:
        """The result of an instruction; a term of its own if it is no sum."""
        own = Sum({instruction.index: 1}, 0)
        if not self._is_plain(instruction):
            return _Value(own, ALL_BITS)
        operands = [
            self._operand(each, instruction.index) for each in instruction.operands[1:]
        ]
        bits = [each.bits for each in operands]
        sums = [each.sum for each in operands if each.sum]
        found = _sum(instruction, sums, bits) if len(sums) == len(operands) else None
        return _Value(found or own, _bits(instruction, bits))

    def _operand(self, operand: str, index: int) -> _Value:
        if origin := self._flow.origin(operand, index):
            return self._results[origin.index]
        number, bits = integer(operand), constant(operand)
        if bits is None:
            bits = _PLACES.get(operand, ALL_BITS)
        return _Value(None if number is None else Sum({}, number), bits)

    def _is_plain(self, instruction: Instruction) -> bool:
        """Whether a register always holds what this instruction makes of integers."""
        return (
            len(self._flow.writers(instruction.operands[0])) == 1
            and not instruction.predicate
            and not _FLOATING.search(instruction.opcode)
        )


def _sum(
    instruction: Instruction, values: Sequence[Sum], bits: Sequence[int]
) -> Sum | None:
    """The result as a sum, of operands of which these bits can be set."""
    stem, *modifiers = instruction.opcode.split(".")
    if stem in ("mov", "cvt", "cvta"):
        return values[0]
    # Where no bit can be set in both operands, `or` adds.
    if stem == "add" or (stem == "or" and not bits[0] & bits[1]):
        return values[0].plus(values[1])
    if stem == "sub":
        return values[0].plus(values[1].times(-1))
    if stem == "shl" and not values[1].terms:
        return values[0].times(1 << values[1].number)
    if stem in ("mul", "mad") and "hi" not in modifiers and not values[1].terms:
        product = values[0].times(values[1].number)
        return product.plus(values[2]) if stem == "mad" else product
    return None


def _bits(instruction: Instruction, bits: Sequence[int]) -> int:
    """The bits that can be set in the result, from those of the operands."""
    stem, *modifiers = instruction.opcode.split(".")
    if stem == "and":
        return bits[0] & bits[1]
    if stem == "or":
        return bits[0] | bits[1]
    if stem in ("mov", "cvt", "cvta"):
        return _from_lowest(bits[0]) if "s32" in modifiers else bits[0]
    if stem == "shl" and instruction.operands[-1].isdigit():
        return bits[0] << bits[1] & ALL_BITS
    if stem == "shr" and instruction.operands[-1].isdigit():
        return bits[0] >> bits[1]
    if stem == "add":
        return _from_lowest(bits[0] | bits[1])
    if stem in ("mul", "mad") and "hi" not in modifiers:
        product = (bits[0] & -bits[0]) * (bits[1] & -bits[1])
        return _from_lowest(product | sum(bits[2:]))
    return ALL_BITS


def _from_lowest(bits: int) -> int:
    """The lowest bit that is set, and all above it."""
    return -(bits & -bits) & ALL_BITS
