"""Finds the functions and the other declarations of a C++ file."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from compare.pairs.cpp_parameters import (
    TYPE_WORDS,
    Parameter,
    TemplateParameter,
    end_of_angles,
    parameters,
    split_at_commas,
    template_parameters,
    words,
)
from compare.pairs.cpp_tokens import Token, first_branches, partners, spaced

# Words before parentheses that hold no parameters.
_NO_FUNCTIONS = words(
    "__launch_bounds__ __cluster_dims__ __block_size__ __maxnreg__ __align__ alignas "
    "__attribute__ __attribute __declspec decltype noexcept throw explicit requires "
    "typeof __typeof__ static_assert asm __asm__"
)
_SPECIFIERS = words(
    "__global__ __device__ __host__ __forceinline__ __noinline__ __inline__ inline "
    "static extern constexpr consteval virtual explicit friend __restrict__"
)
_CLASSES = words("class struct union enum")
_BEHIND_PARAMETERS = words(
    "const noexcept override final volatile requires throw try __attribute__"
)


@dataclass(frozen=True)
class Declaration:
    """A declaration at namespace scope.

    Attributes:
        kind: "invocation" is that of a macro, with or without a body in braces;
            "unnamed namespace" is its head alone.
        name: The name, without its namespace; empty if it has none.
        scope: The namespaces around it; unnamed ones are left out.
        tokens: All its code, with the final brace or semicolon.
        words: What stands before the name of a function, or before any braces.
        body: What lies in the braces of a function, class or invocation, with them.
        returns: What a function returns, as written.
        parameters: Of a function.
        parameter_list: The tokens between the parentheses of a function.
        template: The parameters of its innermost template header; None if it has none.
        template_header: The tokens of that header.
    """

    kind: Literal["function", "class", "invocation", "unnamed namespace", "other"]
    name: str
    scope: tuple[str, ...]
    tokens: Sequence[Token]
    words: frozenset[str] = frozenset()
    body: Sequence[Token] = ()
    returns: str = ""
    parameters: tuple[Parameter, ...] = ()
    parameter_list: Sequence[Token] = ()
    template: tuple[TemplateParameter, ...] | None = None
    template_header: Sequence[Token] = ()

    @property
    def qualified(self) -> str:
        """The name with its namespaces."""
        return "::".join((*self.scope, self.name))


def read_declarations(tokens: Sequence[Token], file: Path) -> list[Declaration]:
    """Returns the declarations at namespace scope, in order.

    Args:
        tokens: A file's, of read_tokens.
        file: Where they stand, for messages.

    Raises:
        CudaSourceError: The brackets do not match.
    """
    code = first_branches(tokens)
    return [*_Walk(code, partners(code, file)).scope(0, len(code), ())]


@dataclass(frozen=True)
class _Walk:
    """Walks over the code of a file."""

    code: Sequence[Token]
    partner: Sequence[int]

    def text(self, i: int) -> str:
        return self.code[i].text if i < len(self.code) else ""

    def scope(self, i: int, end: int, names: tuple[str, ...]) -> Iterator[Declaration]:
        """Yields the declarations between two indices."""
        while i < end:
            head = i
            if self.text(i) == ";":
                i += 1
                continue
            if self.text(i) == "inline" and self.text(i + 1) == "namespace":
                i += 1
            if self.text(i) == "namespace":
                brace = i
                while self.text(brace) not in ("{", ";"):
                    brace = max(brace + 1, self.partner[brace])
                if self.text(brace) == "{":
                    inner = [t for t in self.code[i:brace] if t.kind == "identifier"]
                    inside = tuple(t.text for t in inner if t.text != "inline")[1:]
                    if not inside:
                        head_tokens = self.code[head : brace + 1]
                        yield Declaration("unnamed namespace", "", names, head_tokens)
                    close = self.partner[brace]
                    yield from self.scope(brace + 1, close, (*names, *inside))
                    i = close + 1
                    continue
            elif self.text(i) == "extern" and self.text(i + 2) == "{":
                close = self.partner[i + 2]
                yield from self.scope(i + 3, close, names)
                i = close + 1
                continue
            declaration = _Head(self.code, self.partner, head, end).read(names)
            yield declaration
            i = head + len(declaration.tokens)


class _Head:
    """Reads one declaration."""

    def __init__(
        self, code: Sequence[Token], partner: Sequence[int], first: int, end: int
    ) -> None:
        self._code = code
        self._partner = partner
        self._first = first
        self._end = end
        self._begin = first  # behind the template headers
        self._name: tuple[int, int] | None = None  # of a function, where it stands
        self._list: tuple[int, int] | None = None  # its parentheses
        self._body: tuple[int, int] | None = None
        self._template: tuple[int, int] | None = None

    def _text(self, i: int) -> str:
        return self._code[i].text if i < self._end else ""

    def read(self, scope: tuple[str, ...]) -> Declaration:
        i = self._first
        while self._text(i) == "template" and self._text(i + 1) == "<":
            close = end_of_angles(self._code, i + 1, self._end)
            if close is None:
                break
            self._template = (i, close)
            i = close + 1
        self._begin = i
        if self._template is None and self._is_invocation(i):
            last = self._end_of_invocation(i)
            return self._declaration("invocation", self._text(i), last, scope)
        last = self._last(i)
        if self._list and self._name and not self._is_variable(last):
            name = spaced(self._code[slice(*self._name)])
            return self._declaration("function", name, last, scope)
        texts = [token.text for token in self._code[i : last + 1]]
        if _CLASSES & {*texts[: texts.index("{") if "{" in texts else None]}:
            return self._declaration("class", self._class_name(i, last), last, scope)
        return self._declaration("other", "", last, scope)

    def _is_invocation(self, i: int) -> bool:
        name = self._code[i]
        return (
            name.kind == "identifier"
            and self._text(i + 1) == "("
            and name.text not in _NO_FUNCTIONS | TYPE_WORDS
            and "LAUNCH_BOUNDS" not in name.text
            and self._text(i + 2) not in ("*", "&")  # Type (*function)(int);
        )

    def _end_of_invocation(self, i: int) -> int:
        close = self._partner[i + 1]
        if self._text(close + 1) == "{":
            self._body = (close + 1, self._partner[close + 1])
            return self._body[1]
        return close + 1 if self._text(close + 1) == ";" else close

    def _last(self, i: int) -> int:
        """Returns the index of the last token, and notes what it comes past."""
        has_value = is_class = has_initializers = False
        while i < self._end:
            text = self._text(i)
            if text == ";":
                return i
            if text == "operator" and not has_value and not self._list:
                i = self._operator(i)
                continue
            is_class |= text in _CLASSES and self._list is None
            has_value |= text == "="
            has_initializers |= text == ":" and self._list is not None
            if text == "(" and not has_value and self._list is None:
                self._note_parameters(i)
            elif text == "{":
                is_member = has_initializers and self._code[i - 1].kind == "identifier"
                if self._list and not has_value and not is_member:
                    self._body = (i, self._partner[i])
                    return self._partner[i]
                if is_class and self._body is None:
                    self._body = (i, self._partner[i])
            if text in ("(", "[", "{"):
                i = self._partner[i]
            elif text == "<" and self._code[i - 1].kind == "identifier":
                close = end_of_angles(self._code, i, self._end)
                if close is not None and self._list is None and not has_value:
                    self._name = (i - 1, i)
                    i = close
            i += 1
        return self._end - 1

    def _operator(self, i: int) -> int:
        """Notes the name and the parameters of an operator; returns what follows."""
        end = i + 3 if self._text(i + 1) == "(" else i + 1
        while end < self._end and self._text(end) != "(":
            end += 1
        if end < self._end:
            self._name, self._list = (i, end), (end, self._partner[end])
            end = self._list[1] + 1
        return end

    def _note_parameters(self, i: int) -> None:
        before, close = self._code[i - 1], self._partner[i]
        if before.text == ">" and self._name:  # a specialization: f<float>(...)
            before = self._code[self._name[0]]
        elif before.kind == "identifier":
            self._name = (i - 1, i)
        else:
            return
        following = self._code[close + 1] if close + 1 < self._end else None
        is_attribute = before.text in _NO_FUNCTIONS | TYPE_WORDS or (
            following is not None
            and following.kind == "identifier"
            and following.text not in _BEHIND_PARAMETERS
        )
        # float (*function)(float) = ...
        is_pointer = self._text(i + 1) in ("*", "&") and self._text(close + 1) == "("
        if not is_attribute and not is_pointer:
            self._list = (i, close)

    def _is_variable(self, last: int) -> bool:
        """Whether the parentheses hold arguments: `dim3 block(16, 16);`."""
        if self._body or not self._list:
            return False
        inside = self._code[self._list[0] + 1 : self._list[1]]
        literals = ("number", "string", "character")
        return any(
            part and (part[0].kind in literals or part[0].kind == "punctuation")
            for part in split_at_commas(inside)
            if spaced(part) not in ("...", "::")
        )

    def _class_name(self, i: int, last: int) -> str:
        """Returns the name behind `struct`, past `alignas(16)` and the like."""
        name = ""
        while i < last and self._text(i) not in ("{", ":", ";", "="):
            token = self._code[i]
            if token.text == "(" or token.text == "[":
                i = self._partner[i]
            elif token.kind == "identifier" and token.text not in (
                _CLASSES | _NO_FUNCTIONS | _SPECIFIERS | {"final", "typedef"}
            ):
                return token.text
            i += 1
        return name

    def _declaration(
        self,
        kind: Literal["function", "class", "invocation", "other"],
        name: str,
        last: int,
        scope: tuple[str, ...],
    ) -> Declaration:
        code = self._code
        ends = [last + 1]
        if kind == "function" and self._name:
            ends.append(self._name[0])
        if self._body:
            ends.append(self._body[0])
        before = code[self._begin : min(ends)]
        header: Sequence[Token] = ()
        template = None
        if self._template:
            header = code[self._template[0] : self._template[1] + 1]
            template = template_parameters(header[2:-1])
        inside = code[self._list[0] + 1 : self._list[1]] if self._list else ()
        return Declaration(
            kind,
            name,
            scope,
            code[self._first : last + 1],
            frozenset(token.text for token in before),
            code[self._body[0] : self._body[1] + 1] if self._body else (),
            _returned(before) if kind == "function" else "",
            parameters(inside) if kind == "function" else (),
            inside,
            template,
            header,
        )


def _returned(code: Sequence[Token]) -> str:
    """Returns what a function returns, from what stands before its name."""
    kept = []
    i = 0
    while i < len(code):
        text = code[i].text
        if (text in _NO_FUNCTIONS and text != "decltype") or text == "[":
            depth = 0
            while i < len(code):
                depth += code[i].text in ("(", "[")
                depth -= code[i].text in (")", "]")
                if depth == 0 and code[i].text in (")", "]"):
                    break
                i += 1
        elif text not in _SPECIFIERS and code[i].kind != "string":
            kept.append(code[i])
        i += 1
    while len(kept) > 1 and kept[-1].text == "::":  # of Class::function
        del kept[-2:]
    return spaced(kept)
