"""Whether the answers of a side are right, in every respect that was asked about."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from compare.judge import acceptance
from compare.judge.acceptance import UNKNOWN, Errors, Expected, Verdict
from compare.judge.checks import Check
from compare.judge.parity import Parity
from compare.pairs.calls import Outcome
from compare.pairs.question import (
    AS_GIVEN,
    LARGE,
    OFFSET,
    OTHER_INPUTS,
    SPECIALS,
    STRIDED,
    Asked,
    Question,
)

RACES = "races and bounds"
SAME_BITS = "same bits every time"

# By which the emulator marks memory that nothing was written to, as whole numbers of 2,
# 4 and 8 bytes.
_PATTERNS = {2: 0x7FA5, 4: 0x7FA57FA5, 8: 0x7FA57FA57FA57FA5}

_EXACT = Errors(0.0, 0.0)


@dataclass(frozen=True)
class Judged:
    """How a side did: on the inputs as given, and in further respects by name."""

    parity: Parity
    checks: dict[str, Check]


@dataclass(frozen=True)
class _Answer:
    """A call, how it ended, and what is to be said of it.

    Attributes:
        asked: The call.
        outcome: How it ended.
        error: How far off the result is.
        allowed: How far off it may be.
        problem: One sentence; empty if nothing is wrong.
        note: One sentence on what is no fault.
    """

    asked: Asked
    outcome: Outcome
    error: Errors = UNKNOWN
    allowed: Errors = UNKNOWN
    problem: str = ""
    note: str = ""


def judge(question: Question, outcomes: Sequence[Outcome], ran_on: str) -> Judged:
    """Judges the answers of one side by the reference.

    Args:
        question: What was asked, with a reference.
        outcomes: One for each call of the question, in the same order.
        ran_on: "gpu", "emulator", "interpreter" or "cpu".

    Returns:
        Parity on the inputs as given, and the checks that apply, in the order of a
        report.
    """
    answers = [
        _answer(asked, outcome, asked.expected)
        for asked, outcome in zip(question.calls, outcomes, strict=True)
    ]
    return _judged(question, answers, ran_on)


def agree(
    question: Question,
    left: Sequence[Outcome],
    right: Sequence[Outcome],
    ran_on: tuple[str, str],
) -> tuple[Judged, Judged]:
    """Judges the answers of two sides by each other, where there is no reference.

    Each may be as far off as the acceptance rule always allows, so both together
    twice as far.

    Args:
        question: What was asked, without a reference.
        left: One for each call of the question, in the same order.
        right: Likewise, of the other side.
        ran_on: Of both: "gpu", "emulator", "interpreter" or "cpu".

    Returns:
        For each side. A disagreement is a problem of both, and what was seen while a
        side ran is one of that side.
    """
    n_terms = _n_terms(question, right)
    both: tuple[list[_Answer], list[_Answer]] = ([], [])
    for asked, one, other in zip(question.calls, left, right, strict=True):
        compared = None
        if one.outputs and other.outputs:
            like = tuple(map(_expect_like, other.outputs, n_terms))
            compared = _answer(replace(asked, doubtful=()), one, like)
        for answers, outcome in zip(both, (one, other), strict=True):
            answers.append(_compared(asked, outcome, compared))
    first, second = (
        _judged(question, answers, where)
        for answers, where in zip(both, ran_on, strict=True)
    )
    return first, second


def _expect_like(result: Tensor, n_terms: int) -> Expected:
    if result.is_floating_point():
        return acceptance.expect_like(result, n_terms)
    return Expected(result, result)


def _n_terms(question: Question, outcomes: Sequence[Outcome]) -> list[int]:
    """How many numbers each output is summed from, by how far a NaN among them gets."""
    most = [1] * max((len(each.outputs) for each in outcomes), default=0)
    calls = list(zip(question.calls, outcomes, strict=True))
    given = next(each for asked, each in calls if asked.call.name == AS_GIVEN)
    for asked, outcome in calls:
        if asked.check != SPECIALS or len(outcome.outputs) != len(given.outputs):
            continue
        x = next(
            each
            for each in asked.call.inputs
            if isinstance(each, Tensor) and each.is_floating_point() and each.numel()
        )
        if not x.isnan().any():
            continue
        pairs = zip(outcome.outputs, given.outputs, strict=True)
        for i, (out, usual) in enumerate(pairs):
            if out.is_floating_point() and out.shape == usual.shape and out.numel():
                reached = int((out.isnan() & ~usual.isnan()).sum())
                most[i] = max(1, math.ceil(reached * x.numel() / out.numel()))
    return most


def _compared(asked: Asked, outcome: Outcome, compared: _Answer | None) -> _Answer:
    """A side's answer where both are compared; None if one has none."""
    answer = _answer(asked, outcome, ())
    if answer.problem or outcome.refusal:
        return answer
    if compared is None:
        nothing = "there is no reference, and no result of the other side"
        if asked.check:
            return replace(answer, note=nothing)
        return replace(answer, problem=nothing)
    sentence = compared.problem and (
        f"no reference: the two are compared with each other: {compared.problem}"
    )
    if asked.check == SPECIALS:  # nobody knows which of them is right
        return replace(answer, note=sentence)
    return replace(
        answer, problem=sentence, error=compared.error, allowed=compared.allowed
    )


def _answer(asked: Asked, outcome: Outcome, expected: tuple[Expected, ...]) -> _Answer:
    """Judges a call by what is expected; by its faults alone if nothing is."""
    if outcome.problem:
        says_more = outcome.writes_to_input and asked.expected
        more = "; the reference does not write to its input" if says_more else ""
        return _Answer(asked, outcome, problem=outcome.problem + more)
    if outcome.refusal:
        problem = "" if asked.check else outcome.refusal
        return _Answer(asked, outcome, problem=problem, note=outcome.refusal)
    if not expected:
        return _Answer(asked, outcome)
    if (count := len(outcome.outputs)) != len(expected):
        problem = f"it returned {_counted(count, 'tensor')}, not {len(expected)}"
        return _Answer(asked, outcome, problem=problem)
    doubtful = asked.doubtful or (None,) * len(expected)
    judged = [
        _judge_output(*each, has_nan_inputs=asked.check == SPECIALS)
        for each in zip(outcome.outputs, expected, doubtful, strict=True)
    ]
    verdicts = [verdict for verdict, _ in judged]
    worst = max(verdicts, key=lambda each: (not each.passed, each.share))
    problem = worst.problem
    if problem and len(verdicts) > 1:
        problem = f"output {verdicts.index(worst) + 1}: {problem}"
    note = next((note for _, note in judged if note), "")
    return _Answer(asked, outcome, worst.error, worst.allowed, problem, note)


def _judge_output(
    result: Tensor,
    expected: Expected,
    doubtful: Tensor | None,
    has_nan_inputs: bool,
) -> tuple[Verdict, str]:
    """The verdict on an output, and a note on what is no fault."""
    if problem := acceptance.wrong_kind(result, expected):
        return Verdict(UNKNOWN, UNKNOWN, problem), ""
    if not result.is_floating_point():
        return _judge_exactly(result, expected), ""
    note = ""
    judged = result
    if doubtful is not None:
        is_right = doubtful & ~result.isfinite()
        # What is as right as the exact value is judged as if it were that.
        judged = expected.exact.to(result.dtype).where(is_right, result)
        if count := int((is_right & expected.torch.isfinite()).sum()):
            note = (
                f"{_of(count, result)} that do not depend on the special value are "
                "NaN or infinite"
            )
    verdict = acceptance.judge(judged, expected)
    problem = _unwritten(judged, expected, has_nan_inputs) or verdict.problem
    return replace(verdict, problem=problem), note


def _judge_exactly(result: Tensor, expected: Expected) -> Verdict:
    """The verdict on whole numbers or truth values."""
    wrong = (result != expected.exact) & (result != expected.torch)
    if not (count := int(wrong.sum())):
        return Verdict(_EXACT, _EXACT, "")
    problem = _unwritten(result, expected)
    if not problem:
        place = tuple(wrong.nonzero()[0].tolist())
        found, wanted = result[place].item(), expected.exact[place].item()
        where = f"at {list(place)}: " if place else ""
        problem = f"{_of(count, result)} are wrong ({where}{found}, not {wanted})"
    return Verdict(UNKNOWN, _EXACT, problem)


def _unwritten(result: Tensor, expected: Expected, has_nan_inputs: bool = False) -> str:
    """Tells of elements that hold what memory is filled with before it is written."""
    if result.dtype == torch.bool:
        return ""
    exact = expected.exact.to(result.dtype)
    is_right = (result == exact) | ((result != result) & (exact != exact))
    pattern = _PATTERNS.get(result.element_size())
    is_pattern = ~is_right & (acceptance.bits(result) == pattern) if pattern else None
    if is_pattern is not None and (count := int(is_pattern.sum())):
        return (
            f"{_of(count, result)} were not written (they still hold what the memory "
            "was filled with)"
        )
    if has_nan_inputs:
        return ""
    if result.is_floating_point():
        # A NaN that a CPU computes has its sign bit set, so this one is a filling.
        filling, name = math.nan, "NaN"
    else:
        filling, name = torch.iinfo(result.dtype).max, "the largest integer"
    filled = torch.full_like(result, filling)
    is_filling = acceptance.bits(result) == acceptance.bits(filled)
    if count := int((is_filling & ~is_right).sum()):
        return f"{_of(count, result)} are {name}, as if they were never written"
    return ""


def _judged(question: Question, answers: list[_Answer], ran_on: str) -> Judged:
    checks = {
        name: _check([each for each in answers if each.asked.check == name])
        for name in (OTHER_INPUTS, OFFSET, STRIDED, SPECIALS, LARGE)
        if any(each.asked.check == name for each in answers)
    }
    given = [each for each in answers if not each.asked.check]
    if not any(each.outcome.refusal for each in given):
        checks[RACES] = _races(given)
    with_results = [each for each in given if each.outcome.outputs]
    if len(with_results) > 1:
        checks[SAME_BITS] = _same_bits(question, with_results)
    first = given[0]
    problem = first.problem
    if problem and _is_stale(first, answers):
        problem = f"it returned the result of an earlier call: {problem}"
    if not problem:
        wrong = (_in_its_order(each) for each in with_results)
        problem = next(filter(None, wrong), "")
    return Judged(Parity(ran_on, first.error, first.allowed, problem), checks)


def _is_stale(first: _Answer, answers: Sequence[_Answer]) -> bool:
    """Whether it is the right result of an earlier call, on other values."""
    results = first.outcome.outputs
    for each in answers[: answers.index(first)]:
        earlier = each.outcome.outputs
        if each.problem or not earlier or len(earlier) != len(results):
            continue
        if not _difference(earlier, results):
            return True
    return False


def _check(answers: Sequence[_Answer]) -> Check:
    """What is said of all calls that count for a check."""
    wrong = [each for each in answers if each.problem]
    if wrong:
        n_right = len(answers) - len(wrong)
        text = f"{n_right} of {len(answers)}" if len(answers) > 1 else "failed"
        first = wrong[0]
        return Check(text, "bad", f"on {first.asked.call.name}: {first.problem}")
    refused = next((each for each in answers if each.outcome.refusal), None)
    noted = refused or next((each for each in answers if each.note), None)
    if noted is None:
        return Check("passed", "good")
    note = f"on {noted.asked.call.name}: {noted.note}"
    return Check("refused" if refused else "unsure", "unsure", note=note)


def _races(given: Sequence[_Answer]) -> Check:
    """What was seen while the calls as given ran, in different orders."""
    faults = [each for each in given if each.outcome.problem]
    orders = _counted(len(given), "order")
    if not faults:
        return Check(f"clean in {orders}", "good")
    text = f"fault in {len(faults)} of {orders}"
    return Check(text, "bad", _in_its_order(faults[0]))


def _in_its_order(answer: _Answer) -> str:
    """The problem, and the order if that is another one than usual."""
    order = answer.asked.call.order
    if not answer.problem or order == "forward":
        return answer.problem
    return f"in {order} order: {answer.problem}"


def _same_bits(question: Question, answers: Sequence[_Answer]) -> Check:
    first, *others = answers
    for other in others:
        difference = _difference(first.outcome.outputs, other.outcome.outputs)
        if not difference:
            continue
        orders = [each.asked.call.order for each in (first, other)]
        sentence = f"{difference} between {orders[0]} and {orders[1]} order"
        if question.is_deterministic:
            return Check("no", "bad", sentence)
        return Check("no", "unsure", note=sentence)
    return Check("yes", "good")


def _difference(left: Sequence[Tensor], right: Sequence[Tensor]) -> str:
    """What differs between two results, bit for bit; empty if nothing."""
    if len(left) != len(right):
        return "the number of results differs"
    for one, other in zip(left, right, strict=True):
        if one.shape != other.shape or one.dtype != other.dtype:
            return "the shape or dtype of a result differs"
        differs = acceptance.bits(one) != acceptance.bits(other)
        if one.is_floating_point():
            differs &= ~(one.isnan() & other.isnan())
        if count := int(differs.sum()):
            return f"{_of(count, one)} differ"
    return ""


def _of(count: int, x: Tensor) -> str:
    return f"{count} of {_counted(x.numel(), 'element')}"


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}" + ("" if count == 1 else "s")
