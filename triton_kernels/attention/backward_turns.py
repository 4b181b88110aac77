"""Turns of attention_backward_kernel's programs, by which sums have an order.

Each adds its parts of queries' gradients when all programs of a head's keys that were
taken before have added theirs. Sums are then of the same order in every call, and have
the same bits. Nobody waits for a program that has not started.

A warp of its own asks whether the turn of the program has come, while the others
multiply, and one more passes it on. If keys are taken from the first ones on, all
programs begin with the last queries at about the same time, and each is a step behind
the one before. Causal keys have few queries, and soon others take their place, which
begin together again. So these are taken from the last ones back, and each program
begins with the first queries that see its keys: the program before has begun with the
queries behind, and nobody waits.
"""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import mbarrier

from triton_kernels.attention.backward_sums import (
    BOX_SIZE,
    add_to_sums,
    count_sums,
    n_added_at,
)
from triton_kernels.attention.tile_order import (
    are_seen,
    first_step,
    key_tile_at,
    keys_of_rows,
    step_behind,
)
from triton_kernels.common.gluon_names import barrier
from triton_kernels.common.ring import make_barriers


@gluon.jit
def make_turn(TAKES_TURNS: gl.constexpr, NUM_CONSUMERS: gl.constexpr):
    """What is waited for before a step's part is added, and what is told thereafter."""
    return make_barriers(1, 2), make_barriers(1, NUM_CONSUMERS), TAKES_TURNS


@gluon.jit
def add_in_turn(
    turn, count, sums_ptr, index, part, HEAD_DIM: gl.constexpr, W: gl.constexpr
):
    """By a warpgroup: adds its part of a step after `count` turns, if there are any."""
    has_come, is_over, TAKES_TURNS = turn
    if TAKES_TURNS:
        mbarrier.wait(has_come.index(0), count & 1)
    add_to_sums(sums_ptr, index, part, HEAD_DIM, W)
    if TAKES_TURNS:
        barrier()
        mbarrier.arrive(is_over.index(0), count=1)


@gluon.jit
def turns_of(shared, sizes, n_kv_heads, order):
    """A program's first head, its key, and its steps: 0 of keys nobody sees.

    Then the row of the first step, how many rows lead to the next ones, and whether
    keys are taken from the last ones back.
    """
    k_boxes, _, _, steps, _ = shared
    BLOCK_N: gl.constexpr = k_boxes.shape[0] * k_boxes.shape[2]
    BLOCK_M: gl.constexpr = steps[0].shape[2]
    batch, kv_head, key, first_row, n_steps, is_from_last = key_tile_at(
        gl.program_id(0), sizes, n_kv_heads, *order, BLOCK_M, BLOCK_N
    )
    n_sharing = sizes[1] // n_kv_heads
    first_head = batch * sizes[1] + kv_head * n_sharing
    row, row_step = first_step(first_row, n_steps, is_from_last, BLOCK_M)
    n_turns = gl.where(are_seen(key, BLOCK_N, sizes, order[1]), n_sharing * n_steps, 0)
    return first_head, key, n_turns, row, row_step, is_from_last


@gluon.jit
def count_before(key, row, is_from_last, shared, sizes, window):
    """How many programs add to the sums of a step before the one of a key."""
    k_boxes, _, _, steps, _ = shared
    BLOCK_N: gl.constexpr = k_boxes.shape[0] * k_boxes.shape[2]
    first_key, end_key = keys_of_rows(row, steps[0].shape[2], sizes, window)
    from_last = (end_key - 1) // BLOCK_N - key // BLOCK_N
    return gl.where(is_from_last, from_last, key // BLOCK_N - first_key // BLOCK_N)


@gluon.jit
def ask_for_turns(sums_ptr, shared, sizes, n_kv_heads, order):
    """What one warp does.

    It asks before each step whether all others that come first have added theirs.
    """
    k_boxes, _, _, steps, turn = shared
    has_come, _, TAKES_TURNS = turn
    HEAD_DIM: gl.constexpr = k_boxes.shape[4]
    BLOCK_M: gl.constexpr = steps[0].shape[2]
    first_head, key, n_turns, row, row_step, is_from_last = turns_of(
        shared, sizes, n_kv_heads, order
    )
    head, n_sums = gl.to_tensor(0), count_sums(sizes[2], BLOCK_M)
    for i in range(n_turns if TAKES_TURNS else 0):
        index = (first_head + head) * n_sums + row // BOX_SIZE
        n_added_ptr = n_added_at(sums_ptr, index, HEAD_DIM)
        n_before = count_before(key, row, is_from_last, shared, sizes, order[1])
        while gl.atomic_add(n_added_ptr, 0, sem="acquire") != n_before:
            pass
        mbarrier.arrive(has_come.index(0), count=1)
        mbarrier.wait(has_come.index(0), i & 1)
        head, row = step_behind(head, row, row_step, sizes[1] // n_kv_heads)


@gluon.jit
def pass_turns_on(sums_ptr, shared, sizes, n_kv_heads, order):
    """What another one does.

    It lets the next step come once all have added theirs, and tells the next program,
    which takes longer: it waits for what has been added to be in memory. Meanwhile one
    step can come and be over, and no second one, as each needs this warp to let it.
    """
    k_boxes, _, _, steps, turn = shared
    has_come, is_over, TAKES_TURNS = turn
    HEAD_DIM: gl.constexpr = k_boxes.shape[4]
    BLOCK_M: gl.constexpr = steps[0].shape[2]
    first_head, _, n_turns, row, row_step, _ = turns_of(
        shared, sizes, n_kv_heads, order
    )
    head, n_sums = gl.to_tensor(0), count_sums(sizes[2], BLOCK_M)
    mbarrier.arrive(has_come.index(0), count=1)
    for i in range(n_turns if TAKES_TURNS else 0):
        index = (first_head + head) * n_sums + row // BOX_SIZE
        n_added_ptr = n_added_at(sums_ptr, index, HEAD_DIM)
        mbarrier.wait(is_over.index(0), i & 1)
        mbarrier.arrive(has_come.index(0), count=1)
        gl.atomic_add(n_added_ptr, 1, sem="release")
        head, row = step_behind(head, row, row_step, sizes[1] // n_kv_heads)
