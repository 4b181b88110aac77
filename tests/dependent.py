"""Launches that begin while the one before them ends: what they must not do before.

Only a GPU has launches that overlap, and even there a race may stay hidden: so their
code is read, and executed in the simulator.
"""

from __future__ import annotations

from compare.code.kernel_code import KernelCode


def assert_waits_first(code: KernelCode) -> None:
    """All threads wait for the launch before, and touch no memory until then."""
    opcodes = [each.opcode for each in code.ptx.instructions]
    waits = opcodes.index("griddepcontrol.wait")
    touching = [
        opcode
        for opcode in opcodes
        if (".global" in opcode and not opcode.startswith("cvta."))
        or opcode.startswith("cp.async.bulk.tensor")
    ]
    assert touching
    assert waits < min(map(opcodes.index, touching))
    # Constants may be read at any time, wherever the compiler puts the load.
    assert not any(opcode.startswith("ld.global.nc") for opcode in touching)
    # No thread ends without, or the launch behind would not wait for the one before.
    done = code.simulation
    assert done.executed[waits] == done.blocks * done.threads
