"""Runs the PTX of a kernel, exactly as far as integers go, on no GPU at all."""

from compare.ptx_simulator.simulation import (
    Launch,
    MemoryAccess,
    OutOfBounds,
    Simulation,
    TensorArgument,
    TensorMap,
)
from compare.ptx_simulator.simulator import simulate

__all__ = [
    "Launch",
    "MemoryAccess",
    "OutOfBounds",
    "Simulation",
    "TensorArgument",
    "TensorMap",
    "simulate",
]
