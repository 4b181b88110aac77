"""Functions of one float32 value, without a pointer in them: the mirror of math.cuh.

Triton's interpreter runs no inline PTX, so the functions that need it have a portable
form there.
"""

import triton
import triton.language as tl
from triton.language.extra import libdevice

from triton_kernels.common.ptx import inline_ptx

INTERPRETED = tl.constexpr(triton.knobs.runtime.interpret)

LOG2_E = tl.constexpr(1.44269504088896341)
SQRT_HALF = tl.constexpr(0.70710678118654752)
INVERSE_SQRT_2PI = tl.constexpr(0.39894228040143268)
LEAKY_RELU_SLOPE = tl.constexpr(0.01)


@triton.jit
def fast_exp(x):
    """e^x with a relative error of 2^-22 + |x| 2^-23. Results below 2^-126 become 0."""
    x = x * LOG2_E
    if INTERPRETED:
        return tl.exp2(x)
    return inline_ptx("ex2.approx.ftz.f32 $0, $1;", "=f, f", x)


@triton.jit
def accurate_exp(x):
    """e^x with an error of two units in the last place, where tl.exp is fast_exp."""
    return tl.exp(x) if INTERPRETED else libdevice.exp(x)


@triton.jit
def fast_reciprocal(x):
    """1 / x with an error of one unit in the last place."""
    if INTERPRETED:
        return 1.0 / x
    return inline_ptx("rcp.approx.ftz.f32 $0, $1;", "=f, f", x)


@triton.jit
def finite_origin(max):
    """What exponents are relative to: the largest so far, or 0 while that is -inf.

    -inf - -inf would make a sum of exponentials NaN, where it has to stay 0.
    """
    return tl.where(max == -float("inf"), 0.0, max)


@triton.jit
def fast_tanh(x):
    """tanh(x) with a relative error of 2^-11; beyond 9 or so the result is 1."""
    if INTERPRETED:
        return 1.0 - 2.0 / (1.0 + tl.exp(2.0 * x))
    return inline_ptx("tanh.approx.f32 $0, $1;", "=f, f", x)


@triton.jit
def relu(x):
    """max(x, 0), and NaN of NaN, which tl.maximum alone would make 0."""
    return tl.maximum(x, 0.0, propagate_nan=tl.PropagateNan.ALL)


@triton.jit
def relu_backward(grad, x):
    """The gradient of x from that of the result; at x = 0 it is 0, as in PyTorch.

    It is chosen, not multiplied by a derivative of 0, which would make inf NaN.
    """
    return tl.where(x <= 0.0, 0.0, grad)


@triton.jit
def leaky_relu(x):
    """The larger of x and LEAKY_RELU_SLOPE x."""
    return tl.where(x < 0.0, LEAKY_RELU_SLOPE * x, x)


@triton.jit
def leaky_relu_backward(grad, x):
    """The gradient of x from that of the result."""
    return tl.where(x > 0.0, grad, LEAKY_RELU_SLOPE * grad)


@triton.jit
def gelu_erf(x):
    """0.5 x (1 + erf(x / sqrt(2)))."""
    return 0.5 * x * (1.0 + tl.erf(x * SQRT_HALF))


@triton.jit
def gelu_erf_derivative(x):
    """Its derivative, Phi(x) + x phi(x), of the standard normal distribution."""
    z = x * SQRT_HALF
    return 0.5 * (1.0 + tl.erf(z)) + x * (INVERSE_SQRT_2PI * fast_exp(-z * z))


@triton.jit
def half_erfc_fast(z, exp_minus_z2):
    """0.5 erfc(z) for z >= 0, from exp(-z^2), with an error of 0.75e-7.

    Abramowitz & Stegun 1964, formula 7.1.26: with t = 1 / (1 + p z),
    erfc(z) = (a1 t + a2 t^2 + a3 t^3 + a4 t^4 + a5 t^5) exp(-z^2).
    The coefficients are halved.
    """
    t = fast_reciprocal(1.0 + 0.3275911 * z)
    half_erfc = t * 0.5307027145 - 0.7265760135
    half_erfc = half_erfc * t + 0.7107068705
    half_erfc = half_erfc * t - 0.142248368
    half_erfc = half_erfc * t + 0.127414796
    return half_erfc * (t * exp_minus_z2)


@triton.jit
def gelu_erf_fast(x):
    """gelu_erf in half the instructions, off by 0.75e-7 x: for types of 16 bits."""
    z = tl.abs(x) * SQRT_HALF
    half_erfc = half_erfc_fast(z, fast_exp(-z * z))
    return x * tl.where(x < 0.0, half_erfc, 1.0 - half_erfc)


@triton.jit
def gelu_erf_fast_derivative(x):
    """Its derivative: one exponential serves distribution function and density."""
    z = tl.abs(x) * SQRT_HALF
    exp_minus_z2 = fast_exp(-z * z)
    half_erfc = half_erfc_fast(z, exp_minus_z2)
    phi = INVERSE_SQRT_2PI * exp_minus_z2
    return tl.where(x < 0.0, half_erfc, 1.0 - half_erfc) + x * phi


@triton.jit
def gelu_erf_bfloat16_of_half(half_x):
    """gelu_erf in a third of the instructions, for bfloat16 alone, from half of x.

    0.5 x (1 + tanh(u)) with the u = x (a + b x^2) that comes closest to it, within
    2^-12. The instruction for tanh is off by 2^-12 |x| more; bfloat16 resolves 2^-9 of
    the result.
    """
    LINEAR: tl.constexpr = 2 * 0.80015707
    CUBIC: tl.constexpr = 8 * 0.0347009
    tanh_u = fast_tanh(half_x * (LINEAR + CUBIC * half_x * half_x))
    return half_x * tanh_u + half_x


@triton.jit
def gelu_tanh_bfloat16_of_half(half_x):
    """gelu_tanh in the same way."""
    LINEAR: tl.constexpr = 2 * 0.79788456080286536
    CUBIC: tl.constexpr = 8 * 0.79788456080286536 * 0.044715
    tanh_u = fast_tanh(half_x * (LINEAR + CUBIC * half_x * half_x))
    return half_x * tanh_u + half_x


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


@triton.jit
def gelu_tanh_derivative(x):
    """Its derivative, s + x s (1 - s) (2 u)' with s = 1 / (1 + exp(-2 u)).

    From e = exp(-|2 u|), which is at most 1, both s and s (1 - s) = e / (1 + e)^2
    follow without a difference of numbers that are nearly the same. From x^2 = 1024 on
    e is 0 and the result 0 or 1; x^2 ends there, because 0 times an x^2 of inf would be
    NaN.
    """
    LINEAR: tl.constexpr = 2.0 * 0.79788456080286536
    CUBIC: tl.constexpr = LINEAR * 0.044715
    x2 = tl.minimum(x * x, 1024.0)
    e = fast_exp(-tl.abs(x) * (LINEAR + CUBIC * x2))
    inverse = fast_reciprocal(1.0 + e)
    slope = x * (e * inverse * inverse) * (LINEAR + 3.0 * CUBIC * x2)
    return tl.where(x < 0.0, e * inverse, inverse) + slope


@triton.jit
def gelu(x, dtype: tl.constexpr, APPROXIMATE_TANH: tl.constexpr):
    """The gelu of x, by its fast form where dtype does not resolve the error."""
    if APPROXIMATE_TANH:
        return gelu_tanh(x)
    if dtype == tl.float32:
        return gelu_erf(x)
    return gelu_erf_fast(x)


@triton.jit
def gelu_derivative(x, dtype: tl.constexpr, APPROXIMATE_TANH: tl.constexpr):
    """Its derivative, likewise."""
    if APPROXIMATE_TANH:
        return gelu_tanh_derivative(x)
    if dtype == tl.float32:
        return gelu_erf_derivative(x)
    return gelu_erf_fast_derivative(x)


@triton.jit
def exp_minus_abs(x, dtype: tl.constexpr):
    """exp(-|x|), which is at most 1, as dtype resolves it."""
    return accurate_exp(-tl.abs(x)) if dtype == tl.float32 else fast_exp(-tl.abs(x))


@triton.jit
def silu(x, dtype: tl.constexpr):
    """Computes x / (1 + exp(-x)) from e = exp(-|x|): 1 + e cannot overflow."""
    e = exp_minus_abs(x, dtype)
    inverse = fast_reciprocal(1.0 + e)
    return x * tl.where(x < 0.0, e * inverse, inverse)


@triton.jit
def silu_fast(x):
    """silu(x) in half the instructions, for types of 16 bits.

    The exponential of a large argument is inf and leaves x / inf. The error grows to
    2^-17 of the result at x = -80.
    """
    return x * fast_reciprocal(1.0 + fast_exp(-x))


@triton.jit
def silu_derivative(x, dtype: tl.constexpr):
    """Its derivative, s (1 + x (1 - s)) with s = 1 / (1 + exp(-x)).

    From the same e as silu. s and 1 - s are 1 / (1 + e) and e / (1 + e), or the other
    way round, so that no difference of numbers that are nearly the same is taken but
    the one that makes the derivative 0.
    """
    e = exp_minus_abs(x, dtype)
    inverse = fast_reciprocal(1.0 + e)
    s = tl.where(x < 0.0, e * inverse, inverse)
    one_minus_s = tl.where(x < 0.0, inverse, e * inverse)
    return s * (1.0 + x * one_minus_s)
