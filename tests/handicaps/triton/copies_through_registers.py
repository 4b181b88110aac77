"""A loop that is not pipelined: it waits for each copy before it goes on."""

import triton
import triton.language as tl

N: tl.constexpr = tl.constexpr(128)
K: tl.constexpr = tl.constexpr(256)


@triton.jit
def copies_through_registers(out_ptr, a_ptr, b_ptr):
    rows = tl.program_id(1) * 64 + tl.arange(0, 64)[:, None]
    cols = tl.program_id(0) * 64 + tl.arange(0, 64)[None, :]
    ks = tl.arange(0, 32)
    total = tl.zeros([64, 64], tl.float32)
    for k in tl.range(0, K, 32, num_stages=1):
        a = tl.load(a_ptr + rows * K + k + ks[None, :])
        b = tl.load(b_ptr + (k + ks[:, None]) * N + cols)
        total = tl.dot(a, b, total)
    tl.store(out_ptr + rows * N + cols, total)
