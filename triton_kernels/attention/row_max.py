"""The score of a row that its exponentials are relative to, and when another one is.

By inline PTX, since a warp decides: a branch of Triton's has to be the same in all
warps, and asking the others costs more than the maximum does.
"""

from triton import constexpr_function
from triton.experimental import gluon
from triton.experimental.gluon import language as gl


@gluon.jit
def _halves(numbers):
    """Even and odd ones of a lane's n numbers, which are (rows, 4, n)."""
    N_ROWS: gl.constexpr = numbers.shape[0]
    N: gl.constexpr = numbers.shape[2]
    if N > 2:
        numbers = numbers.reshape([N_ROWS, 4, N // 2, 2])
    return numbers.split()


@gluon.jit
def _numbers_of_lanes(x):
    """What each of a row's four lanes has of it, as a tensor (rows, 4) for each number.

    These are other names for the same registers: nothing is moved.
    """
    N_ROWS: gl.constexpr = x.shape[0]
    N: gl.constexpr = x.shape[1] // 4
    x = x.reshape([N_ROWS, N // 2, 4, 2]).permute((0, 2, 1, 3))
    numbers = (x.reshape([N_ROWS, 4, N]),)
    for _ in gl.static_range(N.bit_length() - 1):
        halves = ()
        for i in gl.static_range(len(numbers)):
            halves = halves + _halves(numbers[i])
        numbers = halves
    return numbers


@constexpr_function
def _moving_on(n):
    """PTX for a lane's two rows, of which it has n scores each, as integers.

    Operands 0 and 1 are the rows' maxima, before and behind it; 4 leads from scores to
    exponents of 2. An upper bound of the scores, which is their maximum if that is
    positive, costs half as much: of integers an instruction compares three, and
    positive floats have the order of the integers of their bits. Where no bound in the
    warp exceeds its row's maximum by more than 2^8 in exponentials, whose exponent is
    0f41000000, there it ends.
    """

    def scores(row):
        return (f"${6 + 2 * i + row}" for i in range(n))

    def excess(row, score):
        return f"sub.f32 x, {score}, ${row}; mul.f32 x, x, $4;"

    lines = ["{ .reg .pred moves; .reg .s32 bound; .reg .f32 x, most;"]
    lines.append("setp.ne.s32 moves, 0, 0;")
    for row in range(2):
        lines.append("mov.s32 bound, 0;")
        lines += [f"max.s32 bound, bound, {score};" for score in scores(row)]
        lines += ["mov.b32 x, bound;", excess(row, "x")]
        lines.append("setp.gt.or.f32 moves, x, 0f41000000, moves;")
    lines.append("vote.sync.any.pred moves, moves, -1; @!moves bra DONE;")
    for row in range(2):
        lines.append(f"mov.f32 most, ${row};")
        for score in scores(row):
            lines.append(f"mov.b32 x, {score}; max.f32 most, most, x;")
        for lane in (1, 2):
            lines.append(f"shfl.sync.bfly.b32 x, most, {lane}, 31, -1;")
            lines.append("max.f32 most, most, x;")
        lines += [excess(row, "most"), "setp.gt.f32 moves, x, 0f41000000;"]
        lines.append(f"selp.f32 ${row}, most, ${row}, moves;")
    return " ".join([*lines, "DONE: }"])


@constexpr_function
def _registers(n):
    """Those of its operands: results take the place of the maxima before."""
    return ",".join(["=f", "=f", "0", "1", "f", "f", *["r"] * (2 * n)])


@gluon.jit
def _of_any_lane(x, y):
    """For lanes that have the same: the compiler sees that none has to be asked."""
    return x


@gluon.jit
def max_with(scores, row_max, scale_log2):
    """For each row, the score that its exponentials are relative to from now on.

    It stays an earlier one, as long as none exceeds that by a factor of more than 2^8
    then, or else becomes the largest score so far. A row decides for itself, so that no
    other changes its result. scale_log2 > 0 leads from scores to exponents of 2.
    """
    ROWS: gl.constexpr = row_max.type.layout
    numbers = _numbers_of_lanes(scores.to(gl.int32, bitcast=True))
    N: gl.constexpr = len(numbers)
    LANES: gl.constexpr = numbers[0].type.layout
    row_max = gl.convert_layout(row_max, gl.SliceLayout(1, LANES))[:, None]
    _, row_max = gl.broadcast(numbers[0], row_max)
    _, scale_log2 = gl.broadcast(row_max, scale_log2)
    operands = (row_max, scale_log2) + numbers  # noqa: RUF005  Triton has no *numbers
    of_lanes = gl.inline_asm_elementwise(
        _moving_on(N),
        _registers(N),
        operands,
        dtype=gl.float32,
        is_pure=True,
        pack=2,
    )
    return gl.convert_layout(gl.reduce(of_lanes, 1, _of_any_lane), ROWS)
