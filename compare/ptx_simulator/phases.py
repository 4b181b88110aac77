"""The phases of all mbarriers of a batch."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from compare.ptx_simulator.values import Lanes, Mask


@dataclass
class _States:
    """The mbarriers at one address in the shared memory of all blocks, by block."""

    expected: Lanes  # arrivals of a phase; 0 where there is no mbarrier
    pending: Lanes  # arrivals that are still to come
    n_bytes: Lanes  # that are still to come
    phase: Lanes  # how many phases are over


class Mbarriers:
    """All mbarriers of a batch."""

    def __init__(self, blocks: int) -> None:
        """Begins with none in so many blocks."""
        self._blocks = blocks
        self._by_address: dict[int, _States] = {}

    def begin(self, owners: Lanes, addresses: Lanes, expected: Lanes) -> None:
        """Initialises those at addresses in the shared memory of blocks."""
        for address, some in _by_value(addresses):
            states = self._states(address)
            which = owners[some]
            states.expected[which] = states.pending[which] = expected[some]
            states.n_bytes[which] = states.phase[which] = 0

    def end(self, owners: Lanes, addresses: Lanes, _: Lanes) -> None:
        """Makes them memory like any other."""
        for address, some in _by_value(addresses):
            self._states(address).expected[owners[some]] = 0

    def are_there(self, owners: Lanes, addresses: Lanes) -> Mask:
        """Whether they have been initialised."""
        found = np.zeros(owners.size, np.bool_)
        for address, some in _by_value(addresses):
            found[some] = self._states(address).expected[owners[some]] > 0
        return found

    def arrive(self, owners: Lanes, addresses: Lanes, counts: Lanes) -> None:
        """So many arrive."""
        self._change(owners, addresses, counts, np.zeros_like(counts))

    def expect(self, owners: Lanes, addresses: Lanes, n_bytes: Lanes) -> None:
        """So many bytes more are to come; or less, which have come."""
        self._change(owners, addresses, np.zeros_like(n_bytes), n_bytes)

    def arrive_and_expect(
        self, owners: Lanes, addresses: Lanes, n_bytes: Lanes
    ) -> None:
        """One arrives and says how many bytes more are to come."""
        self._change(owners, addresses, np.ones_like(n_bytes), n_bytes)

    def have_ended(self, owners: Lanes, addresses: Lanes, parities: Lanes) -> Mask:
        """Whether the phases of these parities are over."""
        ended = np.zeros(owners.size, np.bool_)
        for address, some in _by_value(addresses):
            states, which = self._states(address), owners[some]
            # The current phase has the parity of how many are over.
            ended[some] = states.phase[which] % 2 != parities[some]
            ended[some] &= states.expected[which] > 0
        return ended

    def _change(
        self, owners: Lanes, addresses: Lanes, arrivals: Lanes, n_bytes: Lanes
    ) -> None:
        for address, some in _by_value(addresses):
            states, which = self._states(address), owners[some]
            np.add.at(states.n_bytes, which, n_bytes[some])
            np.subtract.at(states.pending, which, arrivals[some])
            # Of many that arrive at once the last may be of a later phase.
            while (over := self._are_over(states)).any():
                states.phase[over] += 1
                states.pending[over] += states.expected[over]

    @staticmethod
    def _are_over(states: _States) -> Mask:
        over: Mask = (states.pending <= 0) & (states.n_bytes == 0)
        return over & (states.expected > 0)

    def _states(self, address: int) -> _States:
        if address not in self._by_address:
            numbers = (np.zeros(self._blocks, np.int64) for _ in range(4))
            self._by_address[address] = _States(*numbers)
        return self._by_address[address]


def _by_value(numbers: Lanes) -> Iterator[tuple[int, Mask | slice]]:
    """Each number, and where it stands."""
    if (numbers == numbers[0]).all():
        yield int(numbers[0]), slice(None)
        return
    for number in np.unique(numbers):
        yield int(number), numbers == number
