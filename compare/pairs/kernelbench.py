"""KernelBench's files: a problem with class Model, a solution with class ModelNew."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, TypeGuard

import torch

from compare.errors import UnavailableError, UsageError
from compare.pairs import python_file


@dataclass(frozen=True)
class InlineSource:
    """What a call of torch's load_inline compiles.

    Attributes:
        cuda_source: The text of its .cu file.
        functions: The functions that Python can call; none where a source binds them
            itself, by PYBIND11_MODULE.
        line: The line of the Python file that the first line of cuda_source is.
        cpp_source: The text of its .cpp file.
        cpp_line: The line of the first line of that.
    """

    cuda_source: str
    functions: tuple[str, ...]
    line: int
    cpp_source: str
    cpp_line: int


def is_problem(path: Path) -> bool:
    """Whether it is a Python file with class Model and a function get_inputs."""
    names = _definitions(path)
    return {"Model", "get_inputs"} <= names and "ModelNew" not in names


def is_solution(path: Path) -> bool:
    """Whether it is a Python file with class ModelNew."""
    return "ModelNew" in _definitions(path)


def _definitions(path: Path) -> set[str]:
    """The classes and functions of a file; none if it is no Python."""
    if path.suffix != ".py" or not path.is_file():
        return set()
    try:
        tree = ast.parse(path.read_bytes())
    except (SyntaxError, ValueError):
        return set()
    return {
        node.name
        for node in tree.body
        if isinstance(node, (ast.ClassDef, ast.FunctionDef))
    }


def setting(path: Path, text: str) -> tuple[str, str]:
    """The name of a constant of a problem and another value, of `NAME=VALUE`.

    Raises:
        UsageError: It is no such text, or the problem has no such constant.
        BuildFailedError: The problem is no Python.
    """
    name, _, value = (part.strip() for part in text.partition("="))
    try:
        ast.parse(value, mode="eval")
    except (SyntaxError, ValueError):
        raise UsageError(
            f"--set: {text!r} is no NAME=VALUE, such as batch_size=4"
        ) from None
    known = python_file.constants(path)
    if name not in known:
        has = f"it has {', '.join(known)}" if known else "it has none"
        raise UsageError(f"--set: {path.name} has no constant {name!r}; {has}")
    return name, value


def make_model(problem: ModuleType, seed: int) -> torch.nn.Module:
    """The problem's Model, with random weights of this seed."""
    arguments = _init_inputs(problem, seed)
    torch.manual_seed(seed)
    model: torch.nn.Module = problem.Model(*arguments)
    return model


def callable_of(
    solution: ModuleType, problem: ModuleType, seed: int, device: str | None = None
) -> Callable[..., Any]:
    """The solution's ModelNew with the weights of the problem's Model, as a function.

    For workers. Both are made with the same seed, and weights of the same name and
    shape are copied.

    Args:
        solution: The loaded file with class ModelNew.
        problem: The loaded file with class Model.
        seed: The one of the question.
        device: Where the weights go, which are made on the CPU; None to leave them.
    """
    weights = make_model(problem, seed).state_dict()
    arguments = _init_inputs(problem, seed)
    torch.manual_seed(seed)
    model = solution.ModelNew(*arguments)
    alike = {
        name: weights[name]
        for name, value in model.state_dict().items()
        if name in weights and weights[name].shape == value.shape
    }
    model.load_state_dict(alike, strict=False)
    if device:
        model.to(device)

    def call(*inputs: Any) -> Any:
        with torch.no_grad():
            return model(*inputs)

    return call


def _init_inputs(problem: ModuleType, seed: int) -> list[Any]:
    torch.manual_seed(seed)
    make = getattr(problem, "get_init_inputs", list)
    return list(make())


def inline_sources(path: Path) -> list[InlineSource]:
    """The calls of load_inline in a Python file, which is read and not run.

    Raises:
        UnavailableError: A source is put together while the program runs, or stands in
            files of its own.
    """
    tree = ast.parse(path.read_bytes(), path.name)
    values = {}
    for node in ast.walk(tree):
        if _loads_files(node):
            raise UnavailableError(
                f"{path.name}:{node.lineno}: cpp_extension.load, which builds other "
                "files, is not taken; load_inline is"
            )
        if isinstance(node, ast.Assign):
            for target in node.targets:
                if isinstance(target, ast.Name):
                    values[target.id] = node.value
    return [
        _inline_source(node, _Strings(path, values))
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        and ast.unparse(node.func).rpartition(".")[2] == "load_inline"
    ]


def _loads_files(node: ast.AST) -> TypeGuard[ast.Call]:
    return (
        isinstance(node, ast.Call)
        and ast.unparse(node.func).rpartition(".")[2] == "load"
        and any(each.arg == "sources" for each in node.keywords)
    )


# In the order in which load_inline takes them.
_PARAMETERS = ("name", "cpp_sources", "cuda_sources", "functions")


def _inline_source(call: ast.Call, strings: _Strings) -> InlineSource:
    given = dict(zip(_PARAMETERS, call.args, strict=False))
    given |= {each.arg: each.value for each in call.keywords if each.arg}
    cuda, cpp = given.get("cuda_sources"), given.get("cpp_sources")
    return InlineSource(
        cuda_source="\n".join(strings.of(cuda)),
        functions=tuple(strings.of(given.get("functions"))),
        line=strings.line(cuda) if cuda else call.lineno,
        cpp_source="\n".join(strings.of(cpp)),
        cpp_line=strings.line(cpp) if cpp else call.lineno,
    )


class _Strings:
    """The strings that expressions of a file stand for."""

    def __init__(self, path: Path, values: Mapping[str, ast.expr]) -> None:
        self._path = path
        self._values = values  # of the file's names

    def of(self, node: ast.expr | None) -> list[str]:
        """The strings of a string, or a list or the keys of a dict of them."""
        if node is None or (isinstance(node, ast.Constant) and node.value is None):
            return []
        node = self._resolved(node)
        if isinstance(node, (ast.List, ast.Tuple)):
            return [text for each in node.elts for text in self.of(each)]
        if isinstance(node, ast.Dict):
            return [text for each in node.keys for text in self.of(each)]
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
            return ["".join(self.of(node.left) + self.of(node.right))]
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            return [node.value]
        raise UnavailableError(
            f"{self._path.name}:{node.lineno}: load_inline is understood only with "
            "texts that are written in the file"
        )

    def line(self, node: ast.expr) -> int:
        """The line that the first string's first line is on."""
        node = self._resolved(node)
        if isinstance(node, (ast.List, ast.Tuple)) and node.elts:
            return self.line(node.elts[0])
        if isinstance(node, ast.BinOp):
            return self.line(node.left)
        # A text that begins with a backslash begins on the line after its quotes.
        n_lines = "".join(self.of(node)).count("\n")
        return max(node.lineno, (node.end_lineno or node.lineno) - n_lines)

    def _resolved(self, node: ast.expr) -> ast.expr:
        seen: set[str] = set()
        while isinstance(node, ast.Name) and node.id in self._values:
            if node.id in seen:
                break
            seen.add(node.id)
            node = self._values[node.id]
        return node
