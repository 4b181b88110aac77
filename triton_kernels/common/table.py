"""Tables of policy, the mirror of table.cuh: retuning for a GPU is an edit of one."""

import sys
from collections.abc import Mapping, Sequence
from enum import IntEnum
from typing import Any, NamedTuple, TypeVar

import triton

from triton_kernels.common.device import current_device

LONGEST = sys.maxsize  # of a line that is for rows of any length


class Rung(IntEnum):
    """What computes a call: what the op's table chooses, or a rung of its ladder."""

    CHOSEN = 0
    FIRST = 1
    TWIN = 2


# What every first rung is compiled for: a program's tile in columns, or elements.
FIRST: Mapping[str, Any] = {"BLOCK_N": 1024, "num_warps": 4, "enable_fp_fusion": True}


class RowTile(NamedTuple):
    """A line of a table for rows that stay in registers."""

    max_cols: int  # the longest row that it is for
    block_m: int  # rows of a program: short ones share it
    block_n: int  # columns of a tile, a power of two; a row may take several tiles
    num_warps: int
    element_bytes: int = 0  # of which dtypes; 0: all
    arch: int = 0  # of which architecture, such as 90; 0: the default

    def constants(self, n_cols: int) -> dict[str, Any]:
        """What a kernel is compiled for, where rows have so many columns."""
        block_n = min(self.block_n, max(16, triton.next_power_of_2(n_cols)))
        return {
            "BLOCK_M": self.block_m,
            "BLOCK_N": block_n,
            "N_TILES": max(1, triton.cdiv(n_cols, block_n)),
            "num_warps": self.num_warps,
            "enable_fp_fusion": True,
        }


# A line of a table, with the max_cols, element_bytes and arch of a RowTile.
AnyLine = TypeVar("AnyLine", bound=Any)


def choose_tile(
    table: Sequence[AnyLine], n_cols: int, element_bytes: int
) -> AnyLine | None:
    """The first line that serves rows of this length on the current device, if any."""
    arch = current_device().arch
    for line in table:
        if (
            n_cols <= line.max_cols
            and line.element_bytes in (0, element_bytes)
            and line.arch in (0, arch)
        ):
            return line
    return None


class CannotServeError(ValueError):
    """A rung that was asked for has no kernel for a call."""
