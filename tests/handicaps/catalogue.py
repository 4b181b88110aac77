"""What there is to compile: clean kernels, and what is wrong with their variants."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch

from compare.code.kernel_code import Side


@dataclass(frozen=True)
class Kernel:
    """A kernel of cuda/ or triton/, with how it is launched.

    Attributes:
        name: Of the file and the function.
        tensors: The elements and the dtype of the output, then of each input.
        grid: Blocks in x, y and z.
        numbers: The arguments behind the tensors.
        shared_bytes: That a launch of CUDA asks for.
        num_warps: That a launch of Triton asks for.
        max_registers: To which a launch of Triton limits a thread.
    """

    name: str
    tensors: tuple[tuple[int, torch.dtype], ...]
    grid: tuple[int, int, int]
    numbers: tuple[int, ...] = ()
    shared_bytes: int = 0
    num_warps: int = 4
    max_registers: int | None = None


@dataclass(frozen=True)
class Handicap:
    """A variant of a clean kernel, on one side.

    Attributes:
        rule: That has to name it.
        side: Which it is on.
        clean: What it is a variant of.
        kernel: The variant.
        architectures: It is compiled for.
    """

    rule: str
    side: Side
    clean: Kernel
    kernel: Kernel
    architectures: tuple[int, ...] = (90,)

    @property
    def name(self) -> str:
        """For the output of pytest."""
        return f"{self.side}-{self.kernel.name}"


SIGMOID = Kernel("sigmoid", 2 * ((4096, torch.float32),), (4, 1, 1))
ROWS = Kernel("rows", 2 * ((8 * 4096, torch.float32),), (8, 1, 1), (4096,))
TRANSPOSE = Kernel("transpose", 2 * ((4096, torch.float32),), (4, 1, 1))
MATMUL = Kernel(
    "matmul",
    (
        (128 * 128, torch.float32),
        (128 * 256, torch.float16),
        (256 * 128, torch.float16),
    ),
    (2, 2, 1),
)
CLEAN = (SIGMOID, ROWS, TRANSPOSE, MATMUL)


def _handicap(
    rule: str,
    side: Side,
    clean: Kernel,
    name: str,
    architectures: tuple[int, ...] = (90,),
    **changes: Any,
) -> Handicap:
    kernel = replace(clean, name=name, **changes)
    return Handicap(rule, side, clean, kernel, architectures)


HANDICAPS = (
    _handicap("vector width", "cuda", SIGMOID, "scalar_loads", architectures=(80, 90)),
    _handicap("vector width", "triton", SIGMOID, "start_not_divisible", numbers=(0,)),
    _handicap("float64", "cuda", SIGMOID, "double_literal"),
    _handicap("float64", "triton", SIGMOID, "float64_constant"),
    _handicap("coalescing", "cuda", SIGMOID, "chunk_for_each_thread"),
    _handicap("coalescing", "cuda", TRANSPOSE, "columns_from_memory"),
    _handicap("coalescing", "triton", SIGMOID, "strides_at_run_time", numbers=(32, 1)),
    _handicap("merging", "cuda", SIGMOID, "guard_for_each_store", numbers=(4096,)),
    _handicap("merging", "cuda", SIGMOID, "alignment_not_told"),
    _handicap("merging", "triton", SIGMOID, "mask_not_divisible", numbers=(4096,)),
    _handicap("exp", "cuda", SIGMOID, "accurate_exp", architectures=(80, 90, 100)),
    _handicap("exp", "triton", SIGMOID, "accurate_exp", architectures=(80, 90, 100)),
    _handicap("division", "cuda", SIGMOID, "ieee_division"),
    _handicap("division", "triton", SIGMOID, "ieee_division"),
    _handicap("loops", "cuda", SIGMOID, "rolled_loop"),
    _handicap(
        "address arithmetic", "cuda", SIGMOID, "division_of_addresses", numbers=(32, 32)
    ),
    _handicap("cache hints", "cuda", SIGMOID, "uncached_loads"),
    _handicap("cache hints", "triton", SIGMOID, "first_to_go"),
    _handicap("occupancy", "cuda", SIGMOID, "sigmoid", shared_bytes=100 * 1024),
    _handicap("occupancy", "triton", SIGMOID, "one_warp", grid=(16, 1, 1), num_warps=1),
    _handicap("bytes moved", "cuda", ROWS, "second_pass"),
    _handicap("bytes moved", "triton", ROWS, "second_pass"),
    _handicap("reduction", "cuda", ROWS, "sum_in_shared"),
    _handicap("reduction", "cuda", ROWS, "barrier_in_warp"),
    _handicap("spills", "cuda", ROWS, "too_few_registers"),
    _handicap("spills", "triton", ROWS, "too_few_registers", max_registers=32),
    _handicap("padding", "triton", ROWS, "tile_too_wide"),
    _handicap("bank conflicts", "cuda", TRANSPOSE, "bank_conflict"),
    _handicap("tensor cores", "cuda", MATMUL, "without_tensor_cores"),
    _handicap("tensor cores", "triton", MATMUL, "without_tensor_cores"),
    _handicap("asynchronous copies", "cuda", MATMUL, "copies_through_registers"),
    _handicap("asynchronous copies", "triton", MATMUL, "copies_through_registers"),
)
