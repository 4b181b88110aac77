"""What tells the tensor memory accelerator of a tensor, in Triton and in Gluon."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any

from triton.tools.tensor_descriptor import TensorDescriptor


def is_descriptor(value: object) -> bool:
    """Whether it is a descriptor of Triton's or of Gluon's."""
    # Whoever has made one of Gluon's has imported it, which takes a tenth of a second.
    gluon = sys.modules.get("triton.experimental.gluon.nvidia.hopper")
    is_of_gluon = gluon is not None and isinstance(value, gluon.TensorDescriptor)
    return is_of_gluon or isinstance(value, TensorDescriptor)


_TFLOAT32 = 11  # CU_TENSOR_MAP_DATA_TYPE_TFLOAT32, and Triton's own number for it


@dataclass(frozen=True)
class Box:
    """What a tensor map copies at a time."""

    sizes: tuple[int, ...]  # in elements, the contiguous dimension last
    swizzle_bytes: int  # 0, 32, 64 or 128, as a TensorMap has it
    is_of_tf32: bool  # so that loads round to it

    @classmethod
    def of(cls, described: dict[str, Any]) -> Box:
        """Reads what Triton keeps with a kernel for one of its descriptors."""
        # CUtensorMapSwizzle: none, and then from 32 bytes on.
        swizzle_bytes = 16 << swizzle if (swizzle := described["swizzle"]) else 0
        is_of_tf32 = described["elem_type"] == _TFLOAT32
        return cls(tuple(described["block_size"]), swizzle_bytes, is_of_tf32)
