"""Reads what a CUDA file binds for Python: `m.def("f", &f, py::arg("eps") = 1e-5)`."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from compare.pairs.cpp_declarations import Declaration
from compare.pairs.cpp_parameters import split_at_commas
from compare.pairs.cpp_tokens import Token, spaced
from compare.pairs.cuda_launches import end_of_brackets

# What stands in C++ for Python's None.
_NONE = re.compile(r"(?:\w+ ?:: ?)*(?:none ?\( ?\)|nullopt|nullptr)")
_NUMBER = re.compile(r"([+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)([fFlLuU]*)")
_LIST = re.compile(r"[\w:<> ]*\{([^{}]*)\}")
_KEYWORD = re.compile(r'"(\w+)"_a')


@dataclass(frozen=True)
class BoundArgument:
    """An argument that a binding names.

    Attributes:
        name: The keyword in Python.
        default: What it is if a caller leaves it out, in C++; empty if he may not.
    """

    name: str
    default: str = ""


@dataclass(frozen=True)
class Binding:
    """A function that Python can call.

    Attributes:
        name: In Python.
        function: Its name in C++.
        arguments: In order, all or none of them.
    """

    name: str
    function: str
    arguments: tuple[BoundArgument, ...] = ()


def is_binding(declaration: Declaration) -> bool:
    """Whether a declaration makes functions known to Python."""
    return declaration.kind == "invocation" and declaration.name.startswith(
        ("PYBIND11_", "TORCH_LIBRARY", "STABLE_TORCH_LIBRARY", "TORCH_EXTENSION", "NB_")
    )


def bindings(code: Sequence[Token], known: Collection[str]) -> Iterator[Binding]:
    """Yields what every `m.def` and `m.impl` binds.

    Args:
        code: The body of a declaration for which `is_binding`.
        known: The names of the functions that it may bind.
    """
    for i in range(1, len(code) - 1):
        is_definition = code[i].text in ("def", "impl") and code[i + 1].text == "("
        if not is_definition or code[i - 1].text != ".":
            continue
        name, *others = split_at_commas(code[i + 2 : end_of_brackets(code, i + 1)])
        schema = "".join(t.text.strip('"') for t in name if t.kind == "string")
        for other in others:
            # A lambda takes other parameters than the function that it calls.
            found = [t.text for t in other if t.text in known]
            if found and other[0].text != "[":
                arguments = tuple(each for part in others if (each := _argument(part)))
                bound = schema.partition("(")[0].rpartition("::")[2].strip()
                yield Binding(bound, found[-1], arguments)
                break


def _argument(part: Sequence[Token]) -> BoundArgument | None:
    """What `py::arg("eps") = 1e-5` or `"eps"_a = 1e-5` names; None of another part."""
    texts = [token.text for token in part]
    end = texts.index("=") if "=" in texts else len(part)
    default = spaced(part[end + 1 :])
    if keyword := _KEYWORD.fullmatch("".join(texts[:end])):
        return BoundArgument(keyword[1], default)
    is_argument = "arg" in texts[:end] and texts[texts.index("arg") + 1] == "("
    names = [token.text.strip('"') for token in part[:end] if token.kind == "string"]
    return BoundArgument(names[0], default) if is_argument and names else None


def python_value(text: str) -> Any:
    """The value of a default that is a literal, or a list of them.

    Raises:
        ValueError: It is none.
    """
    if _NONE.fullmatch(text):
        return None
    if text in ("true", "false"):
        return text == "true"
    if listed := _LIST.fullmatch(text):
        return [python_value(each.strip()) for each in listed[1].split(",") if each]
    number = _NUMBER.fullmatch(text.replace("'", "").replace(" ", ""))
    if not number:
        raise ValueError(f"{text} is no number, true, false, None or list of these")
    is_float = not number[1].lstrip("+-").isdigit() or "f" in number[2].lower()
    return float(number[1]) if is_float else int(number[1])
