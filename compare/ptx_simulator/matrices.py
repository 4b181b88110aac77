"""Instructions on matrices that the lanes of a warp hold together."""

import re
from collections.abc import Callable

import numpy as np

from compare.ptx_simulator.batch import NOT_SIMULATED, Batch
from compare.ptx_simulator.bounds import Access
from compare.ptx_simulator.building import Builder, Execute
from compare.ptx_simulator.floats import FORMATS, SCALARS, U16
from compare.ptx_simulator.fragments import (
    SIZE,
    UNKNOWN,
    Elements,
    left_matrix,
    product,
    read_registers,
    right_matrix,
    sum_fragments,
    sum_matrix,
    whole_warps,
    write_registers,
)
from compare.ptx_simulator.group import WARP, Group
from compare.ptx_simulator.operands import Decoded, UnmodelledError
from compare.ptx_simulator.spaces import WINDOWS, Part, parts
from compare.ptx_simulator.storage import Storage
from compare.ptx_simulator.values import (
    U32,
    U64,
    Bits,
    Dtype,
    Lanes,
    Mask,
    Value,
    settled,
)

CHUNK_BYTES = (
    16  # the row of a matrix that is moved, and what tensor cores read at once
)


# ---- Chunks in shared memory ---------------------------------------------------------


def load_chunks(
    shared: Storage, owners: Lanes, starts: Lanes, dtype: Dtype
) -> Elements:
    """The elements in chunks of 16 bytes, along one more axis.

    Args:
        shared: the memory.
        owners: for each chunk the place of its block.
        starts: where it begins there.
        dtype: of the elements.
    """
    # As few numbers as possible, unless that would hide which elements are known.
    for unit in (U64, dtype):
        every_owner, places = _places(owners, starts, unit)
        bits, known = shared.load_places(every_owner, places, unit)
        known = settled(known)
        if known is False:
            return UNKNOWN
        if known is True:
            break
    loaded = Elements(bits.view(dtype), known)
    return loaded.arranged(lambda each: each.reshape(*starts.shape, -1))


def _store_chunks(
    shared: Storage, owners: Lanes, starts: Lanes, elements: Elements
) -> None:
    """Stores elements of 16 bits where `load_chunks` finds them."""
    bits, known = elements.arranged(np.ascontiguousarray)
    unit = U64 if known is True else U16
    every_owner, places = _places(owners, starts, unit)
    is_known = known if isinstance(known, bool) else known.reshape(-1)
    value = Value(bits.reshape(-1).view(unit), is_known)
    shared.store_places(every_owner, places, value, unit)


def _places(owners: Lanes, starts: Lanes, unit: Dtype) -> tuple[Lanes, Lanes]:
    """Whose they are, and where they lie: the numbers that chunks consist of."""
    places = starts[..., np.newaxis] + np.arange(0, CHUNK_BYTES, unit.itemsize)
    every_owner = np.broadcast_to(owners[..., np.newaxis], places.shape)
    return every_owner.reshape(-1), places.reshape(-1)


# ---- Matrices of 8 rows of 16 bytes --------------------------------------------------


def _squares(elements: Bits, *, is_transposed: bool) -> Bits:
    """By matrix, warp, row and column; given by lane and place, or the inverse."""
    squares = elements.reshape(*elements.shape[:2], SIZE, SIZE)
    return squares.swapaxes(2, 3) if is_transposed else squares


class _Rows:
    """The rows whose addresses the lanes of `ldmatrix` and `stmatrix` give.

    Attributes:
        access: what a lane that gives an address does.
        is_computed: whether the form of the instruction is one that computes, too.
    """

    def __init__(self, decoded: Decoded) -> None:
        """Decodes the address and the shape.

        Raises:
            UnmodelledError: the opcode does not say how many matrices there are.
        """
        is_store = decoded.stem == "stmatrix"
        self._matrices = int(decoded.one_of(("x1", "x2", "x4"))[1])
        rows = 16 if any(each.startswith("m16") for each in decoded.modifiers) else 8
        self._givers = min(WARP, rows * self._matrices)
        # Races of stores are looked for where their values are at hand.
        self.access = Access(
            decoded.instruction.index, is_store, CHUNK_BYTES, is_plain=not is_store
        )
        self._space = next(iter(decoded.spaces), "generic")
        self._address = decoded.address(0 if is_store else 1)
        self.is_computed = decoded.has("m8n8") and decoded.has("b16")

    def count(self, batch: Batch, group: Group) -> list[Part]:
        """Counts the access: eight lanes for each matrix give its rows' addresses."""
        givers = group.select(group.column < self._givers)
        if givers is None:
            return []
        address = self._address(batch, givers)
        accessed = list(parts(self._space, givers, address))
        for part in accessed:
            batch.count(self.access, part)
        return accessed

    def starts(self, batch: Batch, warps: Group) -> tuple[Lanes, Lanes] | None:
        """Whose they are, and where they begin; None unless all of that is known.

        Both are given by matrix, warp and row.
        """

        def by_matrix(of_lanes: Bits) -> Bits:
            by_lane = np.broadcast_to(of_lanes, warps.size).reshape(-1, WARP)
            rows = by_lane[:, : self._givers].reshape(-1, self._matrices, SIZE)
            return rows.swapaxes(0, 1)

        bits, known = self._address(batch, warps)
        if known is not True and not by_matrix(np.asarray(known)).all():
            return None
        if self._space == "generic":
            bits = bits - WINDOWS["shared"]
        return by_matrix(warps.blocks), by_matrix(bits)


def _load(decoded: Decoded) -> Execute:
    """`ldmatrix`: a lane gets two neighbours of a row, or of a column."""
    slots, rows = decoded.destinations(), _Rows(decoded)
    index, is_transposed = decoded.instruction.index, decoded.has("trans")

    def by_lane(squares: Bits) -> Bits:
        elements = _squares(squares, is_transposed=is_transposed)
        return elements.reshape(*squares.shape[:2], WARP, -1)

    def load(batch: Batch, warps: Group) -> Elements:
        starts = rows.starts(batch, warps)
        if starts is None:
            return UNKNOWN
        squares = load_chunks(batch.shared, *starts, U16)
        if squares.known is not True:
            steps = np.arange(0, CHUNK_BYTES, U16.itemsize)
            places = starts[1][..., np.newaxis] + steps
            known = by_lane(np.broadcast_to(squares.known, places.shape))
            _tell_unwritten(batch, warps, index, by_lane(places), known)
        if squares.known is False:
            return UNKNOWN
        return squares.arranged(by_lane).put_together()

    def execute(batch: Batch, group: Group) -> None:
        rows.count(batch, group)
        if not rows.is_computed:
            batch.tell(index, group, NOT_SIMULATED)
        elif batch.has_contents or not batch.shared.is_blank:
            warps = whole_warps(batch, group, slots, index)
            if warps is not None:
                write_registers(slots, batch, warps, load(batch, warps))
            return
        batch.forget(slots, group)

    return execute


def _tell_unwritten(
    batch: Batch, warps: Group, index: int, places: Lanes, known: Bits
) -> None:
    """Tells of pairs of elements, by matrix, warp and lane, not all of them known."""
    for place, is_known in zip(places, known, strict=True):
        unknown = np.where(is_known[..., 0], place[..., 1], place[..., 0])
        both = is_known.all(axis=-1)
        batch.tell_unwritten(index, warps, unknown.reshape(-1), both.reshape(-1))


def _changes(
    shared: Storage, owners: Lanes, starts: Lanes, squares: Elements
) -> Mask | None:
    """Which rows are other than what is there, by lane that gives one; None if all."""
    there = load_chunks(shared, owners, starts, U16)
    if there.known is False:
        return None
    is_same = (there.bits == squares.bits) & there.known & squares.known
    changes: Mask = ~is_same.all(axis=-1)
    return changes.swapaxes(0, 1).reshape(-1)


def _store(decoded: Decoded) -> Execute:
    """`stmatrix`, the inverse of `ldmatrix`."""
    sources, rows = decoded.sources(1, U32), _Rows(decoded)
    index, is_transposed = decoded.instruction.index, decoded.has("trans")

    def execute(batch: Batch, group: Group) -> None:
        accessed = rows.count(batch, group)
        if not rows.is_computed:
            batch.tell(index, group, NOT_SIMULATED)
        warps = whole_warps(batch, group, [], index)
        starts, registers = None, UNKNOWN
        if rows.is_computed and warps is group:
            starts = rows.starts(batch, group)
            registers = read_registers(sources, batch, group, to_store=True)
        if starts is None or registers.known is False:
            for part in accessed:
                batch.look_for_races(rows.access, part)
                batch.lose(part, CHUNK_BYTES)
            return
        pairs = registers.taken_apart(U16)
        squares = pairs.arranged(lambda e: _squares(e, is_transposed=is_transposed))
        changes = _changes(batch.shared, *starts, squares) if batch.races else None
        for part in accessed:
            is_all = part.group.size == sum(each.group.size for each in accessed)
            batch.look_for_races(rows.access, part, changes if is_all else None)
        _store_chunks(batch.shared, *starts, squares)

    return execute


def _transpose(decoded: Decoded) -> Execute:
    """`movmatrix`: exchanges rows and columns of a matrix in registers."""
    if decoded.instruction.opcode != "movmatrix.sync.aligned.m8n8.trans.b16":
        raise UnmodelledError
    slots, sources = decoded.destinations(), decoded.sources(1, U32)
    index = decoded.instruction.index

    def transposed(pairs: Bits) -> Bits:
        return _squares(pairs, is_transposed=True).reshape(pairs.shape)

    def execute(batch: Batch, group: Group) -> None:
        warps = whole_warps(batch, group, slots, index)
        if warps is None:
            return
        registers = read_registers(sources, batch, warps)
        if registers.known is not False:
            pairs = registers.taken_apart(U16).arranged(transposed)
            registers = pairs.put_together()
        write_registers(slots, batch, warps, registers)

    return execute


# ---- Products ------------------------------------------------------------------------

# With the same format for a and b, and the same one for c and d.
_PRODUCT = re.compile(
    r"sync\.aligned\.m16n8k(\d+)\.row\.col\.(f16|f32)\.(f16|bf16|tf32)\.\3\.\2"
)


def check_formats(depth: int, inputs: str, sums: str, chunks: tuple[int, ...]) -> None:
    """Looks whether the tensor cores multiply so.

    Args:
        depth: columns of a, and rows of b.
        inputs: the format of a and b.
        sums: that of the sums.
        chunks: the chunks that a row of a may have.

    Raises:
        UnmodelledError: they do not.
    """
    is_deep = depth * SCALARS[inputs].width // 8 in [
        CHUNK_BYTES * each for each in chunks
    ]
    if not is_deep or (sums == "f16" and inputs != "f16"):
        raise UnmodelledError


def _multiply(decoded: Decoded) -> Execute:
    """`mma`: d = a b + c, of matrices of 16 x k, k x 8 and 16 x 8."""
    form = _PRODUCT.fullmatch(".".join(decoded.modifiers))
    if form is None:
        raise UnmodelledError
    sums, inputs = form[2], form[3]
    check_formats(int(form[1]), inputs, sums, chunks=(1, 2))
    slots, index = decoded.destinations(), decoded.instruction.index
    sum_type = FORMATS[sums].dtype
    # What makes matrices of the registers of a, b and c.
    arrangements: list[tuple[Callable[[Bits], Bits], Dtype]] = [
        (left_matrix, FORMATS[inputs].dtype),
        (right_matrix, FORMATS[inputs].dtype),
        (sum_matrix, sum_type),
    ]
    sources = [decoded.sources(position, U32) for position in (1, 2, 3)]

    def execute(batch: Batch, group: Group) -> None:
        warps = whole_warps(batch, group, slots, index)
        if warps is None:
            return
        matrices: list[Elements] = []
        for registers, (arrange, dtype) in zip(sources, arrangements, strict=True):
            fragments = read_registers(registers, batch, warps)
            if fragments.known is False:
                batch.forget(slots, warps)
                return
            matrices.append(fragments.taken_apart(dtype).arranged(arrange))
        a, b, c = matrices
        result = product(a, b, c, (inputs, inputs), sums)
        fragments = result.arranged(lambda e: sum_fragments(e, 4 // sum_type.itemsize))
        write_registers(slots, batch, warps, fragments.put_together())

    return execute


MATRICES: dict[str, Builder] = {
    "ldmatrix": _load,
    "stmatrix": _store,
    "movmatrix": _transpose,
    "mma": _multiply,
}
