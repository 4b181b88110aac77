"""The twin: warpgroups multiply 8-bit floats straight from shared memory, a warp loads.

The tensor cores add products of 8 bits with 13 bits of fraction alone. So they sum up
one step of 128 along k, and steps are added in registers, with rounding. Meanwhile they
multiply the next step, whose sums have registers of their own.

One warp has the tensor memory accelerator (TMA) fill a ring of stages, ahead of the
multiplications and into the next tile. A program takes every num_programs-th tile.
"""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared,
    mbarrier,
    tma,
    warpgroup_mma,
    warpgroup_mma_wait,
)

from triton_kernels.common.gluon_names import tma_load, tma_store
from triton_kernels.common.ring import (
    make_barriers,
    release,
    wait_for_tile,
    wait_until_empty,
)
from triton_kernels.matmul.tiles import halves_of, tile_at
from triton_kernels.scaled_matmul.scales import load_scales, scaled

BOX_SIZE = gl.constexpr(64)  # rows and columns of results that are stored at a time
NUM_CONSUMERS = gl.constexpr(2)  # warpgroups that multiply, each 64 rows of a tile
BLOCK_M = gl.constexpr(128)
# Rows of tiles that are taken together: matmul takes 8, of twice the bytes. With more,
# columns of b are read from memory less often. In CUDA there are 8 here as well,
# and blocks in pairs, which read the same columns at a time.
GROUP_M = gl.constexpr(16)


@gluon.jit
def load_tiles(a_map, b_map, ring, M, N, K):
    """What the loading warp does: it goes ahead into the next tile."""
    stages, full, _empty = ring
    a_stages, b_stages = stages
    NUM_STAGES: gl.constexpr = full.shape[0]
    BLOCK_N: gl.constexpr = b_stages.shape[2]
    BLOCK_K: gl.constexpr = b_stages.shape[3]
    # Rows that a does not have would take a copy as long as others.
    N_COPIED_ROWS: gl.constexpr = a_map.block_type.shape[1]
    # -- load: each stage as soon as both warpgroups have used what was there
    n_tile_rows, n_tile_cols = gl.cdiv(M, BLOCK_M), gl.cdiv(N, BLOCK_N)
    n_loaded = 0
    for index in range(gl.program_id(0), n_tile_rows * n_tile_cols, gl.num_programs(0)):
        _batch, tile_row, tile_col = tile_at(index, n_tile_rows, n_tile_cols, GROUP_M)
        for step in range(gl.cdiv(K, BLOCK_K)):
            stage = n_loaded % NUM_STAGES
            wait_until_empty(ring, n_loaded)
            n_bytes: gl.constexpr = a_map.block_type.nbytes + b_map.block_type.nbytes
            mbarrier.expect(full.index(stage), n_bytes)
            a_place = [0, tile_row * BLOCK_M, step * BLOCK_K]
            b_place = [0, tile_col * BLOCK_N, step * BLOCK_K]
            a_rows = a_stages.index(stage).slice(0, N_COPIED_ROWS, dim=1)
            tma_load(a_map, a_place, full.index(stage), a_rows)
            tma_load(b_map, b_place, full.index(stage), b_stages.index(stage))
            n_loaded += 1


@gluon.jit
def store_results(out, box, results, row, col, M, N, OUT_HAS_MAP: gl.constexpr):
    """Stores 64 rows, 64 columns at a time, through shared memory."""
    if results.shape[1] > BOX_SIZE:
        left, right = halves_of(results)
        next_col = col + results.shape[1] // 2
        store_results(out, box, left, row, col, M, N, OUT_HAS_MAP)
        store_results(out, box, right, row, next_col, M, N, OUT_HAS_MAP)
    else:
        matrix = box.reshape([BOX_SIZE, BOX_SIZE])
        tma.store_wait(0)
        matrix.store(results)
        if OUT_HAS_MAP:
            fence_async_shared()
            tma_store(out, [0, row, col], box)
        else:  # element by element: neighbours by neighbouring threads
            LINES: gl.constexpr = gl.BlockedLayout([1, 1], [1, 32], [4, 1], [1, 0])
            lines = matrix.load(LINES)
            rows = row + gl.arange(0, BOX_SIZE, gl.SliceLayout(1, LINES))[:, None]
            cols = col + gl.arange(0, BOX_SIZE, gl.SliceLayout(0, LINES))[None, :]
            out += rows.to(gl.int64) * N + cols
            gl.store(out, lines, mask=(rows < M) & (cols < N))


@gluon.jit
def multiply(ring, count, nothing, W: gl.constexpr):
    """Starts to sum up a step: 64 rows of the tile that comes after `count` others."""
    stages, _full, _empty = ring
    a_stages, b_stages = stages
    BLOCK_N: gl.constexpr = b_stages.shape[2]
    BLOCK_K: gl.constexpr = b_stages.shape[3]
    stage = count % a_stages.shape[0]
    wait_for_tile(ring, count)
    a = a_stages.index(stage).reshape([BLOCK_M, BLOCK_K])
    b = b_stages.index(stage).reshape([BLOCK_N, BLOCK_K]).permute((1, 0))
    rows = a.slice(W * BOX_SIZE, BOX_SIZE, dim=0)
    return warpgroup_mma(rows, b, nothing, use_acc=False, is_async=True)


@gluon.jit
def add(sums, step_sums, ring, count, N_UNFINISHED: gl.constexpr):
    """Adds a step, and hands its stage back."""
    step_sums = warpgroup_mma_wait(N_UNFINISHED, deps=(step_sums,))
    release(ring, count)
    return sums + step_sums


@gluon.jit
def consume(
    out, boxes, scales, ring, M, N, K, OUT_HAS_MAP: gl.constexpr, W: gl.constexpr
):
    """What the W-th warpgroup does with its rows of each tile."""
    scale_a_ptr, scale_b_ptr, scale_a_stride, scale_b_stride = scales
    stages, _full, _empty = ring
    _a_stages, b_stages = stages
    BLOCK_N: gl.constexpr = b_stages.shape[2]
    BLOCK_K: gl.constexpr = b_stages.shape[3]
    MMA: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, BLOCK_N, 32])
    LANES: gl.constexpr = gl.BlockedLayout([1], [32], [4], [0])
    # -- tile: every num_programs-th one
    n_tile_rows, n_tile_cols = gl.cdiv(M, BLOCK_M), gl.cdiv(N, BLOCK_N)
    n_steps = gl.cdiv(K, BLOCK_K)
    n_used = 0
    for index in range(gl.program_id(0), n_tile_rows * n_tile_cols, gl.num_programs(0)):
        _batch, tile_row, tile_col = tile_at(index, n_tile_rows, n_tile_cols, GROUP_M)
        row, col = tile_row * BLOCK_M + W * BOX_SIZE, tile_col * BLOCK_N
        # Scales are on their way while the tile is multiplied.
        rows = row + gl.arange(0, BOX_SIZE, gl.SliceLayout(1, MMA))
        scale_a = load_scales(scale_a_ptr, rows, M, scale_a_stride)
        cols = col + gl.arange(0, BLOCK_N, LANES)
        scale_b = load_scales(scale_b_ptr, cols, N, scale_b_stride)

        # -- compute: a step is multiplied while the one before is added, in turns by
        # two sets of registers
        nothing = gl.zeros([BOX_SIZE, BLOCK_N], gl.float32, MMA)
        sums = nothing
        even_sums = multiply(ring, n_used, nothing, W)
        for _pair in range((n_steps - 1) // 2):
            odd_sums = multiply(ring, n_used + 1, nothing, W)
            sums = add(sums, even_sums, ring, n_used, 1)
            even_sums = multiply(ring, n_used + 2, nothing, W)
            sums = add(sums, odd_sums, ring, n_used + 1, 1)
            n_used += 2
        if n_steps % 2 == 0:
            odd_sums = multiply(ring, n_used + 1, nothing, W)
            sums = add(sums, even_sums, ring, n_used, 1)
            sums = add(sums, odd_sums, ring, n_used + 1, 0)
            n_used += 2
        else:
            sums = add(sums, even_sums, ring, n_used, 0)
            n_used += 1

        # -- store: after the scales, rounded once, 64 x 64 results at a time
        scale_b = gl.convert_layout(scale_b, gl.SliceLayout(0, MMA))
        results = scaled(sums, scale_a, scale_b, boxes.dtype)
        store_results(out, boxes.index(W), results, row, col, M, N, OUT_HAS_MAP)
    tma.store_wait(0)


@gluon.jit
def scaled_matmul_kernel(
    out,  # (M, N): its map or, where its rows are not aligned, its address
    a_map,  # (M, K)
    b_map,  # (N, K)
    scale_a_ptr,  # (M) or, with a stride of 0, (1)
    scale_b_ptr,  # (N) or, likewise, (1)
    M,
    N,
    K,
    scale_a_stride,
    scale_b_stride,
    BLOCK_N: gl.constexpr,
    BLOCK_K: gl.constexpr,
    NUM_STAGES: gl.constexpr,
    OUT_HAS_MAP: gl.constexpr,
):
    # -- tile: every num_programs-th one
    scales = scale_a_ptr, scale_b_ptr, scale_a_stride, scale_b_stride

    # -- load: by one warp, each stage as soon as both have used what was there
    a_stages = gl.allocate_shared_memory(
        a_map.dtype, [NUM_STAGES, 1, BLOCK_M, BLOCK_K], a_map.layout
    )
    b_stages = gl.allocate_shared_memory(
        b_map.dtype, [NUM_STAGES, 1, BLOCK_N, BLOCK_K], b_map.layout
    )
    if a_map.block_type.shape[1] < BLOCK_M:  # zeros for the rows that no copy fills
        CHUNKS: gl.constexpr = gl.BlockedLayout(
            [1, 1, 16], [1, 4, 8], [1, 4, 1], [2, 1, 0]
        )
        zeros = gl.zeros([1, BLOCK_M, BLOCK_K], gl.uint8, CHUNKS).to(
            a_map.dtype, bitcast=True
        )
        for stage in gl.static_range(NUM_STAGES):
            a_stages.index(stage).store(zeros)
    full = make_barriers(NUM_STAGES, 1)
    ring = (a_stages, b_stages), full, make_barriers(NUM_STAGES, NUM_CONSUMERS)
    loaded = a_map, b_map, ring, M, N, K

    # -- compute: by a warpgroup each half of the rows; a step is multiplied while the
    # one before is added
    # -- store: after the scales, rounded once, through shared memory
    DTYPE: gl.constexpr = out.dtype if OUT_HAS_MAP else out.dtype.element_ty
    SWIZZLED: gl.constexpr = gl.NVMMASharedLayout(128, DTYPE.primitive_bitwidth, rank=3)
    boxes = gl.allocate_shared_memory(
        DTYPE, [NUM_CONSUMERS, 1, BOX_SIZE, BOX_SIZE], SWIZZLED
    )
    fence_async_shared()

    # A thread's registers, of which a program has 65536: it takes many to multiply, few
    # to load. The first warpgroup gets what the others leave, which is as many.
    gl.warp_specialize(
        [
            (consume, (out, boxes, scales, ring, M, N, K, OUT_HAS_MAP, 0)),
            (consume, (out, boxes, scales, ring, M, N, K, OUT_HAS_MAP, 1)),
            (load_tiles, loaded),
        ],
        *([4, 1], [240, 24]),
    )
