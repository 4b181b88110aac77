"""Whether an implementation computes what it should, and touches nothing else."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from bindings import backends
from bindings.backends import simulated
from bindings.errors import BuildError, SettingError, UnsupportedError
from bindings.op import Op, as_tuple
from bindings.trial import Traffic
from bindings.trials import TRIALS
from compare.errors import UnavailableError
from compare.judge import acceptance
from compare.judge.acceptance import UNKNOWN, Errors, Expected, Verdict
from compare.judge.cases import Case, flip_signs, make_arguments

_ON_CPU = {
    "cuda": "emulator",
    "cuda_inline": "emulator",
    "triton": "interpreter",
    "torch": "cpu",
}

# Fills the output, and the memory around all tensors. A NaN in every float format, so
# that reading it shows; and one that no arithmetic gives (the first bit of its fraction
# is 0), so that an element that still holds it was not written.
_PATTERN = 0x7FA5
_PATTERNS = {2: _PATTERN, 4: _PATTERN << 16 | _PATTERN}  # by bytes of an element

# On both sides of a tensor. A multiple of what allocators align tensors to.
_MARGIN_BYTES = 1 << 16

# 50 ms on an H200. A call that does not wait for the GPU takes a thousandth of it.
_LATE_CYCLES = 100_000_000

# In messages of the emulator: settings make no sense, and it has ended a kernel.
_EMULATOR_SETTING = re.compile(r"\bTWIN_EMULATOR_\w+ must be ")
_EMULATOR_LIMIT = re.compile(r"\b(step limit|time limit|endless polling): ")


@dataclass(frozen=True)
class Parity:
    """How an implementation did."""

    # "gpu", "emulator", "interpreter", "compiled for sm_90a, simulated" or "cpu".
    ran_on: str
    error: Errors
    allowed: Errors
    problem: str = ""  # one sentence; empty if nothing is wrong
    is_finished: bool = True  # not ended by a limit of the emulator or interpreter

    @property
    def passed(self) -> bool:
        """Whether there is no problem."""
        return not self.problem


@dataclass(frozen=True)
class Skipped:
    """Not done, and why."""

    reason: str


@dataclass(frozen=True)
class Prepared:
    """An op in a case: arguments, and what the result should be.

    It is made before anything under test runs, once for all backends.
    """

    op: Op
    case: Case
    arguments: tuple[Any, ...]
    expected: tuple[Expected, ...]

    @property
    def tensors(self) -> list[Tensor]:
        """The arguments that are tensors."""
        return [each for each in self.arguments if isinstance(each, Tensor)]

    @property
    def traffic(self) -> Traffic:
        """The fewest bytes that the op has to move."""
        return TRIALS[self.op.name].traffic(self.case.shape, self.case.dtype.itemsize)


def prepare(
    op: Op, case: Case, device: str | torch.device = "cpu", seed: int = 0
) -> Prepared:
    """Makes the arguments of a case and computes what the result should be."""
    arguments = make_arguments(op, case, device, seed)
    op.allocate(*arguments)  # raises for what the op cannot serve, in its own words
    return Prepared(op, case, arguments, acceptance.expect(op, arguments))


def check_prepared(prepared: Prepared, backend: str) -> Parity | Skipped:
    """Runs one backend and judges it.

    It works on copies, in memory that is watched: each element of the output has to be
    written, and nothing else. It runs twice, first on other values in the same places,
    so that what it keeps from an earlier call shows; on a GPU once more, on a stream
    of its own whose inputs come late.

    Raises:
        BuildError: A native module could not be built.
        UnavailableError: A setting of the emulator or the interpreter makes no sense.
    """
    try:
        return _check(prepared, backend)
    except UnsupportedError as error:
        return Skipped(str(error))
    except SettingError as error:
        raise UnavailableError(str(error)) from error


def _check(prepared: Prepared, backend: str) -> Parity:
    op, arguments, expected = prepared.op, prepared.arguments, prepared.expected
    like = as_tuple(op.allocate(*arguments))
    ran_on = _where(backend, (*like, *arguments))
    kinds = map(acceptance.wrong_kind, like, expected)
    problem = next(filter(None, kinds), "") or _aliasing(like, prepared.tensors)
    if problem:
        return Parity(ran_on, UNKNOWN, UNKNOWN, problem)
    try:
        verdict = _verdict(_Call(prepared, backend, like))
    except (UnsupportedError, BuildError, torch.OutOfMemoryError):
        raise  # nothing that the kernel has done
    except (RuntimeError, TimeoutError) as error:
        if _EMULATOR_SETTING.search(str(error)):
            raise UnavailableError(str(error)) from error
        is_finished = not (
            isinstance(error, TimeoutError) or _EMULATOR_LIMIT.search(str(error))
        )
        return Parity(ran_on, UNKNOWN, UNKNOWN, str(error), is_finished)
    changed = acceptance.changed_reference(op, arguments, expected)
    problem = changed or verdict.problem
    return Parity(ran_on, verdict.error, verdict.allowed, problem)


def _where(backend: str, tensors: tuple[Any, ...]) -> str:
    """What a call with these outputs and arguments runs on."""
    if tensors[0].is_cuda:
        return "gpu"
    architecture = simulated.architecture_for(backend, tensors)
    if architecture is None:
        return _ON_CPU[backend]
    return f"compiled for {architecture}, simulated"


def _aliasing(outputs: tuple[Tensor, ...], inputs: list[Tensor]) -> str:
    places = [out.untyped_storage().data_ptr() for out in outputs if out.numel()]
    if any(x.untyped_storage().data_ptr() in places for x in inputs):
        return "the output lies in the memory of an input"
    if len(set(places)) < len(places):
        return "two outputs lie in the same memory"
    return ""


def _verdict(call: _Call) -> Verdict:
    outputs = call.outputs
    device, is_empty = outputs[0].device, not any(out.numel() for out in outputs)
    for reset in (call.reset_to_other_inputs, call.reset):
        reset()
        if not is_empty:
            _wait_for(device)
            call.start()
            _wait_for(device)
    verdict = call.judge(outputs)
    if verdict.passed and device.type == "cuda" and not is_empty:
        verdict = replace(verdict, problem=_problem_on_a_late_stream(call))
    return verdict


def _wait_for(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def _problem_on_a_late_stream(call: _Call) -> str:
    """Looks for faults on a stream that gets the inputs some time after the call.

    A kernel on another stream finds others, or writes the output too early or too late.
    A call that waits for the GPU is still there when they come.
    """
    device = call.outputs[0].device
    stream = torch.cuda.Stream(device)
    for _ in range(2):  # once, the host may be late for other reasons
        call.reset_to_other_inputs()
        _wait_for(device)
        with torch.cuda.stream(stream):
            torch.cuda._sleep(_LATE_CYCLES)
            inputs_come = stream.record_event()
            call.reset()
            called_in_time = not inputs_come.query()
            call.start()
            has_waited = called_in_time and inputs_come.query()
            outputs = [out.clone() for out in call.outputs]
        _wait_for(device)
        if problem := call.judge(outputs).problem:
            return f"on a stream whose inputs come late: {problem}"
        if not has_waited:
            return ""
    return "the call waits for the GPU"


class _Call:
    """A call of a backend, on tensors whose surroundings are watched."""

    def __init__(
        self, prepared: Prepared, backend: str, outputs: tuple[Tensor, ...]
    ) -> None:
        """Makes tensors like those of the case, and like its outputs."""
        self._prepared = prepared
        self._backend = backend
        self._inputs = [_Watched(x) for x in prepared.tensors]
        self._outputs = [_Watched(out) for out in outputs]

    @property
    def outputs(self) -> list[Tensor]:
        """The tensors that are written."""
        return [each.tensor for each in self._outputs]

    def reset(self) -> None:
        """Gives the inputs the values of the case, and none to the outputs."""
        for watched, x in zip(self._inputs, self._prepared.tensors, strict=True):
            watched.memory.copy_(_memory(x))
        for out in self._outputs:
            out.memory.view(torch.int16).fill_(_PATTERN)

    def reset_to_other_inputs(self) -> None:
        """Other numbers, but the same integers, since those might be indices."""
        self.reset()
        flip_signs(
            [
                each.memory.view(each.tensor.dtype)
                for each in self._inputs
                if each.tensor.is_floating_point()
            ]
        )

    def start(self) -> None:
        """Runs the backend; does not wait for a GPU."""
        inputs = iter(self._inputs)
        arguments = [
            next(inputs).tensor if isinstance(each, Tensor) else each
            for each in self._prepared.arguments
        ]
        first, *others = self.outputs
        outputs = (first, *others) if others else first  # as the op returns them
        backends.run(self._backend, self._prepared.op, outputs, *arguments)

    def judge(self, outputs: list[Tensor]) -> Verdict:
        """Judges the outputs, and what was written besides."""
        verdict = acceptance.judge_all(outputs, self._prepared.expected)
        unwritten = next(filter(None, map(_unwritten, outputs)), "")
        problem = self._side_effects() or unwritten or verdict.problem
        return replace(verdict, problem=problem)

    def _side_effects(self) -> str:
        if not all(out.has_intact_margins() for out in self._outputs):
            return "memory around the output was written to"
        for watched, x in zip(self._inputs, self._prepared.tensors, strict=True):
            is_same = torch.equal(watched.memory, _memory(x))
            if not (is_same and watched.has_intact_margins()):
                return "an input, or memory around it, was written to"
        return ""


class _Watched:
    """A tensor between two margins that nobody may write to.

    Its shape, strides and alignment are those of the one it is made like, and `memory`
    has as many bytes as that one's storage.
    """

    def __init__(self, like: Tensor) -> None:
        n_bytes = like.untyped_storage().nbytes()
        n_words = (2 * _MARGIN_BYTES + n_bytes + 1) // 2
        words = torch.full((n_words,), _PATTERN, dtype=torch.int16, device=like.device)
        self._margins = words[: _MARGIN_BYTES // 2], words[-_MARGIN_BYTES // 2 :]
        self.memory = words.view(torch.uint8)[_MARGIN_BYTES:][:n_bytes]
        self.tensor = torch.tensor([], dtype=like.dtype, device=like.device).set_(
            words.untyped_storage(),
            _MARGIN_BYTES // like.element_size() + like.storage_offset(),
            like.shape,
            like.stride(),
        )

    def has_intact_margins(self) -> bool:
        """Whether the margins are as they were."""
        return all(bool((margin == _PATTERN).all()) for margin in self._margins)


def _unwritten(out: Tensor) -> str:
    pattern = _PATTERNS[out.element_size()]
    if count := int((acceptance.bits(out) == pattern).sum()):
        return f"{count} of {out.numel()} elements were not written"
    return ""


def _memory(x: Tensor) -> Tensor:
    """Every byte of what x is a view of."""
    return torch.tensor([], dtype=torch.uint8, device=x.device).set_(
        x.untyped_storage()
    )
