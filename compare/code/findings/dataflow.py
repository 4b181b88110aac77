"""Where the values in PTX registers come from, as far as the text tells."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import cached_property

from compare.assembly.listing import Instruction, Listing

_REGISTER = re.compile(r"%[\w.]+")
_FLOAT = re.compile(r"0[fF]([\da-fA-F]{8})")
_INTEGER = re.compile(r"-?(?:0x[\da-fA-F]+|\d+)")
_WITHOUT_RESULT = frozenset({"st", "bra", "bar", "barrier", "red", "cp", "ret"})
_MOST_MOVES = 3  # between a value and the instruction that takes it

_ALL_BITS = (1 << 64) - 1


class Dataflow:
    """Follows values in one listing of PTX."""

    def __init__(self, ptx: Listing) -> None:
        """Looks nothing up yet."""
        self.instructions = ptx.instructions

    def origin(self, register: str, before: int) -> Instruction | None:
        """The last instruction above this one that writes the register."""
        for index in reversed(self.writers(register)):
            if index < before:
                return self.instructions[index]
        return None

    def writers(self, register: str) -> Sequence[int]:
        """The instructions that write a register, in the order of the text."""
        return self._writers.get(register, ())

    def sources(self, instruction: Instruction) -> list[Instruction]:
        """The instructions that compute the registers which one reads."""
        registers = _REGISTER.findall(" ".join(instruction.operands[1:]))
        found = (self.origin(each, instruction.index) for each in registers)
        return [each for each in found if each]

    def origins(self, instruction: Instruction, position: int) -> list[Instruction]:
        """Those that compute an operand's registers, past the moves in between."""
        found = []
        waiting = [(instruction.index, instruction.operands[position], _MOST_MOVES)]
        while waiting:
            index, operand, moves = waiting.pop()
            for register in _REGISTER.findall(operand):
                origin = self.origin(register, index)
                if origin and moves and origin.opcode.startswith("mov."):
                    waiting.append((origin.index, origin.operands[1], moves - 1))
                elif origin:
                    found.append(origin)
        return found

    def constants(self, instruction: Instruction) -> frozenset[int]:
        """The bits of the constants among the operands, also of those in registers.

        A pair of numbers in one operand counts as both.
        """
        return frozenset(self._constants(instruction, _MOST_MOVES))

    def _constants(self, instruction: Instruction, moves: int) -> Iterator[int]:
        for operand in instruction.operands[1:]:
            for token in re.split(r"[{},\s]+", operand):
                bits = _constant(token)
                if bits is not None:
                    yield bits & 0xFFFFFFFF
                    yield bits >> 32
                elif moves and token.startswith("%"):
                    origin = self.origin(token, instruction.index)
                    if origin and origin.opcode.startswith("mov."):
                        yield from self._constants(origin, moves - 1)

    @cached_property
    def _writers(self) -> dict[str, list[int]]:
        writers: dict[str, list[int]] = {}
        for each in self.instructions:
            if each.operands and each.stem not in _WITHOUT_RESULT:
                for register in _REGISTER.findall(each.operands[0]):
                    writers.setdefault(register, []).append(each.index)
        return writers


def _constant(token: str) -> int | None:
    """The bits of a constant as PTX writes it, or None if it is none."""
    if found := _FLOAT.fullmatch(token):
        return int(found[1], 16)
    return int(token, 0) & _ALL_BITS if _INTEGER.fullmatch(token) else None
