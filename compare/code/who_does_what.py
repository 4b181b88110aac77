"""The table that introductions to Triton open with, filled in from the code itself.

What a CUDA programmer writes by hand and Triton's compiler does alone: which source
lines of the one, and what instructions of the other, say so.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal

from compare.assembly.listing import Instruction
from compare.assembly.places import in_op
from compare.code.kernel_code import KernelCode

How = Literal["by hand", "automatic", "not needed"]


@dataclass(frozen=True)
class Answer:
    """Who sees to something on one side: the programmer, the compiler, or nobody."""

    how: How
    what: str  # was done, one sentence
    places: tuple[str, ...]  # in the project's sources: "csrc/softmax/softmax.cu:69"


@dataclass(frozen=True)
class Row:
    """Something that has to be seen to, and who does."""

    topic: str
    cuda: Answer
    triton: Answer


def table(cuda: KernelCode, triton: KernelCode) -> tuple[Row, ...]:
    """A row for each thing that somebody has to see to.

    None for two kernels in one language, in which the same is done by the same.
    """
    if cuda.language == triton.language:
        return ()
    return tuple(
        Row(topic, answer(cuda), answer(triton)) for topic, answer in _TOPICS.items()
    )


def _coalescing(code: KernelCode) -> Answer:
    accesses = code.ptx.in_category("global load", "global store", "async copy")
    boxes = code.ptx.in_category("tensor copy")
    widths = Counter(each.access_bytes for each in accesses)
    parts = [
        f"{count} of {width} bytes"
        for width, count in sorted(widths.items(), reverse=True)
    ]
    if boxes:
        parts.append(f"{len(boxes)} of boxes of a tensor, each by one thread for all")
    return _answer(
        code,
        accesses + boxes,
        by_hand="every thread takes the addresses that its index gives",
        automatic="a load or store of a tile became accesses of a thread",
        found=f": {', '.join(parts)}",
    )


def _shared_memory(code: KernelCode) -> Answer:
    loads = code.ptx.in_category("shared load")
    stores = code.ptx.in_category("shared store")
    if not loads and not stores and not code.shared_bytes:
        return Answer("not needed", "the kernel uses none", ())
    return _answer(
        code,
        loads + stores,
        by_hand=f"{code.shared_bytes} bytes that the source declares",
        automatic=f"{code.shared_bytes} bytes that the compiler lays out",
        found=f"; {len(loads)} loads, {len(stores)} stores",
    )


def _within_an_sm(code: KernelCode) -> Answer:
    exchanges = code.ptx.in_category("shuffle / vote")
    barriers = code.ptx.in_category("barrier")
    steps = "the threads exchange nothing"
    if exchanges or barriers:
        steps = f"{len(exchanges)} shuffles and votes, {len(barriers)} barriers"
    warps = f"{code.warps_per_block} warps"
    return _answer(
        code,
        exchanges + barriers,
        by_hand=f"{warps} whose work the source divides",
        automatic=f"the launch asks for {warps}; the compiler divides the tile",
        found=f": {steps}",
    )


def _across_sms(code: KernelCode) -> Answer:
    unit = "blocks" if code.language == "cuda" else "programs"
    what = f"{code.launch.blocks} {unit}, each of which finds its part by its index"
    readers = [
        each
        for each in code.ptx.instructions
        if any(operand.startswith("%ctaid") for operand in each.operands)
    ]
    return Answer("by hand", what, in_op(readers))


def _answer(
    code: KernelCode,
    instructions: Iterable[Instruction],
    *,
    by_hand: str,
    automatic: str,
    found: str,
) -> Answer:
    """CUDA's programmer sees to it, or Triton's compiler; the code shows how."""
    if code.language == "cuda":
        return Answer("by hand", f"{by_hand}{found}", in_op(instructions))
    return Answer("automatic", f"{automatic}{found}", in_op(instructions))


_TOPICS: dict[str, Callable[[KernelCode], Answer]] = {
    "memory coalescing": _coalescing,
    "shared memory": _shared_memory,
    "scheduling within an SM": _within_an_sm,
    "scheduling across SMs": _across_sms,
}
