"""The tiles of matmul's rungs before the twin, and the calls that they are for."""

from typing import NamedTuple

from triton_kernels.common.device import Device
from triton_kernels.matmul.model import Call


class RungTile(NamedTuple):
    """A tile, how it is computed, and the calls that it is for."""

    block_m: int
    block_n: int
    block_k: int
    num_stages: int  # steps whose a and b are in shared memory at a time
    num_warps: int
    tiles_per_sm: int = 0  # the fewest that a multiprocessor has to have
    needs_vectors: bool = False
    element_bytes: int = 0  # of which dtypes; 0: all

    def serves(self, device: Device, call: Call) -> bool:
        """Whether it is for a call."""
        return (
            self.element_bytes in (0, call.dtype.itemsize)
            and (call.has_vectors or not self.needs_vectors)
            and call.n_tiles(self.block_m, self.block_n)
            >= self.tiles_per_sm * device.n_sms
        )


# Rows, columns and depth, stages, warps. Where elements come one by one, a thread holds
# the address of each, and has registers for half a tile only.
TILED_TILES = (
    RungTile(128, 128, 16, 2, 8, needs_vectors=True),
    RungTile(64, 128, 16, 2, 8),
)
# They fit into the 99 KB of shared memory that the smallest GPUs have.
TENSOR_CORES_TILES = (
    RungTile(128, 128, 32, 4, 8, tiles_per_sm=1, needs_vectors=True, element_bytes=2),
    RungTile(128, 128, 16, 4, 8, tiles_per_sm=1, needs_vectors=True, element_bytes=4),
    RungTile(64, 128, 32, 4, 8, tiles_per_sm=2, element_bytes=2),
    RungTile(64, 128, 16, 4, 8, tiles_per_sm=2, element_bytes=4),
    RungTile(64, 64, 32, 4, 8, element_bytes=2),
    RungTile(64, 64, 16, 4, 8, element_bytes=4),
)
