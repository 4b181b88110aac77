"""Reads a user's CUDA file: its functions, what they launch, what Python sees of it."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Literal

from compare.errors import UsageError
from compare.pairs.cpp_declarations import Declaration, read_declarations
from compare.pairs.cpp_parameters import Parameter as Parameter
from compare.pairs.cpp_parameters import end_of_angles
from compare.pairs.cpp_tokens import CudaSourceError as CudaSourceError
from compare.pairs.cpp_tokens import (
    Macro,
    Token,
    code_of,
    macro,
    read_tokens,
)
from compare.pairs.cuda_bindings import (
    Binding,
    BoundArgument,
    bindings,
    is_binding,
)
from compare.pairs.cuda_launches import (
    kernel_name,
    launched_by_function,
    launches,
)
from compare.pairs.cuda_refusals import Refusal as Refusal
from compare.pairs.cuda_refusals import device_launch, refusals

Kind = Literal["kernel", "device", "host"]
TORCH_HEADERS = ("torch/", "ATen/", "c10/", "pybind11/")


@dataclass(frozen=True)
class Function:
    """A function at namespace scope.

    Attributes:
        name: Without its namespace.
        qualified: With it, such as "ns::f".
        kind: A kernel is `__global__`; a device function may be `__host__` too.
        parameters: In order.
        returns: What it returns, as written.
        template: The names of its template parameters; empty if it is no template.
        file: Where it stands.
        line: Its first line, of the template header if it has one.
        launches: The names of the kernels that it launches itself, in order.
        calls: The names of the functions of these files that it calls.
        has_body: Whether it is defined here, not only declared.
        bound: What a binding says of its arguments, of all or none of them.
        python_name: What Python calls it; empty if nothing binds it.
    """

    name: str
    qualified: str
    kind: Kind
    parameters: tuple[Parameter, ...]
    returns: str
    template: tuple[str, ...]
    file: Path
    line: int
    launches: tuple[str, ...]
    calls: tuple[str, ...]
    has_body: bool
    bound: tuple[BoundArgument, ...] = ()
    python_name: str = ""


@dataclass(frozen=True)
class ParsedFile:
    """A file, its tokens and its declarations."""

    path: Path
    tokens: Sequence[Token]
    declarations: Sequence[Declaration]
    includes: Mapping[int, Path]  # local files that exist, by the directive's offset

    @property
    def macros(self) -> Iterator[Macro]:
        """The macros that it defines."""
        return (found for token in self.tokens if (found := macro(token)))


@dataclass(frozen=True)
class CudaSource:
    """What is known of a CUDA file and of the local files that it includes.

    Attributes:
        path: The file.
        files: The text of each file, that one first.
        functions: Of all files, in order.
        bound: By its name in Python, the qualified name of a C++ function.
        uses_torch: Whether PyTorch's headers or names occur.
        has_main: Whether it is a program.
        refusals: What forbids the emulator.
        first_line: The line of `path` on which its text begins.
        parsed: The files, the main one first.
    """

    path: Path
    files: Mapping[Path, str]
    functions: tuple[Function, ...]
    bound: Mapping[str, str]
    uses_torch: bool
    has_main: bool
    refusals: tuple[Refusal, ...]
    first_line: int
    parsed: tuple[ParsedFile, ...] = field(repr=False)

    def entry_points(self) -> tuple[Function, ...]:
        """Returns the host functions that launch kernels and that no other one calls.

        A launch counts if the function itself does it or another function of these
        files that it calls. Those bound to Python come first, in the order of their
        binding; main is none.
        """
        hosts = [f for f in self.functions if f.kind == "host" and f.name != "main"]
        launching = {f.name for f in hosts if f.launches}
        while (
            more := {f.name for f in hosts if launching.intersection(f.calls)}
            - launching
        ):
            launching |= more
        called = {
            name
            for f in hosts
            for name in f.calls
            if f.name in launching and f.name != name
        }
        bound = [*self.bound.values()]
        entries = [
            f
            for f in hosts
            if f.has_body
            and f.name in launching
            and (f.name not in called or f.qualified in bound)
        ]
        entries.sort(
            key=lambda f: bound.index(f.qualified) if f.qualified in bound else 1 << 30
        )
        return tuple(entries)


def read(path: Path) -> CudaSource:
    """Reads a CUDA file and the local files that it includes.

    Raises:
        UsageError: The file cannot be read.
        CudaSourceError: A file is no C++.
    """
    return read_text(_text_of(path), path)


def read_text(text: str, path: Path, first_line: int = 1) -> CudaSource:
    """Reads CUDA source that is a string in a Python file.

    Args:
        text: The source.
        path: The file in which the string stands.
        first_line: On which line of that file the string begins.

    Raises:
        CudaSourceError: It is no C++, or a local file that it includes.
    """
    path = path.resolve()
    files = {path: text}
    parsed: dict[Path, ParsedFile] = {}
    while missing := [each for each in files if each not in parsed]:
        file = missing[0]
        line = first_line if file == path else 1
        parsed[file] = parse(files[file], file, line)
        for included in parsed[file].includes.values():
            files.setdefault(included, _text_of(included))
    return _Reader([*parsed.values()]).source(files, first_line)


def parse(text: str, path: Path, first_line: int = 1) -> ParsedFile:
    """Reads the tokens and declarations of one file."""
    tokens = read_tokens(text, path, first_line)
    includes = {}
    for token in tokens:
        local, _ = token.include
        included = Path(os.path.normpath(path.parent / local))
        if local and included.is_file():
            includes[token.start] = included.resolve()
    return ParsedFile(path, tokens, read_declarations(tokens, path), includes)


def specifiers_of_macros(files: Sequence[ParsedFile]) -> dict[str, frozenset[str]]:
    """Returns the words that each macro without parameters stands for."""
    return {
        each.name: frozenset(token.text for token in each.body)
        for file in files
        for each in file.macros
        if not each.has_parameters
    }


def function_kind(
    declaration: Declaration, specifiers: Mapping[str, frozenset[str]]
) -> Kind:
    """Returns where a function runs, by its words and by those of its macros."""
    words = declaration.words.union(
        *(specifiers.get(word, ()) for word in declaration.words)
    )
    if "__global__" in words:
        return "kernel"
    return "device" if "__device__" in words else "host"


class _Reader:
    """Knows the names of all files while their functions are read."""

    def __init__(self, files: Sequence[ParsedFile]) -> None:
        self._files = files
        self._specifiers = specifiers_of_macros(files)
        self._declared = [
            (file, each)
            for file in files
            for each in file.declarations
            if each.kind == "function"
        ]
        self._kinds = {
            each.name: function_kind(each, self._specifiers)
            for _, each in self._declared
        }
        self._kernels = {n for n, kind in self._kinds.items() if kind == "kernel"}
        # A function does what the macros and classes do that it uses.
        self._carriers: dict[str, Sequence[Token]] = {}
        for file in files:
            for defined in file.macros:
                self._carriers[defined.name] = code_of(defined.body)
            for each in file.declarations:
                if each.kind == "class" and each.body:
                    self._carriers.setdefault(each.name, each.body)
        self._bindings = tuple(self._read_bindings())

    def source(self, files: Mapping[Path, str], first_line: int) -> CudaSource:
        functions = [self._function(file, each) for file, each in self._declared]
        refused = [r for file in self._files for r in refusals(file.tokens, file.path)]
        refused += [
            device_launch(each.line, each.file)
            for each in functions
            if each.kind != "host" and each.launches
        ]
        return CudaSource(
            path=self._files[0].path,
            files=files,
            functions=tuple(functions),
            bound={each.name: each.function for each in self._bindings},
            uses_torch=any(map(_uses_torch, self._files)),
            has_main=any(f.name == "main" and f.has_body for f in functions),
            refusals=tuple(refused),
            first_line=first_line,
            parsed=tuple(self._files),
        )

    def _function(self, file: ParsedFile, declared: Declaration) -> Function:
        qualified = declared.qualified
        bindings = (each for each in self._bindings if each.function == qualified)
        binding = next(bindings, Binding("", qualified))
        launched = self._launches(declared.body, frozenset())
        calls = self._calls(declared.body, frozenset())
        return Function(
            name=declared.name,
            qualified=qualified,
            kind=function_kind(declared, self._specifiers),
            parameters=self._parameters(declared),
            returns=declared.returns,
            template=tuple(each.name for each in declared.template or ()),
            file=file.path,
            line=declared.tokens[0].line,
            launches=tuple(launched),
            calls=tuple(dict.fromkeys(calls)),
            has_body=bool(declared.body),
            bound=binding.arguments,
            python_name=binding.name,
        )

    def _parameters(self, declared: Declaration) -> tuple[Parameter, ...]:
        """Its parameters; a default may stand in an earlier declaration of it."""
        same = [
            each.parameters
            for _, each in self._declared
            if each.qualified == declared.qualified
            and [p.type for p in each.parameters]
            == [p.type for p in declared.parameters]
        ]
        return tuple(
            replace(each, has_default=any(other[i].has_default for other in same))
            for i, each in enumerate(declared.parameters)
        )

    def _launches(self, code: Sequence[Token], seen: frozenset[str]) -> list[str]:
        found = [
            (each.begin.start, [kernel_name(code, each, self._kernels)])
            for each in launches(code)
        ]
        for i, name in launched_by_function(code, self._kernels):
            found.append((code[i].start, [name]))
        for token in code:
            if token.text in self._carriers and token.text not in seen:
                inner = self._carriers[token.text]
                found.append((token.start, self._launches(inner, seen | {token.text})))
        return [name for _, each in sorted(found, key=lambda e: e[0]) for name in each]

    def _calls(self, code: Sequence[Token], seen: frozenset[str]) -> Iterator[str]:
        for i, token in enumerate(code):
            if token.text in self._carriers and token.text not in seen:
                inner = self._carriers[token.text]
                yield from self._calls(inner, seen | {token.text})
            elif self._kinds.get(token.text, "kernel") != "kernel":
                is_member = i and code[i - 1].text in (".", "->")
                if not is_member and _is_called(code, i):
                    yield token.text

    def _read_bindings(self) -> Iterator[Binding]:
        qualified = {each.name: each.qualified for _, each in self._declared}
        for file in self._files:
            for declaration in filter(is_binding, file.declarations):
                for each in bindings(declaration.body, qualified):
                    yield replace(each, function=qualified[each.function])


def _is_called(code: Sequence[Token], i: int) -> bool:
    if i + 1 < len(code) and code[i + 1].text == "<":
        i = end_of_angles(code, i + 1) or i
    return i + 1 < len(code) and code[i + 1].text == "("


def _uses_torch(file: ParsedFile) -> bool:
    code = code_of(file.tokens)
    return any(t.include[1].startswith(TORCH_HEADERS) for t in file.tokens) or any(
        name.text in ("torch", "at", "c10") and colons.text == "::"
        for name, colons in pairwise(code)
    )


def _text_of(path: Path) -> str:
    try:
        # A comment in another encoding is no reason to refuse the code.
        text = path.read_text("utf-8-sig", errors="replace")
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from None
    return text
