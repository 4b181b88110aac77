"""`compare new`: the files of an op, from which to write another."""

from __future__ import annotations

import argparse
import keyword
import pkgutil
import re
import sys
from pathlib import Path

from compare import commands
from compare.errors import EXIT_OK, UnavailableError, UsageError
from compare.parameters import backward_of, read_ops
from compare.repository import ROOT

SUMMARY = "Write a working op, with its first rung in both languages."

# With what each computes until somebody writes something else.
KINDS = {"elementwise": "x * x", "rows": "x / sum(abs(x)) of each row"}
# By template.
_FILES = {
    "launcher.cu.j2": "csrc/{op}/{op}.cu",
    "first.cuh.j2": "csrc/{op}/first.cuh",
    "package.py.j2": "triton_kernels/{op}/__init__.py",
    "launcher.py.j2": "triton_kernels/{op}/{op}.py",
    "first.py.j2": "triton_kernels/{op}/first.py",
    "op.py.j2": "bindings/ops/{op}.py",
    "trial.py.j2": "bindings/trials/{op}.py",
}
_NEXT = """
It works as it is, and computes {what}. Write what yours does in
    csrc/{op}/first.cuh
    triton_kernels/{op}/first.py
    bindings/ops/{op}.py, by PyTorch
and then
    pip install -e . && python -m compare {op}
    python -m pytest -k {op}
    python -m compare docs  # lists it in the README
"""

# Imports of the files that are written.
_IMPORTED = frozenset(("torch", "triton"))


def add_options(parser: argparse.ArgumentParser) -> None:
    """The name, and what to start from."""
    parser.add_argument("name", help="the op's, such as squared_cube")
    parser.add_argument(
        "--kind",
        choices=KINDS,
        required=True,
        help="whether an element of the result depends on one of x, or on its row",
    )


def run(options: argparse.Namespace) -> int:
    """Writes the files, lists them, and says what comes next."""
    written = write(options.name, options.kind)
    sys.stdout.writelines(f"{path}\n" for path in written)
    sys.stdout.write(_NEXT.format(op=options.name, what=KINDS[options.kind]))
    return EXIT_OK


def write(op: str, kind: str, root: Path = ROOT) -> list[str]:
    """Writes a working op, whose tests pass as soon as it is built.

    Args:
        op: Its name.
        kind: One of KINDS.
        root: The checkout to write to.

    Returns:
        The files that were written, from the root.

    Raises:
        UsageError: The name cannot be an op's, or is taken.
        UnavailableError: The files cannot be written.
    """
    check_name(op, root)
    if not (root / "pyproject.toml").exists():
        raise UnavailableError(
            f"{root} is no checkout: a new op is written to a clone of the repository"
        )
    import jinja2  # takes a while, and only this needs it

    templates = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent / "templates" / kind),
        undefined=jinja2.StrictUndefined,
        keep_trailing_newline=True,
        autoescape=False,  # these are sources, not HTML
    )
    texts = {
        path.format(op=op): templates.get_template(template).render(op=op)
        for template, path in _FILES.items()
    }
    try:
        for path, text in texts.items():
            (root / path).parent.mkdir(exist_ok=True)
            (root / path).write_text(text, "utf-8")
    except OSError as error:
        raise UnavailableError(f"{error.filename}: {error.strerror}") from error
    return [*texts]


def check_name(op: str, root: Path = ROOT) -> None:
    """Raises UsageError for a name that no new op can have, and says why."""
    if not re.fullmatch(r"[a-z][a-z0-9]*(_[a-z0-9]+)*", op):
        raise UsageError(
            f"{op!r} is no name for an op: expected small letters, digits and "
            "underscores between them, as in squared_cube"
        )
    # A launcher's name is a function's in C++ too.
    if keyword.iskeyword(op) or _is_of_cpp(op):
        raise UsageError(f"{op} is a word of Python's or of C++'s own")
    if op.endswith(backward_of("")):
        raise UsageError(f"{op}: a backward belongs to the files of its forward")
    if op in read_ops():
        raise UsageError(f"there is an op {op} already")
    known = {each.name for each in pkgutil.iter_modules(commands.__path__)}
    if op in known:
        raise UsageError(f"compare {op} is a command")
    taken = [
        f"{folder}/{found.name}"
        for folder in ("csrc", "triton_kernels", "bindings")
        for found in sorted((root / folder).iterdir())
        if found.name.partition(".")[0] == op
    ]
    if taken or op in _IMPORTED:
        by = ", ".join(taken) or "an import of the op's own file"
        raise UsageError(f"the name {op} is taken by {by}")


def _is_of_cpp(word: str) -> bool:
    from pygments.lexers.c_cpp import CppLexer
    from pygments.token import Name

    (kind, _), *_ = CppLexer().get_tokens(word)
    return word == "main" or kind is not Name
