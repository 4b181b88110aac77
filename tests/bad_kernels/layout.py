"""Kernels that look for elements where they are not."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import gelu

from bad_kernels.catalogue import SHAPE, bad_kernel
from compare.judge.cases import Case


def _contiguous_strides(x: Tensor) -> tuple[int, ...]:
    return torch.empty(x.shape, device="meta").stride()


@bad_kernel("the largest error is", case=Case(SHAPE, layout="transposed"))
def transposed_read_as_contiguous(out: Tensor, x: Tensor, approximate: str) -> None:
    """Takes the elements in the order in which they lie in memory."""
    out.copy_(gelu(x.as_strided(x.shape, _contiguous_strides(x))))


@bad_kernel(
    r"\d+ of 335 elements are NaN and should not be",
    case=Case(SHAPE, layout="sliced"),
)
def sliced_read_as_contiguous(out: Tensor, x: Tensor, approximate: str) -> None:
    """The same where others' elements lie between its own."""
    transposed_read_as_contiguous(out, x, approximate)


@bad_kernel(
    r"\d+ of 335 elements are NaN and should not be",
    case=Case(SHAPE, layout="expanded"),
)
def expanded_read_as_contiguous(out: Tensor, x: Tensor, approximate: str) -> None:
    """The same where the rows are one row."""
    transposed_read_as_contiguous(out, x, approximate)


@bad_kernel(
    "1 of 335 elements are NaN and should not be", case=Case(SHAPE, layout="offset")
)
def reads_from_an_aligned_address(out: Tensor, x: Tensor, approximate: str) -> None:
    """Rounds the address of its input down to what a vector needs."""
    start = x.storage_offset() - x.data_ptr() % 16 // x.element_size()
    out.copy_(gelu(x.as_strided(x.shape, x.stride(), start)))


@bad_kernel(
    "memory around the output was written to", case=Case(SHAPE, layout="sliced")
)
def rows_of_the_output_as_far_apart_as_those_of_the_input(
    out: Tensor, x: Tensor, approximate: str
) -> None:
    """Uses one stride for both."""
    out.as_strided(x.shape, x.stride()).copy_(gelu(x))


@bad_kernel(r"\d+ of 335 elements were not written", case=Case(SHAPE))
def rows_of_the_output_one_too_close(out: Tensor, x: Tensor, approximate: str) -> None:
    """Is off by one in the stride."""
    n_rows, n_cols = x.shape
    out.as_strided((n_rows, n_cols), (n_cols - 1, 1)).copy_(gelu(x))


@bad_kernel("1 of 5 elements are not bit for bit", op="add", case=Case((5,)))
def wraps_around_too_early(out: Tensor, x: Tensor, y: Tensor) -> None:
    """Broadcasts an input that has the full size, by a wrong modulo."""
    out.copy_(x + y[torch.arange(5, device=y.device) % 4])
