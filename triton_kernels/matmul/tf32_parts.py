"""The parts of matmul_tf32_kernel: its ring, products, and how results leave.

The left operand goes on from shared memory to registers.
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
from triton_kernels.common.ring import make_barriers, wait_for_tile, wait_until_empty
from triton_kernels.matmul.parts import first_part, next_part
from triton_kernels.matmul.split import split_float
from triton_kernels.matmul.tiles import finish, halves_of, load_bias, tile_at

# Rows of a warpgroup, of a part of out that is stored at a time, and its columns.
BOX_SIZE = gl.constexpr(64)
BLOCK_K = gl.constexpr(32)  # a row of 128 bytes


@gluon.jit
def make_boxes(map, N: gl.constexpr):
    """Shared memory for N blocks of a tensor."""
    BLOCK: gl.constexpr = map.block_type.shape
    return gl.allocate_shared_memory(map.dtype, [N, 1, BLOCK[1], BLOCK[2]], map.layout)


@gluon.jit
def make_tf32_ring(
    left_map,
    right_map,
    NUM_STAGES: gl.constexpr,
    NUM_CONSUMERS: gl.constexpr,
    NUM_PLANES: gl.constexpr,
):
    """Stages that hold a box of the left operand for each warpgroup.

    And of the right one, which all share, a tile for each plane.
    """
    left = make_boxes(left_map, NUM_STAGES * NUM_CONSUMERS)
    right = make_boxes(right_map, NUM_STAGES * NUM_PLANES)
    full = make_barriers(NUM_STAGES, 1)
    empty = make_barriers(NUM_STAGES, NUM_CONSUMERS)
    return (left, right), full, empty


@gluon.jit
def load_parts(
    loaded,
    LEFT_IS_SHARED: gl.constexpr,
    RIGHT_IS_SHARED: gl.constexpr,
    B_IS_LEFT: gl.constexpr,
):
    """What the loading warp does: it goes ahead into the next part of a tile."""
    left_map, right_map, ring, sizes, n_streamed = loaded
    stages, full, _ = ring
    left, right = stages
    n_batches, M, N, K, OUT_ROWS, OUT_COLS = sizes
    LEFT_ALONG_K: gl.constexpr = left.shape[3] == BLOCK_K
    NUM_STAGES: gl.constexpr = full.shape[0]
    NUM_BOXES: gl.constexpr = left.shape[0] // NUM_STAGES
    NUM_PLANES: gl.constexpr = right.shape[0] // NUM_STAGES
    # -- load: each stage as soon as all have used what was there
    n_tile_rows, n_tile_cols = gl.cdiv(M, OUT_ROWS), gl.cdiv(N, OUT_COLS)
    n_tiles = n_batches * n_tile_rows * n_tile_cols
    n_steps = gl.cdiv(K, BLOCK_K)
    n_loaded = 0
    tile, first_step, n_own_steps = first_part(n_streamed, n_steps)
    while tile < n_tiles:
        batch, tile_row, tile_col = tile_at(tile, n_tile_rows, n_tile_cols)
        row, col = tile_row * OUT_ROWS, tile_col * OUT_COLS
        left_row, right_row = (col, row) if B_IS_LEFT else (row, col)
        left_batch = 0 if LEFT_IS_SHARED else batch
        right_batch = 0 if RIGHT_IS_SHARED else batch
        plane_size = 1 if RIGHT_IS_SHARED else n_batches
        for step in range(first_step, first_step + n_own_steps):
            stage = n_loaded % NUM_STAGES
            wait_until_empty(ring, n_loaded)
            mbarrier.expect(
                full.index(stage),
                NUM_BOXES * left_map.block_type.nbytes
                + NUM_PLANES * right_map.block_type.nbytes,
            )
            k = step * BLOCK_K
            for i in gl.static_range(NUM_BOXES):
                row, col = left_row + i * BOX_SIZE, k
                if not LEFT_ALONG_K:
                    row, col = col, row
                place = [left_batch, row, col]
                box = left.index(stage * NUM_BOXES + i)
                tma_load(left_map, place, full.index(stage), box)
            for plane in gl.static_range(NUM_PLANES):
                place = [plane * plane_size + right_batch, right_row, k]
                box = right.index(stage * NUM_PLANES + plane)
                tma_load(right_map, place, full.index(stage), box)
            n_loaded += 1
        tile, first_step, n_own_steps = next_part(tile, n_streamed, n_steps)


@gluon.jit
def load_left(ring, count, MMA: gl.constexpr, WARPGROUP: gl.constexpr):
    """What a warpgroup takes of the left operand in a step, in registers, by planes."""
    stages, full, _ = ring
    left, right = stages
    NUM_STAGES: gl.constexpr = full.shape[0]
    NUM_CONSUMERS: gl.constexpr = left.shape[0] // NUM_STAGES
    NUM_PLANES: gl.constexpr = right.shape[0] // NUM_STAGES
    FRAGMENTS: gl.constexpr = gl.DotOperandLayout(0, MMA, 1)
    wait_for_tile(ring, count)
    box = left.index(count % NUM_STAGES * NUM_CONSUMERS + WARPGROUP)
    matrix = box.reshape([left.shape[2], left.shape[3]])
    if left.shape[3] == BLOCK_K:
        x = matrix.load(FRAGMENTS)
    else:
        x = matrix.permute((1, 0)).load(FRAGMENTS)
    return split_float(x) if NUM_PLANES == 2 else (x,)


@gluon.jit
def start_products(sums, left, ring, count):
    """A step's products: added to the sums or, of two planes, sums of their own.

    The tensor cores cut off the bits that a sum has no room for. So they sum up one
    step, the small products first, and steps are added with rounding.
    """
    stages, full, _ = ring
    _, right = stages
    NUM_PLANES: gl.constexpr = right.shape[0] // full.shape[0]
    first = count % full.shape[0] * NUM_PLANES
    matrix: gl.constexpr = [right.shape[2], BLOCK_K]
    large = right.index(first).reshape(matrix).permute((1, 0))
    if NUM_PLANES == 1:
        products = warpgroup_mma(left[0], large, sums, is_async=True)
    else:
        small = right.index(first + 1).reshape(matrix).permute((1, 0))
        none = gl.zeros_like(sums)
        products = warpgroup_mma(left[1], large, none, use_acc=False, is_async=True)
        products = warpgroup_mma(left[0], small, products, is_async=True)
        products = warpgroup_mma(left[0], large, products, is_async=True)
    return products


@gluon.jit
def wait_for_products(sums, products, left):
    """The sums with those of a step, once there are all that have been started."""
    NUM_PLANES: gl.constexpr = len(left)
    if NUM_PLANES == 1:
        sums, _ = warpgroup_mma_wait(0, deps=(products, left[0]))
    else:
        products, _, _ = warpgroup_mma_wait(0, deps=(products, left[0], left[1]))
        sums += products
    return sums


@gluon.jit
def store_part(part_ptr, sums, row, OUT_COLS: gl.constexpr, B_IS_LEFT: gl.constexpr):
    """Leaves a warpgroup's sums of a part of a tile, in rows of out.

    `row` is the first of the left operand's.
    """
    LAYOUT: gl.constexpr = sums.type.layout
    rows = row + gl.arange(0, sums.shape[0], gl.SliceLayout(1, LAYOUT))[:, None]
    cols = gl.arange(0, sums.shape[1], gl.SliceLayout(0, LAYOUT))[None, :]
    offsets = cols * OUT_COLS + rows if B_IS_LEFT else rows * OUT_COLS + cols
    gl.store(part_ptr + offsets, sums)


@gluon.jit
def store_results(
    target,
    sums,
    place,
    sizes,
    OUT_HAS_MAP: gl.constexpr,
    ACTIVATION: gl.constexpr,
    B_IS_LEFT: gl.constexpr,
):
    """Stores a warpgroup's sums after the epilogue, 64 x 64 at a time.

    Through shared memory, which transposes them where b is on the left.
    """
    out, bias_ptr, box = target
    batch, row, col = place
    HALF: gl.constexpr = sums.shape[1] // 2
    if sums.shape[1] > BOX_SIZE:
        first, second = halves_of(sums)
        end = (batch, row + HALF, col) if B_IS_LEFT else (batch, row, col + HALF)
        store_results(target, first, place, sizes, OUT_HAS_MAP, ACTIVATION, B_IS_LEFT)
        store_results(target, second, end, sizes, OUT_HAS_MAP, ACTIVATION, B_IS_LEFT)
    else:
        M, N = sizes[1], sizes[2]
        results = sums.permute((1, 0)) if B_IS_LEFT else sums
        ALONG: gl.constexpr = gl.SliceLayout(0, results.type.layout)
        bias = load_bias(bias_ptr, col + gl.arange(0, BOX_SIZE, ALONG), N)
        results = finish(results, bias, ACTIVATION, gl.float32)
        tma.store_wait(0)
        box.reshape([BOX_SIZE, BOX_SIZE]).store(results)
        if OUT_HAS_MAP:
            fence_async_shared()
            tma_store(out, [batch, row, col], box)
        else:  # element by element: neighbours by neighbouring threads
            LINES: gl.constexpr = gl.BlockedLayout([1, 1], [1, 32], [4, 1], [1, 0])
            results = box.reshape([BOX_SIZE, BOX_SIZE]).load(LINES)
            rows = row + gl.arange(0, BOX_SIZE, gl.SliceLayout(1, LINES))[:, None]
            cols = col + gl.arange(0, BOX_SIZE, gl.SliceLayout(0, LINES))[None, :]
            out += (batch.to(gl.int64) * M + rows) * N + cols
            gl.store(out, results, mask=(rows < M) & (cols < N))
