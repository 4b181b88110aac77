"""Runs the PTX of a kernel, exactly as far as integers go, on no GPU at all."""

from compare.codegen.emulation.emulator import emulate
from compare.codegen.emulation.model import (
    Emulation,
    Launch,
    MemoryAccess,
    OutOfBounds,
    TensorArgument,
    TensorMap,
)

__all__ = [
    "Emulation",
    "Launch",
    "MemoryAccess",
    "OutOfBounds",
    "TensorArgument",
    "TensorMap",
    "emulate",
]
