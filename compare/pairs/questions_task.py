"""Makes the inputs of a question, and computes what is expected. Runs in a worker."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from compare.judge import acceptance
from compare.pairs import question_sources
from compare.pairs.question import (
    AS_GIVEN,
    LARGE,
    OFFSET,
    ORDERS,
    OTHER_INPUTS,
    SPECIALS,
    STRIDED,
)
from compare.pairs.question_sources import Source
from compare.pairs.references import Reference, Values, is_float, is_same, planted

# A reference that takes longer is asked for less.
_SECONDS = 3.0

# What float inputs are multiplied by: exp overflows, and float32 has digits left.
_LARGE = 1e4

_SPECIALS = {
    "inputs with a NaN": math.nan,
    "inputs with infinity": math.inf,
    "inputs with -infinity": -math.inf,
}


def answer(request: Mapping[str, Any]) -> dict[str, Any]:
    """The question as plain data, which question.read_answer reads.

    Args:
        request: By question.ask.

    Returns:
        Calls, each with the number of its values; values; and whatever else a Question
        has.

    Raises:
        UsageError: The user's words make no sense.
        Exception: What the user's code raises.
    """
    with question_sources.on_cpu():
        return ask(question_sources.read(request), request["seed"])


def ask(source: Source, seed: int) -> dict[str, Any]:
    """The question of a source, as plain data.

    Raises:
        UsageError: The inputs or results are of kinds that cannot be passed on.
        Exception: What the user's code raises.
    """
    return _Asking(source, seed).answer()


class _Asking:
    """The calls and values that have been made so far."""

    def __init__(self, source: Source, seed: int) -> None:
        self.source = source
        self.seed = seed
        self.calls: list[dict[str, Any]] = []
        self.values: list[Values] = []
        self.notes: list[str] = []
        self.reference = Reference(source, seed, self.notes)
        self.n_terms: list[int] = []

    def answer(self) -> dict[str, Any]:
        sizes = self.source.sizes
        inputs = tuple(self.source.make_inputs(self.seed, sizes))
        started = time.monotonic()
        given = self.reference.values(inputs)
        seconds = time.monotonic() - started
        is_slow = seconds > _SECONDS
        self.n_terms = self.reference.count_terms(given, only_first=is_slow)
        self.ask_on_values_as_given(given, sizes)
        variations = self.source.variations
        cases = self.source.cases
        if is_slow:
            self.notes.append(
                f"the reference takes {seconds:.1f} s, so NaN, infinities, large "
                "values and further cases are left out"
            )
            variations, cases = (), ()
        if "specials" in variations:
            self.ask_on_specials(given)
        if "large" in variations:
            self.ask_on_large_values(given)
        for case in cases:
            self.ask_on_case(case)
        return {
            "calls": self.calls,
            "values": [vars(each) for each in self.values],
            "n_terms": self.n_terms,
            "notes": self.notes,
            "names": _names(self.source.names, len(inputs)),
            "is_deterministic": self.source.is_deterministic,
            "is_packed": self.source.is_packed,
            "modified": sorted(self.reference.modified),
        }

    def ask(
        self,
        name: str,
        values: Values,
        check: str = "",
        layout: str = "contiguous",
        order: str = "forward",
    ) -> None:
        """Adds a call."""
        if not any(each is values for each in self.values):
            self.values.append(values)
        number = next(i for i, each in enumerate(self.values) if each is values)
        self.calls.append(
            {
                "name": name,
                "check": check,
                "layout": layout,
                "order": order,
                "values": number,
            }
        )

    def ask_on_values_as_given(self, given: Values, sizes: Mapping[str, Any]) -> None:
        variations = self.source.variations
        if "other" in variations:
            # First, so that the call as given shows what is kept from an earlier one.
            inputs = tuple(self.source.make_inputs(self.seed + 1, sizes))
            if not all(map(is_same, inputs, given.inputs)):
                other = self.reference.values(inputs)
                self.ask("other values", other, OTHER_INPUTS)
        for order in ORDERS if "orders" in variations else ORDERS[:1]:
            self.ask(AS_GIVEN, given, order=order)
        n_dims = max(each.dim() for each in given.inputs if isinstance(each, Tensor))
        if "offset" in variations:
            self.ask("offset inputs", given, OFFSET, layout="offset")
        if "strided" in variations and n_dims:
            layout = "transposed" if n_dims > 1 else "sliced"
            self.ask("strided inputs", given, STRIDED, layout=layout)

    def ask_on_specials(self, given: Values) -> None:
        number = _first_float(given.inputs)
        if number is None:
            return
        without = self.reference.independent_of(given.inputs, number)
        for name, special in _SPECIALS.items():
            inputs = planted(given.inputs, number, special)
            values = self.reference.values(inputs)
            if values.exact:
                pairs = zip(values.exact, values.torch, without, strict=True)
                found = [_settle(*each) for each in pairs]
                values.exact = [exact for exact, _ in found]
                values.doubtful = [doubtful for _, doubtful in found]
            self.ask(name, values, SPECIALS)

    def ask_on_large_values(self, given: Values) -> None:
        inputs = tuple(
            each * _LARGE if is_float(each) else each for each in given.inputs
        )
        if _first_float(inputs) is None or not all(map(_is_finite, inputs)):
            return
        values = self.reference.values(inputs)
        if not self.reference.has_float64 or not all(map(_is_finite, values.torch)):
            return  # the reference overflows itself, perhaps on its way only
        # A kernel may lose what float32 loses of so large inputs.
        moved = self.reference.exact(tuple(map(_shifted, inputs)))
        for i, (exact, own) in enumerate(zip(values.exact, values.torch, strict=True)):
            if is_float(own) and moved[i].shape == exact.shape:
                values.torch[i] = (own.double() + (moved[i] - exact)).to(own.dtype)
        self.ask("large values", values, LARGE)

    def ask_on_case(self, case: Mapping[str, Any]) -> None:
        sizes = ", ".join(f"{name}={value}" for name, value in case.items())
        inputs = tuple(self.source.make_inputs(self.seed, case))
        self.ask(f"inputs of {sizes}", self.reference.values(inputs), OTHER_INPUTS)


def _settle(
    exact: Tensor, own: Tensor, without: Tensor | None
) -> tuple[Tensor, Tensor | None]:
    """What is expected where an input is NaN or infinite, and where that is doubtful.

    Where a result does not depend on the input, the reference may have multiplied it
    by 0, which gives NaN, and a kernel that skips it is right. And where the reference
    gives different specials in different dtypes, it says no clear word.

    Args:
        exact: The result in float64.
        own: The result in the dtype itself.
        without: By Reference.independent_of.
    """
    if without is None or not exact.shape == own.shape == without.shape:
        return exact, None
    is_independent = without.isfinite()
    rounded = exact.to(own.dtype)
    is_unclear = ~_kinds_agree(rounded, own)
    exact = without.where(is_independent, exact)
    takes_own = is_unclear & ~is_independent & ~exact.isfinite() & own.isfinite()
    exact = own.double().where(takes_own, exact)
    return exact, is_independent | is_unclear


def _kinds_agree(x: Tensor, y: Tensor) -> Tensor:
    """Where both are finite, both NaN, or both the same infinity."""
    return (x.isfinite() & y.isfinite()) | (x == y) | (x.isnan() & y.isnan())


def _is_finite(x: Any) -> bool:
    return not is_float(x) or bool(x.isfinite().all())


def _first_float(inputs: Sequence[Any]) -> int | None:
    """The number of the first input of floating-point numbers that is not empty."""
    return next(
        (i for i, each in enumerate(inputs) if is_float(each) and each.numel()), None
    )


def _shifted(x: Any) -> Any:
    """An input whose numbers are each off by a few roundings of float32."""
    if not is_float(x):
        return x
    signs = torch.arange(x.numel()).view(x.shape) % 3 - 1
    unit = acceptance.FLOAT32_UNITS / 2 * torch.finfo(torch.float32).eps
    return x.double() * (1 + signs * unit)


def _names(known: Sequence[str], n_inputs: int) -> list[str]:
    if len(known) >= n_inputs:
        return list(known[:n_inputs])
    return [f"input {number}" for number in range(1, n_inputs + 1)]
