"""`wgmma`: products of matrices in shared memory, by the four warps of a warpgroup.

A product is asynchronous: it reads matrices and registers, and writes its sums, at some
time before the end of the wait for it. Each warp has 16 rows of the sums, for which it
needs no other warp; so the four may come one after the other.
"""

import re
from dataclasses import dataclass

import numpy as np

from compare.ptx_simulator.asynchronous import Product
from compare.ptx_simulator.batch import Batch
from compare.ptx_simulator.building import Builder, Execute
from compare.ptx_simulator.floats import FORMATS, SCALARS
from compare.ptx_simulator.fragments import (
    UNKNOWN,
    Elements,
    left_matrix,
    product,
    read_registers,
    sum_fragments,
    sum_matrix,
    whole_warps,
    write_registers,
)
from compare.ptx_simulator.group import Group
from compare.ptx_simulator.matrices import check_formats
from compare.ptx_simulator.operands import (
    Decoded,
    Operand,
    UnmodelledError,
    parse_integer,
)
from compare.ptx_simulator.shared_matrices import ROWS, Reader, SharedMatrix, Teams
from compare.ptx_simulator.values import BOOL, U32, U64, Dtype, Mask, Value, take

# Factors of 8 bits may have two formats.
_PRODUCT = re.compile(
    r"mma_async\.sync\.aligned\.m64n(\d+)k(\d+)\.(f16|f32)\."
    r"(?:(f16|bf16|tf32)\.\4|(e4m3|e5m2)\.(e4m3|e5m2))"
)


@dataclass(frozen=True)
class _Multiplication:
    """The product d = a b + d, or d = a b, that an instruction stands for."""

    index: int  # of the instruction
    inputs: tuple[str, str]  # the formats of a and b
    sums: str  # that of d
    columns: int  # of b and d
    is_negated: bool  # whether it is -a that b is multiplied by
    slots: list[int | None]  # the registers of d
    old_sums: list[Operand]  # what they hold
    a: SharedMatrix | list[Operand]  # in shared memory, or in registers
    b: SharedMatrix

    def compute(
        self, reader: Reader, accumulates: Value, b: Value, a: Value | None = None
    ) -> None:
        """Computes it.

        Args:
            reader: who does.
            accumulates: whether the product is added to d.
            b: the descriptor of b.
            a: that of a, if this is in shared memory.
        """
        batch, group = reader.batch, reader.teams.group
        new = UNKNOWN
        old = self._old_sums(reader, accumulates)
        if old.known is not False:
            left = self._left(reader, a)
            right = reader.load(self.b, b, 0 * reader.teams.owners, self.columns)
            new = product(left, right, old, self.inputs, self.sums)
        if new.known is not False:
            held = U32.itemsize // self._sum_type.itemsize
            shape = group.warps, ROWS, self.columns
            new = new.arranged(lambda each: sum_fragments(each.reshape(shape), held))
            new = new.put_together()
        write_registers(self.slots, batch, group, new)
        reader.is_done()

    @property
    def _sum_type(self) -> Dtype:
        return FORMATS[self.sums].dtype

    def _left(self, reader: Reader, descriptor: Value | None) -> Elements:
        """The matrix a, by depth, team and row."""
        teams = reader.teams
        if isinstance(self.a, SharedMatrix):
            assert descriptor is not None
            a = reader.load(self.a, descriptor, teams.first_rows, teams.rows)
        else:
            a = read_registers(self.a, reader.batch, teams.group)
            if a.known is not False:
                dtype = SCALARS[self.inputs[0]].dtype
                a = a.taken_apart(dtype).arranged(left_matrix)
                a = a.arranged(lambda each: each.reshape(len(each), -1, teams.rows))
        if self.is_negated:
            sign = a.bits.dtype.type(1 << 8 * a.bits.itemsize - 1)
            a = Elements(a.bits ^ sign, a.known)
        return a

    def _old_sums(self, reader: Reader, accumulates: Value) -> Elements:
        """The d that is added to, by team, row and column; zeros where it is not."""
        does = reader.teams.values(accumulates)
        if does is None:
            return UNKNOWN
        shape = len(does), reader.teams.rows, self.columns
        if not does.any():
            return Elements(np.zeros(shape, self._sum_type), known=True)
        old = read_registers(self.old_sums, reader.batch, reader.teams.group)
        if old.known is False:
            return UNKNOWN
        old = old.taken_apart(self._sum_type).arranged(sum_matrix)
        bits, known = old.arranged(lambda each: each.reshape(shape))
        does = does.reshape(-1, 1, 1)
        if known is not True:
            known = known | ~does
        return Elements(np.where(does, bits, bits.dtype.type(0)), known)


def _multiplication(decoded: Decoded) -> tuple[_Multiplication, list[Operand]]:
    """What an instruction computes, and the operands that `compute` takes.

    Raises:
        UnmodelledError: the simulator does not know it.
    """
    form = _PRODUCT.fullmatch(".".join(decoded.modifiers))
    if form is None:
        raise UnmodelledError
    columns, depth, sums = int(form[1]), int(form[2]), form[3]
    inputs = form[4] or form[5], form[4] or form[6]
    check_formats(depth, inputs[0], sums, chunks=(2,))
    has_left = decoded.text(1).startswith("{")
    dtype = SCALARS[inputs[0]].dtype
    is_negated, is_a_k_major, is_b_k_major = _flags(decoded, dtype, has_left=has_left)
    operands = [decoded.source(3, BOOL), decoded.source(2, U64)]
    a: SharedMatrix | list[Operand]
    if has_left:
        a = decoded.sources(1, U32)
    else:
        a = SharedMatrix(depth, dtype, is_a_k_major)
        operands.append(decoded.source(1, U64))
    multiplication = _Multiplication(
        decoded.instruction.index,
        inputs,
        sums,
        columns,
        is_negated,
        decoded.destinations(),
        decoded.sources(0, U32),
        a,
        SharedMatrix(depth, dtype, is_b_k_major),
    )
    return multiplication, operands


def _flags(
    decoded: Decoded, dtype: Dtype, *, has_left: bool
) -> tuple[bool, bool, bool]:
    """Whether a product is negated, and whether a and b are k-major.

    Only matrices of 16-bit numbers in shared memory may lie the other way round, and so
    have an operand that tells.

    Raises:
        UnmodelledError: there are other operands.
    """
    numbers = [parse_integer(each) for each in decoded.instruction.operands[4:]]
    signs, majors = numbers[:2], numbers[2:]
    expected = (2 - has_left) if dtype.itemsize == 2 else 0
    if len(majors) != expected or {*signs} - {1, -1} or {*majors} - {0, 1}:
        raise UnmodelledError
    are_k_major = [True] * (2 - expected) + [each == 0 for each in majors]
    return signs[0] != signs[1], are_k_major[0], are_k_major[1]


def _multiply(decoded: Decoded) -> Execute:
    """`wgmma.mma_async`: descriptors count when it starts, memory when it is done."""
    multiplication, operands = _multiplication(decoded)
    slots, index = multiplication.slots, multiplication.index
    left = decoded.slots(1) if isinstance(multiplication.a, list) else []
    sums, inputs = (
        frozenset(slot for slot in each if slot is not None) for each in (slots, left)
    )
    product = Product(index, sums, inputs)
    decoded.product = product

    def execute(batch: Batch, group: Group) -> None:
        if batch.shared.is_blank and not batch.has_contents:
            batch.forget(slots, group)
            return
        warps = whole_warps(batch, group, slots, index)
        if warps is None:
            return
        values = [each(batch, warps) for each in operands]
        if batch.register_use:
            batch.register_use.start(product, warps)
        races = batch.races
        actor = races and races.starts(index, warps, is_async=True)

        def act(chosen: Mask) -> None:
            if part := warps.select(chosen):
                teams, places = Teams(part), np.flatnonzero(chosen)
                is_first = np.zeros(warps.size, np.bool_)
                is_first[places[:: teams.lanes]] = True
                by_team = actor.select(is_first) if actor else None
                reader = Reader(batch, index, teams, by_team)
                lanes = None if part is warps else places
                multiplication.compute(reader, *(take(each, lanes) for each in values))

        batch.queues["wgmma"].start(warps.numbers, act, product)

    return execute


def _fence(batch: Batch, group: Group) -> None:
    """`wgmma.fence`: only who looks whether it is there cannot do without."""
    if batch.register_use:
        batch.register_use.fence(group)


def _wgmma(decoded: Decoded) -> Execute:
    """`wgmma` in all its forms."""
    form = decoded.one_of(("fence", "mma_async", "commit_group", "wait_group"))
    if form == "mma_async":
        return _multiply(decoded)
    if form == "fence":
        return _fence
    if form == "commit_group":
        return lambda batch, group: batch.queues["wgmma"].commit(group)
    pending = parse_integer(decoded.text(0))
    if pending is None:
        raise UnmodelledError
    return lambda batch, group: batch.queues["wgmma"].wait(group, pending)


WARPGROUPS: dict[str, Builder] = {"wgmma": _wgmma}
