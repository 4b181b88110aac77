"""Runs the PTX of a kernel on no GPU at all.

With the contents of tensors it computes what a GPU would; without, it follows integers
and addresses, and counts.
"""

from compare.ptx_simulator.contents import Buffer, Contents
from compare.ptx_simulator.simulation import (
    Fault,
    Launch,
    MemoryAccess,
    Order,
    OutOfBounds,
    Simulation,
    TensorArgument,
    TensorMap,
)
from compare.ptx_simulator.simulator import simulate

__all__ = [
    "Buffer",
    "Contents",
    "Fault",
    "Launch",
    "MemoryAccess",
    "Order",
    "OutOfBounds",
    "Simulation",
    "TensorArgument",
    "TensorMap",
    "simulate",
]
