"""Behind which instruction nothing uses a register any more.

The results of all lanes fill some 100 KB. Where each of a long kernel's registers kept
its own to the end, every result would take memory that is in no cache, and that the
operating system has to clear first.
"""

from collections.abc import Collection, Iterable, Sequence


def unused_from(
    uses: Sequence[Collection[int]], jumps: Iterable[tuple[int, int]]
) -> list[list[int]]:
    """The registers that no thread uses from an instruction on, for each instruction.

    A register is named once, behind its last use, or behind the loop that this is in.

    Args:
        uses: the registers that each instruction reads or writes.
        jumps: from which instruction to which there are any.
    """
    last = {slot: place for place, slots in enumerate(uses) for slot in slots}
    # Whoever jumps back comes to the uses in between once more. A loop that ends later
    # may hold one that ends earlier, and not the other way round.
    loops = sorted((end, begin) for end, begin in jumps if begin <= end)
    unused: list[list[int]] = [[] for _ in range(len(uses) + 1)]
    for slot, place in last.items():
        for end, begin in loops:
            if begin <= place <= end:
                place = end
        unused[place + 1].append(slot)
    return unused
