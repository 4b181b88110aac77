"""The value of a register in all threads at once.

All is exact that is known. Where tensors have no contents, what comes from them is
unknown, in some threads or in all of them.
"""

import functools
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

Bits = npt.NDArray[Any]  # of an unsigned type, or bool for a predicate
Mask = npt.NDArray[np.bool_]
Lanes = npt.NDArray[np.int64]
Dtype = np.dtype[Any]
Known = bool | Mask  # one answer for all lanes, or one for each

BOOL: Dtype = np.dtype(np.bool_)
U8: Dtype = np.dtype(np.uint8)
U32: Dtype = np.dtype(np.uint32)
U64: Dtype = np.dtype(np.uint64)


class Value(NamedTuple):
    """Bits, and whether they are known.

    Attributes:
        bits: one for each lane, or a single one that is the same in all lanes. Where
            the value is not known they mean nothing.
    """

    bits: Bits
    known: Known


@dataclass(frozen=True)
class PtxType:
    """A type as an opcode names it."""

    # `b` for bits without a meaning, `u` and `s` for integers, `f` for floating point,
    # also several numbers of it in one register, `x` for several integers in one
    # register, `p` for predicates.
    kind: Literal["b", "u", "s", "f", "x", "p"]
    bits: int  # how wide it is

    @property
    def bytes(self) -> int:
        """Its width in memory."""
        return self.bits // 8

    @functools.cached_property
    def dtype(self) -> Dtype | None:
        """The numpy type of its bits; None if several integers or more than 64 bits."""
        if self.kind == "p":
            return BOOL
        if self.kind == "x" or self.bits > 64:
            return None
        return np.dtype(f"u{self.bytes}")

    def numbers(self, bits: Bits) -> Bits:
        """Bits of this width as numbers: in two's complement if the type has a sign."""
        return signed(bits) if self.kind == "s" else bits


_SCALAR = re.compile(r"([busf])(\d+)(x\d)?")
_OTHER_TYPES = {
    "pred": PtxType("p", 1),
    "bf16": PtxType("f", 16),
    "bf16x2": PtxType("f", 32),
    "tf32": PtxType("f", 32),
}


@functools.cache
def parse_type(text: str) -> PtxType | None:
    """The type of this name, without the dot; None if the name is not one of a type."""
    found = _SCALAR.fullmatch(text)
    if found is None:
        return _OTHER_TYPES.get(text)
    kind: Any = "x" if found[3] and found[1] != "f" else found[1]
    return PtxType(kind, int(found[2]) * int((found[3] or "x1")[1:]))


@functools.cache
def unknown(dtype: Dtype) -> Value:
    """A value that is unknown in all lanes."""
    return Value(np.zeros(1, dtype), known=False)


def constant(number: int, dtype: Dtype) -> Value:
    """A known number, the same in all lanes."""
    return Value(np.array([number & (1 << 8 * dtype.itemsize) - 1], dtype), known=True)


def decided(left: Value, right: Value, decides: Callable[[Bits], Mask]) -> Known:
    """Where a result is known: both operands are, or one is that decides it alone."""
    known = left.known & right.known
    if known is True:
        return True
    return known | left.known & decides(left.bits) | right.known & decides(right.bits)


def settled(known: Known) -> Known:
    """One answer for all lanes where it is the same for all."""
    if isinstance(known, bool):
        return known
    number = np.count_nonzero(known)
    if number == known.size:
        return True
    return known if number else False


def take(value: Value, lanes: Lanes | None) -> Value:
    """The value in some lanes; None stands for all of them."""
    if lanes is None:
        return value
    bits, known = value
    return Value(
        bits if bits.size == 1 else bits[lanes],
        known if isinstance(known, bool) else known[lanes],
    )


def put(old: Value, new: Value, lanes: Lanes, total: int) -> Value:
    """The old value, but in some lanes the new one, which has an entry for each."""
    if old.known is False and new.known is False:
        return old
    if old.bits.size == new.bits.size == 1 and old.bits[0] == new.bits[0]:
        bits = old.bits
    else:
        bits = old.bits.copy() if old.bits.size == total else old.bits.repeat(total)
        bits[lanes] = new.bits
    if isinstance(old.known, bool) and old.known is new.known:
        return Value(bits, old.known)
    is_one = isinstance(old.known, bool)
    known = np.full(total, old.known) if is_one else np.copy(old.known)
    known[lanes] = new.known
    return Value(bits, settled(known))


def spread(bits: Bits, total: int) -> Bits:
    """One entry for each of so many lanes; often there is one already."""
    return bits if bits.size == total else np.broadcast_to(bits, total)


def merged(old: Value, new: Value, chosen: Mask) -> Value:
    """The new value where that is chosen, and the old one elsewhere."""
    if old.known is False:
        if new.known is False:
            return old
        return Value(new.bits, settled(new.known & chosen))
    bits = np.where(chosen, new.bits, old.bits)
    if isinstance(old.known, bool) and old.known is new.known:
        return Value(bits, old.known)
    return Value(bits, settled(np.where(chosen, new.known, old.known)))


def signed(bits: Bits) -> Bits:
    """Bits as numbers in two's complement."""
    return bits.view(f"i{bits.dtype.itemsize}")
