"""Which keys a query sees, and what becomes of a score before softmax."""

import triton
import triton.language as tl
from triton.language.extra import libdevice

from triton_kernels.common.math import INTERPRETED


@triton.jit
def visible_keys(queries, n_queries, n_keys, window_left, window_right):
    """The keys that queries see: from the first on, up to one that they do not see.

    The last query is over the last key. A query sees window_left keys before the one
    that it is over, and window_right behind it; a window that is open on a side is
    longer than all.
    """
    diagonal = queries + (n_keys - n_queries)
    first = tl.maximum(diagonal - window_left, 0)
    end = tl.minimum(diagonal + window_right + 1, n_keys)
    return first, end


@triton.jit
def lie_between(first, others, end):
    """Which of the others, a row of them, lie from each first on up to its end."""
    return (first[:, None] <= others[None, :]) & (others[None, :] < end[:, None])


@triton.jit
def accurate_tanh(x):
    """tanh(x) with an error of two units in the last place."""
    if INTERPRETED:
        e = tl.exp(-2.0 * tl.abs(x).to(tl.float64))
        tanh = ((1.0 - e) / (1.0 + e)).to(tl.float32)
        tanh = tl.where(x < 0.0, -tanh, tanh)
    else:
        tanh = libdevice.tanh(x)
    return tanh


@triton.jit
def cap(score, softcap):
    """A score between -softcap and softcap, and unchanged where that is 0."""
    if softcap != 0.0:
        score = softcap * accurate_tanh(score / softcap)
    return score


@triton.jit
def cap_derivative(capped, softcap):
    """Its derivative, from the capped score."""
    derivative = tl.full(capped.shape, 1.0, tl.float32)
    if softcap != 0.0:
        tanh = capped / softcap
        derivative = (1.0 - tanh) * (1.0 + tanh)
    return derivative


@triton.jit
def seeing_queries(keys, n_queries, n_keys, window_left, window_right):
    """The queries that see keys, likewise."""
    diagonal = keys - (n_keys - n_queries)
    first = tl.maximum(diagonal - window_right, 0)
    end = tl.minimum(diagonal + window_left + 1, n_queries)
    return first, end
