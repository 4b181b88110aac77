"""The end of attention_kernel's tile: rows of out leave a warpgroup's registers."""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import fence_async_shared, tma

from triton_kernels.attention.ring import matrix_at
from triton_kernels.common.gluon_names import tma_store


@gluon.jit
def store_rows(out_map, boxes, first_box, place, outs, row_sum):
    """Divides rows by their sums and stores them through shared memory, rounded once.

    By way of the boxes from first_box on, each of which has a part of the columns. A
    query that sees no key has 0. The rows before have left the shared memory.
    """
    NUM_BOXES: gl.constexpr = len(outs)
    batch, row, head = place
    ROWS: gl.constexpr = gl.SliceLayout(1, outs[0].type.layout)
    row_sum = gl.convert_layout(row_sum, ROWS)[:, None]
    tma.store_wait(0)
    for i in gl.static_range(NUM_BOXES):
        rows = gl.where(row_sum == 0.0, 0.0, outs[i] * (1.0 / row_sum))
        matrix_at(boxes, first_box + i).store(rows.to(boxes.dtype))
    fence_async_shared()
    for i in gl.static_range(NUM_BOXES):
        col = i * boxes.shape[4]
        tma_store(out_map, [batch, row, head, col], boxes.index(first_box + i))
