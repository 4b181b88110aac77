"""Functions of one float32 value, without a pointer in them: the mirror of math.cuh.

Triton's interpreter runs no inline PTX, so the two functions that need it have a
portable form there.
"""

import triton
import triton.language as tl

INTERPRETED = tl.constexpr(triton.knobs.runtime.interpret)

LOG2_E = tl.constexpr(1.44269504088896341)
SQRT_HALF = tl.constexpr(0.70710678118654752)


@triton.jit
def fast_exp(x):
    """e^x with a relative error of 2^-22 + |x| 2^-23. Results below 2^-126 become 0."""
    if INTERPRETED:
        result = tl.exp2(x * LOG2_E)
    else:
        result = tl.inline_asm_elementwise(
            "ex2.approx.ftz.f32 $0, $1;",
            "=f, f",
            [x * LOG2_E],
            dtype=tl.float32,
            is_pure=True,
            pack=1,
        )
    return result


@triton.jit
def fast_reciprocal(x):
    """1 / x with an error of one unit in the last place."""
    if INTERPRETED:
        result = 1.0 / x
    else:
        result = tl.inline_asm_elementwise(
            "rcp.approx.ftz.f32 $0, $1;",
            "=f, f",
            [x],
            dtype=tl.float32,
            is_pure=True,
            pack=1,
        )
    return result


@triton.jit
def gelu_erf(x):
    """0.5 x (1 + erf(x / sqrt(2)))."""
    return 0.5 * x * (1.0 + tl.erf(x * SQRT_HALF))


@triton.jit
def gelu_erf_fast(x):
    """The same with an error of 1.5e-7 in erf, in half the instructions.

    That is far below what float16 and bfloat16 resolve. Abramowitz & Stegun 1964,
    formula 7.1.26: with t = 1 / (1 + p z), for z >= 0,
    erfc(z) = (a1 t + a2 t^2 + a3 t^3 + a4 t^4 + a5 t^5) exp(-z^2).
    The coefficients are halved.
    """
    z = tl.abs(x) * SQRT_HALF
    t = fast_reciprocal(1.0 + 0.3275911 * z)
    half_erfc = t * 0.5307027145 - 0.7265760135
    half_erfc = half_erfc * t + 0.7107068705
    half_erfc = half_erfc * t - 0.142248368
    half_erfc = half_erfc * t + 0.127414796
    half_erfc *= t * fast_exp(-z * z)
    return x * tl.where(x < 0.0, half_erfc, 1.0 - half_erfc)


@triton.jit
def gelu_tanh(x):
    """0.5 x (1 + tanh(u)) with u = sqrt(2 / pi) (x + 0.044715 x^3).

    Written as x / (1 + exp(-2 u)): the exponential of a large argument is inf or 0 and
    leaves x / inf or x, where the textbook's (exp(2 u) - 1) / (exp(2 u) + 1) would be
    inf / inf.
    """
    LINEAR: tl.constexpr = -2.0 * 0.79788456080286536
    CUBIC: tl.constexpr = LINEAR * 0.044715
    minus_2u = x * (LINEAR + CUBIC * x * x)
    return x * fast_reciprocal(1.0 + fast_exp(minus_2u))
