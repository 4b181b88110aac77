"""8-bit floats as bits, which any architecture can convert, and their products."""

import triton
import triton.language as tl

from triton_kernels.common.math import INTERPRETED


@triton.jit
def float8_to_float(bits, IS_E5M2: tl.constexpr):
    """The number that 8 bits stand for: of e5m2, or of e4m3."""
    if IS_E5M2:  # the upper byte of a half
        x = (bits.to(tl.uint16) << 8).to(tl.float16, bitcast=True).to(tl.float32)
    else:
        # Exponent and fraction of a float whose exponent is 120 too small, subnormals
        # included.
        sign, rest = (bits.to(tl.uint32) & 0x80) << 24, bits.to(tl.uint32) & 0x7F
        x = (sign | rest << 20).to(tl.float32, bitcast=True) * 2.0**120
        x = tl.where(rest == 0x7F, float("nan"), x)
    return x


@triton.jit
def dot_of_float8(a, b):
    """The product of matrices of 8-bit floats.

    Triton's interpreter would take NaN of e4m3 for 480.
    """
    if INTERPRETED:
        a_bits, b_bits = a.to(tl.uint8, bitcast=True), b.to(tl.uint8, bitcast=True)
        float_a = float8_to_float(a_bits, a.dtype == tl.float8e5)
        float_b = float8_to_float(b_bits, b.dtype == tl.float8e5)
        product = tl.dot(float_a, float_b, input_precision="ieee")
    else:
        product = tl.dot(a, b)
    return product
