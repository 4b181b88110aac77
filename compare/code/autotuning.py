"""The configurations that Triton's autotuners choose among, each as it is compiled.

Without a GPU there are no times, so that an autotuner takes the first that compiles.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

from triton.errors import TritonError
from triton.runtime import Autotuner
from triton.runtime.driver import driver

from compare.code.triton_offline import TritonLaunch

# An autotuner may have hundreds of them, of which each takes seconds.
MAX_CONFIGURATIONS = 12


@dataclass(frozen=True)
class Configuration:
    """One that an autotuner has the choice of."""

    text: str  # its constants and options
    launch: TritonLaunch | None  # None if it is not compiled, or cannot be
    failure: str  # why it cannot be compiled; else empty


@contextlib.contextmanager
def observed_autotuners(
    launches: list[TritonLaunch],
) -> Iterator[dict[int, tuple[Configuration, ...]]]:
    """Has autotuners compile their first configurations under triton_offline's driver.

    Args:
        launches: The list that `triton_offline.offline_driver` adds to.

    Yields:
        The configurations by the launch's place in the list, for launches of kernels
        with an autotuner that had a choice.
    """
    found: dict[int, tuple[Configuration, ...]] = {}
    tried: list[tuple[TritonLaunch | None, str]] = []
    of_tuner: dict[Any, tuple[Configuration, ...]] = {}
    run = Autotuner.run

    def try_out(
        launch: Callable[[], Any], quantiles: tuple[float, ...] | None = None
    ) -> float | list[float]:
        time = math.inf
        if len(tried) < MAX_CONFIGURATIONS:
            n_before = len(launches)
            try:
                launch()
            except TritonError as error:  # some of which mean inf to the autotuner
                tried.append((None, str(error)))
                raise
            tried.append((launches[-1], ""))
            del launches[n_before:]
            time = 0.0
        return time if quantiles is None else [time for _ in quantiles]

    def run_and_observe(self: Any, *args: Any, **kwargs: Any) -> Any:
        tried.clear()
        n_before = len(launches)
        result = run(self, *args, **kwargs)
        if tried:
            outcomes = dict(enumerate(tried))
            of_tuner[self] = tuple(
                Configuration(str(each), *outcomes.get(i, (None, "")))
                for i, each in enumerate(self.configs_timings)
            )
        if self in of_tuner:
            found.update(dict.fromkeys(range(n_before, len(launches)), of_tuner[self]))
        return result

    def benchmark_always(self: Any, key: Any, configs: Any, benchmark: Any) -> bool:
        # What was kept on disk would be taken for times of a GPU.
        benchmark()
        return False

    with (
        patch.object(driver.active, "get_benchmarker", lambda: try_out),
        patch.object(Autotuner, "run", run_and_observe),
        patch.object(Autotuner, "check_disk_cache", benchmark_always),
    ):
        yield found
