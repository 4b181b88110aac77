"""Where a kernel is defined in a source: the lines, found by its name."""

from __future__ import annotations

import ast
import re

# What holds braces and semicolons that are none: comments, strings and characters. A
# quotation mark after a digit separates digits.
_OPAQUE = re.compile(
    r"//[^\n]*|/\*.*?\*/"
    r'|"(?:\\.|[^"\\\n])*"'
    r"|(?<!\w)'(?:\\.|[^'\\\n])+'",
    re.DOTALL,
)


def python_lines(text: str, name: str) -> range | None:
    """The lines of the last function of this name, from its decorators on.

    None if there is no such function, or the text is no Python.
    """
    try:
        tree = ast.parse(text)
    except SyntaxError:
        return None
    found = [
        each
        for each in ast.walk(tree)
        if isinstance(each, ast.FunctionDef) and each.name == name
    ]
    if not found:
        return None
    node = max(found, key=lambda each: each.lineno)
    first = min([node.lineno, *(each.lineno for each in node.decorator_list)])
    return range(first, (node.end_lineno or first) + 1)


def cuda_lines(text: str, name: str) -> range | None:
    """The lines of the kernel of this name, from its template on; None without one."""
    code = _OPAQUE.sub(lambda found: re.sub(r"[^\n]", " ", found[0]), text)
    kernels = rf"\b__global__\b[^;{{}}]*?\b{re.escape(name)}\s*\("
    for found in re.finditer(kernels, code):
        if body := re.compile(r"[^;{]*\{").match(code, found.end()):
            first = _start_of_declaration(code, found.start())
            last = _closing_brace(code, body.end())
            lines = (code.count("\n", 0, place) + 1 for place in (first, last))
            return range(next(lines), next(lines) + 1)
    return None


def _start_of_declaration(code: str, place: int) -> int:
    """Where the declaration begins that goes on at this place."""
    before = [found.end() for found in re.finditer(r"[;{}]|^#.*$", code[:place], re.M)]
    start = before[-1] if before else 0
    return start + len(code[start:place]) - len(code[start:place].lstrip())


def _closing_brace(code: str, place: int) -> int:
    """The brace that closes what is open at this place, or the end."""
    depth = 1
    for found in re.compile(r"[{}]").finditer(code, place):
        depth += 1 if found[0] == "{" else -1
        if not depth:
            return found.start()
    return len(code)
