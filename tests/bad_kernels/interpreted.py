"""Bad Triton kernels, run by Triton's interpreter: those in the folder triton."""

from __future__ import annotations

import functools
from typing import Any

from torch import Tensor

from bad_kernels.catalogue import BAD_KERNELS, SHAPE, BadKernel, unchanged
from bindings.backends import interpreter
from bindings.registry import OPS
from compare.judge.cases import Case

# The file, the beginning of the verdict, and where it shows.
KERNELS = (
    ("add_without_last_block", "35 of 1059 elements were not written", Case((1059,))),
    (
        "gelu_without_mask",
        "gelu_without_mask: the Triton kernel wrote out of bounds, 0 bytes past the end"
        " of tensor 0",
        Case((1000,)),
    ),
    ("softmax_padded_with_zeros", "the largest error is", Case((3, 33))),
    (
        "softmax_row_stride",
        "softmax_row_stride: the Triton kernel wrote out of bounds",
        Case(SHAPE, layout="sliced"),
    ),
    ("softmax_sum_in_half", "the largest error is", Case((3, 781))),
)


def _run(name: str, out: Tensor, *args: Any) -> None:
    op = OPS[name.split("_")[0]]
    interpreter.run(name, op.operands(out, *args), package="bad_kernels.triton")


BAD_KERNELS.extend(
    BadKernel(
        f"triton.{name}",
        functools.partial(_run, name),
        verdict,
        name.split("_")[0],
        case,
        unchanged,
        ("cpu",),
    )
    for name, verdict, case in KERNELS
)
