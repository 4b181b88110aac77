"""Reads the operands of instructions: once, before anything is run."""

import functools
import operator
import re
from collections.abc import Callable, Container

import numpy as np

from compare.assembly.listing import Instruction, Listing
from compare.ptx_simulator.asynchronous import Product
from compare.ptx_simulator.batch import Batch
from compare.ptx_simulator.declarations import Declarations, Register
from compare.ptx_simulator.group import WARP, Group
from compare.ptx_simulator.spaces import WINDOWS, Addresses
from compare.ptx_simulator.values import (
    BOOL,
    U32,
    U64,
    Bits,
    Dtype,
    PtxType,
    Value,
    constant,
    parse_type,
    unknown,
)

# Gives the value of an operand in a group; addresses are signed numbers of 64 bits.
Operand = Callable[[Batch, Group], Value]

_INTEGER = re.compile(r"(-?)(0[xX][\da-fA-F]+|0[bB][01]+|0[0-7]*|[1-9]\d*)U?")
_FLOAT = re.compile(r"0[fF]([\da-fA-F]{8})|0[dD]([\da-fA-F]{16})")
_DECIMAL = re.compile(r"-?(\d+\.\d*|\.\d+|\d+(?=[eE]))([eE][-+]?\d+)?")
_COORDINATES = re.compile(r"\{[^{}]*\}")
_ADDRESS = re.compile(r"\[\s*([%\w$.]+)\s*(?:\+\s*([-\w]+))?\s*(?:,.*)?\]")


class UnmodelledError(LookupError):
    """A form of an instruction that cannot be simulated."""


class Decoder:
    """A kernel's names: what the operands of its instructions refer to.

    Attributes:
        parameters: the names of the kernel's parameters, in order.
        addresses: of the kernel's variables.
        dtypes: of the registers, by slot.
        specials: the slots of registers that have a meaning, by name.
    """

    def __init__(self, listing: Listing) -> None:
        """Reads the declarations."""
        self.declarations = Declarations(listing)
        self.parameters = self.declarations.parameters
        self.addresses = Addresses(listing, self.declarations)
        self.dtypes: list[Dtype] = []
        self.specials: dict[str, int] = {}
        self._slots: dict[Register, int] = {}
        self._listing = listing

    @functools.cached_property
    def _written(self) -> set[Register]:
        """The registers that any instruction has as its first operand."""
        found = (
            self.declarations.register(each.index, name)
            for each in self._listing.instructions
            for name in _parts(each.operands[0] if each.operands else "")
        )
        return {each for each in found if each is not None}

    def is_never_written(self, index: int, name: str) -> bool:
        """Whether a register has no value, whichever way a thread goes."""
        register = self.declarations.register(index, name)
        return register is not None and register not in self._written

    def register(self, index: int, name: str) -> int | None:
        """The slot of a register; None if there is none, or none so wide."""
        register = self.declarations.register(index, name)
        if register is None or register.type.dtype is None:
            return None
        if register not in self._slots:
            self._slots[register] = self._new_slot(register.type.dtype)
        return self._slots[register]

    def special(self, name: str) -> int:
        """The slot of a register that has a meaning."""
        if name not in self.specials:
            self.specials[name] = self._new_slot(U64 if "64" in name else U32)
        return self.specials[name]

    def _new_slot(self, dtype: Dtype) -> int:
        self.dtypes.append(dtype)
        return len(self.dtypes) - 1


class Decoded:
    """An instruction, taken apart.

    Attributes:
        stem: the first part of the opcode.
        modifiers: its other parts.
        types: the types among them.
        spaces: the spaces among them; `shared` also of `shared::cta`.
        reads: the slots of the registers that were asked for.
        writes: the slots of the destinations that were.
        product: the registers of a product of a warpgroup, if it is one.
    """

    def __init__(self, decoder: Decoder, instruction: Instruction) -> None:
        """Takes the opcode apart; operands are read when they are asked for."""
        self.decoder = decoder
        self.instruction = instruction
        self.stem, *self.modifiers = instruction.opcode.split(".")
        self.types = [found for each in self.modifiers if (found := parse_type(each))]
        names = (each.partition("::")[0] for each in self.modifiers)
        self.spaces = [each for each in names if each in WINDOWS]
        self.reads: set[int] = set()
        self.writes: list[int] = []
        self.product: Product | None = None

    @property
    def type(self) -> PtxType:
        """The type of the operands: the last that the opcode names."""
        return self.types[-1] if self.types else PtxType("b", 32)

    @property
    def dtype(self) -> Dtype:
        """The numpy type of the operands.

        Raises:
            UnmodelledError: there is none, see `PtxType.dtype`.
        """
        if self.type.dtype is None:
            raise UnmodelledError
        return self.type.dtype

    @property
    def count(self) -> int:
        """The number of operands."""
        return len(self.instruction.operands)

    def has(self, modifier: str) -> bool:
        """Whether a part of the opcode is this one."""
        return modifier in self.modifiers

    def one_of(self, modifiers: Container[str]) -> str:
        """The first part of the opcode that is one of these.

        Raises:
            UnmodelledError: none is.
        """
        for each in self.modifiers:
            if each in modifiers:
                return each
        raise UnmodelledError

    def text(self, position: int) -> str:
        """An operand as it is written."""
        return self.instruction.operands[position]

    def destinations(self) -> list[int | None]:
        """The registers that the first operand names: `{a, b}`, `p|q`, `a`.

        None stands for what is thrown away, or cannot be held.
        """
        slots = self.slots(0)
        self.writes += [slot for slot in slots if slot is not None]
        return slots

    def slots(self, position: int) -> list[int | None]:
        """The registers that an operand names, which may be a vector."""
        return [
            self.decoder.register(self.instruction.index, name)
            for name in _parts(self.text(position))
        ]

    def destination(self) -> int | None:
        """The register that the first operand names."""
        return self.destinations()[0]

    def sources(self, position: int, dtype: Dtype | None) -> list[Operand]:
        """The values of an operand that may be a vector."""
        return [self._source(text, dtype) for text in _parts(self.text(position))]

    def packed(self, position: int) -> list[Operand]:
        """The values of a vector that is put together.

        A register that is never written stands for 0: compilers fill up with one where
        nobody looks at a part.
        """
        index = self.instruction.index
        return [
            _or_zero(self._source(text, None))
            if self.decoder.is_never_written(index, text)
            else self._source(text, None)
            for text in _parts(self.text(position))
        ]

    def source(self, position: int, dtype: Dtype | None) -> Operand:
        """The value of an operand in this type; None leaves it in its own."""
        return self._source(self.text(position), dtype)

    def address(self, position: int) -> Operand:
        """The address that an operand in brackets stands for, in its own space.

        The sum of a register of 32 bits and an offset has 32 bits: compilers have
        registers that stand for less than 0.
        """
        found = _ADDRESS.fullmatch(self.text(position))
        offset = parse_integer(found[2] or "0") if found else None
        if found is None or offset is None:
            return lambda batch, group: unknown(U64)
        base = self._source(found[1], None)

        def place(bits: Bits) -> Bits:
            if bits.dtype == U64:  # nothing is moved
                address = bits.view(np.int64)
                return address + offset if offset else address
            if offset and bits.dtype == U32:
                bits = bits + U32.type(offset % (1 << 32))
            return bits.astype(np.int64)

        return mapped(base, place)

    def coordinates(self, position: int) -> list[Operand]:
        """The numbers in braces within an operand in brackets: `[%rd1, {%r1, 0}]`."""
        found = _COORDINATES.search(self.text(position))
        return [self._source(each, U32) for each in _parts(found[0])] if found else []

    def _source(self, text: str, dtype: Dtype | None) -> Operand:
        """The value of what is written; a number without a type has 64 bits."""
        if text.startswith("!"):
            return mapped(self._source(text[1:].lstrip(), BOOL), operator.invert)
        slot = self.decoder.register(self.instruction.index, text)
        if slot is None and text.startswith("%"):
            slot = self.decoder.special(text)
        if slot is not None:
            self.reads.add(slot)
            register = _register(slot)
            if dtype is None or dtype == self.decoder.dtypes[slot]:
                return register
            return mapped(register, lambda bits: bits.astype(dtype))
        number = WARP if text == "WARP_SZ" else parse_integer(text)
        if number is None and dtype is not None:
            number = _decimal(text, dtype)
        if number is None:
            number = self.decoder.addresses.by_name.get(text)
        wanted = U64 if dtype is None else dtype
        value = unknown(wanted) if number is None else constant(number, wanted)
        return lambda batch, group: value


def parse_integer(text: str) -> int | None:
    """The number that is written, of a float its bits; None if it is no number."""
    if found := _FLOAT.fullmatch(text):
        return int(found[1] or found[2], 16)
    found = _INTEGER.fullmatch(text)
    if found is None:
        return None
    # An octal number has no letter behind its zero.
    return int(found[1] + re.sub(r"^0(?=\d)", "0o", found[2]), 0)


def _decimal(text: str, dtype: Dtype) -> int | None:
    """The bits of a number such as 0.5, which is written for floating point alone."""
    if not _DECIMAL.fullmatch(text) or dtype.itemsize not in (4, 8):
        return None
    number = np.array(float(text), f"f{dtype.itemsize}")
    return int(number.view(f"u{dtype.itemsize}"))


def _parts(text: str) -> list[str]:
    """The registers of `{a, b}` and of `p|q`."""
    separator = "," if text.startswith("{") else "|"
    return [each.strip() for each in text.strip("{} ").split(separator)]


def _or_zero(operand: Operand) -> Operand:
    """An operand, or 0 if nothing is known of it."""
    zero = constant(0, U64)

    def value(batch: Batch, group: Group) -> Value:
        found = operand(batch, group)
        return zero if found.known is False else found

    return value


def _register(slot: int) -> Operand:
    return lambda batch, group: batch.read(slot, group)


def mapped(operand: Operand, function: Callable[[Bits], Bits]) -> Operand:
    """A function of an operand, known where this is."""

    def value(batch: Batch, group: Group) -> Value:
        bits, known = operand(batch, group)
        return Value(function(bits), known)

    return value
