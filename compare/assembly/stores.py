"""Which parameters of a kernel point to memory that it stores to, by its PTX."""

from __future__ import annotations

import re
from collections import defaultdict

from compare.assembly.classify import is_copy_to_global
from compare.assembly.listing import Instruction, Listing

_REGISTER = re.compile(r"%[A-Za-z]+\d+")
_PARAMETER = re.compile(r"_param_(\d+)\b")
_STORES = ("st", "red", "atom", "multimem")


def stored_parameters(ptx: Listing) -> tuple[int, ...]:
    """The numbers, from 0, of the parameters that addresses of stores come from.

    They are followed back from each store or atomic operation, and from each copy to
    global memory, through arithmetic, but not through memory. Numbers such as strides,
    which addresses depend on as well, are among them.
    """
    makers: dict[str, list[Instruction]] = defaultdict(list)
    for each in ptx.instructions:
        if each.operands and not _is_store(each):
            for register in _REGISTER.findall(each.operands[0]):
                makers[register].append(each)
    found: set[int] = set()
    seen: set[str] = set()
    ahead = {
        register
        for each in ptx.instructions
        if _is_store(each)
        for register in _REGISTER.findall(_address_of(each))[:1]
    }
    while ahead:
        seen |= ahead
        sources = [
            " ".join(maker.operands[1:])
            for register in ahead
            for maker in makers[register]
            if maker.stem != "ld" or ".param" in maker.opcode
        ]
        found.update(int(each) for text in sources for each in _PARAMETER.findall(text))
        ahead = {each for text in sources for each in _REGISTER.findall(text)} - seen
    return tuple(sorted(found))


def _address_of(store: Instruction) -> str:
    """The operand in brackets that it writes to; an offset may follow its register."""
    return next((each for each in store.operands if each.startswith("[")), "")


def _is_store(instruction: Instruction) -> bool:
    """Whether it writes global memory."""
    if instruction.stem == "cp":
        return is_copy_to_global(instruction.opcode)
    return instruction.stem in _STORES and ".shared" not in instruction.opcode
