"""A product of matrices for long epilogues, in Gluon, the language beneath Triton.

All warps of a Triton program are at the epilogue at the same time, and the tensor cores
wait for them. Gluon gives warps work of their own, as CUDA does: two warpgroups take
turns at epilogue and multiplication, and a warp does nothing but load.

Mirror   csrc/matmul/twin.cuh, matmul_kernel
Source   Triton, tutorials of Gluon: warp specialization, persistent kernels
"""

import triton
from torch import Tensor
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared,
    mbarrier,
    tma,
    warpgroup_mma_init,
    warpgroup_mma_wait,
)

from triton_kernels.common.tensor_map import Sizes, describe, make_in_gluon
from triton_kernels.matmul.gluon_names import barrier, tma_store
from triton_kernels.matmul.ring import (
    BLOCK_K,
    BLOCK_M,
    BLOCK_N,
    HALF_M,
    NUM_STAGES,
    load,
    multiply_stage,
    release,
)
from triton_kernels.matmul.tiles import finish, tile_at

HALF_N = gl.constexpr(128)  # columns that are stored at a time


@gluon.jit
def load_bias(bias_ptr, col, N):
    """The bias of half a tile's columns, one for each thread, or None."""
    LAYOUT: gl.constexpr = gl.BlockedLayout([1], [32], [gl.num_warps()], [0])
    bias = None
    if bias_ptr is not None:
        cols = col + gl.arange(0, HALF_N, LAYOUT)
        bias = gl.load(bias_ptr + cols, mask=cols < N, other=0.0)
    return bias


@gluon.jit
def finish_half(sums, bias, ACTIVATION: gl.constexpr, dtype: gl.constexpr):
    """Bias and activation of half a tile's columns, and the only rounding."""
    if bias is not None:
        bias = gl.convert_layout(bias, gl.SliceLayout(0, sums.type.layout))
    return finish(sums, bias, ACTIVATION, dtype)


@gluon.jit
def store_half(out_map, shared, half, row, col):
    """Stores half a tile's columns once the last half has left shared memory."""
    tma.store_wait(0)
    barrier()
    shared.store(half)
    fence_async_shared()
    barrier()
    tma_store(out_map, [row, col], shared)


@gluon.jit
def multiply(
    ring,
    M,
    N,
    K,
    A_ROW_MAJOR: gl.constexpr,
    B_ROW_MAJOR: gl.constexpr,
    out_map,
    bias_ptr,
    turn,
    ACTIVATION: gl.constexpr,
    shared,
    WARPGROUP: gl.constexpr,
):
    """Computes half the rows of every tile, by one of two warpgroups."""
    SUMS: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, BLOCK_N, 16])
    n_tile_rows, n_tile_cols = gl.cdiv(M, BLOCK_M), gl.cdiv(N, BLOCK_N)
    n_tiles = n_tile_rows * n_tile_cols
    n_steps = gl.cdiv(K, BLOCK_K)
    pause = gl.maximum(n_steps - NUM_STAGES, 0)
    n_multiplied = 0
    turn_parity = 0

    # -- finished: the results of the previous tile, which are stored while this tile is
    # multiplied
    nothing = gl.zeros([HALF_M, BLOCK_N], out_map.dtype, SUMS)
    left, right = nothing.reshape([HALF_M, 2, HALF_N]).permute([0, 2, 1]).split()
    finished_row, finished_col = 0, 0
    has_finished = False
    for index in range(gl.program_id(0), n_tiles, gl.num_programs(0)):
        _, tile_row, tile_col = tile_at(index, n_tile_rows, n_tile_cols)
        row, col = tile_row * BLOCK_M + WARPGROUP * HALF_M, tile_col * BLOCK_N
        left_bias = load_bias(bias_ptr, col, N)  # on their way meanwhile
        right_bias = load_bias(bias_ptr, col + HALF_N, N)

        # -- compute: the second warpgroup pauses before its last steps until the first
        # one is done, and so stays behind it by as many steps as there are stages
        sums = warpgroup_mma_init(gl.zeros([HALF_M, BLOCK_N], gl.float32, SUMS))
        for part in gl.static_range(3):
            begin = gl.minimum(part * NUM_STAGES, pause)
            end = gl.minimum((part + 1) * NUM_STAGES, pause) if part < 2 else pause
            for step in range(begin, end):
                sums = multiply_stage(
                    sums,
                    ring,
                    n_multiplied,
                    step == 0,
                    step > 0,
                    WARPGROUP,
                    A_ROW_MAJOR,
                    B_ROW_MAJOR,
                )
                n_multiplied += 1
            if has_finished:
                if part == 0:
                    store_half(out_map, shared, left, finished_row, finished_col)
                if part == 1:
                    store_half(
                        out_map, shared, right, finished_row, finished_col + HALF_N
                    )
        first_to_release = 0
        if WARPGROUP == 1:
            sums = warpgroup_mma_init(warpgroup_mma_wait(0, deps=(sums,)))
            release(ring, n_multiplied, pause > 0)
            first_to_release = pause
            mbarrier.wait(turn, turn_parity)
            turn_parity ^= 1
        for step in range(pause, n_steps):
            sums = multiply_stage(
                sums,
                ring,
                n_multiplied,
                step == 0,
                step > first_to_release,
                WARPGROUP,
                A_ROW_MAJOR,
                B_ROW_MAJOR,
            )
            n_multiplied += 1
        if WARPGROUP == 0:
            mbarrier.arrive(turn, count=1)
        sums = warpgroup_mma_wait(0, deps=(sums,))
        release(ring, n_multiplied, True)

        # -- epilogue: rounded once
        halves = sums.reshape([HALF_M, 2, HALF_N]).permute([0, 2, 1])
        left_sums, right_sums = halves.split()
        left = finish_half(left_sums, left_bias, ACTIVATION, out_map.dtype)
        right = finish_half(right_sums, right_bias, ACTIVATION, out_map.dtype)
        finished_row, finished_col = row, col
        has_finished = True

    # -- store: the last tile's results
    if has_finished:
        store_half(out_map, shared, left, finished_row, finished_col)
        store_half(out_map, shared, right, finished_row, finished_col + HALF_N)
    tma.store_wait(0)


@gluon.jit
def matmul_gluon_kernel(
    out_map,  # (M, N)
    a_map,  # (M, K), or transposed
    b_map,  # (K, N), or transposed
    bias_ptr,  # (N), or None
    M,
    N,
    K,
    A_ROW_MAJOR: gl.constexpr,
    B_ROW_MAJOR: gl.constexpr,
    ACTIVATION: gl.constexpr,
):
    """Two warpgroups multiply what a warp loads; a program takes many tiles."""
    # -- tile: a program takes every num_programs-th one; the ring serves all of them
    dtype: gl.constexpr = a_map.dtype
    a_stages = gl.allocate_shared_memory(
        dtype, [2 * NUM_STAGES] + a_map.block_type.shape, a_map.layout
    )
    b_stages = gl.allocate_shared_memory(
        dtype, [NUM_STAGES] + b_map.block_type.shape, b_map.layout
    )
    out = gl.allocate_shared_memory(
        dtype, [2] + out_map.block_type.shape, out_map.layout
    )
    full = gl.allocate_shared_memory(
        gl.int64, [NUM_STAGES, 1], mbarrier.MBarrierLayout()
    )
    empty = gl.allocate_shared_memory(
        gl.int64, [NUM_STAGES, 1], mbarrier.MBarrierLayout()
    )
    turn = gl.allocate_shared_memory(gl.int64, [1], mbarrier.MBarrierLayout())
    for stage in gl.static_range(NUM_STAGES):
        mbarrier.init(full.index(stage), count=1)
        mbarrier.init(empty.index(stage), count=2)
    mbarrier.init(turn, count=1)
    ring = a_stages, b_stages, full, empty
    # Written out, as Triton has no unpacking, and turns constants into numbers when it
    # concatenates tuples.
    # fmt: off
    gl.warp_specialize(
        [
            (multiply, (
                ring, M, N, K, A_ROW_MAJOR, B_ROW_MAJOR,
                out_map, bias_ptr, turn, ACTIVATION, out.index(0), 0,
            )),
            (multiply, (
                ring, M, N, K, A_ROW_MAJOR, B_ROW_MAJOR,
                out_map, bias_ptr, turn, ACTIVATION, out.index(1), 1,
            )),
            (load, (ring, M, N, K, A_ROW_MAJOR, B_ROW_MAJOR, a_map, b_map)),
        ],
        [4, 1],  # warps of the second warpgroup and of what loads
        [240, 24],  # their registers
    )
    # fmt: on


def launch_gluon(
    out: Tensor,
    a: Tensor,
    b: Tensor,
    bias: Tensor | None,
    M: int,
    N: int,
    K: int,
    a_strides: Sizes,
    b_strides: Sizes,
    activation: str,
    most_programs: int,
) -> None:
    """Launches matmul_gluon_kernel on the current device, which has to be Hopper."""
    block_m, block_n, block_k = BLOCK_M.value, BLOCK_N.value, BLOCK_K.value
    half_m, half_n = HALF_M.value, HALF_N.value
    n_tiles = triton.cdiv(M, block_m) * triton.cdiv(N, block_n)
    matmul_gluon_kernel[(min(n_tiles, most_programs),)](
        describe(out, (M, N), (N, 1), (half_m, half_n), make_in_gluon),
        describe(a, (M, K), a_strides, (half_m, block_k), make_in_gluon),
        describe(b, (K, N), b_strides, (block_k, block_n), make_in_gluon),
        bias,
        *(M, N, K),
        A_ROW_MAJOR=a_strides[1] == 1,
        B_ROW_MAJOR=b_strides[1] == 1,
        ACTIVATION=activation,
        num_warps=4,
        enable_fp_fusion=True,
    )
