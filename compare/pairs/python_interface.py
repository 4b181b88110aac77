"""`compare.pair`: a comparison whose inputs and reference may be Python objects."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from compare.code.architectures import DEFAULT_ARCHITECTURE, parse_architecture
from compare.errors import UsageError
from compare.pairs import pair, plan, question, questions_task
from compare.pairs.own_report import OwnReport
from compare.pairs.question import Question
from compare.pairs.question_sources import Source, as_inputs
from compare.pairs.sandbox import Limits


def compare_files(
    words: Sequence[str],
    inputs: str | Tensor | Sequence[Any] | Callable[..., Any],
    reference: str | Callable[..., Any],
    architecture: str,
    time_limit: float,
    measures: bool,
) -> OwnReport:
    """Compares one or two files.

    Raises:
        CompareError: It cannot be done.
    """
    if not words:
        raise UsageError("say what to compare: one file or two")
    if not 0 < time_limit < math.inf:
        raise UsageError(f"time_limit: {time_limit} is no number of seconds")
    if isinstance(inputs, Tensor):
        inputs = (inputs,)
    try:
        target = parse_architecture(architecture or DEFAULT_ARCHITECTURE)
    except ValueError as error:
        raise UsageError(f"arch: {error}") from error
    is_text = isinstance(inputs, str)
    if is_text and not isinstance(reference, str):
        raise UsageError(
            "reference: a function needs inputs that are tensors, or a function, too"
        )
    planned = plan.plan(
        words,
        inputs if isinstance(inputs, str) else "",
        reference if is_text and isinstance(reference, str) else "",
    )
    if planned.is_collection:
        raise UsageError("one file or two, please: python -m compare takes more")
    request = replace(
        planned.requests[0],
        architecture=target,
        limits=Limits(seconds=time_limit),
        measures=measures,
    )
    if isinstance(inputs, str):
        return pair.compare(request, _say_nothing)
    if isinstance(reference, str) and reference:
        raise UsageError("reference: a text needs inputs that are a text, too")
    asked = _asked(inputs, None if isinstance(reference, str) else reference)
    return pair.compare(request, _say_nothing, asked)


def _say_nothing(_: str) -> None:
    pass


def _asked(
    inputs: Sequence[Any] | Callable[..., Any], reference: Callable[..., Any] | None
) -> Question:
    """The question of Python objects, computed in this process: it is their own."""

    def make_inputs(seed: int, _: Mapping[str, Any]) -> Sequence[Any]:
        generator = torch.Generator().manual_seed(seed)
        if callable(inputs):
            return as_inputs(inputs(generator))
        given = as_inputs(tuple(inputs))
        if seed == _SEED:
            return given
        return tuple(_shuffled(each, generator) for each in given)

    source = Source(make_inputs, reference, reference)
    with torch.random.fork_rng(devices=[]):  # the random numbers here are the caller's
        return question.read_answer(questions_task.ask(source, _SEED))


_SEED = 0


def _shuffled(value: Any, generator: torch.Generator) -> Any:
    """Other values of the same kind: those of floats in another order."""
    if not isinstance(value, Tensor) or not value.is_floating_point():
        return value
    order = torch.randperm(value.numel(), generator=generator)
    return value.flatten()[order].view(value.shape)
