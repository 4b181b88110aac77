"""How long the rungs of an op's ladder take: measured on a GPU, kept and read again."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import torch

from bindings.op import Op
from bindings.trials import TRIALS
from compare.code.kernel_code import Side
from compare.code.rungs import SIDES, TWIN
from compare.judge.cases import Case
from compare.judge.parity import Skipped, prepare
from compare.records import store
from compare.timing import environment, gpu_state, implementations
from compare.timing.measure import measure
from compare.timing.times import Document, Timing

# The reports' name of the kernels that a call takes, which are no rung of their own.
CALL = "call"


@dataclass(frozen=True)
class Times(Document):
    """How long the rungs take, by rung and language."""

    SCHEMA_VERSION = 2
    KIND = "ladder"

    case: Case
    timings: Mapping[str, Mapping[str, Timing | Skipped]]


def rungs_of(op: Op) -> dict[str, Op]:
    """The op on each of its rungs, by name, and as a call computes it."""
    return {**{name: op.on_rung(name) for name in op.rungs}, CALL: op}


def default_case(op: Op) -> Case:
    """The case that a ladder is climbed on, and that its recorded times are of."""
    trial = TRIALS[op.name]
    if trial.flops:  # tensor cores, which the last rungs are about, know no float32
        shape = trial.ladder_shape or trial.benchmark_shapes[0]
        return Case(shape, torch.bfloat16, direction=op.direction)
    return Case(trial.ladder_shape or trial.large_shape, direction=op.direction)


def case_on(op: Op, case: Case) -> Case:
    """The case as a rung can serve it: tensor cores take float32 as tf32 alone."""
    if case.dtype != torch.float32 or op.rung != "tensor_cores":
        return case
    if "precision" not in inspect.signature(op.allocate).parameters:
        return case  # nor can they be asked to
    return replace(case, params={**case.params, "precision": "tf32"})


def measure_rungs(op: Op, case: Case, progress: Callable[[str], None]) -> Times:
    """Times every rung, both languages in turns.

    Raises:
        CompareError: It cannot be measured.
    """
    timings: dict[str, dict[str, Timing | Skipped]] = {}
    with gpu_state.measuring():
        for rung, on_rung in rungs_of(op).items():
            progress(f"timing {rung}")
            prepared = prepare(on_rung, case_on(on_rung, case), "cuda")
            found = implementations.find(on_rung, tuple(SIDES), ())
            timings[rung] = dict(measure(prepared, found).timings)
    return Times(op.name, environment.collect(), case, timings)


def gains_of(
    timings: Mapping[str, Mapping[str, Timing | Skipped]],
) -> dict[Side, float]:
    """By language, how many times as fast as the twin a call is."""
    found: dict[Side, float] = {}
    for side in SIDES:
        twin, call = (timings.get(rung, {}).get(side) for rung in (TWIN, CALL))
        if isinstance(twin, Timing) and isinstance(call, Timing):
            found[side] = twin.median_us / call.median_us
    return found


def recorded_gains(op: Op, case: Case) -> dict[Side, float]:
    """The gains on record, if the record is of the case."""
    times = store.find(op.name, Times)
    return gains_of(times.timings) if times and times.case == case else {}
