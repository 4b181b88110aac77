"""The kernels of an op in the sources of both languages, and their differences."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Kernel:
    """A kernel as a reader sees it.

    Attributes:
        file: The stem of its file, which has the same name in both languages.
        parameters: Of run time, in order.
        sections: Named by its markers, in order.
        problems: Its faults, whatever the other language has.
    """

    file: str
    parameters: tuple[str, ...]
    sections: tuple[str, ...]
    problems: tuple[str, ...] = ()


def kernels_of(path: Path) -> dict[str, Kernel]:
    """The kernels of a file, by name."""
    text = path.read_text()
    read = _in_triton if path.suffix == ".py" else _in_cuda
    return {
        name: _kernel(path.stem, name, parameters, body)
        for name, parameters, body in read(text)
    }


def _kernel(file: str, name: str, parameters: Iterable[str], body: str) -> Kernel:
    marks = re.findall(r"^\s*(?://|#) -- *(\w*)(.?)", body, re.MULTILINE)
    problems = [
        f"{name}: the marker {word!r} has no colon"
        for word, mark in marks
        if mark != ":"
    ]
    sections = tuple(word for word, _ in marks)
    if sections[:1] != ("tile",):
        problems.append(f"{name}: its first section is no tile, but {sections[:1]}")
    return Kernel(file, tuple(parameters), sections, tuple(problems))


def _in_triton(text: str) -> Iterable[tuple[str, list[str], str]]:
    for node in ast.parse(text).body:
        if isinstance(node, ast.FunctionDef) and node.name.endswith("_kernel"):
            # A parameter in small letters may be a constexpr in Triton; in CUDA it is
            # a parameter of run time all the same.
            names = [
                each.arg
                for each in node.args.args
                if each.arg.islower()
                or each.annotation is None
                or "constexpr" not in ast.dump(each.annotation)
            ]
            yield node.name, names, ast.get_source_segment(text, node) or ""


def _in_cuda(text: str) -> Iterable[tuple[str, list[str], str]]:
    pattern = r"__global__.*?(\w+_kernel)\(\n(.*?)\n\) \{\n(.*?)\n\}\n"
    for name, parameters, body in re.findall(pattern, text, re.DOTALL):
        names = [
            each.split()[-1] for each in re.sub(r"//.*", "", parameters).split(",")
        ]
        yield name, names, body


def problems_of(
    cuda: Mapping[str, Kernel],
    triton: Mapping[str, Kernel],
    rungs: Iterable[str],
    declared: Iterable[str],
) -> list[str]:
    """The undeclared differences of the two languages, a sentence each.

    Args:
        cuda: The kernels of an op, by name.
        triton: Likewise.
        rungs: The names of those that the op's rungs launch.
        declared: Those that are no twins, by the op's description.
    """
    rungs, declared = set(rungs), set(declared)
    found = [
        problem
        for side in (cuda, triton)
        for kernel in side.values()
        for problem in kernel.problems
    ]
    found += [
        f"{name} is declared, but is in no source"
        for name in sorted(declared - cuda.keys() - triton.keys())
    ]
    for name in sorted((cuda.keys() | triton.keys()) - declared):
        if name not in rungs:
            found.append(f"{name} is on no rung, and is not declared")
        elif name not in cuda or name not in triton:
            found.append(f"{name} is in one language alone, and is not declared")
        else:
            found += _differences(name, cuda[name], triton[name])
    return found


def _differences(name: str, cuda: Kernel, triton: Kernel) -> Iterable[str]:
    for what in ("file", "parameters", "sections"):
        left, right = getattr(cuda, what), getattr(triton, what)
        if left != right:
            yield f"{name}: its {what} differ, {left} in CUDA and {right} in Triton"
