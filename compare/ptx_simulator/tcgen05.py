"""`tcgen05`: the tensor cores of sm_100, and the memory that they have of their own.

One thread has them multiply matrices a and b in shared memory, or a in tensor memory;
the sums are in tensor memory. That is asynchronous, in the order in which the thread
says so, and an mbarrier hears when it is done.
"""

import re
from dataclasses import dataclass, replace

import numpy as np

from compare.ptx_simulator.batch import NOT_SIMULATED, Batch
from compare.ptx_simulator.building import Builder, Execute, do_nothing
from compare.ptx_simulator.floats import FORMATS
from compare.ptx_simulator.fragments import UNKNOWN, Elements, product
from compare.ptx_simulator.group import Group
from compare.ptx_simulator.operands import Decoded, UnmodelledError
from compare.ptx_simulator.shared_matrices import Reader, SharedMatrix, Teams
from compare.ptx_simulator.tensor_core_memory import LANES, Cells, Started
from compare.ptx_simulator.tensor_core_moves import (
    allocate,
    are_there,
    free,
    load,
    load_registers,
    relinquish,
    store_registers,
    wait,
)
from compare.ptx_simulator.values import (
    BOOL,
    U32,
    U64,
    Bits,
    Lanes,
    Mask,
    Value,
    settled,
)

# ---- Descriptors ---------------------------------------------------------------------

_OPERANDS = 5  # d, a, b, instruction descriptor, whether to add to d
_DEPTH_BYTES = 32  # of a row of a
# By kind and number, the formats of a and b; and of the sums.
_INPUTS = {("f16", 0): "f16", ("f16", 1): "bf16", ("tf32", 2): "tf32"}
_SUMS = {0: "f16", 1: "f32"}
_MOST_COLUMNS = 256
_ALIGN = 16  # lanes of tensor memory, of which a matrix begins at a multiple
# Of an instruction descriptor: formats, whether a and b are transposed, columns, rows.
_FORM_BITS = 3 << 4 | 7 << 7 | 7 << 10 | 1 << 15 | 1 << 16 | 63 << 17 | 31 << 24


@dataclass(frozen=True)
class _Form:
    """What an instruction descriptor tells of a product."""

    inputs: str  # the format of a and b
    sums: str  # of d
    rows: int  # of a and d
    columns: int  # of b and d
    is_a_k_major: bool
    is_b_k_major: bool

    @property
    def depth(self) -> int:
        """Columns of a, and rows of b."""
        return _DEPTH_BYTES // FORMATS[self.inputs].dtype.itemsize


def _form(descriptor: int, kind: str, *, has_shared_a: bool) -> _Form | None:
    """What an instruction descriptor tells; None if that is not simulated."""
    sums, a, b, columns, rows = (
        descriptor >> bit & (1 << width) - 1
        for bit, width in ((4, 2), (7, 3), (10, 3), (17, 6), (24, 5))
    )
    is_a_k_major, is_b_k_major = (not descriptor >> bit & 1 for bit in (15, 16))
    inputs = _INPUTS.get((kind, a))
    is_known = (
        inputs is not None
        and a == b
        and sums in _SUMS
        and (inputs == "f16" or sums == 1)
        and 0 < 8 * columns <= _MOST_COLUMNS
        and 16 * rows in (64, 128)
        # Else a swizzle moves chunks of 32 bytes.
        and (kind == "f16" or (is_a_k_major and is_b_k_major))
        and (has_shared_a or is_a_k_major)
        and not descriptor & ~_FORM_BITS
    )
    if inputs is None or not is_known:
        return None
    return _Form(
        inputs, _SUMS[sums], 16 * rows, 8 * columns, is_a_k_major, is_b_k_major
    )


# By the number of a swizzle in a descriptor, the one that it has for `wgmma`.
_SWIZZLES = np.array([0, -1, 1, -1, 2, -1, 3, -1])
_PLACE_BITS = 0x3FFF_3FFF_3FFF  # address, leading and stride offset, as for `wgmma`
_FIXED_BITS = 1 << 46


def _as_of_wgmma(descriptors: Bits) -> Bits | None:
    """Descriptors of matrices in shared memory as `wgmma` has them; None if it cannot.

    Not simulated are the base offset, for patterns that begin elsewhere than at a
    multiple of their size, and swizzles of chunks of 32 bytes.
    """
    swizzles = _SWIZZLES[(descriptors >> 61).astype(np.int64)]
    others = descriptors & U64.type((1 << 61) - 1 & ~_PLACE_BITS)
    if (swizzles < 0).any() or (others != _FIXED_BITS).any():
        return None
    places = descriptors & U64.type(_PLACE_BITS)
    found: Bits = places | swizzles.astype(U64) << U64.type(62)
    return found


# ---- Products ------------------------------------------------------------------------


class _Threads(Teams):
    """Threads that multiply on their own: to a reader of matrices, teams of one."""

    def __init__(self, group: Group, rows: int) -> None:
        """Gives each so many rows."""
        self.group, self.lanes, self.owners = group, 1, group.blocks
        self.rows, self.first_rows = rows, np.zeros(group.size, np.int64)


@dataclass(frozen=True)
class _Multiplication:
    """The products d = a b + d, or d = a b, that threads start, of one form."""

    form: _Form
    accumulates: bool  # whether the products are added to d
    has_shared_a: bool  # whether a is in shared memory, too
    # By thread: addresses in tensor memory, or descriptors of shared memory.
    d: Lanes
    a: Bits
    b: Bits

    def select(self, chosen: Mask) -> "_Multiplication":
        """Those of some threads."""
        d, a, b = (each[chosen] for each in (self.d, self.a, self.b))
        return replace(self, d=d, a=a, b=b)

    def compute(self, reader: Reader) -> None:
        """Computes them."""
        form, group = self.form, reader.teams.group
        sums = self._cells(self.d, group, form.columns)
        if not are_there(reader.batch, reader.index, group, sums, "adds to"):
            return
        right = self._shared(reader, self.b, form.columns, is_k_major=form.is_b_k_major)
        left, old = self._left(reader), self._old_sums(reader, sums)
        new = product(left, right, old, (form.inputs, form.inputs), form.sums)
        reader.batch.tensor_memory.store(sums, Value(*new))

    def _cells(self, addresses: Lanes, group: Group, columns: int) -> Cells:
        """By thread, row and column; rows of a lane each.

        Of 64 rows each quarter of the lanes has 16, in its first or second half.
        """
        rows = np.arange(self.form.rows)
        if self.form.rows < LANES:
            rows = rows // 16 * 32 + rows % 16
        first = addresses.reshape(-1, 1, 1)
        return Cells(
            group.blocks.reshape(-1, 1, 1),
            (first >> 16) + rows.reshape(1, -1, 1),
            (first & 0xFFFF) + np.arange(columns).reshape(1, 1, -1),
        )

    def _shared(
        self, reader: Reader, descriptors: Bits, size: int, *, is_k_major: bool
    ) -> Elements:
        """A matrix in shared memory, by depth, thread, and row or column."""
        matrix = SharedMatrix(
            self.form.depth, FORMATS[self.form.inputs].dtype, is_k_major
        )
        first = np.zeros(reader.teams.group.size, np.int64)
        return reader.load(matrix, Value(descriptors, known=True), first, size)

    def _left(self, reader: Reader) -> Elements:
        """The matrix a, by depth, thread and row."""
        form, group = self.form, reader.teams.group
        if self.has_shared_a:
            is_k_major = form.is_a_k_major
            return self._shared(reader, self.a, form.rows, is_k_major=is_k_major)
        cells = self._cells(self.a, group, _DEPTH_BYTES // U32.itemsize)
        if not are_there(reader.batch, reader.index, group, cells):
            return UNKNOWN
        words = Elements(*load(reader.batch, reader.index, group, cells))
        numbers = words.taken_apart(FORMATS[form.inputs].dtype)
        return numbers.arranged(
            lambda each: each.reshape(group.size, form.rows, -1).transpose(2, 0, 1)
        )

    def _old_sums(self, reader: Reader, cells: Cells) -> Elements:
        """The d that is added to, or zeros, by thread, row and column."""
        dtype = FORMATS[self.form.sums].dtype
        if not self.accumulates:
            shape = reader.teams.group.size, self.form.rows, self.form.columns
            return Elements(np.zeros(shape, dtype), known=True)
        bits, known = load(reader.batch, reader.index, reader.teams.group, cells)
        # A narrower sum is in the lower half of its cell.
        return Elements(bits.astype(dtype), known)

    def start(self, batch: Batch, index: int, group: Group) -> None:
        """Has them computed, at once or when a commit tells that they are done."""
        races = batch.races
        actor = races.starts(index, group, is_async=True) if races else None

        def act(chosen: Mask) -> None:
            if part := group.select(chosen):
                threads = _Threads(part, self.form.rows)
                reader = Reader(batch, index, threads, actor and actor.select(chosen))
                self.select(chosen).compute(reader)

        batch.tensor_memory.products.start(Started(group.numbers, act, actor))


def _multiply(decoded: Decoded) -> Execute:
    """`mma`: descriptors count when it starts, memory when it is done."""
    if decoded.count != _OPERANDS:
        raise UnmodelledError
    index = decoded.instruction.index
    kind = decoded.modifiers[-1].removeprefix("kind::")
    has_shared_a = not decoded.text(1).startswith("[")
    operands = [
        decoded.address(0),
        decoded.source(1, U64) if has_shared_a else decoded.address(1),
        decoded.source(2, U64),
        decoded.source(3, U32),
        decoded.source(4, BOOL),
    ]

    def execute(batch: Batch, group: Group) -> None:
        if not batch.has_contents:
            return
        values = [each(batch, group) for each in operands]
        if not all(settled(each.known) is True for each in values):
            batch.tell(index, group, "multiplies by a descriptor that nothing defines")
            return
        d, a, b, forms, are_added = (
            np.broadcast_to(each.bits, group.size) for each in values
        )
        is_strange = (d >> 16) % _ALIGN != 0
        if not has_shared_a:
            is_strange |= a >> 16 != d >> 16
        others = group.select(is_strange)
        if others is not None:
            what = "names lanes of tensor memory at which no matrix can begin"
            batch.tell(index, others, what)
            return
        # Threads of one block add to the same sums one after the other.
        turns = np.arange(group.size) - np.searchsorted(group.blocks, group.blocks)
        kinds = turns << 33 | forms.astype(np.int64) << 1 | are_added
        for number, part in group.split(kinds):
            chosen = kinds == number
            form = _form(number >> 1 & 0xFFFF_FFFF, kind, has_shared_a=has_shared_a)
            left = _as_of_wgmma(a[chosen]) if has_shared_a else a[chosen]
            right = _as_of_wgmma(b[chosen])
            if form is None or left is None or right is None:
                batch.tell(index, part, NOT_SIMULATED)
                continue
            accumulates = bool(number & 1)
            multiplication = _Multiplication(
                form, accumulates, has_shared_a, d[chosen], left, right
            )
            multiplication.start(batch, index, part)

    return execute


def _commit(decoded: Decoded) -> Execute:
    """`commit`: an mbarrier hears when all is done that the thread has started."""
    address, index = decoded.address(0), decoded.instruction.index

    def execute(batch: Batch, group: Group) -> None:
        if not batch.has_contents:
            return
        places = batch.shared_places(index, group, address(batch, group))
        if places is None:
            return
        absent = group.select(~batch.mbarriers.are_there(*places))
        if absent is not None:
            batch.tell(index, absent, "names what is no mbarrier")
            return
        started = batch.tensor_memory.products.take(group)

        def deliver() -> None:
            for products, chosen in started:
                products.act(chosen)
                if batch.races and products.actor:
                    actor = products.actor.select(chosen)
                    lanes = np.searchsorted(group.numbers, actor.lanes)
                    owners, addresses = (each[lanes] for each in places)
                    batch.races.send_done_to((owners, addresses), actor)
            batch.mbarriers.arrive(*places, np.ones(group.size, np.int64))

        batch.deliveries.start(deliver)

    return execute


# ---- All forms -----------------------------------------------------------------------

# By what follows the opcode's stem. Two blocks that ask for columns together get what
# each would get alone.
_BUILDERS: dict[str, Builder] = {
    r"alloc\.cta_group::[12]\.sync\.aligned(\.shared::cta)?\.b32": allocate,
    r"dealloc\.cta_group::[12]\.sync\.aligned\.b32": free,
    r"relinquish_alloc_permit\.cta_group::[12]\.sync\.aligned": relinquish,
    r"ld\..*": load_registers,
    r"st\..*": store_registers,
    r"wait::(ld|st)\.sync\.aligned": wait,
    r"fence::(before|after)_thread_sync": lambda decoded: do_nothing,
    r"mma\.cta_group::1\.kind::(f16|tf32)": _multiply,
    r"commit\.cta_group::1\.mbarrier::arrive::one(\.shared::cluster)?\.b64": _commit,
}


def _tcgen05(decoded: Decoded) -> Execute:
    """`tcgen05` in all its forms."""
    form = ".".join(decoded.modifiers)
    for pattern, build in _BUILDERS.items():
        if re.fullmatch(pattern, form):
            return build(decoded)
    raise UnmodelledError


TCGEN05: dict[str, Builder] = {"tcgen05": _tcgen05}
