"""The times of one case: no cache holds its inputs, and wrong results get no figures.

An implementation is compiled and captured on other inputs than it is timed on, and its
outputs are filled with NaN in between: what it keeps from an earlier call, or leaves
out, shows. The very buffers that were timed are judged by the acceptance rule, and what
is faster than the memory gets no figure.
"""

from __future__ import annotations

import itertools
import math
import statistics
import time
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from bindings.op import as_tuple
from compare.judge import acceptance
from compare.judge.acceptance import Expected
from compare.judge.cases import flip_signs
from compare.judge.parity import Prepared, Skipped
from compare.timing import ceiling, gpu_state, turns
from compare.timing.implementations import Implementation
from compare.timing.statistics import SAME_WITHIN, compare, summarize
from compare.timing.times import (
    CaseTimes,
    Ceiling,
    GpuState,
    KernelTime,
    Timing,
)
from compare.timing.turns import Times, Turn

_HOST_CALLS = 20  # at most: the GPU has to carry out all of them
_HOST_BATCHES = 15
_HOST_BATCH_US = 100_000


def measure(
    prepared: Prepared, implementations: Mapping[str, Implementation | Skipped]
) -> CaseTimes:
    """Times implementations in turns.

    Args:
        prepared: The case. Its tensors are on a GPU.
        implementations: By name; the same one may be there under two names.

    Raises:
        torch.OutOfMemoryError: The GPU cannot hold the inputs and outputs of all.
        TimingError: The ceiling cannot be measured.
    """
    with torch.cuda.device(prepared.tensors[0].device):
        times, limit, state = _take_turns(prepared, implementations)
        timings = {
            name: _timing(prepared, implementations[name], each, limit)
            for name, each in times.items()
        }
    call_us = {
        name: each.call_us
        for name, each in times.items()
        if isinstance(each, Times) and isinstance(timings[name], Timing)
    }
    return CaseTimes(
        case=prepared.case,
        traffic=prepared.traffic,
        ceiling=limit,
        timings=timings,
        comparisons=compare(call_us),
        gpu_state=state,
    )


def _take_turns(
    prepared: Prepared, implementations: Mapping[str, Implementation | Skipped]
) -> tuple[dict[str, Times | Skipped], Ceiling, GpuState | None]:
    """The times of those whose results are right, the ceiling, the state of the GPU."""
    sets = make_sets(prepared)
    streams = ceiling.prepare(prepared.traffic)
    _flip_signs(sets)
    entered = {
        name: _enter(each, prepared, sets) for name, each in implementations.items()
    }
    entries = {name: each for name, each in entered.items() if isinstance(each, Entry)}
    _flip_signs(sets)
    for entry in entries.values():
        entry.forget_outputs()
    # Beside names of implementations, which have no brackets.
    runners = {f"({name})": turn for name, turn in streams.items()}
    own = {name: each.turn for name, each in entries.items()}
    with gpu_state.sampled() as sampler:
        times = turns.take_turns(runners | own)
    results: dict[str, Times | Skipped] = {}
    for name, each in entered.items():
        clocked = times.get(name)
        if isinstance(each, Skipped):
            results[name] = each
        elif not isinstance(clocked, Times):
            results[name] = Skipped(str(clocked))
        else:
            problem = each.wrong_output(prepared)
            results[name] = Skipped(problem) if problem else clocked
    changes = _change_with_signs(prepared)
    if any(changes):
        # Now it shows if an implementation reads the first set's inputs, not its own.
        _flip_signs(sets[1:])
        for name, entry in entries.items():
            if isinstance(results[name], Times) and any(changes[: entry.n_outputs]):
                problem = entry.stale_output(prepared, changes)
                results[name] = Skipped(problem) if problem else results[name]
    limits = {name: times[f"({name})"] for name in streams}
    return results, ceiling.best_of(prepared.traffic, limits), sampler.state


def make_sets(prepared: Prepared) -> list[tuple[Any, ...]]:
    """Copies of the arguments, as many as it takes to outgrow the caches."""
    n_bytes = sum(x.untyped_storage().nbytes() for x in prepared.tensors)
    n_bytes += sum(each.torch.nbytes for each in prepared.expected)
    return [
        tuple(_copy(each) if isinstance(each, Tensor) else each for each in arguments)
        for arguments in [prepared.arguments] * turns.n_sets_of(n_bytes)
    ]


def _copy(x: Tensor) -> Tensor:
    """A copy of x, and of the memory around it, with the same offset and strides."""
    storage = x.untyped_storage().clone()
    copy = torch.tensor([], dtype=x.dtype, device=x.device)
    return copy.set_(storage, x.storage_offset(), x.shape, x.stride())


def _flip_signs(sets: list[tuple[Any, ...]]) -> None:
    """Changes every input of numbers; twice, and it is what it was."""
    for arguments in sets:
        flip_signs(
            [
                torch.tensor([], dtype=x.dtype, device=x.device).set_(
                    x.untyped_storage()
                )
                for x in arguments
                if isinstance(x, Tensor) and x.is_floating_point()
            ]
        )


def _change_with_signs(prepared: Prepared) -> list[bool]:
    """Which outputs depend on the inputs' signs: softmax of a single column is 1."""
    changed = tuple(
        _copy(each) if isinstance(each, Tensor) else each for each in prepared.arguments
    )
    _flip_signs([changed])
    reference = prepared.op.reference
    pairs = zip(
        as_tuple(reference(*changed)),
        as_tuple(reference(*prepared.arguments)),
        strict=True,
    )
    return [not _same_bits(result, before) for result, before in pairs]


def _enter(
    implementation: Implementation | Skipped,
    prepared: Prepared,
    sets: list[tuple[Any, ...]],
) -> Entry | Skipped:
    """An implementation that is ready for its turns, or why it has none."""
    if isinstance(implementation, Skipped):
        return implementation
    before = [_copy(x) for x in sets[0] if isinstance(x, Tensor)]
    entry: Entry | Skipped
    try:
        entry = Entry(implementation, prepared, sets)
    except Exception as error:  # whatever a library of others raises
        entry = Skipped(str(turns.failure_of(error)))
    after = [x for x in sets[0] if isinstance(x, Tensor)]
    if not all(map(_same_bits, before, after)):
        for arguments in sets:
            tensors = [x for x in arguments if isinstance(x, Tensor)]
            for x, original in zip(tensors, before, strict=True):
                x.untyped_storage().copy_(original.untyped_storage())
        return Skipped("it writes to its inputs, which the others are timed on")
    return entry


def _same_bits(x: Tensor, y: Tensor) -> bool:
    return torch.equal(acceptance.bits(x), acceptance.bits(y))


class Entry:
    """An implementation that is compiled and, on all sets, captured."""

    def __init__(
        self,
        implementation: Implementation,
        prepared: Prepared,
        sets: list[tuple[Any, ...]],
    ) -> None:
        """Compiles it, and runs it on every set."""
        self._is_random = implementation.is_random
        self.n_outputs = implementation.n_outputs
        self._outputs: list[tuple[Tensor, ...]] = [()] * len(sets)
        if implementation.bare_launcher is None:

            def launch(index: int) -> None:
                # Dropped only when the set's turn comes again: or all of them would
                # land in the same memory, which the cache would hold.
                self._outputs[index] = as_tuple(implementation.call(*sets[index]))

        else:
            allocate = prepared.op.allocate
            self._outputs = [as_tuple(allocate(*arguments)) for arguments in sets]
            launchers = [
                implementation.bare_launcher(*outputs, *arguments)
                for outputs, arguments in zip(self._outputs, sets, strict=True)
            ]

            def launch(index: int) -> None:
                launchers[index]()

        self.turn = Turn(launch, len(sets))
        # Those of other sets are not computed again.
        self._outputs = self._outputs[: self.turn.n_sets]

    def forget_outputs(self) -> None:
        """Leaves nothing of what the capture has computed."""
        for out in itertools.chain.from_iterable(self._outputs):
            if isinstance(out, Tensor) and out.is_floating_point():
                out.detach().fill_(math.nan)

    def wrong_output(self, prepared: Prepared) -> str:
        """The fault of the outputs that were timed; empty if they have none."""
        wanted = prepared.expected[: self.n_outputs]
        for each in self._outputs:
            if len(each) != len(wanted):
                return f"it returns {len(each)} outputs, not {len(wanted)}"
        for number, expected in enumerate(wanted):
            if problem := self._wrong_output(number, expected):
                return problem
        return ""

    def _wrong_output(self, number: int, expected: Expected) -> str:
        outputs: list[Any] = [each[number] for each in self._outputs]
        results = [
            each.detach() if isinstance(each, Tensor) else each for each in outputs
        ]
        kinds = (acceptance.wrong_kind(each, expected) for each in results)
        if problem := next(filter(None, kinds), ""):
            return f"what was timed computed nonsense: {problem}"
        places = {each.data_ptr() for each in results if each.numel()}
        if places and len(places) < len(results):
            return "its outputs lie in one place, which the cache holds"
        if self._is_random:
            unwritten = any(bool(each.isnan().any()) for each in results)
            return "what was timed left NaN in its outputs" if unwritten else ""
        first, *others = results
        # Equal inputs give equal outputs: judging one is as good as judging all.
        different = [each for each in others if not _same_bits(each, first)]
        for each in (first, *different):
            verdict = acceptance.judge(each, expected)
            if not verdict.passed:
                return f"what was timed computed nonsense: {verdict.problem}"
        return ""

    def stale_output(self, prepared: Prepared, changes: list[bool]) -> str:
        """The fault that shows when all sets of inputs but the first have changed.

        Args:
            prepared: The case.
            changes: Which outputs are others now.
        """
        if self._is_random:
            return ""  # all results are others than before
        first = [out.clone() for out in self._outputs[0]]
        last = [out.clone() for out in self._outputs[-1]]
        try:
            self.turn.replay()
        except Exception as error:  # whatever a library of others raises
            return f"raises {type(error).__name__}: {error}"
        torch.cuda.synchronize()
        is_right = all(map(_same_bits, first, self._outputs[0]))
        is_stale = all(map(_same_bits, last, self._outputs[-1]))
        if not is_right:
            # The sums of some are in another order each time: they are judged instead.
            is_right = all(self._accepted(0, prepared))
            accepted = self._accepted(-1, prepared)
            is_stale = all(itertools.compress(accepted, changes))
        if is_stale or not is_right:
            return "its results are not those of the inputs that it was called with"
        return ""

    def _accepted(self, index: int, prepared: Prepared) -> list[bool]:
        """Which outputs of a set are those of the inputs before they changed."""
        wanted = prepared.expected[: self.n_outputs]
        return [
            acceptance.judge(out.detach(), expected).passed
            for out, expected in zip(self._outputs[index], wanted, strict=True)
        ]


def _timing(
    prepared: Prepared,
    implementation: Implementation | Skipped,
    times: Times | Skipped,
    limit: Ceiling,
) -> Timing | Skipped:
    if isinstance(times, Skipped):
        return times
    assert isinstance(implementation, Implementation)
    kernel = summarize(times.call_us, times.calls, times.method)
    if problem := above_ceiling(prepared, kernel, limit):
        return Skipped(problem)
    arguments, launcher_us = prepared.arguments, None
    try:
        call_us = host_us(lambda: implementation.call(*arguments), kernel.median_us)
        if implementation.bare_launcher is not None:
            outputs = as_tuple(prepared.op.allocate(*arguments))
            launch = implementation.bare_launcher(*outputs, *arguments)
            launcher_us = host_us(launch, kernel.median_us)
    except Exception as error:  # whatever a library of others raises
        return Skipped(f"raises {type(error).__name__}: {error}")
    return Timing(
        **vars(kernel),
        host_us=call_us,
        launcher_us=launcher_us,
        gb_per_s=prepared.traffic.total_bytes / kernel.median_us / 1e3,
        fraction=limit.median_us / kernel.median_us,
    )


def above_ceiling(prepared: Prepared, kernel: KernelTime, limit: Ceiling) -> str:
    """The objection to a time that the memory does not allow; empty if it does."""
    rate = prepared.traffic.total_bytes / kernel.high_us / 1e3
    if rate <= (1 + SAME_WITHIN) * limit.gb_per_s:
        return ""
    # With few bytes, a kernel may be done before those that only move them, and with
    # several tensors, it may have a better order; but never is it faster than many
    # bytes can be moved, or read.
    mix = ceiling.mix_of(prepared.traffic)
    limits = limit, ceiling.peak(*mix), ceiling.peak(1, 0)
    highest = max(limits, key=lambda each: each.gb_per_s)
    if rate <= (1 + SAME_WITHIN) * highest.gb_per_s:
        return ""
    return (
        f"{rate:,.0f} GB/s is above the ceiling of {highest.gb_per_s:,.0f} that was "
        f"measured for a mix of {highest.mix}: some of the work is not in that time"
    )


def host_us(call: Callable[[], object], kernel_us: float = 0.0) -> float:
    """Microseconds that a call takes the host, which does not wait for the GPU.

    The GPU takes `kernel_us` for it.
    """
    n_calls = max(1, min(_HOST_CALLS, int(_HOST_BATCH_US / max(kernel_us, 1.0))))
    batches = []
    for _ in range(_HOST_BATCHES):
        torch.cuda.synchronize()  # or the host would wait for room in the queue
        began = time.perf_counter()
        for _ in range(n_calls):
            call()
        batches.append(1e6 * (time.perf_counter() - began) / n_calls)
    torch.cuda.synchronize()
    return statistics.median(batches)
