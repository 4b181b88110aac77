"""Compiles what is about to be timed, in several processes at once.

A peer is compiled for every shape, for seconds each time; one after the other, that
takes longer than all measurements. Here every compilation is a task of a pool of
processes, which do nothing but fill the caches on disk: Triton's, Inductor's, quack's.
Nothing is timed meanwhile, and no result is kept.
"""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable, Iterable
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool

import torch

from bindings.registry import OPS
from compare.errors import UnavailableError
from compare.judge.cases import Case, make_arguments
from compare.judge.parity import Skipped
from compare.timing import implementations

# Beside an H200 sixteen took 29 GB of the host's memory and 22 GB of the GPU's.
_MAX_PROCESSES = 16


def compile_ahead(
    calls: Iterable[tuple[str, Case, str]], progress: Callable[[str], None]
) -> None:
    """Makes all calls of implementations that are compiled at run time, once each.

    Args:
        calls: The name of the op, the case, and the implementation's name.
        progress: Is told what is going on.

    Raises:
        UnavailableError: A process was killed, probably because memory was short.
    """
    tasks = [call for call in calls if call[2] not in implementations.COMPILED_BEFORE]
    n_processes = min(len(tasks), os.cpu_count() or 1, _MAX_PROCESSES)
    if n_processes < 2:
        return  # nothing is gained
    processes = multiprocessing.get_context("spawn")  # CUDA does not survive a fork
    try:
        with ProcessPoolExecutor(n_processes, processes, _begin) as pool:
            running = [pool.submit(_call_once, *task) for task in tasks]
            for number, each in enumerate(as_completed(running), 1):
                problem = each.result()
                progress(problem or f"compiling, {number} of {len(tasks)} calls")
    except BrokenProcessPool as error:
        raise UnavailableError(
            f"one of {n_processes} processes that compile was killed: {error}"
        ) from error


def _begin() -> None:
    """Has Inductor compile in this process: the others keep every core busy."""
    os.environ["TORCHINDUCTOR_COMPILE_THREADS"] = "1"


def _call_once(op: str, case: Case, name: str) -> str:
    """Returns why there is nothing of it in a cache now; empty if there is.

    It is no error yet: whoever times it tries again, while nobody else takes memory,
    and reports what stands in the way.
    """
    implementation = implementations.find_one(OPS[op], name)
    if implementation is None:
        return ""
    if isinstance(implementation, Skipped):
        return f"{name} {implementation.reason}"
    try:
        implementation.call(*make_arguments(OPS[op], case, "cuda"))
        torch.cuda.synchronize()
    except Exception as error:  # whatever a library of others raises
        return f"{name} cannot compute {op} of {case}: {error!r}"
    finally:
        torch.cuda.empty_cache()
    return ""
