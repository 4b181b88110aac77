"""The tiles of attention's rungs, and the calls that they are for."""

from collections.abc import Iterable
from typing import Any, NamedTuple

import triton

from triton_kernels.attention.regimes import REGIMES, AttentionRung, Call
from triton_kernels.common.device import Device, current_device
from triton_kernels.common.table import CannotServeError


class AttentionTile(NamedTuple):
    """A tile, how it is computed, and the calls that it is for."""

    max_head_dim: int
    block_m: int  # queries
    block_n: int  # keys
    num_stages: int  # steps whose k and v are in shared memory at a time
    num_warps: int
    block_k: int = 0  # columns of q and k in shared memory at a time; 0: all
    needs_vectors: bool = False
    needs_plain: bool = False
    arch: int = 0  # of which architecture, such as 90; 0: the default

    def serves(self, device: Device, call: Call) -> bool:
        """Whether it is for a call."""
        return (
            self.arch in (0, device.arch)
            and call.head_dim <= self.max_head_dim
            and (call.has_vectors or not self.needs_vectors)
            and (call.is_plain or not self.needs_plain)
        )

    def constants(self, call: Call) -> dict[str, Any]:
        """What a kernel is compiled for."""
        own = {"BLOCK_K": self.block_k} if self.block_k else {"IS_PLAIN": call.is_plain}
        return {
            **own,
            "BLOCK_M": self.block_m,
            "BLOCK_N": self.block_n,
            "HEAD_DIM": max(16, triton.next_power_of_2(call.head_dim)),
            "num_stages": self.num_stages,
            "num_warps": self.num_warps,
            "enable_fp_fusion": True,
        }


# Rows and columns of a result, and the summands of an element that are read at a time.
FIRST_TILE = {
    "BLOCK_M": 16,
    "BLOCK_N": 32,
    "BLOCK_K": 32,
    "num_warps": 8,
    "enable_fp_fusion": True,
}
# Head_dim, queries, keys, stages, warps, columns. Where elements come one by one, a
# thread holds the address of each, and has registers for smaller tiles only.
TILED_TILES = (
    AttentionTile(128, 64, 64, 2, 8, 16, needs_vectors=True, arch=90),
    AttentionTile(64, 64, 32, 2, 4, 16, needs_vectors=True),
    AttentionTile(64, 64, 32, 2, 8, 16),
    AttentionTile(128, 64, 32, 2, 8, 16),
    AttentionTile(256, 32, 32, 2, 8, 16),
)
# The default ones fit into the 99 KB of shared memory that the smallest GPUs have.
TENSOR_CORES_TILES = (
    AttentionTile(64, 128, 128, 2, 8, needs_vectors=True, arch=90),
    AttentionTile(128, 128, 64, 3, 8, needs_vectors=True, arch=90),
    AttentionTile(256, 128, 32, 3, 8, needs_vectors=True, arch=90),
    AttentionTile(64, 128, 64, 3, 8),
    AttentionTile(128, 128, 64, 2, 8, needs_vectors=True, needs_plain=True),
    AttentionTile(128, 64, 32, 2, 8),
    AttentionTile(256, 64, 32, 2, 8, needs_vectors=True),
    AttentionTile(256, 32, 16, 2, 8),
)

DELTA_BLOCK_M = 16  # rows of a program


def choose(table: Iterable[Any], call: Call) -> Any:
    """The first line that is for a call on the current device."""
    device = current_device()
    for line in table:
        if line.serves(device, call):
            return line
    raise CannotServeError("attention: this rung has no kernel for such a call here")


def choose_rung(call: Call, asked: int) -> AttentionRung:
    """What computes a call on the current device: the rung asked for, or a regime's."""
    able = (each for each in REGIMES if asked in (AttentionRung.CHOSEN, each.rung))
    rung: AttentionRung = choose(able, call).rung
    return rung
