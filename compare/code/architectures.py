"""The GPU architectures that code can be generated and inspected for."""

import re
from dataclasses import dataclass

DEFAULT_ARCHITECTURE = "sm_90"

# The same on all of them.
WARP_SIZE = 32
MAX_THREADS_PER_BLOCK = 1024
MAX_REGISTERS_PER_THREAD = 255
REGISTERS_PER_SM = 64 * 1024
SUB_PARTITIONS = 4  # of an SM, which share out warps and registers evenly
REGISTER_GRANULE = 256  # a warp gets a multiple of it
SHARED_GRANULE = 128  # bytes, of which a block gets a multiple
DRIVER_SHARED_BYTES = 1024  # the driver takes them for itself in every block


@dataclass(frozen=True)
class Architecture:
    """One GPU architecture, with what a launcher asks about its device."""

    number: int  # the compute capability without the dot
    device: str  # what it is known from
    multiprocessors: int  # (SMs) of the first device of these
    max_warps_per_sm: int  # that an SM holds at a time
    max_blocks_per_sm: int  # that an SM holds at a time
    shared_bytes_per_sm: int  # for all blocks that an SM holds

    @property
    def name(self) -> str:
        """The name a user writes: `sm_90`."""
        return f"sm_{self.number}"

    @property
    def target(self) -> str:
        """The name both compilers get; from Hopper on with what that chip alone can."""
        return f"{self.name}a" if self.number >= 90 else self.name

    @property
    def max_shared_bytes(self) -> int:
        """The most for one block, if the launcher opts in to more than 48 KiB."""
        return self.shared_bytes_per_sm - DRIVER_SHARED_BYTES

    @property
    def reserved_shared_bytes(self) -> int:
        """The driver's part of a block's shared memory, where cuobjdump counts it."""
        return DRIVER_SHARED_BYTES if self.number >= 90 else 0


# From the CUDA C++ Programming Guide, table "Technical Specifications per Compute
# Capability", and NVIDIA's cuda_occupancy.h.
ARCHITECTURES = {
    architecture.number: architecture
    for architecture in (
        # number, device, SMs; then on one SM: warps, blocks, shared bytes
        Architecture(80, "A100", 108, 64, 32, 164 * 1024),
        Architecture(86, "RTX 3090", 82, 48, 16, 100 * 1024),
        Architecture(89, "RTX 4090", 128, 48, 24, 100 * 1024),
        Architecture(90, "H100, H200", 132, 64, 32, 228 * 1024),
        Architecture(100, "B200", 148, 64, 32, 228 * 1024),
        Architecture(120, "RTX 5090", 170, 48, 24, 100 * 1024),
    )
}


def parse_architecture(text: str) -> Architecture:
    """Finds the architecture that `text` names: `sm_90`, `sm_90a`, `90` or `9.0`.

    Raises:
        ValueError: no such architecture is known here.
    """
    matched = re.fullmatch(r"(?:sm_?)?(\d+)(?:\.(\d))?a?", text.strip().lower())
    number = int(matched[1] + (matched[2] or "")) if matched else 0
    if number not in ARCHITECTURES:
        choices = ", ".join(each.name for each in ARCHITECTURES.values())
        raise ValueError(f"unknown architecture {text!r}: choose one of {choices}")
    return ARCHITECTURES[number]
