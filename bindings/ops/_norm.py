"""Checks, shapes and workspaces that layer_norm and rms_norm share."""

from __future__ import annotations

import torch
from torch import Tensor

from bindings import check, layout

# What shares the rows of a backward. A block works on so many elements of each tensor
# at a time, in as many rows as they are; of 2-byte elements a multiprocessor has two.
BACKWARD_BLOCK_N = 4096
# The longest row that a block has to itself in either language, and how many elements
# of longer ones a multiprocessor works on at a time.
LONGEST_IN_BLOCK = 16384
LONG_ELEMENTS_PER_SM = 8192


def check_input(op: str, x: Tensor) -> None:
    """Raises for an x that has no rows to normalise."""
    check.is_supported(op, "x", x)
    if x.dim() == 0:
        raise ValueError(f"{op}: x has no dimensions, expected at least 1")


def check_weight(op: str, name: str, weight: Tensor | None, x: Tensor) -> None:
    """Raises for a weight or a bias that does not fit the rows of x."""
    if weight is None:
        return
    check.is_supported(op, name, weight)
    check.agree(op, "x", x, name, weight)
    if weight.shape != x.shape[-1:]:
        raise ValueError(
            f"{op}: {name} has shape {tuple(weight.shape)}, "
            f"expected {tuple(x.shape[-1:])} for x of shape {tuple(x.shape)}"
        )


def check_statistic(op: str, name: str, statistic: Tensor, x: Tensor) -> None:
    """Raises for a mean or an rstd that the forward of x cannot have returned."""
    if statistic.dtype != torch.float32:
        raise TypeError(
            f"{op}: {name} has dtype {statistic.dtype}, expected torch.float32"
        )
    if statistic.device != x.device:
        raise ValueError(
            f"{op}: {name} is on {statistic.device} and x on {x.device}, "
            "expected the same device"
        )
    if statistic.shape != x.shape[:-1]:
        raise ValueError(
            f"{op}: {name} has shape {tuple(statistic.shape)}, "
            f"expected {tuple(x.shape[:-1])} for x of shape {tuple(x.shape)}"
        )


def empty_output(x: Tensor) -> Tensor:
    """A dense tensor of the shape of x, in its memory format if rows are contiguous."""
    if x.numel() == 0:  # rows without columns still have statistics, in some order
        return x.new_empty(x.shape)
    return layout.empty_rows_like(x, x.dim() - 1)


def empty_statistic(out: Tensor) -> Tensor:
    """Allocates a float32 per row of a dense output, in the order of rows in memory."""
    n_cols = max(out.shape[-1], 1)
    strides = [stride // n_cols for stride in out.stride()[:-1]]
    return torch.empty_strided(
        out.shape[:-1], strides, dtype=torch.float32, device=out.device
    )


def in_order_of_rows(out: Tensor, statistic: Tensor) -> Tensor:
    """Returns a statistic in the order of out's rows, copied if it is in another."""
    ordered = empty_statistic(out)
    if statistic.stride() == ordered.stride():
        return statistic
    return ordered.copy_(statistic)


def empty_partials(out: Tensor, n_sums: int, n_partials: int) -> Tensor:
    """The workspace for n_sums sums over the rows of out, for each of its columns."""
    shape = (n_sums, n_partials, out.shape[-1])
    return out.new_empty(shape, dtype=torch.float32)


def empty_row_means(out: Tensor, n_means: int, n_rows: int) -> Tensor:
    """The workspace that CUDA's first launch for long rows passes on to the second.

    Which rows those are depends on the GPU and the strides; none has
    BACKWARD_BLOCK_N columns or less.
    """
    n_rows = n_rows if out.shape[-1] > BACKWARD_BLOCK_N else 0
    return out.new_empty((n_means, n_rows), dtype=torch.float32)


def contiguous(x: Tensor | None) -> Tensor | None:
    """Returns x, copied unless it is contiguous."""
    return None if x is None else x.contiguous()


def count_partials(n_rows: int, n_cols: int, element_size: int, n_sms: int) -> int:
    """How many blocks, or clusters of them, share the rows of a backward at most.

    Each leaves a sum for every column, and there are as many as a GPU holds at once.

    Args:
        n_rows: Rows.
        n_cols: Columns.
        element_size: Bytes of an element.
        n_sms: Multiprocessors.
    """
    if n_cols <= BACKWARD_BLOCK_N:
        rows_at_once = BACKWARD_BLOCK_N // max(_next_power_of_2(n_cols), 64)
        most = min(-(-n_rows // rows_at_once), n_sms * 4 // element_size)
    elif n_cols <= LONGEST_IN_BLOCK:
        most = min(n_rows, n_sms)
    else:
        most = min(n_rows, n_sms * LONG_ELEMENTS_PER_SM // n_cols)
    return max(most, 1)


def _next_power_of_2(n: int) -> int:
    return 1 << max(n - 1, 0).bit_length()
