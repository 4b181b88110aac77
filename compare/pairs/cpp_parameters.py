"""Reads the parameters of C++ functions and templates."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from compare.pairs.cpp_tokens import Token, spaced


def words(text: str) -> frozenset[str]:
    """Returns the words of a text."""
    return frozenset(text.split())


_QUALIFIERS = words("const volatile __grid_constant__ __restrict__ __restrict restrict")
_TAGS = words("struct class union enum typename")
TYPE_WORDS = (
    words(
        "void bool char short int long float double signed unsigned auto wchar_t "
        "char8_t char16_t char32_t"
    )
    | _QUALIFIERS
    | _TAGS
)


@dataclass(frozen=True)
class Parameter:
    """A parameter of a function; its type as written, without the name."""

    name: str
    type: str
    has_default: bool = False


@dataclass(frozen=True)
class TemplateParameter:
    """A parameter of a template."""

    name: str  # empty if it has none
    has_default: bool
    is_pack: bool


def end_of_angles(
    code: Sequence[Token], begin: int, end: int | None = None
) -> int | None:
    """Returns the index of the `>` that closes the `<` at an index, or None."""
    depth = brackets = 0
    for i in range(begin, len(code) if end is None else end):
        text = code[i].text
        if text in ("(", "[", "{"):
            brackets += 1
        elif text in (")", "]", "}"):
            brackets -= 1
        elif brackets == 0 and text in ("<", ">"):
            depth += 1 if text == "<" else -1
            if depth == 0:
                return i
        if brackets < 0 or text == ";":
            return None
    return None


def split_at_commas(code: Sequence[Token]) -> list[Sequence[Token]]:
    """Splits what stands between brackets at its own commas."""
    parts, begin, depth, i = [], 0, 0, 0
    while i < len(code):
        text = code[i].text
        if text in ("(", "[", "{"):
            depth += 1
        elif text in (")", "]", "}"):
            depth -= 1
        elif text == "," and depth == 0:
            parts.append(code[begin:i])
            begin = i + 1
        elif text == "<" and i and code[i - 1].kind == "identifier":
            i = end_of_angles(code, i) or i
        i += 1
    return [*parts, code[begin:]] if code else []


def template_parameters(code: Sequence[Token]) -> tuple[TemplateParameter, ...]:
    """Reads the parameters of a template, from between `<` and `>`."""
    found = []
    for part in split_at_commas(code):
        texts = [token.text for token in part]
        end = texts.index("=") if "=" in texts else len(part)
        name = part[end - 1] if end > 1 else None
        is_named = name and name.kind == "identifier" and name.text not in TYPE_WORDS
        found.append(
            TemplateParameter(
                name.text if name and is_named and texts[end - 2] != "::" else "",
                end < len(part),
                "..." in texts[:end],
            )
        )
    return tuple(found)


def parameters(code: Sequence[Token]) -> tuple[Parameter, ...]:
    """Reads the parameters of a function, from between its parentheses."""
    parts = split_at_commas(code)
    if len(parts) == 1 and [token.text for token in parts[0]] == ["void"]:
        return ()
    return tuple(_parameter(part) for part in parts)


def _parameter(part: Sequence[Token]) -> Parameter:
    texts = [token.text for token in part]
    end = texts.index("=") if "=" in texts else len(part)
    at = _name_in(texts[:end])
    if at is None or part[at].kind != "identifier":
        return Parameter("", spaced(part[:end]), end < len(part))
    rest = [*part[:at], *part[at + 1 : end]]
    return Parameter(part[at].text, spaced(rest), end < len(part))


def _name_in(texts: Sequence[str]) -> int | None:
    """Returns where the name of a parameter stands in it, or None."""
    for i, text in enumerate(texts[:-2]):  # float (*name)(int), float (&name)[3]
        if text == "(" and texts[i + 1] in ("*", "&"):
            return i + 2 if texts[i + 2] != ")" else None
    end = len(texts)
    while end and texts[end - 1] == "]":  # float name[3]
        end = len(texts) - 1 - texts[::-1].index("[", len(texts) - end)
    before = [text for text in texts[: end - 1] if text not in _QUALIFIERS | _TAGS]
    if end == 0 or not before or before[-1] == "::" or texts[end - 1] in TYPE_WORDS:
        return None
    return end - 1
