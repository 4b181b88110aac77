"""The value of a register in all threads at once.

Integers, addresses and predicates are exact. What comes from memory or from floating
point is unknown, in some threads or in all of them.
"""

import functools
import re
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

Bits = npt.NDArray[Any]  # of an unsigned type, or bool for a predicate
Mask = npt.NDArray[np.bool_]
Lanes = npt.NDArray[np.int64]
Dtype = np.dtype[Any]

BOOL: Dtype = np.dtype(np.bool_)
U8: Dtype = np.dtype(np.uint8)
U32: Dtype = np.dtype(np.uint32)
U64: Dtype = np.dtype(np.uint64)


class Value(NamedTuple):
    """Bits, and whether they are known.

    Attributes:
        bits: one for each lane, or a single one that is the same in all lanes; what
            they are where the value is not known means nothing.
        known: for each lane, or one answer for all.
    """

    bits: Bits
    known: bool | Mask


@dataclass(frozen=True)
class PtxType:
    """A type as an opcode names it.

    Attributes:
        kind: `b` for bits without a meaning, `u` and `s` for integers, `f` for floating
            point, also several numbers of it in one register, `x` for several integers
            in one register, `p` for predicates.
        bits: how wide it is.
    """

    kind: Literal["b", "u", "s", "f", "x", "p"]
    bits: int

    @property
    def bytes(self) -> int:
        """How wide it is in memory."""
        return self.bits // 8

    @property
    def is_integer(self) -> bool:
        """Whether arithmetic on it is exact here."""
        return self.kind in "bus" and self.bits <= 64

    @property
    def dtype(self) -> Dtype | None:
        """What holds its bits, or None if nothing of numpy's is as wide."""
        if self.kind == "p":
            return BOOL
        return None if self.bits > 64 else np.dtype(f"u{self.bytes}")


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


_UNKNOWN = {
    dtype: Value(np.zeros(1, dtype), known=False)
    for dtype in (BOOL, *(np.dtype(f"u{size}") for size in (1, 2, 4, 8)))
}


def unknown(dtype: Dtype) -> Value:
    """A value of which nothing is known."""
    return _UNKNOWN[dtype]


def constant(number: int, dtype: Dtype) -> Value:
    """The same known number in all lanes."""
    if dtype == BOOL:
        return Value(np.array([number != 0]), known=True)
    return Value(np.array([number & (1 << 8 * dtype.itemsize) - 1], dtype), known=True)


def both(left: bool | Mask, right: bool | Mask) -> bool | Mask:
    """Where left and right are true."""
    if left is True:
        return right
    if right is True:
        return left
    if left is False or right is False:
        return False
    return left & right


def either(left: bool | Mask, right: bool | Mask) -> bool | Mask:
    """Where left or right is true."""
    if left is False:
        return right
    if right is False:
        return left
    if left is True or right is True:
        return True
    return left | right


def settled(known: bool | Mask) -> bool | Mask:
    """The same, as one answer for all where it is the same for all."""
    if isinstance(known, bool):
        return known
    if known.all():
        return True
    return known if known.any() else False


def take(value: Value, lanes: Lanes | None) -> Value:
    """The value in some lanes; None stands for all of them."""
    if lanes is None:
        return value
    bits, known = value
    return Value(
        bits if bits.size == 1 else bits[lanes],
        known if isinstance(known, bool) else known[lanes],
    )


def put(old: Value, new: Value, lanes: Lanes | None, total: int) -> Value:
    """The old value, but in some lanes the new one, which has an entry for each."""
    if lanes is None:
        return new
    if old.bits.size == new.bits.size == 1 and old.bits[0] == new.bits[0]:
        bits = old.bits
    else:
        bits = np.broadcast_to(old.bits, total).copy()
        bits[lanes] = new.bits
    if isinstance(old.known, bool) and old.known is new.known:
        return Value(bits, old.known)
    known = np.broadcast_to(old.known, total).copy()
    known[lanes] = new.known
    return Value(bits, settled(known))


def signed(bits: Bits) -> Bits:
    """The same bits in two's complement."""
    return bits.view(f"i{bits.dtype.itemsize}")


def unsigned(bits: Bits) -> Bits:
    """The bits of numbers that may be in two's complement."""
    if bits.dtype.kind != "i":
        return bits
    return bits.view(f"u{bits.dtype.itemsize}")


def extend(bits: Bits, dtype: Dtype, *, is_signed: bool) -> Bits:
    """The bits of a number in a wider register, behind zeros or its sign."""
    if not is_signed or dtype.itemsize <= bits.dtype.itemsize:
        return bits.astype(dtype, copy=False)
    return unsigned(signed(bits).astype(f"i{dtype.itemsize}"))
