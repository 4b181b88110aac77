"""How rows of both norms' backward are cut up, and the launches that it takes."""

import math

import triton

from triton_kernels.common.share import launch_shared
from triton_kernels.common.table import (
    FIRST,
    LONGEST,
    CannotServeError,
    RowTile,
    Rung,
    choose_tile,
)
from triton_kernels.norm.backward_shared import norm_backward_shared_kernel
from triton_kernels.norm.backward_twin import norm_backward_kernel
from triton_kernels.norm.backward_weights_first import (
    norm_backward_weights_first_kernel,
)
from triton_kernels.norm.sum_partials import norm_sum_partials_kernel

# Rows in registers: longest row, rows of a program, columns of a tile, warps. With
# those on their way 4096 elements of each tensor keep the memory busy, in one program
# of 4-byte or two of 2-byte elements, and fit into the shared memory of any GPU.
BACKWARD_TILES = (
    RowTile(64, 64, 64, 8),
    RowTile(128, 32, 64, 8, element_bytes=2),
    RowTile(192, 16, 64, 4, element_bytes=2),
    RowTile(256, 16, 256, 4, element_bytes=2),
    RowTile(384, 8, 128, 4, element_bytes=2),
    RowTile(512, 8, 256, 4, element_bytes=2),
    RowTile(768, 4, 128, 4, element_bytes=2),
    RowTile(1024, 4, 1024, 4, element_bytes=2),
    RowTile(2048, 2, 512, 4, element_bytes=2),
    RowTile(4096, 1, 1024, 4, element_bytes=2),
    *(RowTile(n, 4096 // n, n, 8, element_bytes=4) for n in (256, 512, 1024, 2048)),
    RowTile(4096, 1, 4096, 16, element_bytes=4),
    RowTile(8192, 1, 1024, 8),
)
NUM_STAGES = 3

# Rows that programs share. Twice the columns of float32 would not fit into registers.
SHARED_TILES = (
    RowTile(LONGEST, 1, 2048, 8, element_bytes=4),
    RowTile(LONGEST, 1, 4096, 8, element_bytes=2),
)

SUM_TILE = 1024  # elements of a tile of partial sums


def launch_norm_backward(grads, partials, inputs, walk, n_partials, rung):
    """Launches what the tables choose: two kernels.

    On the first rung it is the second kernel alone. `inputs` are the tensors that the
    kernels take, and `walk` the numbers that follow, from n_rows to the last stride.
    """
    grad_x, grad_weight, grad_bias = grads
    _, n_cols, _, *strides = walk
    if rung == Rung.FIRST:
        norm_backward_weights_first_kernel[(triton.cdiv(n_cols, FIRST["BLOCK_N"]),)](
            grad_weight, grad_bias, *inputs[:-1], *walk, **FIRST
        )
        return
    element_bytes, outputs = grad_x.element_size(), (grad_x, partials)
    options = {"DIVISIBILITY": math.gcd(n_cols, *strides, 16)}
    if tile := choose_tile(BACKWARD_TILES, n_cols, element_bytes):
        options |= tile.constants(n_cols) | {"NUM_STAGES": NUM_STAGES}
        norm_backward_kernel[(n_partials,)](*outputs, *inputs, *walk, **options)
    elif rung == Rung.TWIN:
        message = f"norm_backward_kernel: rows of {n_cols} columns are too long"
        raise CannotServeError(message)
    elif tile := choose_tile(SHARED_TILES, n_cols, element_bytes):
        options |= tile.constants(n_cols)
        n_partials = launch_shared(
            norm_backward_shared_kernel, outputs, inputs, walk, options, n_partials
        )
    # As many elements of a tile are in a column as there are partial sums, but few
    # enough that 32 columns, which are read as lines of 128 bytes, fit side by side.
    block_m = min(triton.next_power_of_2(n_partials), 32)
    block_n = SUM_TILE // block_m
    grid = (triton.cdiv(n_cols, block_n), 1 if grad_bias is None else 2)
    arguments = (*grads[1:], partials, n_partials, n_cols, block_m, block_n)
    norm_sum_partials_kernel[grid](*arguments, num_warps=4, enable_fp_fusion=True)
