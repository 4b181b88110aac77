"""From the times of replays to figures, and to a verdict between two of them.

The replays of all implementations took turns, so replay i of one was beside replay i of
another: bootstrap samples draw whole rounds, and what slowed a round down slowed all of
them down. The interval is that of the percentile bootstrap (Efron & Tibshirani 1993).
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from compare.timing.times import Comparison, KernelTime, Method, Outcome

# Two that are no further apart than this are the same. Where a buffer happens to lie in
# the memory makes about half of it.
SAME_WITHIN = 0.015

_RESAMPLES = 2000
_CONFIDENCE = 0.95
_SEED = 20261120  # the same figures from the same times


def summarize(call_us: Sequence[float], calls: int, method: Method) -> KernelTime:
    """The figures of one implementation, from the time of a call in each round."""
    times = np.asarray(call_us)
    low, high = _interval(_medians(times, _resamples(len(times))))
    p20, median, p80 = np.quantile(times, [0.2, 0.5, 0.8])
    return KernelTime(float(median), float(p20), float(p80), low, high, calls, method)


def compare(call_us: Mapping[str, Sequence[float]]) -> tuple[Comparison, ...]:
    """How each implementation does beside those that come after it, by its times."""
    if not call_us:
        return ()
    times = {name: np.asarray(each) for name, each in call_us.items()}
    rounds = _resamples(len(next(iter(times.values()))))
    medians = {name: _medians(each, rounds) for name, each in times.items()}
    comparisons = []
    for first, second in itertools.combinations(times, 2):
        low, high = _interval(medians[first] / medians[second])
        ratio = float(np.median(times[first]) / np.median(times[second]))
        outcome = verdict(low, high)
        comparisons.append(Comparison(first, second, ratio, low, high, outcome))
    return tuple(comparisons)


def verdict(low: float, high: float) -> Outcome:
    """The verdict on the numerator of a ratio of times, by its interval."""
    if high < 1 - SAME_WITHIN:
        return "faster"
    if low > 1 + SAME_WITHIN:
        return "slower"
    return "same" if low >= 1 - SAME_WITHIN and high <= 1 + SAME_WITHIN else "unclear"


def _resamples(n_rounds: int) -> NDArray[np.int64]:
    generator = np.random.default_rng(_SEED)
    return generator.integers(n_rounds, size=(_RESAMPLES, n_rounds))


def _medians(
    times: NDArray[np.float64], rounds: NDArray[np.int64]
) -> NDArray[np.float64]:
    return np.asarray(np.median(times[rounds], axis=1))


def _interval(values: NDArray[np.float64]) -> tuple[float, float]:
    outside = (1 - _CONFIDENCE) / 2
    low, high = np.quantile(values, [outside, 1 - outside])
    return float(low), float(high)
