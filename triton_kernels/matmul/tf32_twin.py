"""The twin for float32 on tensor cores: one tf32 product, or three ("tf32x3").

The sums of three are about as exact as those of float32.

The tensor cores take tf32 from shared memory only where it is contiguous along k. So
one operand, the left one, comes to them through registers, which load it in any order.
Where that is b, the kernel computes the transpose of out.

tf32x3: a number is the sum of a large and a small tf32 number; of their four products
the smallest is left out, so that a single product has some 22 bits. The left operand is
split in registers, the right one by the launch that copied it, to two planes.
"""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared,
    mbarrier,
    tma,
)

from triton_kernels.common.griddepcontrol import (
    griddepcontrol_launch_dependents,
    griddepcontrol_wait,
)
from triton_kernels.common.ring import make_barriers, release
from triton_kernels.common.tensor_map import round_as_loaded
from triton_kernels.matmul.parts import first_part, next_part, place_of, start_of
from triton_kernels.matmul.tf32_parts import (
    BLOCK_K,
    BOX_SIZE,
    load_left,
    load_parts,
    make_tf32_ring,
    start_products,
    store_part,
    store_results,
    wait_for_products,
)
from triton_kernels.matmul.tiles import tile_at


@gluon.jit
def consume(
    common,
    OUT_HAS_MAP: gl.constexpr,
    ACTIVATION: gl.constexpr,
    B_IS_LEFT: gl.constexpr,
    WARPGROUP: gl.constexpr,
):
    """What a warpgroup does with its 64 rows of the left operand."""
    results, ring, turn, sizes, n_streamed = common
    out, bias_ptr, parts_ptr, boxes = results
    n_batches, M, N, K, OUT_ROWS, OUT_COLS = sizes
    NUM_STAGES: gl.constexpr = ring[1].shape[0]
    BLOCK_N: gl.constexpr = ring[0][1].shape[2]
    MMA: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, BLOCK_N, 8])
    # -- tile: parts of those that are shared, then every num_programs-th one
    n_tile_rows, n_tile_cols = gl.cdiv(M, OUT_ROWS), gl.cdiv(N, OUT_COLS)
    n_tiles = n_batches * n_tile_rows * n_tile_cols
    n_steps = gl.cdiv(K, BLOCK_K)
    n_used, turn_parity = 0, 0
    tile, _, n_own_steps = first_part(n_streamed, n_steps)
    while tile < n_tiles:
        # -- compute: the next step's fragments are loaded while this one's are
        # multiplied
        takes_turns = n_own_steps > NUM_STAGES
        sums = gl.zeros([BOX_SIZE, BLOCK_N], gl.float32, MMA)
        left = load_left(ring, n_used, MMA, WARPGROUP)
        for step in range(n_own_steps - 1):
            # Before its last steps the second warpgroup waits until the first one is
            # nearly done: from then on one is at its epilogue while the other
            # multiplies.
            is_close = takes_turns and step == n_own_steps - NUM_STAGES
            if WARPGROUP == 1 and is_close:
                mbarrier.wait(turn.index(0), turn_parity)
            products = start_products(sums, left, ring, n_used)
            next_left = load_left(ring, n_used + 1, MMA, WARPGROUP)
            sums = wait_for_products(sums, products, left)
            release(ring, n_used)
            left = next_left
            n_used += 1
        products = start_products(sums, left, ring, n_used)
        sums = wait_for_products(sums, products, left)
        release(ring, n_used)
        n_used += 1
        # Not earlier, or the two would share the tensor cores in these last steps.
        if takes_turns:
            if WARPGROUP == 0:
                mbarrier.arrive(turn.index(0), count=1)
            turn_parity ^= 1

        if parts_ptr is not None and n_own_steps < n_steps:
            # -- parts: their sums, which matmul_sum_kernel adds
            program, n_programs = gl.program_id(0), gl.num_programs(0)
            begin = start_of(program, n_programs, n_streamed * n_steps)
            is_second = (begin < tile * n_steps).to(gl.int32)
            part_ptr = place_of(parts_ptr, program, is_second, OUT_ROWS * OUT_COLS)
            store_part(part_ptr, sums, WARPGROUP * BOX_SIZE, OUT_COLS, B_IS_LEFT)
        else:
            # -- epilogue: of 64 x 64 results at a time
            # -- store: these, through shared memory
            batch, tile_row, tile_col = tile_at(tile, n_tile_rows, n_tile_cols)
            row, col = tile_row * OUT_ROWS, tile_col * OUT_COLS
            if B_IS_LEFT:
                col += WARPGROUP * BOX_SIZE
            else:
                row += WARPGROUP * BOX_SIZE
            target, place = (out, bias_ptr, boxes.index(WARPGROUP)), (batch, row, col)
            store_results(
                target, sums, place, sizes, OUT_HAS_MAP, ACTIVATION, B_IS_LEFT
            )
        tile, _, n_own_steps = next_part(tile, n_streamed, n_steps)
    griddepcontrol_launch_dependents()
    tma.store_wait(0)


@gluon.jit(do_not_specialize=["n_streamed"])
def matmul_tf32_kernel(
    out,  # (n_batches, M, N): its map or, where its rows are not aligned, its address
    left_map,  # of a, or of b if this is on the left
    right_map,  # of the other, all planes in turn
    bias_ptr,  # (N), or None
    parts_ptr,  # (2 n_programs, a tile of out); None where no tile is shared
    n_batches,
    M,
    N,
    K,
    n_streamed,
    BLOCK_M: gl.constexpr,
    BLOCK_N: gl.constexpr,
    NUM_STAGES: gl.constexpr,
    NUM_PLANES: gl.constexpr,
    OUT_HAS_MAP: gl.constexpr,
    LEFT_IS_SHARED: gl.constexpr,
    RIGHT_IS_SHARED: gl.constexpr,
    B_IS_LEFT: gl.constexpr,
    ACTIVATION: gl.constexpr,
):
    # -- tile: parts of those that are shared, then every num_programs-th one
    NUM_CONSUMERS: gl.constexpr = BLOCK_M // BOX_SIZE
    OUT_ROWS: gl.constexpr = BLOCK_N if B_IS_LEFT else BLOCK_M
    OUT_COLS: gl.constexpr = BLOCK_M if B_IS_LEFT else BLOCK_N
    sizes = n_batches, M, N, K, OUT_ROWS, OUT_COLS
    ring = make_tf32_ring(left_map, right_map, NUM_STAGES, NUM_CONSUMERS, NUM_PLANES)
    turn = make_barriers(1, 1)
    fence_async_shared()
    griddepcontrol_wait()

    # -- load: by one warp, each stage as soon as all have used what was there
    loaded = left_map, right_map, ring, sizes, n_streamed

    # -- compute: by a warpgroup each 64 rows of the left operand
    # -- parts: their sums, which matmul_sum_kernel adds
    # -- epilogue: of whole tiles
    # -- store: 64 x 64 results at a time, through shared memory
    SWIZZLED: gl.constexpr = gl.NVMMASharedLayout(128, 32, rank=3)
    boxes = gl.allocate_shared_memory(
        gl.float32, [NUM_CONSUMERS, 1, BOX_SIZE, BOX_SIZE], SWIZZLED
    )
    results = out, bias_ptr, parts_ptr, boxes
    common = results, ring, turn, sizes, n_streamed
    # A thread's registers, of which a program has 65536: it takes many to multiply, few
    # to load. The first warpgroup gets what the others leave, which is as many.
    gl.warp_specialize(
        [
            (consume, (common, OUT_HAS_MAP, ACTIVATION, B_IS_LEFT, 0)),
            (consume, (common, OUT_HAS_MAP, ACTIVATION, B_IS_LEFT, 1)),
            (load_parts, (loaded, LEFT_IS_SHARED, RIGHT_IS_SHARED, B_IS_LEFT)),
        ],
        *([4, 1], [240, 24]),
    )


def rounded_maps(constants):
    """Those of operands that come rounded: not of one that is split in registers."""
    is_split = constants["NUM_PLANES"] == 2
    return ("right_map",) if is_split else ("left_map", "right_map")


round_as_loaded(matmul_tf32_kernel, rounded_maps)
