"""The GPU architectures that code can be generated and inspected for."""

import re
from dataclasses import dataclass


@dataclass(frozen=True)
class Architecture:
    """One GPU architecture, with what a launcher asks about its device."""

    number: int
    device: str
    multiprocessors: int
    max_shared_bytes: int

    @property
    def name(self) -> str:
        """The name a user writes: `sm_90`."""
        return f"sm_{self.number}"

    @property
    def target(self) -> str:
        """The name both compilers get; from Hopper on with what that chip alone can."""
        return f"{self.name}a" if self.number >= 90 else self.name

    @property
    def reserved_shared_bytes(self) -> int:
        """What the driver keeps of each block's shared memory, counted by cuobjdump."""
        return 1024 if self.number >= 90 else 0


# Shared memory: what one block can have, from the CUDA C++ Programming Guide, table
# "Technical Specifications per Compute Capability". Multiprocessors: of the first one.
ARCHITECTURES = {
    architecture.number: architecture
    for architecture in (
        Architecture(80, "A100", 108, 163 * 1024),
        Architecture(86, "RTX 3090", 82, 99 * 1024),
        Architecture(89, "RTX 4090", 128, 99 * 1024),
        Architecture(90, "H100, H200", 132, 227 * 1024),
        Architecture(100, "B200", 148, 227 * 1024),
        Architecture(120, "RTX 5090", 170, 99 * 1024),
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
