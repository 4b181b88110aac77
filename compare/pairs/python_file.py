"""A user's Python file: read without running it, and imported in a worker."""

from __future__ import annotations

import ast
import importlib.util
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType

from compare.errors import BuildFailedError

# A file's own tests and benchmarks call what is wanted, and are not it.
_NOT_WANTED = ("test", "bench", "main", "_test", "_bench")
_BENCHMARK_DECORATORS = {"perf_report", "parametrize", "fixture"}


@dataclass(frozen=True)
class PythonFunction:
    """A function at the top level of a file, as its text tells.

    Attributes:
        name: What the file calls it.
        line: Of its `def`, counted from 1.
        parameters: The names of its parameters, in order.
        is_kernel: Whether Triton compiles it.
        launches: The names that it launches as kernels, `name[grid](...)`.
        calls: The functions and classes of the file that its body mentions.
    """

    name: str
    line: int
    parameters: tuple[str, ...]
    is_kernel: bool
    launches: tuple[str, ...]
    calls: tuple[str, ...]


def load(path: Path, constants: Mapping[str, str] | None = None) -> ModuleType:
    """Imports a user's file under the name of its stem; for workers only.

    Raises what the file raises.

    Args:
        path: The file.
        constants: Expressions for some of its constants, in the place of its own.
    """
    path = path.resolve()
    sys.dont_write_bytecode = True  # nothing is left beside the user's files
    sys.path.insert(0, str(path.parent))
    # A file may be called like a module that is already in use here.
    name = path.stem if path.stem not in sys.modules else f"user_{path.stem}"
    loader = _Loader(name, str(path), constants or {})
    spec = importlib.util.spec_from_loader(name, loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    loader.exec_module(module)
    return module


class _Loader(SourceFileLoader):
    """Imports a file, some of whose constants have other values."""

    def __init__(self, name: str, path: str, constants: Mapping[str, str]) -> None:
        super().__init__(name, path)
        self._constants = constants

    def get_code(self, fullname: str) -> CodeType:
        """The code of the file, not that which Python keeps beside it."""
        tree = ast.parse(self.get_data(self.path), self.path)
        tree.body = [each for node in tree.body for each in self._with_constants(node)]
        code: CodeType = compile(tree, self.path, "exec", dont_inherit=True)
        return code

    def _with_constants(self, node: ast.stmt) -> Iterator[ast.stmt]:
        """A statement, and what assigns the constants anew that it assigns."""
        yield node
        for name in _assigned(node):
            if name in self._constants:
                text = f"{name} = {self._constants[name]}"
                for each in ast.parse(text).body:
                    for part in ast.walk(each):
                        ast.copy_location(part, node)
                    yield each


def constants(path: Path) -> list[str]:
    """The names that a file assigns at its top level, in order.

    Raises:
        BuildFailedError: The file is no Python, or cannot be read.
    """
    found = (name for node in parse(path).body for name in _assigned(node))
    return [*dict.fromkeys(found)]


def functions(path: Path) -> list[PythonFunction]:
    """The functions at the top level of a file, in order; nothing of it is run.

    A name that is assigned `Class.apply` of the file counts as a function.

    Raises:
        BuildFailedError: The file is no Python, or cannot be read.
    """
    return _Source(path).functions


def entry_points(path: Path) -> list[PythonFunction]:
    """The functions of a file that launch kernels and that no other such one calls.

    They launch them themselves, or through functions and classes of the file. Kernels,
    tests, benchmarks and functions without parameters are left out.

    Raises:
        BuildFailedError: The file is no Python, or cannot be read.
    """
    source = _Source(path)
    launching = source.launching()
    wanted = [
        each
        for each in source.functions
        if each.name in launching
        and each.parameters
        and not each.name.startswith(_NOT_WANTED)
        and each.name not in source.benchmarks
    ]
    called = {
        name for each in wanted for name in source.reached_from(each.name) - {each.name}
    }
    return [each for each in wanted if each.name not in called]


def has_kernels(path: Path) -> bool:
    """Whether a file has Triton kernels, or launches some that it imports.

    Raises:
        BuildFailedError: The file is no Python, or cannot be read.
    """
    return any(each.is_kernel or each.launches for each in functions(path))


class _Source:
    """The text of a file, taken apart.

    Attributes:
        functions: At the top level, in order.
        benchmarks: The names of those that a decorator has called by something else.
    """

    def __init__(self, path: Path) -> None:
        self._body = parse(path).body
        self._classes = {
            each.name: each for each in self._body if isinstance(each, ast.ClassDef)
        }
        self._kernels = set(_kernels(self._body))
        self._imported = set(_imported(self._body))
        self.functions = [*self._read()]
        names = {each.name for each in self.functions} | self._classes.keys()
        self._calls = {each.name: {*each.calls} for each in self.functions} | {
            name: _mentioned(each) & names - {name}
            for name, each in self._classes.items()
        }
        self.benchmarks = {
            each.name
            for each in self._body
            if isinstance(each, ast.FunctionDef)
            and not _BENCHMARK_DECORATORS.isdisjoint(_decorators(each))
        }

    def launching(self) -> set[str]:
        """The functions and classes that launch kernels, or reach one that does."""
        found = {each.name for each in self.functions if each.launches}
        found |= {name for name, each in self._classes.items() if self._launches(each)}
        return {
            name
            for name in self._calls.keys() - self._kernels
            if name in found or self.reached_from(name) & found
        }

    def reached_from(self, name: str) -> set[str]:
        """The functions and classes that a function calls, itself or through others."""
        found: set[str] = set()
        ahead = {name}
        while ahead:
            ahead = set().union(*(self._calls.get(each, ()) for each in ahead)) - found
            found |= ahead
        return found

    def _read(self) -> Iterator[PythonFunction]:
        for node in self._body:
            if isinstance(node, ast.FunctionDef):
                yield self._function(node, node.name, _parameters(node))
            elif isinstance(node, ast.Assign) and (forward := self._applied(node)):
                for each in node.targets:
                    if isinstance(each, ast.Name):  # the context is no parameter
                        yield self._function(node, each.id, _parameters(forward)[1:])

    def _function(
        self, node: ast.FunctionDef | ast.Assign, name: str, parameters: tuple[str, ...]
    ) -> PythonFunction:
        known = self._classes.keys() | {
            each.name for each in self._body if isinstance(each, ast.FunctionDef)
        }
        return PythonFunction(
            name=name,
            line=node.lineno,
            parameters=parameters,
            is_kernel=name in self._kernels,
            launches=tuple(dict.fromkeys(self._launches(node))),
            calls=tuple(sorted(_mentioned(node) & known - {name})),
        )

    def _launches(self, node: ast.AST) -> list[str]:
        """The kernels that `name[grid](...)` in a piece of code launches."""
        found = []
        for each in ast.walk(node):
            match each:
                case ast.Call(func=ast.Subscript(value=ast.Name(id=name))):
                    if name in self._kernels | self._imported:
                        found.append(name)
                    else:  # a variable, which holds one of the kernels
                        found += sorted(_mentioned(node) & self._kernels)
                case ast.Call(
                    func=ast.Subscript(value=ast.Attribute(value=library, attr=name))
                ):
                    if _mentioned(library) & self._imported:
                        found.append(name)
        return found

    def _applied(self, node: ast.Assign) -> ast.FunctionDef | None:
        """The forward method that an assignment of `Class.apply` makes callable."""
        match node.value:
            case ast.Attribute(value=ast.Name(id=name), attr="apply"):
                body = self._classes[name].body if name in self._classes else []
                for method in body:
                    if isinstance(method, ast.FunctionDef) and method.name == "forward":
                        return method
        return None


def parse(path: Path) -> ast.Module:
    """The syntax tree of a file.

    Raises:
        BuildFailedError: It is no Python, or cannot be read.
    """
    try:
        return ast.parse(path.read_text("utf-8"), str(path))
    except SyntaxError as error:
        raise BuildFailedError(
            f"{path.name}:{error.lineno}: {type(error).__name__}: {error.msg}"
        ) from error
    except (OSError, ValueError) as error:  # a ValueError: no UTF-8, or a null byte
        raise BuildFailedError(f"{path.name} cannot be read: {error}") from error


def _kernels(body: list[ast.stmt]) -> Iterator[str]:
    """Functions that Triton or Gluon compiles, by decorator or by assignment."""
    for node in body:
        if isinstance(node, ast.FunctionDef):
            if "jit" in _decorators(node):
                yield node.name
            continue
        match node:
            case ast.Assign(targets=targets, value=ast.Call(func=made)) if _last_name(
                made
            ) in ("jit", "autotune", "heuristics"):
                yield from (each.id for each in targets if isinstance(each, ast.Name))


def _assigned(node: ast.stmt) -> Iterator[str]:
    """The names that a statement at the top level assigns."""
    if isinstance(node, ast.Assign | ast.AnnAssign):
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        for target in targets:
            for each in ast.walk(target):
                if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store):
                    yield each.id


def _decorators(node: ast.FunctionDef) -> set[str]:
    return {_last_name(each) for each in node.decorator_list}


def _last_name(node: ast.expr) -> str:
    """The last name of an expression such as `triton.jit` or `triton.autotune(...)`."""
    while isinstance(node, ast.Call):
        node = node.func
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


def _imported(body: list[ast.stmt]) -> Iterator[str]:
    """The names that a file imports, among which may be kernels."""
    for node in body:
        if isinstance(node, ast.Import | ast.ImportFrom):
            for alias in node.names:
                yield alias.asname or alias.name.partition(".")[0]


def _parameters(node: ast.FunctionDef) -> tuple[str, ...]:
    given = node.args
    return tuple(
        each.arg for each in (*given.posonlyargs, *given.args, *given.kwonlyargs)
    )


def _mentioned(node: ast.AST) -> set[str]:
    return {each.id for each in ast.walk(node) if isinstance(each, ast.Name)}
