"""Programs that share rows tell each other their sums, in global memory.

They wait for each other, so that all have to run at once: they are launched as a
cooperative grid, whose first dimension is the programs that share a row.
"""

import torch
import triton
import triton.language as tl

from triton_kernels.common.device import current_device
from triton_kernels.common.math import INTERPRETED

# Two programs share a multiprocessor, so that one works while the other waits.
PROGRAMS_PER_SM, MAX_REGISTERS = 2, 128
# Rows on their way to shared memory, by architecture, 1 on others: as many as fit
# beside those of the other program, but no more than keep the memory busy.
ROWS_AHEAD = {80: 2, 90: 3, 100: 3}


def launch_shared(kernel, outputs, inputs, walk, constants, n_groups):
    """Launches a kernel and returns how many groups of programs share out the rows.

    They are `n_groups` or as many as run at once. Where not even one does there are two
    launches: the first waits for nobody and leaves the sums for the second.
    `constants` are those of a RowTile, with DIVISIBILITY.
    """
    n_parts, divisibility = constants["N_TILES"], constants["DIVISIBILITY"]
    device = current_device()
    most_groups = PROGRAMS_PER_SM * device.n_sms // n_parts
    n_groups = min(n_groups, max(most_groups, 1))
    are_at_once = most_groups > 0 and not INTERPRETED
    rows_ahead = ROWS_AHEAD.get(device.arch, 1)
    if divisibility * outputs[0].element_size() < 4:  # cp.async has no 2-byte form
        rows_ahead = 0
    sums = outputs[0].new_zeros((walk[0], n_parts), dtype=torch.float64)
    for waits in (True,) if are_at_once else (False, True):
        kernel[(n_parts, n_groups)](
            *(*outputs, sums, *inputs, *walk, constants["BLOCK_N"]),
            N_PARTS=triton.next_power_of_2(n_parts),
            NUM_STAGES=rows_ahead + 1,
            WAITS=waits,
            DIVISIBILITY=divisibility,
            num_warps=constants["num_warps"],
            maxnreg=MAX_REGISTERS,
            launch_cooperative_grid=are_at_once,
            enable_fp_fusion=True,
        )
    return n_groups


@triton.jit
def add_pairs(first, second, other_first, other_second):
    """For tl.reduce, which finds two sums at once."""
    return first + other_first, second + other_second


@triton.jit
def pair(a, b):
    """The bits of two numbers, or tensors of them, in one of twice the width."""
    HALF: tl.constexpr = tl.uint32 if a.dtype == tl.float32 else tl.uint16
    WHOLE: tl.constexpr = tl.int64 if a.dtype == tl.float32 else tl.int32
    a = a.to(HALF, bitcast=True).to(WHOLE) << HALF.primitive_bitwidth
    return a | b.to(HALF, bitcast=True).to(WHOLE)


@triton.jit
def unpair(bits, dtype: tl.constexpr):
    """The two of `pair`, in float32."""
    HALF: tl.constexpr = tl.uint32 if dtype == tl.float32 else tl.uint16
    a = (bits >> HALF.primitive_bitwidth).to(HALF).to(dtype, bitcast=True)
    b = bits.to(HALF).to(dtype, bitcast=True)
    return a.to(tl.float32), b.to(tl.float32)


@triton.jit
def send(sums_ptr, first, second, mask):
    """Writes a program's two sums where there were zeros: of a first sum of 0, -0."""
    bits = pair(first, tl.cast(second, tl.float32))
    # By its bits: before Triton 3.9 the number -0.0 is 0.0, for which all would wait.
    bits = tl.where(first == 0.0, bits | -(2**63), bits)
    sums_ptr = sums_ptr.to(tl.pointer_type(tl.int64))
    tl.atomic_xchg(sums_ptr, bits, mask=mask, sem="relaxed")


@triton.jit
def receive(sums_ptrs, mask):
    """The two totals of what programs send to sums_ptrs, once the last has come.

    A loop of Triton's that waits would keep the compiler from having rows on their way
    in the loop around it.
    """
    sums_ptrs = sums_ptrs.to(tl.pointer_type(tl.int64))
    if INTERPRETED:
        bits = tl.load(sums_ptrs, mask, 0)
    else:
        bits = tl.inline_asm_elementwise(
            """{
            .reg .pred is_missing;
            mov.b64 $0, 0;
            setp.ne.b32 is_missing, $2, 0;
            again:
            @is_missing ld.relaxed.gpu.global.b64 $0, [$1];
            @is_missing setp.eq.b64 is_missing, $0, 0;
            @is_missing bra again;
            }""",
            "=&l, l, r",
            [sums_ptrs, mask.to(tl.int32)],
            dtype=tl.int64,
            is_pure=False,
            pack=1,
        )
    return tl.reduce(unpair(bits, tl.float32), 0, add_pairs)
