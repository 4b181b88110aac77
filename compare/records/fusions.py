"""The cost of a fused epilogue: a product with and without one, in turns.

Measured minutes apart, two products of this size differ by as much as an epilogue
costs: a GPU at the limit of its power slows down as it warms up.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from bindings.op import Op
from bindings.trials import TRIALS
from compare.errors import UnavailableError
from compare.judge.cases import Case
from compare.judge.parity import Skipped, prepare
from compare.timing import environment, gpu_state, implementations, turns
from compare.timing.measure import Entry, make_sets
from compare.timing.statistics import compare, summarize
from compare.timing.times import Comparison, Document, KernelTime
from compare.timing.turns import TimingError

SIDES = ("cuda", "triton")
PLAIN = "none"
# An epilogue costs a hundredth of a large product, whose single times scatter by two.
_REPLAYS = 300


@dataclass(frozen=True)
class Fusion(Document):
    """Products that took turns."""

    SCHEMA_VERSION = 1
    KIND = "fusion"

    case: Case  # without an epilogue
    times: Mapping[str, Mapping[str, KernelTime]]  # by language and epilogue, and PLAIN
    # The rate of a product with an epilogue beside the plain one's, likewise.
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
        progress: Is told what is going on.

    Raises:
        CompareError: It cannot be measured, or a result was wrong.
    """
    progress(f"timing {op.name} with and without what is fused to it")
    racing: dict[str, turns.Turn] = {}
    with gpu_state.measuring():
        for epilogue, params in epilogues(op).items():
            prepared = prepare(op, replace(case, params=params), "cuda")
            sets = make_sets(prepared)
            for side, each in implementations.find(op, SIDES, ()).items():
                if isinstance(each, Skipped):
                    raise UnavailableError(each.reason)
                name = f"{side} {epilogue}"
                entry = Entry(each, prepared, sets)
                if problem := entry.wrong_output(prepared):
                    raise UnavailableError(f"{name}: {problem}")
                racing[name] = entry.turn
        clocked = turns.take_turns(racing, min_replays=_REPLAYS)
    times: dict[str, dict[str, KernelTime]] = {side: {} for side in SIDES}
    rates: dict[str, dict[str, Comparison]] = {side: {} for side in SIDES}
    call_us: dict[str, tuple[float, ...]] = {}
    for name, clock in clocked.items():
        if isinstance(clock, TimingError):
            raise UnavailableError(f"{name}: {clock}")
        side, _, epilogue = name.partition(" ")
        times[side][epilogue] = summarize(clock.call_us, clock.calls, clock.method)
        call_us[name] = clock.call_us
    for pair in compare(call_us):
        side, _, first = pair.first.partition(" ")
        other, _, second = pair.second.partition(" ")
        if side == other and first == PLAIN:
            rates[side][second] = pair
    return Fusion(op.name, environment.collect(), case, times, rates)
