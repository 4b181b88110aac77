"""Launches as they are planned: kernels, grids and constants; nothing is compiled."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from compare.code import cuda


@dataclass(frozen=True)
class PlannedLaunch:
    """What a launcher would launch.

    What Triton calls by its name goes by that; symbols of CUDA tell no names, so that
    there it goes by its place, counted from 0.
    """

    kernel: str  # its name in the sources
    title: str  # the kernel with the constants that it is compiled for
    n_blocks: int  # or programs
    # What the kernel is compiled for, whole numbers as such: the arguments of CUDA's
    # template; of Triton's kernel each constexpr, and options such as num_stages.
    constants: Mapping[Any, Any]
    arguments: Mapping[Any, Any]  # of run time

    @classmethod
    def of_cuda(cls, plan: Mapping[str, Any]) -> PlannedLaunch:
        """A launch that bindings.backends.native.plan describes."""
        title = cuda.title_of(plan["signature"])
        kernel, _, constants = title.partition("<")
        values = re.split(r", (?![^<]*>)", constants.removesuffix(">"))
        return cls(
            kernel,
            title,
            math.prod(plan["grid"]),
            dict(enumerate(int(e) if e.isdigit() else e for e in values)),
            dict(enumerate(plan["arguments"])),
        )

    @classmethod
    def of_triton(
        cls,
        function: Any,
        title: str,
        grid: Sequence[int],
        arguments: Sequence[Any],
        constants: Mapping[str, Any],
    ) -> PlannedLaunch:
        """A launch of one of Triton's functions."""
        named = dict(zip(function.arg_names, arguments, strict=False))
        return cls(function.__name__, title, math.prod(grid), constants, named)
