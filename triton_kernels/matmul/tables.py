"""The tiles of matmul's kernels, and the calls that they are for."""

from typing import Any, NamedTuple

import torch
import triton

from triton_kernels.common.device import Device
from triton_kernels.common.epilogue import ACTIVATIONS


class Call(NamedTuple):
    """What rung and tile are chosen by."""

    dtype: torch.dtype
    tf32: bool
    n_batches: int
    M: int
    N: int
    K: int
    activation: str
    has_tensor_maps: bool  # out, a and b
    has_vectors: bool  # all is read and written by 8 bytes or more at a time


class MatmulTile(NamedTuple):
    """A tile, how it is computed, and the calls that it is for."""

    block_m: int
    block_n: int
    block_k: int
    num_stages: int  # steps whose a and b are in shared memory at a time
    num_warps: int
    n_parts: int = 1  # groups of columns that are stored one after the other
    programs_per_sm: int = 1  # where a program takes many tiles
    tiles_per_sm: float = 0.0  # the fewest that a multiprocessor has to have
    min_rows: int = 0  # of a
    min_k: int = 0
    activations: tuple[str, ...] = ACTIVATIONS
    needs_vectors: bool = False
    element_bytes: int = 0  # of which dtypes; 0: all
    arch: int = 0  # of which architecture, such as 90; 0: the default

    def n_tiles(self, call: Call) -> int:
        """How many a call has."""
        n_tile_rows = triton.cdiv(call.M, self.block_m)
        return int(call.n_batches * n_tile_rows * triton.cdiv(call.N, self.block_n))

    def serves(self, device: Device, call: Call) -> bool:
        """Whether it is for a call."""
        return (
            self.arch in (0, device.arch)
            and self.element_bytes in (0, call.dtype.itemsize)
            and call.activation in self.activations
            and self.min_rows <= call.M
            and self.min_k <= call.K
            and (call.has_vectors or not self.needs_vectors)
            and self.n_tiles(call) >= self.tiles_per_sm * device.n_sms
        )

    def constants(self, call: Call) -> dict[str, Any]:
        """What a kernel is compiled for."""
        return {
            "ACTIVATION": call.activation,
            "BLOCK_M": self.block_m,
            "BLOCK_N": self.block_n,
            "BLOCK_K": self.block_k,
            "num_stages": self.num_stages,
            "num_warps": self.num_warps,
            "enable_fp_fusion": True,
        }


# Rows, columns and depth, stages, warps. Where elements come one by one, a thread holds
# the address of each, and has registers for half a tile only.
TILED_TILES = (
    MatmulTile(128, 128, 16, 2, 8, needs_vectors=True),
    MatmulTile(64, 128, 16, 2, 8),
)
# They fit into the 99 KB of shared memory that the smallest GPUs have.
TENSOR_CORES_TILES = (
    MatmulTile(128, 128, 32, 4, 8, tiles_per_sm=1, needs_vectors=True, element_bytes=2),
    MatmulTile(128, 128, 16, 4, 8, tiles_per_sm=1, needs_vectors=True, element_bytes=4),
    MatmulTile(64, 128, 32, 4, 8, tiles_per_sm=2, element_bytes=2),
    MatmulTile(64, 128, 16, 4, 8, tiles_per_sm=2, element_bytes=4),
    MatmulTile(64, 64, 32, 4, 8, element_bytes=2),
    MatmulTile(64, 64, 16, 4, 8, element_bytes=4),
)
# The large tile costs the fewest bytes. Two programs with medium tiles share a
# multiprocessor: one stores while the tensor cores work for the other. More warps get
# through a long epilogue faster. Where there are few rows or few tiles, the small tile
# lets all multiprocessors read, far ahead. Behind the warps: parts, programs and tiles
# of a multiprocessor, rows.
LONG_EPILOGUES = ("gelu", "gelu_tanh", "silu")
TILES = (
    MatmulTile(128, 256, 64, 4, 8, 2, 1, 0.75, 65, min_k=1024),
    MatmulTile(128, 128, 64, 3, 8, 2, 2, 0.75, 65, activations=LONG_EPILOGUES),
    MatmulTile(128, 128, 64, 3, 4, 2, 2, 0.75, 65),
    MatmulTile(64, 64, 128, 4, 4),
)
