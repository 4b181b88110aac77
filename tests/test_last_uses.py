"""The simulator gives memory of registers back, and never too early."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from test_simulated_memory import PLACES, numbers

from compare.ptx_simulator.batch import Batch
from compare.ptx_simulator.last_uses import unused_from

# Each thread goes round as often as its number says, with %r9 from before the loop.
LOOP = f"""{PLACES}
    mov.u32 %r9, 5;
    mov.u32 %r2, 0;
    mov.u32 %r3, 0;
again:
    add.u32 %r2, %r2, %r9;
    add.u32 %r3, %r3, 1;
    setp.le.u32 %p1, %r3, %r1;
    @%p1 bra again;
    st.global.u32 [%d5], %r2;
"""


@pytest.mark.parametrize(
    ("uses", "jumps", "unused"),
    [
        ([{1}, {1, 2}, {2}], [], [[], [], [1], [2]]),
        ([{1}, {2}, {1}], [(0, 2)], [[], [], [2], [1]]),  # over some, and not back
        ([{1}, {1}, {2}, {3}], [(2, 1)], [[], [], [], [1, 2], [3]]),
        # Within two loops, and in one of them.
        ([{1}, {1}, {2}, {3}], [(3, 0), (2, 1)], [[], [], [], [], [1, 2, 3]]),
        ([{1}, {2}, {3}], [(0, 0), (2, 1)], [[], [1], [], [2, 3]]),
        # From the end of one loop into another that begins within it.
        ([{1}, {2}, {3}, {4}], [(1, 0), (3, 1)], [[], [], [], [], [1, 2, 3, 4]]),
        ([], [], [[]]),
    ],
)
def test_where_registers_are_used_last(
    uses: list[set[int]], jumps: list[tuple[int, int]], unused: list[list[int]]
) -> None:
    assert unused_from(uses, jumps) == unused


def test_memory_is_given_back(monkeypatch: pytest.MonkeyPatch) -> None:
    gone: set[int] = set()
    let_go = Batch.let_go

    def note(batch: Batch, slots: Any) -> None:
        let_go(batch, slots)
        gone.update(slots)
        assert all(batch.registers[slot].bits.size == 1 for slot in slots)

    monkeypatch.setattr(Batch, "let_go", note)
    sums = f"{PLACES} ld.global.u32 %r2, [%d4]; add.u32 %r3, %r2, 7;"
    assert numbers(f"{sums} st.global.u32 [%d5], %r3;") == [*range(7, 135)]
    assert len(gone) > 5


def test_not_before_the_last_thread_has_left_a_loop() -> None:
    assert numbers(LOOP) == [5 * (each + 1) for each in range(128)]


def test_not_while_others_wait_before_a_use() -> None:
    # The first half waits until the second is past the use of %r2 that is written last.
    halves = f"""{PLACES}
    add.u32 %r2, %r1, 100;
    setp.ge.u32 %p1, %r1, 64;
    @%p1 bra late;
    bar.sync 1, 128;
    st.global.u32 [%d5], %r2;
    bra end;
late:
    st.global.u32 [%d5], %r2;
    mov.u32 %r3, 0;
    bar.arrive 1, 128;
end:
"""
    assert numbers(halves) == [*range(100, 228)]


def test_threads_that_have_ended_are_not_waited_for() -> None:
    some = f"""{PLACES}
    add.u32 %r2, %r1, 1;
    setp.ge.u32 %p1, %r1, 100;
    @%p1 ret;
    add.u32 %r3, %r2, %r2;
    st.global.u32 [%d5], %r3;
"""
    expected = np.where(np.arange(128) < 100, 2 * np.arange(1, 129), 0)
    assert numbers(some) == expected.tolist()
