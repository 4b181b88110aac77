"""Multiplies and adds by itself what tl.dot would multiply on tensor cores."""

import triton
import triton.language as tl

N: tl.constexpr = tl.constexpr(128)
K: tl.constexpr = tl.constexpr(256)


@triton.jit
def without_tensor_cores(out_ptr, a_ptr, b_ptr):
    rows = tl.program_id(1) * 64 + tl.arange(0, 64)[:, None]
    cols = tl.program_id(0) * 64 + tl.arange(0, 64)[None, :]
    total = tl.zeros([64, 64], tl.float32)
    for k in range(K):
        a = tl.load(a_ptr + rows * K + k)
        b = tl.load(b_ptr + k * N + cols)
        total += a.to(tl.float32) * b.to(tl.float32)
    tl.store(out_ptr + rows * N + cols, total)
