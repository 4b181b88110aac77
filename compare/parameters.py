"""The ops and their parameters, read from the source files.

Importing an op imports torch, which takes seconds: too long for an answer to `--help`
or to a misspelt name.
"""

from __future__ import annotations

import ast
import functools
import importlib.util
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

# Names the parameter that is a case's dtype, for which there is an option.
_OF_THE_DTYPE = "dtype_parameter"


@dataclass(frozen=True)
class Parameter:
    """A parameter of an op that is no tensor."""

    type: str  # its annotation, such as "int": a key of _CONVERSIONS
    default: Any


@dataclass(frozen=True)
class OpSummary:
    """An op as the command line knows it."""

    name: str
    signature: str  # such as "softmax(x, dim=-1)"
    summary: str  # the first line of its documentation
    parameters: dict[str, Parameter]
    forward: str = ""  # the op that this is the backward of
    has_gradient: bool = False  # autograd can differentiate it
    # Names of the numbers in a shape, such as "M", where no tensor has that shape.
    shape_names: tuple[str, ...] = ()


def backward_of(op: str) -> str:
    """The name of an op's backward."""
    return f"{op}_backward"


@functools.cache
def read_ops() -> Mapping[str, OpSummary]:
    """All ops by name, each before its backward."""
    bindings = importlib.util.find_spec("bindings")
    assert bindings is not None
    assert bindings.submodule_search_locations is not None
    files = Path(bindings.submodule_search_locations[0], "ops").glob("[!_]*.py")
    ops = {op.name: op for path in sorted(files) for op in _read_file(path)}
    return MappingProxyType(ops)  # for all callers


def _read_file(path: Path) -> list[OpSummary]:
    module, trial = (
        ast.parse(each.read_text(encoding="utf-8"))
        for each in (path, path.parents[1] / "trials" / path.name)
    )
    functions = {
        node.name: node for node in module.body if isinstance(node, ast.FunctionDef)
    }
    keywords = {
        node.arg: node.value
        for node in (*ast.walk(module), *ast.walk(trial))
        if isinstance(node, ast.keyword)
        and node.arg in ("gradient", "optional_inputs", "shape_names", _OF_THE_DTYPE)
    }
    optional, shape_names, of_dtype = (
        ast.literal_eval(keywords.get(name, ast.Tuple([])))
        for name in ("optional_inputs", "shape_names", _OF_THE_DTYPE)
    )
    op = _read_op(
        functions[path.stem],
        optional,
        of_dtype,
        has_gradient="gradient" in keywords,
        shape_names=shape_names,
    )
    if backward := functions.get(backward_of(path.stem)):
        return [op, _read_op(backward, forward=path.stem)]
    return [op]


def _read_op(
    function: ast.FunctionDef,
    optional_inputs: tuple[str, ...] = (),
    dtype_parameter: str | tuple[()] = (),
    **known: Any,
) -> OpSummary:
    arguments = function.args
    required = len(arguments.args) - len(arguments.defaults)
    # Those that are passed by name alone say how it is called, not what it computes.
    pairs = list(
        zip(arguments.args, [*[None] * required, *arguments.defaults], strict=True)
    )
    written = [
        f"{argument.arg}={ast.unparse(default)}" if default else argument.arg
        for argument, default in pairs
    ]
    return OpSummary(
        name=function.name,
        signature=f"{function.name}({', '.join(written)})",
        summary=(ast.get_docstring(function) or "").partition("\n")[0],
        parameters={
            argument.arg: Parameter(
                ast.unparse(argument.annotation).removesuffix(" | Tensor"),
                ast.literal_eval(default),
            )
            for argument, default in pairs
            if argument.annotation
            and default
            and argument.arg != dtype_parameter
            and (argument.arg in optional_inputs or not _is_tensor(argument))
        },
        **known,
    )


def _is_tensor(argument: ast.arg) -> bool:
    """Whether it is a tensor that may be left out, which few ops' inputs ever do."""
    names = (node.id for node in ast.walk(argument) if isinstance(node, ast.Name))
    return "Tensor" in names


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
    "float | None": lambda text: None if text == "none" else float(text),
    # How many keys a query sees on either side; the op has -1 for all.
    "tuple[int | None, int | None] | None": lambda text: (
        None
        if text == "none"
        else tuple(-1 if each == "all" else int(each) for each in text.split(","))
    ),
    "str": str,
    "str | None": lambda text: None if text == "none" else text,
    "bool": {"true": True, "false": False}.__getitem__,
    # Whether the op has this input; None is what it is called with otherwise.
    "Tensor | None": {"true": True, "false": None}.__getitem__,
}
