"""Inline PTX, as csrc/common/ptx has it."""

import triton
import triton.language as tl


@triton.jit
def inline_ptx(INSTRUCTION: tl.constexpr, REGISTERS: tl.constexpr, x):
    """One instruction on every element of x, such as "tanh.approx.f32 $0, $1;".

    REGISTERS are those of result and x, such as "=f, f" for two of float32.
    """
    return tl.inline_asm_elementwise(
        INSTRUCTION, REGISTERS, [x], dtype=tl.float32, is_pure=True, pack=1
    )
