"""The product of matrices once more, for epilogues that take long.

  matmul: out[i, j] = f(sum over k of a[i, k] b[k, j] + bias[j])

In Triton all warps of a program are at the epilogue at the same time, and the tensor
cores wait for them. Gluon, the language beneath it, gives warps work of their own. So
two warpgroups take turns here: one is at its epilogue while the other multiplies, and a
warp does nothing but load.

Layout   as in triton_kernels/matmul/matmul.py, of one product at a time
Traffic  the same
Limits   accumulates in float32 and rounds once; for Hopper alone
Mirror   csrc/matmul/matmul.cu, matmul_kernel
Source   Triton, tutorials of Gluon: warp specialization, persistent kernels
"""

import functools

import torch
import triton
from torch import Tensor
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared,
    mbarrier,
    tma,
    warpgroup_mma,
    warpgroup_mma_init,
    warpgroup_mma_wait,
)
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

from triton_kernels.common.tiles import Address, finish, tile_at
from triton_kernels.common.gluon_names import barrier, tma_load, tma_store

Shape = tuple[int, int]

BLOCK_M, BLOCK_N, BLOCK_K = gl.constexpr(128), gl.constexpr(256), gl.constexpr(64)
HALF_M = gl.constexpr(64)  # the rows of a warpgroup
HALF_N = gl.constexpr(128)  # the columns that are stored at a time
NUM_STAGES = gl.constexpr(4)
GROUP_M = gl.constexpr(8)  # rows of tiles that are under way at a time

DTYPES = {torch.float16: gl.float16, torch.bfloat16: gl.bfloat16}


@gluon.jit
def load(
    a_stages,
    b_stages,
    full,
    empty,
    M,
    N,
    K,
    A_ROW_MAJOR: gl.constexpr,
    B_ROW_MAJOR: gl.constexpr,
    a_map,
    b_map,
):
    """A stage as soon as both warpgroups have used what was there."""
    BYTES: gl.constexpr = 2 * a_map.block_type.nbytes + b_map.block_type.nbytes
    n_tile_rows, n_tile_cols = gl.cdiv(M, BLOCK_M), gl.cdiv(N, BLOCK_N)
    n_tiles = n_tile_rows * n_tile_cols
    n_loaded = 0
    for index in range(gl.program_id(0), n_tiles, gl.num_programs(0)):
        _, tile_row, tile_col = tile_at(index, n_tile_rows, n_tile_cols, GROUP_M)
        row, col = tile_row * BLOCK_M, tile_col * BLOCK_N
        for k in range(0, K, BLOCK_K):
            stage = n_loaded % NUM_STAGES
            parity = n_loaded // NUM_STAGES & 1
            mbarrier.wait(empty.index(stage), parity ^ 1)
            mbarrier.expect(full.index(stage), BYTES)
            for half in gl.static_range(2):
                half_row = row + half * HALF_M
                tma_load(
                    a_map,
                    [half_row, k] if A_ROW_MAJOR else [k, half_row],
                    full.index(stage),
                    a_stages.index(2 * stage + half),
                )
            tma_load(
                b_map,
                [k, col] if B_ROW_MAJOR else [col, k],
                full.index(stage),
                b_stages.index(stage),
            )
            n_loaded += 1


@gluon.jit
def release(empty, n_multiplied, when):
    """The stage before the one that comes next."""
    last = (n_multiplied + NUM_STAGES - 1) % NUM_STAGES
    mbarrier.arrive(empty.index(last), count=1, pred=when)


@gluon.jit
def multiply_stage(
    sums,
    a_stages,
    b_stages,
    full,
    empty,
    n_multiplied,
    is_first,
    releases,
    WARPGROUP: gl.constexpr,
    A_ROW_MAJOR: gl.constexpr,
    B_ROW_MAJOR: gl.constexpr,
):
    """Hands a stage in, and when its first half has been, the one before it is done."""
    stage = n_multiplied % NUM_STAGES
    mbarrier.wait(full.index(stage), n_multiplied // NUM_STAGES & 1)
    a = a_stages.index(2 * stage + WARPGROUP)
    b = b_stages.index(stage)
    a = a if A_ROW_MAJOR else a.permute((1, 0))
    b = b if B_ROW_MAJOR else b.permute((1, 0))
    HALF_K: gl.constexpr = a.shape[1] // 2
    sums = warpgroup_mma(
        a.slice(0, HALF_K, dim=1),
        b.slice(0, HALF_K, dim=0),
        sums,
        use_acc=not is_first,
        is_async=True,
    )
    sums = warpgroup_mma_init(warpgroup_mma_wait(1, deps=(sums,)))
    release(empty, n_multiplied, releases)
    return warpgroup_mma(
        a.slice(HALF_K, HALF_K, dim=1),
        b.slice(HALF_K, HALF_K, dim=0),
        sums,
        is_async=True,
    )


@gluon.jit
def load_bias(bias_ptr, col, N):
    """The bias of half a tile's columns, one a thread, or None where there is none."""
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
    """Stores half a tile's columns, once the half before has left shared memory."""
    tma.store_wait(0)
    barrier()
    shared.store(half)
    fence_async_shared()
    barrier()
    tma_store(out_map, [row, col], shared)


@gluon.jit
def multiply(
    a_stages,
    b_stages,
    full,
    empty,
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
    """Half the rows of every tile, by one of two warpgroups."""
    SUMS: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, BLOCK_N, 16])
    n_tile_rows, n_tile_cols = gl.cdiv(M, BLOCK_M), gl.cdiv(N, BLOCK_N)
    n_tiles = n_tile_rows * n_tile_cols
    n_steps = gl.cdiv(K, BLOCK_K)
    pause = gl.maximum(n_steps - NUM_STAGES, 0)
    n_multiplied = 0
    turn_parity = 0

    # What has become of the sums of the tile before, which is stored while this one is
    # multiplied.
    nothing = gl.zeros([HALF_M, BLOCK_N], out_map.dtype, SUMS)
    left, right = nothing.reshape([HALF_M, 2, HALF_N]).permute([0, 2, 1]).split()
    finished_row, finished_col = 0, 0
    has_finished = False
    for index in range(gl.program_id(0), n_tiles, gl.num_programs(0)):
        _, tile_row, tile_col = tile_at(index, n_tile_rows, n_tile_cols, GROUP_M)
        row, col = tile_row * BLOCK_M + WARPGROUP * HALF_M, tile_col * BLOCK_N
        left_bias = load_bias(bias_ptr, col, N)  # on their way meanwhile
        right_bias = load_bias(bias_ptr, col + HALF_N, N)

        # -- compute: the second warpgroup pauses before its last steps until the first
        # one is through, and so is behind it by as many steps as there are stages
        sums = warpgroup_mma_init(gl.zeros([HALF_M, BLOCK_N], gl.float32, SUMS))
        for part in gl.static_range(3):
            begin = gl.minimum(part * NUM_STAGES, pause)
            end = gl.minimum((part + 1) * NUM_STAGES, pause) if part < 2 else pause
            for step in range(begin, end):
                sums = multiply_stage(
                    sums,
                    a_stages,
                    b_stages,
                    full,
                    empty,
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
            release(empty, n_multiplied, pause > 0)
            first_to_release = pause
            mbarrier.wait(turn, turn_parity)
            turn_parity ^= 1
        for step in range(pause, n_steps):
            sums = multiply_stage(
                sums,
                a_stages,
                b_stages,
                full,
                empty,
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
        release(empty, n_multiplied, True)

        # -- epilogue: rounded once
        halves = sums.reshape([HALF_M, 2, HALF_N]).permute([0, 2, 1])
        left_sums, right_sums = halves.split()
        left = finish_half(left_sums, left_bias, ACTIVATION, out_map.dtype)
        right = finish_half(right_sums, right_bias, ACTIVATION, out_map.dtype)
        finished_row, finished_col = row, col
        has_finished = True

    # -- store: what the last tile has left
    if has_finished:
        store_half(out_map, shared, left, finished_row, finished_col)
        store_half(out_map, shared, right, finished_row, finished_col + HALF_N)
    tma.store_wait(0)


@gluon.jit
def matmul_kernel(
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
    # Triton has no unpacking, and makes numbers of constants when it adds tuples up.
    # fmt: off
    gl.warp_specialize(
        [
            (multiply, (
                a_stages, b_stages, full, empty, M, N, K, A_ROW_MAJOR, B_ROW_MAJOR,
                out_map, bias_ptr, turn, ACTIVATION, out.index(0), 0,
            )),
            (multiply, (
                a_stages, b_stages, full, empty, M, N, K, A_ROW_MAJOR, B_ROW_MAJOR,
                out_map, bias_ptr, turn, ACTIVATION, out.index(1), 1,
            )),
            (load, (
                a_stages, b_stages, full, empty, M, N, K, A_ROW_MAJOR, B_ROW_MAJOR,
                a_map, b_map,
            )),
        ],
        [4, 1],  # warps of the second warpgroup and of what loads
        [240, 24],  # their registers
    )
    # fmt: on


def describe(x: Tensor, shape: Shape, strides: Shape, block: Shape) -> TensorDescriptor:
    """How TMA finds the boxes of a matrix, or of its transpose if that is row-major."""
    stride_row, stride_col = strides
    if stride_col != 1:
        shape, block, stride_row = shape[::-1], block[::-1], stride_col
    if x.is_meta:  # read by another program than the one that launches
        return descriptor(x, shape, stride_row, block)
    return cached_descriptor(Address(x.data_ptr(), x.dtype), shape, stride_row, block)


def descriptor(
    base: Tensor | Address, shape: Shape, stride_row: int, block: Shape
) -> TensorDescriptor:
    """Of a matrix whose columns are neighbours."""
    layout = gl.NVMMASharedLayout.get_default_for(list(block), DTYPES[base.dtype])
    strides = [stride_row, 1]
    return TensorDescriptor(base, list(shape), strides, list(block), layout)


cached_descriptor = functools.lru_cache(maxsize=1024)(descriptor)


def matmul(
    out: Tensor,
    a: Tensor,
    b: Tensor,
    bias: Tensor | None,
    M: int,
    N: int,
    K: int,
    a_strides: Shape,
    b_strides: Shape,
    activation: str,
    num_programs: int,
) -> None:
    """Launches the kernel on the current device, of compute capability 9.0, and stream.

    Args:
        out: The product, contiguous.
        a: The left factor.
        b: The right factor.
        bias: Is added to every row of the product.
        M: Rows of a.
        N: Columns of b.
        K: Columns of a.
        a_strides: From row to row and from column to column of a, of which one is 1.
        b_strides: The same of b.
        activation: One of ACTIVATIONS.
        num_programs: One for each multiprocessor.
    """
    block_m, block_n, block_k = BLOCK_M.value, BLOCK_N.value, BLOCK_K.value
    n_tiles = triton.cdiv(M, block_m) * triton.cdiv(N, block_n)
    matmul_kernel[(min(n_tiles, num_programs),)](
        describe(out, (M, N), (N, 1), (HALF_M.value, HALF_N.value)),
        describe(a, (M, K), a_strides, (HALF_M.value, block_k)),
        describe(b, (K, N), b_strides, (block_k, block_n)),
        bias,
        M,
        N,
        K,
        A_ROW_MAJOR=a_strides[1] == 1,
        B_ROW_MAJOR=b_strides[1] == 1,
        ACTIVATION=activation,
        num_warps=4,
        enable_fp_fusion=True,
    )
