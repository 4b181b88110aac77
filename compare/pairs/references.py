"""What a user's reference computes, in its own dtype and in float64. For workers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from bindings.op import as_tuple
from compare.errors import UsageError
from compare.judge import acceptance
from compare.pairs.question_sources import Source

# Two numbers are taken for the same if float64 rounds them differently.
_SAME = 1e-12


@dataclass
class Values:
    """Inputs, and what they should give; see question.Asked."""

    inputs: tuple[Any, ...]
    exact: list[Tensor] = field(default_factory=list)
    torch: list[Tensor] = field(default_factory=list)
    doubtful: list[Tensor | None] = field(default_factory=list)


class Reference:
    """The user's reference, in its own dtype and in float64.

    Attributes:
        has_float64: Whether it computes in float64, as far as is known.
        modified: The numbers of the inputs that it has written to.
    """

    def __init__(self, source: Source, seed: int, notes: list[str]) -> None:
        """Takes the source, a seed for its random numbers, and where notes go."""
        self._source = source
        self._seed = seed
        self._notes = notes
        self.has_float64 = True
        self.modified: set[int] = set()

    def values(self, inputs: tuple[Any, ...]) -> Values:
        """The inputs, and what is expected of them."""
        if self._source.reference is None:
            return Values(inputs)
        own = self.own(inputs)
        exact = self._in_float64(inputs) if self.has_float64 else None
        if exact is None or not _is_exact(exact, own):
            self._do_without_float64()
            like = [
                acceptance.expect_like(each) if is_float(each) else None for each in own
            ]
            exact = [each.exact if each else own[i] for i, each in enumerate(like)]
            own = [each.torch if each else own[i] for i, each in enumerate(like)]
        return Values(inputs, exact, own, [None] * len(own))

    def own(self, inputs: tuple[Any, ...]) -> list[Tensor]:
        """The results in the dtype of the inputs."""
        assert self._source.reference
        copies = tuple(map(_copy, inputs))
        results = self._compute(self._source.reference, copies)
        self.modified |= {
            i
            for i, pair in enumerate(zip(copies, inputs, strict=True))
            if not is_same(*pair)
        }
        return results

    def exact(self, inputs: tuple[Any, ...]) -> list[Tensor]:
        """The results in float64, or the best there is instead; none without any."""
        if self._source.reference is None:
            return []
        exact = self._in_float64(inputs) if self.has_float64 else None
        return [
            each.double() if is_float(each) else each
            for each in (self.own(inputs) if exact is None else exact)
        ]

    def count_terms(self, given: Values, only_first: bool) -> list[int]:
        """How many numbers an element of each output is made of, at most.

        An input's element that reaches n elements of the output is one of n * (size of
        the input) / (size of the output) that each is made of.
        """
        counts = [1] * len(given.exact)
        floats = [i for i, each in enumerate(given.inputs) if is_float(each)]
        for number in floats[:1] if only_first else floats:
            x = given.inputs[number]
            if not given.exact or not x.numel():
                continue
            changed = self.exact(planted(given.inputs, number, _beyond(x)))
            for i, (before, after) in enumerate(zip(given.exact, changed, strict=True)):
                if before.shape == after.shape and before.numel():
                    reached = int((~_is_near(before, after)).sum())
                    n_terms = math.ceil(reached * x.numel() / before.numel())
                    counts[i] = max(counts[i], n_terms)
        return counts

    def independent_of(
        self, inputs: tuple[Any, ...], number: int
    ) -> list[Tensor | None]:
        """The results that do not depend on the middle element of an input.

        Returns:
            For each output: in float64, and NaN wherever it depends on the element;
            None for one that is not of floating-point numbers.
        """
        bound = _beyond(inputs[number])
        both = [self.exact(planted(inputs, number, value)) for value in (bound, -bound)]
        return [
            low.where(_is_near(low, high) & low.isfinite(), math.nan)
            if is_float(low) and low.shape == high.shape
            else None
            for low, high in zip(*both, strict=True)
        ]

    def _in_float64(self, inputs: tuple[Any, ...]) -> list[Tensor] | None:
        """The results in float64; None if the reference does not compute so."""
        assert self._source.in_float64
        copies = tuple(_copy(each, torch.float64) for each in inputs)
        try:
            return self._compute(self._source.in_float64, copies)
        except Exception:  # whatever a reference raises that insists on its dtype
            self._do_without_float64()
            return None

    def _do_without_float64(self) -> None:
        if self.has_float64:
            self.has_float64 = False
            self._notes.append(
                "the reference does not compute in float64, so its own results are "
                "taken for exact, and large values are left out"
            )

    def _compute(self, function: Any, inputs: tuple[Any, ...]) -> list[Tensor]:
        torch.manual_seed(self._seed)
        with torch.no_grad():
            returned = function(*inputs)
        results = list(as_tuple(returned) if returned is not None else ())
        if isinstance(returned, list):
            results = returned
        for each in results or [returned]:
            if not isinstance(each, Tensor):
                raise UsageError(
                    f"the reference returns {type(each).__name__}, and tensors are "
                    "wanted"
                )
        return [each.detach().as_subclass(Tensor).contiguous() for each in results]


def _is_exact(exact: Sequence[Tensor], own: Sequence[Tensor]) -> bool:
    """Whether results are those in float64 of what the others are."""
    return len(exact) == len(own) and all(
        one.shape == other.shape
        and one.dtype == (torch.float64 if is_float(other) else other.dtype)
        for one, other in zip(exact, own, strict=True)
    )


def is_float(x: Any) -> bool:
    """Whether it is a tensor of floating-point numbers."""
    return isinstance(x, Tensor) and x.is_floating_point()


def is_same(x: Any, y: Any) -> bool:
    """Whether two inputs are alike, NaN like NaN."""
    if not isinstance(x, Tensor):
        return bool(x == y) or x != x
    if x.shape != y.shape or x.dtype != y.dtype:
        return False
    return bool(((x == y) | ((x != x) & (y != y))).all())


def planted(inputs: tuple[Any, ...], number: int, value: float) -> tuple[Any, ...]:
    """Inputs with a value in the middle of one."""
    x = inputs[number].clone()
    x.view(-1)[x.numel() // 2] = value
    return (*inputs[:number], x, *inputs[number + 1 :])


def _is_near(x: Tensor, y: Tensor) -> Tensor:
    if not is_float(x):
        return x == y
    return torch.isclose(x, y, rtol=_SAME, atol=0.0, equal_nan=True)


def _beyond(x: Tensor) -> float:
    """A number that is larger than all of x."""
    finite = x[x.isfinite()].double().abs()
    return float(finite.amax()) + 1 if finite.numel() else 1.0


def _copy(x: Any, dtype: torch.dtype | None = None) -> Any:
    if not isinstance(x, Tensor):
        return x
    return x.to(dtype, copy=True) if is_float(x) and dtype else x.clone()
