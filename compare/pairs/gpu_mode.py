"""A problem of gpu-mode: a folder with reference.py and task.yml."""

from __future__ import annotations

import ast
import importlib
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

from compare.errors import UnavailableError, UsageError


def is_folder(path: Path) -> bool:
    """Whether it is a folder whose reference.py has a function ref_kernel."""
    file = path / "reference.py"
    if not file.is_file():
        return False
    try:
        tree = ast.parse(file.read_bytes())
    except (SyntaxError, ValueError):
        return False
    return any(
        isinstance(node, ast.FunctionDef) and node.name == "ref_kernel"
        for node in tree.body
    )


def cases(folder: Path) -> list[dict[str, Any]]:
    """The arguments of generate_input in each test that task.yml lists.

    Raises:
        UnavailableError: PyYAML is missing.
        UsageError: There is no such file, or it lists no sizes.
    """
    tests = _task(folder).get("tests")
    if not isinstance(tests, list) or not tests:
        raise UsageError("task.yml lists no tests")
    for each in tests:
        if not isinstance(each, dict) or not all(isinstance(key, str) for key in each):
            raise UsageError(f"task.yml: a test is {each!r}, not sizes by name")
    return tests


def files(folder: Path) -> list[Path]:
    """The Python files that the reference is made of, which may lie elsewhere."""
    listed = _task(folder).get("files")
    sources = [
        folder / str(each.get("source", ""))
        for each in (listed if isinstance(listed, list) else [])
        if isinstance(each, dict)
    ]
    own = [folder / "reference.py", *sources]
    return [path.resolve() for path in own if path.suffix == ".py" and path.is_file()]


def _task(folder: Path) -> dict[str, Any]:
    file = folder / "task.yml"
    if not file.is_file():
        raise UsageError(f"there is no task.yml in {folder.name}")
    try:
        yaml = importlib.import_module("yaml")
    except ModuleNotFoundError as error:
        raise UnavailableError(
            "reading task.yml takes PyYAML: pip install pyyaml"
        ) from error
    try:
        task = yaml.safe_load(file.read_text("utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        first_line = str(error).partition("\n")[0]
        raise UsageError(f"task.yml cannot be read: {first_line}") from error
    return task if isinstance(task, dict) else {}


def callable_of(submission: ModuleType, is_packed: bool) -> Callable[..., Any]:
    """The submission's custom_kernel as a function of single inputs. For workers.

    Args:
        submission: The loaded file.
        is_packed: Whether `data` is a tuple of the inputs, rather than the only one.
    """

    def call(*inputs: Any) -> Any:
        return submission.custom_kernel(inputs if is_packed else inputs[0])

    return call
