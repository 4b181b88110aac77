"""What a fused epilogue costs: the same product with and without one, in turns.

Measured minutes apart, two products of this size differ by as much as an epilogue
costs: a GPU at the limit of its power slows down as it warms up.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import torch

from bindings.op import Op, as_tuple
from bindings.trials import TRIALS
from compare.errors import UnavailableError
from compare.judge import acceptance
from compare.judge.cases import Case
from compare.judge.parity import Prepared, Skipped, prepare
from compare.records import store
from compare.timing import environment, implementations, turns
from compare.timing.implementations import Implementation
from compare.timing.measure import make_sets
from compare.timing.statistics import compare, summarize
from compare.timing.times import Comparison, KernelTime
from compare.timing.turns import Contestant, TimingError, Turn

SIDES = ("cuda", "triton")
PLAIN = "none"
# An epilogue costs a hundredth of a large product, whose single times scatter by two.
_REPLAYS = 300


@dataclass(frozen=True)
class Fusion:
    """Products that took turns.

    Attributes:
        op: The name of the op.
        environment: Versions and devices.
        case: The product without an epilogue.
        times: By language and epilogue, PLAIN among them.
        rates: What each language's product with an epilogue has of the rate without,
            by language and epilogue.
    """

    SCHEMA_VERSION: ClassVar[int] = 1

    op: str
    environment: dict[str, Any]
    case: Case
    times: Mapping[str, Mapping[str, KernelTime]]
    rates: Mapping[str, Mapping[str, Comparison]]


def epilogues(op: Op) -> dict[str, dict[str, Any]]:
    """The op's variants that take an optional input, and the one without, by name."""
    found: dict[str, dict[str, Any]] = {PLAIN: {}}
    trial = TRIALS[op.name]
    for params in trial.variants:
        if any(params.get(name) for name in trial.optional_inputs):
            words = (k if v is True else v for k, v in params.items())
            found[" + ".join(map(str, words))] = params
    return found


def measure(op: Op, case: Case, progress: Callable[[str], None]) -> Fusion:
    """Times an op with all of its epilogues, in both languages, in turns.

    Args:
        op: One with optional inputs.
        case: Without any.
        progress: Is told, from time to time, what is going on.

    Raises:
        UnavailableError: It cannot be measured, or a result was wrong.
    """
    progress(f"timing {op.name} with and without what is fused to it")
    named: dict[str, tuple[str, str]] = {}
    racing: dict[str, Turn] = {}
    try:
        for epilogue, params in epilogues(op).items():
            prepared = prepare(op, replace(case, params=params), "cuda")
            sets = make_sets(prepared)
            for side, each in implementations.find(op, SIDES, ()).items():
                if isinstance(each, Skipped):
                    raise UnavailableError(each.reason)
                name = f"{side} {epilogue}"
                named[name] = side, epilogue
                racing[name] = _turn(prepared, each, sets)
        clocked = turns.take_turns(racing, min_replays=_REPLAYS)
    except (TimingError, torch.OutOfMemoryError) as error:
        raise UnavailableError(str(error)) from error
    times: dict[str, dict[str, KernelTime]] = {side: {} for side in SIDES}
    rates: dict[str, dict[str, Comparison]] = {side: {} for side in SIDES}
    call_us: dict[str, tuple[float, ...]] = {}
    for name, (side, epilogue) in named.items():
        clock = clocked[name]
        if isinstance(clock, TimingError):
            raise UnavailableError(f"{name}: {clock}")
        times[side][epilogue] = summarize(clock.call_us, clock.calls, clock.method)
        call_us[name] = clock.call_us
    for pair in compare(call_us):
        (side, first), (other, second) = named[pair.first], named[pair.second]
        if side == other and first == PLAIN:
            rates[side][second] = pair
    return Fusion(op.name, environment.collect(), case, times, rates)


def _turn(
    prepared: Prepared, implementation: Implementation, sets: list[tuple[Any, ...]]
) -> Turn:
    assert implementation.bare_launcher is not None
    outputs = [as_tuple(prepared.op.allocate(*arguments)) for arguments in sets]
    launchers = [
        implementation.bare_launcher(*each, *arguments)
        for each, arguments in zip(outputs, sets, strict=True)
    ]
    turn = Turn(Contestant(implementation.name, lambda i: launchers[i](), len(sets)))
    verdict = acceptance.judge_all(outputs[0], prepared.expected)
    if not verdict.passed:
        raise UnavailableError(f"{implementation.name}: {verdict.problem}")
    return turn


# ---- What is kept --------------------------------------------------------------------


def write(fusion: Fusion, folder: Path = store.FOLDER) -> Path:
    """Keeps it in place of what was kept.

    Raises:
        UnavailableError: The file cannot be written.
    """
    return store.write_beside(fusion, "fusion", folder)


def read_all(folder: Path) -> list[Fusion]:
    """All that is kept in a GPU's folder, by op.

    Raises:
        UsageError: A file is something else.
    """
    files = sorted(folder.glob("fusion/*.json"))
    return [store.read_beside(file, Fusion) for file in files]
