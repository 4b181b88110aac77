"""The ops and their parameters, read from the source files.

Importing an op imports torch, which takes seconds: too long for an answer to `--help`
or to a misspelt name.
"""

from __future__ import annotations

import ast
import importlib.util
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Parameter:
    """A parameter of an op that is no tensor.

    Attributes:
        name: Its name.
        type: The name of its type: "int", "float", "bool" or "str".
        default: Its value where none is given.
    """

    name: str
    type: str
    default: Any


@dataclass(frozen=True)
class OpSummary:
    """What the command line has to know of an op.

    Attributes:
        name: Its name.
        summary: The first line of its documentation.
        parameters: By name.
    """

    name: str
    summary: str
    parameters: dict[str, Parameter]


def read_ops() -> dict[str, OpSummary]:
    """All ops, by name."""
    bindings = importlib.util.find_spec("bindings")
    assert bindings is not None
    assert bindings.submodule_search_locations is not None
    folder = Path(bindings.submodule_search_locations[0], "ops")
    files = sorted(path for path in folder.glob("*.py") if path.stem != "__init__")
    return {path.stem: _read_op(path) for path in files}


def _read_op(path: Path) -> OpSummary:
    module = ast.parse(path.read_text(encoding="utf-8"))
    function = next(
        node
        for node in module.body
        if isinstance(node, ast.FunctionDef) and node.name == path.stem
    )
    arguments = function.args
    defaults = [None] * (len(arguments.args) - len(arguments.defaults))
    pairs = [
        *zip(arguments.args, [*defaults, *arguments.defaults], strict=True),
        *zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True),
    ]
    return OpSummary(
        name=path.stem,
        summary=(ast.get_docstring(function) or "").partition("\n")[0],
        parameters={
            argument.arg: Parameter(
                argument.arg,
                ast.unparse(argument.annotation),
                ast.literal_eval(default),
            )
            for argument, default in pairs
            if argument.annotation and default and argument.arg != "backend"
        },
    )


def parse_parameter(op: OpSummary, text: str) -> tuple[str, Any]:
    """The name and the value of `name=value`.

    Raises:
        ValueError: It is written differently, or the op has no such parameter.
    """
    name, equals, value = text.partition("=")
    if not equals:
        raise ValueError(f"{text!r} is not written as name=value")
    if name not in op.parameters:
        known = ", ".join(op.parameters)
        raise ValueError(
            f"{op.name} has no parameter {name!r}, it has "
            + (f"only {known}" if known else "none")
        )
    kind = op.parameters[name].type
    try:
        return name, _CONVERSIONS[kind](value)
    except (KeyError, ValueError):
        raise ValueError(
            f"{name} of {op.name} is of type {kind}, which {value!r} is not"
        ) from None


_CONVERSIONS: dict[str, Any] = {
    "int": int,
    "int | Sequence[int]": lambda text: tuple(map(int, filter(None, text.split(",")))),
    "float": float,
    "str": str,
    "bool": {"true": True, "false": False}.__getitem__,
}
