"""Addresses of PTX as sums, so that one sees which of them lie side by side."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

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


class Addresses:
    """The addresses in one listing, on the assumption that nothing overflows."""

    def __init__(self, flow: Dataflow) -> None:
        """Computes nothing yet."""
        self._flow = flow

    def of(self, access: Instruction) -> Sum | None:
        """Where a load or store goes; None if that is no register and number."""
        for operand in access.operands:
            found = _ADDRESS.fullmatch(operand)
            if found and (origin := self._flow.origin(found[1], access.index)):
                return self._sums[origin.index].plus(Sum({}, int(found[2] or 0)))
        return None

    def unit(self, term: int) -> int:
        """A power of two that divides a term, whatever its value."""
        bits = self._bits[term]
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

    # ---- Sums ------------------------------------------------------------------------

    @cached_property
    def _sums(self) -> dict[int, Sum]:
        """The result of each instruction; a term of its own if it is no sum."""
        sums: dict[int, Sum] = {}
        for each in self._flow.instructions:
            if each.operands:
                sums[each.index] = self._sum(each, sums) or Sum({each.index: 1}, 0)
        return sums

    def _sum(self, instruction: Instruction, sums: Mapping[int, Sum]) -> Sum | None:
        if not self._is_plain(instruction):
            return None
        values = []
        for operand in instruction.operands[1:]:
            number = integer(operand)
            if number is not None:
                values.append(Sum({}, number))
            elif origin := self._flow.origin(operand, instruction.index):
                values.append(sums[origin.index])
            else:
                return None
        stem, *modifiers = instruction.opcode.split(".")
        if stem in ("mov", "cvt", "cvta"):
            return values[0]
        if stem == "add" or (stem == "or" and self._is_disjoint(instruction)):
            return values[0].plus(values[1])
        if stem == "sub":
            return values[0].plus(values[1].times(-1))
        if stem == "shl" and not values[1].terms:
            return values[0].times(1 << values[1].number)
        if stem in ("mul", "mad") and "hi" not in modifiers and not values[1].terms:
            product = values[0].times(values[1].number)
            return product.plus(values[2]) if stem == "mad" else product
        return None

    def _is_plain(self, instruction: Instruction) -> bool:
        """Whether a register always holds what this instruction makes of integers."""
        return (
            len(self._flow.writers(instruction.operands[0])) == 1
            and not instruction.predicate
            and not _FLOATING.search(instruction.opcode)
        )

    def _is_disjoint(self, instruction: Instruction) -> bool:
        """Whether `or` adds, because no bit can be set in both operands."""
        left, right = self._operand_bits(instruction, self._bits)
        return not left & right

    # ---- Bits ------------------------------------------------------------------------

    @cached_property
    def _bits(self) -> dict[int, int]:
        """The bits that can be set in the result of each instruction."""
        bits: dict[int, int] = {}
        for each in self._flow.instructions:
            if each.operands:
                is_plain = self._is_plain(each)
                bits[each.index] = (
                    self._result_bits(each, bits) if is_plain else ALL_BITS
                )
        return bits

    def _operand_bits(
        self, instruction: Instruction, known: Mapping[int, int]
    ) -> list[int]:
        found = []
        for operand in instruction.operands[1:]:
            number = constant(operand)
            if number is not None:
                found.append(number)
            elif origin := self._flow.origin(operand, instruction.index):
                found.append(known[origin.index])
            else:
                found.append(_PLACES.get(operand, ALL_BITS))
        return found

    def _result_bits(self, instruction: Instruction, known: Mapping[int, int]) -> int:
        stem, *modifiers = instruction.opcode.split(".")
        bits = self._operand_bits(instruction, known)
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
