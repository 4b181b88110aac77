"""The loops in which threads ask, until it is so, what another block may write."""

from collections.abc import Callable, Sequence

from compare.assembly.control_flow import Loop
from compare.assembly.listing import Instruction, Listing

_SHARED = {"shared", "shared::cta"}


def questions(listing: Listing, loops: Callable[[], Sequence[Loop]]) -> list[Loop]:
    """The loops that read what another block may write meanwhile, until it has.

    They are innermost ones that write nothing but shared memory.

    Args:
        listing: the kernel.
        loops: finds all of its loops, which takes long.
    """
    if not any(map(_asks, listing.instructions)):
        return []  # the loops of most kernels need not be found
    found = loops()
    heads = {each.head for each in found}

    def is_question(loop: Loop) -> bool:
        body = [listing.instructions[place] for place in loop.body]
        is_innermost = len(heads & loop.body) == 1
        return is_innermost and any(map(_asks, body)) and not any(map(_acts, body))

    return [*filter(is_question, found)]


def _asks(instruction: Instruction) -> bool:
    """Whether it reads global memory in some order with what others write there."""
    modifiers = {*instruction.opcode.split(".")}
    is_ordered = instruction.stem == "atom" or (
        instruction.stem == "ld" and modifiers & {"acquire", "relaxed", "volatile"}
    )
    return bool(is_ordered) and not modifiers & _SHARED


def _acts(instruction: Instruction) -> bool:
    """Whether it writes or starts something that is not of the own block alone."""
    is_store = instruction.stem in ("st", "red")
    modifiers = {*instruction.opcode.split(".")}
    starts = instruction.stem in ("cp", "mbarrier", "wgmma", "tcgen05")
    return starts or (is_store and not modifiers & _SHARED)
