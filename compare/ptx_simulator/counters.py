"""What is counted while the blocks of a launch run."""

from collections import Counter
from dataclasses import dataclass, field


@dataclass
class Counters:
    """Counts over all batches."""

    blocks: int = 0  # that were run
    # By instruction, in how many lanes and in how many warps it was executed.
    executed: Counter[int] = field(default_factory=Counter)
    warp_executed: Counter[int] = field(default_factory=Counter)
    # The instructions whose predicate, or whose target, was unknown.
    unknown: set[int] = field(default_factory=set)
    # Those of the first block, each with a bit for each warp that executes it.
    trace: list[tuple[int, int]] = field(default_factory=list)
    steps: int = 0  # instructions executed, each in any number of lanes
    is_complete: bool = True  # whether all lanes came to their end
