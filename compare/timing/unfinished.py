"""The cases of a record that is not finished yet, kept on disk until it is.

An op's record is written when all of its cases are measured, which takes minutes. Where
that is cut off, whoever starts it again on the same day, with the same GPU, code and
packages, measures only the cases that are left.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Generic, Protocol, TypeVar

from compare.code import cache
from compare.judge.cases import Case
from compare.timing.times import as_json, part_from_json

_FILE = "times"


class _OfCase(Protocol):
    @property
    def case(self) -> Case: ...


Measured = TypeVar("Measured", bound=_OfCase)


class Unfinished(Generic[Measured]):
    """The cases of one op that are measured."""

    def __init__(
        self, op: str, environment: Mapping[str, Any], made: type[Measured]
    ) -> None:
        """Names the cases of one record.

        Args:
            op: The op's name.
            environment: What a record of it says of GPU, code and packages, and when.
            made: What is measured of each case.
        """
        day = str(environment["date"])[:10]
        facts = {**environment, "op": op, "date": day, "made": made.__name__}
        self._made = made
        self._facts = json.dumps(facts, sort_keys=True)
        self._keys: set[str] = set()

    def find(self, case: Case) -> Measured | None:
        """The times of a case, if it is measured."""
        files = cache.read(self._key_of(case), (_FILE,))
        if files is None:
            return None
        return part_from_json(json.loads(files[_FILE]), self._made)

    def keep(self, times: Measured) -> None:
        """Keeps the times of a case."""
        text = json.dumps(as_json(times), allow_nan=False)
        cache.write(self._key_of(times.case), {_FILE: text.encode()})

    def forget(self) -> None:
        """Lets go of all cases that were kept or asked for."""
        for key in self._keys:
            cache.remove(key, (_FILE,))

    def _key_of(self, case: Case) -> str:
        key = cache.key_of(self._facts, json.dumps(as_json(case), sort_keys=True))
        self._keys.add(key)
        return key
