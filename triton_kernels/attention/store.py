"""The end of attention_kernel's tile: rows of out leave a warpgroup's registers."""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import fence_async_shared, tma

from triton_kernels.attention.gluon_names import tma_store


@gluon.jit
def store_rows(out_map, box, place, out, row_sum):
    """Divides rows by their sums and stores them through shared memory, rounded once.

    A query that sees no key has 0. The rows before have left the shared memory.
    """
    ROWS: gl.constexpr = gl.SliceLayout(1, out.type.layout)
    row_sum = gl.convert_layout(row_sum, ROWS)[:, None]
    rows = gl.where(row_sum == 0.0, 0.0, out * (1.0 / row_sum))
    tma.store_wait(0)
    box.reshape([out.shape[0], out.shape[1]]).store(rows.to(box.dtype))
    fence_async_shared()
    tma_store(out_map, place, box)
