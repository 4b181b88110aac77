"""What a pair does on this machine's GPU: its results there, and its times."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from compare.code.kernel_code import Side
from compare.errors import CompareError, UnavailableError
from compare.judge.checks import Check
from compare.judge.parity import Skipped
from compare.pairs import cuda_side, gpu_module, judging, question, sandbox
from compare.pairs.calls import Outcome, distinct
from compare.pairs.question import AS_GIVEN, Problem, Question
from compare.pairs.side import CudaRoom, Room
from compare.timing import gpu_state
from compare.timing.times import CaseTimes, part_from_json

ON_GPU = "on the GPU"
SAME_ON_GPU = "same bits on the GPU"
_LONGER = 5  # times the limit: what is timed is called hundreds of times


def is_here() -> bool:
    """Whether PyTorch finds a GPU."""
    return torch.cuda.is_available()


def side_of(room: Room, asked: Question) -> dict[str, Any]:
    """What a worker needs to call a function on the GPU. Compiles a .cu.

    Raises:
        BuildFailedError: nvcc refuses the file.
        UnavailableError: There is no nvcc.
    """
    library, functions = "", list[dict[str, Any]]()
    if isinstance(room, CudaRoom):
        capability = torch.cuda.get_device_capability()
        wrappers = room.inline.wrappers if room.inline else None
        path = gpu_module.build(room.source, room.targets, capability, wrappers)
        library = str(path)
        functions = [cuda_side.described(each.function) for each in room.targets]
    files = dict.fromkeys((*room.place.files, *room.sources))
    return {
        "library": library,
        "functions": functions,
        "caller": room.caller(asked),
        "files": [str(each) for each in files],
    }


@dataclass(frozen=True)
class OnGpu:
    """How the sides did on the GPU.

    Attributes:
        checks: By row and side.
        times: In turns, if every side was right.
    """

    checks: Mapping[str, Mapping[str, Check]]
    times: CaseTimes | Skipped


def examine(
    rooms: Sequence[Room],
    asked: Question,
    problem: Problem | None,
    built: Mapping[Side, Future[dict[str, Any]]],
) -> OnGpu:
    """Calls the sides on the GPU, and times them if they are right there.

    Args:
        rooms: The sides.
        asked: What they are asked.
        problem: Where the reference comes from.
        built: By slot the results of `side_of`.

    Raises:
        BuildFailedError: nvcc refuses a file.
    """
    checks: dict[str, dict[str, Check]] = {}
    output_bytes = 0
    for room in rooms:
        slot = room.place.slot
        try:
            side = built[slot].result()
        except UnavailableError as error:
            skipped = Check("skipped", "unsure", note=str(error))
            checks.setdefault(ON_GPU, {})[slot] = skipped
            continue
        found, outcomes = check(room, asked, side)
        for name, each in found.items():
            checks.setdefault(name, {})[slot] = each
        for outcome in outcomes[:1]:
            output_bytes = sum(each.nbytes for each in outcome.outputs)
    for room in rooms:
        if checks[ON_GPU][room.place.slot].mood != "good":
            reason = f"{room.place.name} has no right result on the GPU"
            return OnGpu(checks, Skipped(reason))
    sides = {slot: each.result() for slot, each in built.items()}
    return OnGpu(checks, times(rooms, asked, sides, problem, output_bytes))


def check(
    room: Room, asked: Question, side: Mapping[str, Any]
) -> tuple[dict[str, Check], list[Outcome]]:
    """Calls a function on the GPU, on all that it is asked but orders of threads.

    Returns:
        Checks by name, and the outcomes of the calls.
    """
    once = asked.in_orders(["forward"])
    calls = [each.call for each in once.calls]
    if isinstance(room, CudaRoom) and not room.takes_strides:
        calls = [each.without_strides() for each in calls]
    values, numbers = distinct(calls)
    described = [
        {
            "values": number,
            "layout": call.layout,
            "is_repeated": call.name == AS_GIVEN,
        }
        for call, number in zip(calls, numbers, strict=True)
    ]
    request = {"side": side, "values": values, "calls": described}
    try:
        answer = _run("gpu_run", request, room.place.files, room.place.limits)
    except CompareError as error:
        return {ON_GPU: Check("failed", "bad", str(error))}, []
    outcomes = [
        Outcome(
            tuple(each.get("outputs", ())),
            each.get("problem", ""),
            each.get("refusal", ""),
        )
        for each in answer["outcomes"]
    ]
    found = {ON_GPU: _verdict(once, outcomes)}
    if any(each.get("differs") is not None for each in answer["outcomes"]):
        differs = any(each.get("differs") for each in answer["outcomes"])
        found[SAME_ON_GPU] = _same(asked, differs)
    return found, outcomes


def times(
    rooms: Sequence[Room],
    asked: Question,
    sides: Mapping[Side, Mapping[str, Any]],
    problem: Problem | None,
    output_bytes: int,
) -> CaseTimes | Skipped:
    """Times the sides in turns with the reference, as it is and by torch.compile.

    Args:
        rooms: The sides.
        asked: What they were asked.
        sides: By slot, those whose results were right.
        problem: Where the reference comes from.
        output_bytes: What a call returns.
    """
    if reason := gpu_state.obstacle():
        return Skipped(reason)
    request = {
        "sides": dict(sides),
        "problem": question.described(problem) if problem else None,
        "inputs": [*asked.as_given.call.inputs],
        "output_bytes": output_bytes,
    }
    files = [path for room in rooms for path in room.place.files]
    try:
        limits = rooms[0].place.limits
        limits = replace(limits, seconds=_LONGER * limits.seconds)
        answer = _run("gpu_times", request, files, limits)
    except CompareError as error:
        return Skipped(str(error))
    found = part_from_json(answer["times"], CaseTimes)
    timings = dict(found.timings)
    given = replace(asked, calls=(asked.as_given,))
    for slot, outputs in answer["outputs"].items():
        if not outputs:  # they are in the inputs, which every call has changed
            continue
        parity = judging.judge(given, [Outcome(tuple(outputs))], "gpu").parity
        if parity.problem:
            reason = f"what was timed computed nonsense: {parity.problem}"
            timings[slot] = Skipped(reason)
    return replace(found, timings=timings)


def _run(
    task: str,
    request: Mapping[str, Any],
    files: Sequence[Path],
    limits: sandbox.Limits,
) -> Any:
    # In the worker's own folder, the only one that it may write to; and no processes
    # for torch.compile, because it may not copy itself.
    variables = {"TRITON_CACHE_DIR": "triton", "TORCHINDUCTOR_COMPILE_THREADS": "1"}
    return sandbox.run(task, request, files=files, limits=limits, variables=variables)


def _verdict(asked: Question, outcomes: Sequence[Outcome]) -> Check:
    """Whether all results were right."""
    judged = judging.judge(asked, outcomes, "gpu")
    problems = [judged.parity.problem]
    problems += [each.problem for each in judged.checks.values()]
    problem = next(filter(None, problems), "")
    return Check("failed", "bad", problem) if problem else Check("passed", "good")


def _same(asked: Question, differs: bool) -> Check:
    if not differs:
        return Check("yes", "good")
    sentence = "ten calls with the same inputs did not give the same bits"
    if asked.is_deterministic:
        return Check("no", "bad", sentence)
    return Check("no", "unsure", note=sentence)
