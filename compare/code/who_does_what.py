"""The table that introductions to Triton open with, filled in from the code itself.

What a CUDA programmer writes by hand and Triton's compiler does alone: which source
lines of the one, and what instructions of the other, say so.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from compare.assembly.listing import Instruction
from compare.assembly.places import in_op
from compare.code.kernel_code import KernelCode

How = Literal["by hand", "automatic", "not needed"]


@dataclass(frozen=True)
class Answer:
    """Who sees to something on one side.

    Attributes:
        how: The programmer, the compiler, or nobody.
        what: What was done, one sentence.
        places: Where in the project's sources, such as "csrc/softmax/softmax.cu:69".
    """

    how: How
    what: str
    places: tuple[str, ...]


@dataclass(frozen=True)
class Row:
    """Something that has to be seen to, and who does."""

    topic: str
    cuda: Answer
    triton: Answer


def table(cuda: KernelCode, triton: KernelCode) -> tuple[Row, ...]:
    """All that there is to see to."""
    return tuple(
        Row(topic, answer(cuda), answer(triton)) for topic, answer in _TOPICS.items()
    )


def _coalescing(code: KernelCode) -> Answer:
    accesses = code.ptx.in_category("global load", "global store", "async copy")
    boxes = code.ptx.in_category("tensor copy")
    parts = [
        f"{count} of {width} bytes"
        for width, count in sorted(
            Counter(each.access_bytes for each in accesses).items(), reverse=True
        )
    ]
    if boxes:
        parts.append(f"{len(boxes)} of boxes of a tensor, each by one thread for all")
    widths = ", ".join(parts)
    accesses += boxes
    if code.side == "cuda":
        what = f"every thread takes the addresses that its index gives: {widths}"
        return Answer("by hand", what, in_op(accesses))
    what = f"a load or store of a tile became accesses of a thread: {widths}"
    return Answer("automatic", what, in_op(accesses))


def _shared_memory(code: KernelCode) -> Answer:
    accesses = code.ptx.in_category("shared load", "shared store")
    if not accesses and not code.shared_bytes:
        return Answer("not needed", "the kernel uses none", ())
    loads = len(code.ptx.in_category("shared load"))
    moved = f"{loads} loads, {len(accesses) - loads} stores"
    if code.side == "cuda":
        what = f"{code.shared_bytes} bytes that the source declares; {moved}"
        return Answer("by hand", what, in_op(accesses))
    what = f"{code.shared_bytes} bytes that the compiler lays out; {moved}"
    return Answer("automatic", what, in_op(accesses))


def _within_an_sm(code: KernelCode) -> Answer:
    exchanges = code.ptx.in_category("shuffle / vote")
    barriers = code.ptx.in_category("barrier")
    warps = code.warps_per_block
    steps = f"{len(exchanges)} shuffles and votes, {len(barriers)} barriers"
    if not exchanges and not barriers:
        steps = "the threads exchange nothing"
    if code.side == "cuda":
        what = f"{warps} warps whose work the source divides: {steps}"
        return Answer("by hand", what, in_op([*exchanges, *barriers]))
    what = f"the launch asks for {warps} warps; the compiler divides the tile: {steps}"
    return Answer("automatic", what, in_op([*exchanges, *barriers]))


def _across_sms(code: KernelCode) -> Answer:
    unit = "blocks" if code.side == "cuda" else "programs"
    what = f"{code.launch.blocks} {unit}, each of which finds its part by its index"
    return Answer("by hand", what, in_op(_readers_of_block_index(code)))


_TOPICS: dict[str, Callable[[KernelCode], Answer]] = {
    "memory coalescing": _coalescing,
    "shared memory": _shared_memory,
    "scheduling within an SM": _within_an_sm,
    "scheduling across SMs": _across_sms,
}


def _readers_of_block_index(code: KernelCode) -> list[Instruction]:
    return [
        each
        for each in code.ptx.instructions
        if any(operand.startswith("%ctaid") for operand in each.operands)
    ]
