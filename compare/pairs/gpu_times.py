"""Worker: times functions of a user's in turns with their reference, on the GPU."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from bindings.trial import Traffic
from compare.judge.cases import Case
from compare.judge.parity import Skipped
from compare.pairs import gpu_functions, question_sources
from compare.pairs.tensor_trees import map_tensors, named_tensors
from compare.timing import ceiling, gpu_state, turns
from compare.timing.measure import host_us
from compare.timing.statistics import compare, summarize
from compare.timing.times import CaseTimes, Ceiling, Timing, as_json
from compare.timing.turns import Times, Turn

Function = Callable[..., Any]


def answer(request: Mapping[str, Any]) -> dict[str, Any]:
    """Takes the times.

    Args:
        request: sides (by slot, as `gpu_functions.make` takes them), problem (as
            `question.ask` sends it; None if there is no reference), inputs (of the call
            as given), and output_bytes.

    Returns:
        "times", a CaseTimes in plain values; and by side the "outputs" of what was
        timed.

    Raises:
        UsageError: A file has no such function.
        UnavailableError: The GPU, or the timing lab, cannot do it.
        Exception: What the user's files raise.
    """
    with gpu_state.measuring():
        return _answer(request)


def _answer(request: Mapping[str, Any]) -> dict[str, Any]:
    inputs = map_tensors(request["inputs"], Tensor.cuda)
    tensors = [each for _, each in named_tensors([""] * len(inputs), inputs)]
    traffic = Traffic(sum(each.nbytes for each in tensors), request["output_bytes"])
    n_sets = turns.n_sets_of(traffic.total_bytes)
    sets = [map_tensors(inputs, Tensor.clone) for _ in range(n_sets)]
    entered: dict[str, _Entry | Skipped] = {}
    for name, function in _contestants(request).items():
        entered[name] = _enter(function, sets)
    entries = {name: each for name, each in entered.items() if isinstance(each, _Entry)}
    streams = ceiling.prepare(traffic)
    runners = {f"({name})": turn for name, turn in streams.items()}
    own = {name: each.turn for name, each in entries.items()}
    with gpu_state.sampled() as sampler:
        times = turns.take_turns(runners | own)
    limit = ceiling.best_of(traffic, {name: times[f"({name})"] for name in streams})
    timings = {
        name: each
        if isinstance(each, Skipped)
        else _timing(each, times[name], traffic, limit)
        for name, each in entered.items()
    }
    call_us = {
        name: each.call_us
        for name, each in times.items()
        if isinstance(each, Times) and isinstance(timings.get(name), Timing)
    }
    largest = max(tensors, key=lambda each: each.nbytes)
    found = CaseTimes(
        case=Case(tuple(largest.shape), largest.dtype),
        timings=timings,
        traffic=traffic,
        ceiling=limit,
        comparisons=compare(call_us),
        gpu_state=sampler.state,
    )
    outputs = {
        name: [each.cpu() for each in entries[name].outputs[-1]]
        for name in request["sides"]
        if name in entries
    }
    return {"times": as_json(found), "outputs": outputs}


def _contestants(request: Mapping[str, Any]) -> dict[str, Function]:
    """What takes turns, by name: the sides, and the reference in both its forms."""
    found: dict[str, Function] = {
        slot: gpu_functions.make(side) for slot, side in request["sides"].items()
    }
    if request["problem"]:
        source = question_sources.read(request["problem"])
        reference: Any = source.reference
        if isinstance(reference, torch.nn.Module):
            reference = reference.cuda()
        if reference is not None:
            found["torch"] = reference
            # Not for every shape: the others are called with these shapes alone, too.
            found["torch.compile"] = torch.compile(reference, dynamic=False)
    return found


class _Entry:
    """A function that has been called on every set of inputs."""

    def __init__(self, function: Function, sets: Sequence[Sequence[Any]]) -> None:
        self.outputs: list[tuple[Tensor, ...]] = [()] * len(sets)
        self.call = lambda: function(*sets[0])

        def launch(index: int) -> None:
            # Kept until the set's turn comes again: or all outputs would lie in the
            # same memory, which the cache holds.
            with torch.no_grad():
                returned = function(*sets[index])
            is_several = isinstance(returned, list | tuple)
            self.outputs[index] = tuple(returned) if is_several else (returned,)

        self.turn = Turn(launch, len(sets), may_use_default_stream=True)
        # Those of other sets are not computed again.
        self.outputs = self.outputs[: self.turn.n_sets]


def _enter(function: Function, sets: Sequence[Sequence[Any]]) -> _Entry | Skipped:
    try:
        return _Entry(function, sets)
    except Exception as error:  # whatever the user's code raises
        return Skipped(str(turns.failure_of(error)).partition("\n")[0])


def _timing(
    entry: _Entry, times: Times | turns.TimingError, traffic: Traffic, limit: Ceiling
) -> Timing | Skipped:
    if not isinstance(times, Times):
        return Skipped(str(times).partition("\n")[0])
    kernel = summarize(times.call_us, times.calls, times.method)
    return Timing(
        **vars(kernel),
        host_us=host_us(entry.call, kernel.median_us),
        launcher_us=None,
        gb_per_s=traffic.total_bytes / kernel.median_us / 1e3,
        fraction=limit.median_us / kernel.median_us,
    )
