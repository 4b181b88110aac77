"""8-bit floats as bits, which any architecture can convert."""

import triton
import triton.language as tl


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
