"""How many blocks of a kernel a multiprocessor (SM) holds at a time, and why not more.

The rules are those of NVIDIA's cuda_occupancy.h, with the numbers of the CUDA C++
Programming Guide, table "Technical Specifications per Compute Capability":

registers      go to whole warps, in granules of 256. Each of the four sub-partitions of
               an SM has a quarter of the registers, and a warp stays in one of them.
shared memory  goes to whole blocks, in granules of 128 bytes. To what a block asks for
               the driver adds 1 KiB for itself.
threads        an SM has room for 48 or 64 warps. A block that does not fill its last
               warp takes all of it.
blocks         an SM has room for 16 to 32, however small they are.

What a kernel rarely runs out of is left aside: barriers beyond the one of
__syncthreads(), clusters, and the tensor memory of sm_100.
"""

from dataclasses import dataclass

from compare.code.architectures import (
    DRIVER_SHARED_BYTES,
    MAX_REGISTERS_PER_THREAD,
    MAX_THREADS_PER_BLOCK,
    REGISTER_GRANULE,
    REGISTERS_PER_SM,
    SHARED_GRANULE,
    SUB_PARTITIONS,
    WARP_SIZE,
    Architecture,
)
from compare.code.words import listed


@dataclass(frozen=True)
class Occupancy:
    """The blocks and warps of a kernel that one SM holds at a time."""

    blocks_per_sm: int  # whole blocks
    warps_per_sm: int  # of these blocks together
    max_warps_per_sm: int  # for which the SM has room
    fraction: float  # the former of the latter; this is what is called the occupancy
    # Resources of which another block would need more than is left: "registers",
    # "shared memory", "threads", "blocks".
    limited_by: tuple[str, ...]

    @property
    def limits(self) -> str:
        """The limiting resources, for a sentence."""
        return listed(
            f"the number of {each}" if each in ("threads", "blocks") else each
            for each in self.limited_by
        )


def occupancy(
    architecture: Architecture,
    registers: int,
    threads_per_block: int,
    shared_bytes: int,
) -> Occupancy:
    """Computes how many blocks of a kernel one SM holds.

    `shared_bytes` is what a block asks for, static and dynamic, without what the driver
    reserves.

    Raises:
        ValueError: such a kernel cannot be launched; the message says why.
    """
    _check_range("threads in a block", threads_per_block, 1, MAX_THREADS_PER_BLOCK)
    _check_range("registers in a thread", registers, 1, MAX_REGISTERS_PER_THREAD)
    _check_range(
        f"bytes of shared memory in a block on {architecture.name}",
        shared_bytes,
        0,
        architecture.max_shared_bytes,
    )
    warps = -(-threads_per_block // WARP_SIZE)
    warp_registers = _rounded_up(registers * WARP_SIZE, REGISTER_GRANULE)
    warps_with_registers = (
        REGISTERS_PER_SM // SUB_PARTITIONS // warp_registers * SUB_PARTITIONS
    )
    if warps > warps_with_registers:
        raise ValueError(
            f"{warps} warps in a block are too many with {registers} registers in a"
            f" thread: an SM has registers for {warps_with_registers} warps"
        )
    block_shared_bytes = _rounded_up(shared_bytes + DRIVER_SHARED_BYTES, SHARED_GRANULE)
    limits = {
        "registers": warps_with_registers // warps,
        "shared memory": architecture.shared_bytes_per_sm // block_shared_bytes,
        "threads": architecture.max_warps_per_sm // warps,
        "blocks": architecture.max_blocks_per_sm,
    }
    blocks = min(limits.values())
    return Occupancy(
        blocks_per_sm=blocks,
        warps_per_sm=blocks * warps,
        max_warps_per_sm=architecture.max_warps_per_sm,
        fraction=blocks * warps / architecture.max_warps_per_sm,
        limited_by=tuple(name for name, limit in limits.items() if limit == blocks),
    )


def _check_range(what: str, value: int, least: int, most: int) -> None:
    if not least <= value <= most:
        raise ValueError(f"{value} {what}: there can be {least} to {most}")


def _rounded_up(value: int, granule: int) -> int:
    return -(-value // granule) * granule
