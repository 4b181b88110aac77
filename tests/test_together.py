"""Cases that are one test together: all are run, and a failure names its own."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import together

TESTS = """
import pytest
from together import in_one_test, new_generator

@in_one_test("number", "letter")
@pytest.mark.parametrize("backend", ["cuda", "triton"])
@pytest.mark.parametrize("number", [1, 2, 3])
@pytest.mark.parametrize("letter", ["a", "b"])
def test_some(backend, number, letter, generator, monkeypatch):
    assert generator.initial_seed() == 20261120
    assert not hasattr(pytest, "left_by_a_case")
    monkeypatch.setattr(pytest, "left_by_a_case", True, raising=False)
    if letter == "b":
        pytest.skip("it has no b")
    if backend == "triton" and number > 1:
        with pytest.raises(ValueError):
            assert number == 2, "it is three"

@pytest.fixture
def generator():
    return new_generator()

@in_one_test("number")
@pytest.mark.parametrize("number", [1, 2])
def test_nothing(number):
    pytest.skip(f"it has no {number}")

@pytest.mark.skipif(True, reason="there is no GPU")
@pytest.mark.parametrize("number", [1, 2])
def test_on_a_gpu(number):
    raise AssertionError("it runs")
"""


class Plugin:
    """What common.py has of it, and the results by test."""

    def __init__(self) -> None:
        """Begins without results."""
        self.found: dict[str, tuple[str, str]] = {}

    def pytest_configure(self, config: pytest.Config) -> None:
        """Registers the marker."""
        config.addinivalue_line("markers", "in_one_test(*names)")

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Merges cases."""
        items[:] = together.merge(items)

    def pytest_pyfunc_call(self, pyfuncitem: pytest.Function) -> bool | None:
        """Runs them."""
        return together.call(pyfuncitem)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Takes results down."""
        if report.when == "call" or not report.passed:
            name = report.nodeid.partition("::")[2]
            self.found[name] = report.outcome, str(report.longrepr)


def found(file: Path, name: str = "") -> dict[str, tuple[str, str]]:
    """The outcome and the text of each test of the file, or of the one of a name."""
    plugin = Plugin()
    others = ["cacheprovider", "faulthandler", "hypothesispytest", "timeout", "xdist"]
    # At its end it would collect the garbage of this process five times.
    others += ["unraisableexception"]
    options = [f"--rootdir={file.parent}", "-c/dev/null", "--import-mode=importlib"]
    options += [f"-pno:{each}" for each in others]
    pytest.main([*options, f"{file}{name}"], [plugin])
    sys.modules.pop(file.stem, None)
    return plugin.found


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A file of tests."""
    file = tmp_path / "test_of_cases.py"
    file.write_text(TESTS)
    return file


def test_all_cases_are_run_and_those_that_fail_are_named(file: Path) -> None:
    results = found(file)
    outcomes = {name: outcome for name, (outcome, _) in results.items()}
    assert outcomes == {
        "test_some[a-1-cuda]": "passed",
        "test_some[a-1-triton]": "failed",
        "test_nothing[1]": "skipped",
        "test_on_a_gpu[1]": "skipped",
    }
    text = results["test_some[a-1-triton]"][1]
    assert text.startswith(
        "2 of 6 cases, each runs alone by its name:\ntest_some[a-2-triton]\n"
    )
    assert "DID NOT RAISE" in text.partition("test_some[a-3-triton]")[0]
    assert "it is three" in text.partition("test_some[a-3-triton]")[2]
    assert "it has no 1" in results["test_nothing[1]"][1]


def test_a_case_is_run_alone_by_its_name(file: Path) -> None:
    (only,) = found(file, "::test_some[a-3-triton]").items()
    assert only[0] == "test_some[a-3-triton]"
    assert only[1][0] == "failed"
    assert "it is three" in only[1][1]


def test_cases_share_nothing_that_one_of_them_changes(
    file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file.write_text(TESTS.replace("generator, monkeypatch", "tmp_path, monkeypatch"))
    assert found(file) == {}
    assert "test_some share {'tmp_path'}" in "".join(capsys.readouterr())
