"""Cases that are one test together: most take less time than a test does by itself.

pytest and xdist take 3 ms for each test, to set it up and to report it, and there are
ten thousand cases that take less. They have their names still: a failure tells which of
them failed, and `pytest 'test_file.py::test[name]'` runs one alone.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

import pytest
import torch

from bindings import replay

_cases: pytest.StashKey[list[pytest.Function]] = pytest.StashKey()
# Fixtures that each case has for itself, and those that no case changes.
_OF_A_CASE = {"generator", "monkeypatch"}
_OF_ALL = {"emulator", "kernels", "library", "machine", "order", "removable"}


def in_one_test(*names: str) -> pytest.MarkDecorator:
    """Goes through the values of these parameters in one test, to the last."""
    mark: pytest.MarkDecorator = pytest.mark.in_one_test(*names)
    return mark


def new_generator() -> torch.Generator:
    """Random numbers that are the same in every run, and for every case."""
    return torch.Generator().manual_seed(20261120)


def merge(items: list[pytest.Item]) -> list[pytest.Item]:
    """The first case of each test, which runs the others with it.

    So is one of all cases of a test that are skipped from the start, as most of those
    for a GPU are: a reason is told once.
    """
    tests: dict[tuple[object, ...], list[pytest.Item]] = {}
    for item in items:
        tests.setdefault(_test_of(item), []).append(item)
    for first, *others in tests.values():
        if others:
            first.stash[_cases] = [
                each for each in (first, *others) if isinstance(each, pytest.Function)
            ]
    return [cases[0] for cases in tests.values()]


def _test_of(item: pytest.Item) -> tuple[object, ...]:
    """What cases of one test have in common."""
    function = item.nodeid.partition("[")[0]
    skips = [each for each in item.iter_markers("skipif") if each.args[0] is True]
    if skips:
        return (function, skips[0].kwargs["reason"])
    mark = item.get_closest_marker("in_one_test")
    if mark is None or not isinstance(item, pytest.Function):
        return (id(item),)
    # What is true of the first case would be taken to be of all.
    assert not item.get_closest_marker("xfail"), (
        f"{item.nodeid} may fail, unlike others"
    )
    # A test that was chosen by the name of a case, and -k, have fewer of them.
    params = item.callspec.params
    fixtures = _parameters(item.function) - {*mark.args}
    shared = fixtures - params.keys() - _OF_A_CASE - _OF_ALL
    assert {*mark.args} <= params.keys(), f"{item.nodeid} has no {mark.args}"
    assert not shared, f"cases of {function} share {shared}"
    others = (id(each) for name, each in params.items() if name not in mark.args)
    return (function, *others)


@functools.cache
def _parameters(function: Callable[..., object]) -> frozenset[str]:
    """The names of a function's parameters, which is asked for each of its cases."""
    return frozenset(inspect.signature(function).parameters)


def call(item: pytest.Function) -> bool | None:
    """Calls a test's function for each of its cases; None if it is one alone."""
    cases = item.stash.get(_cases, [])
    if not cases:
        return None
    failures = []
    skips = []
    for case in cases:
        outcome = _outcome(item, case)
        if isinstance(outcome, pytest.skip.Exception):
            skips.append(outcome)
        elif outcome is not None:
            trace = pytest.ExceptionInfo.from_exception(outcome).getrepr(style="short")
            failures.append(f"{case.name}\n{trace}")
    if failures:
        text = "\n\n".join(failures)
        n = f"{len(failures)} of {len(cases)} cases"
        pytest.fail(f"{n}, each runs alone by its name:\n{text}", pytrace=False)
    if len(skips) == len(cases):
        raise skips[0]
    if skips:
        text = "\n".join(sorted({str(each) for each in skips}))
        text = f"{len(skips)} of {len(cases)} cases:\n{text}"
        item.add_report_section("call", "skipped", text)
    return True


def _outcome(item: pytest.Function, case: pytest.Function) -> BaseException | None:
    """What a case raises, or nothing."""
    try:
        _call_one(item, case)
    except (Exception, pytest.fail.Exception, pytest.skip.Exception) as error:
        if str(error).startswith("Timeout"):
            raise  # of pytest-timeout, which looks only once
        return error
    return None


def _call_one(item: pytest.Function, case: pytest.Function) -> None:
    mark = item.get_closest_marker("in_one_test")
    assert mark is not None
    replay.forget()
    with pytest.MonkeyPatch.context() as monkeypatch:
        own: dict[str, Any] = {
            **item.funcargs,
            "generator": new_generator(),
            "monkeypatch": monkeypatch,
            **{name: case.callspec.params[name] for name in mark.args},
        }
        names = _parameters(item.function)
        item.obj(**{name: own[name] for name in names})
