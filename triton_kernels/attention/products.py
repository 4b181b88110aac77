"""The products of the kernels for Hopper, which a warpgroup starts without waiting."""

from triton.experimental import gluon
from triton.experimental.gluon.language.nvidia.hopper import warpgroup_mma


@gluon.jit
def start_scores(q, k, no_scores):
    """Scores = q times k transposed, both in shared memory, and of no_scores' shape."""
    return warpgroup_mma(q, k.permute((1, 0)), no_scores, use_acc=False, is_async=True)


@gluon.jit
def add_scores(scores, q, k):
    """Scores += q times k transposed, both in shared memory."""
    return warpgroup_mma(q, k.permute((1, 0)), scores, is_async=True)


@gluon.jit
def start_values(out, p, v):
    """Out += p, in registers, times v, in shared memory."""
    return warpgroup_mma(p, v, out, is_async=True)
