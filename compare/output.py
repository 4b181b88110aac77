"""Where what a command has to say goes: progress, files and stdout."""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from compare.errors import UnavailableError, UsageError

_FILES = ("json", "html", "markdown", "csv")  # options that name one


@contextlib.contextmanager
def working() -> Iterator[Callable[[str], None]]:
    """Shows on stderr, if that is a terminal, what is going on.

    Whatever a library or a compiler prints meanwhile is not part of the report.

    Raises:
        UnavailableError: A package cannot be imported.
    """
    with contextlib.redirect_stdout(sys.stderr):
        with saying_what_mends_it():
            from rich.console import Console

            from compare.report.text import plain

        with Console(stderr=True).status("") as status:
            status.update("importing torch")
            yield lambda what: status.update(plain(what))


@contextlib.contextmanager
def saying_what_mends_it() -> Iterator[None]:
    """Where something is imported that may be missing or broken.

    Raises:
        UnavailableError: It is; the doctor knows more.
    """
    try:
        yield
    except SyntaxError:
        raise
    except Exception as error:  # packages raise all kinds
        raise UnavailableError(
            f"a package cannot be imported ({type(error).__name__}: {error}): "
            "python -m compare doctor says what mends it"
        ) from error


def write_json(options: argparse.Namespace, document: dict[str, Any]) -> bool:
    """Writes it to where --json says; whether that is stdout."""
    if not options.json:
        return False
    text = json.dumps(document, indent=2, allow_nan=False) + "\n"
    return write_text(options, "json", text)


def write_text(options: argparse.Namespace, name: str, text: str) -> bool:
    """Writes it to where the option of this name says; whether that is stdout."""
    file = getattr(options, name)
    if file == "-":
        sys.stdout.write(text)
        return True
    try:
        Path(file).write_text(text, encoding="utf-8")
    except BrokenPipeError:
        raise
    except OSError as error:
        raise _unwritable(f"--{name}", file, error) from error
    return False


def check(options: argparse.Namespace, listings: Sequence[str]) -> None:
    """Asked now rather than when the work is done: can all of it be written?

    Args:
        options: Of a command.
        listings: Those of its options that show something on stdout.

    Raises:
        UsageError: Two things would go to stdout, or a name is none.
        UnavailableError: A file cannot be written.
    """
    files = {name: getattr(options, name, None) for name in _FILES}
    to_stdout = [
        *(f"--{name}" for name in listings if getattr(options, name, False)),
        *(f"--{name} -" for name, file in files.items() if file == "-"),
    ]
    is_document = any(file == "-" for file in files.values())
    if is_document and len(to_stdout) > 1:
        first, *_, last = to_stdout
        option = last.removesuffix(" -")
        raise UsageError(
            f"{first} and {last} would both write to stdout: give {option} a file"
        )
    for name, file in files.items():
        if isinstance(file, str) and file != "-":
            _check_file(f"--{name}", file)
    if (folder := getattr(options, "site", None)) is not None:
        _check_folder(folder)


def _check_file(option: str, file: str) -> None:
    path = Path(file)
    if not file:
        raise UsageError(f"{option}: an empty name; give it a file, or - for stdout")
    if path.is_dir():
        raise UsageError(f"{option}: {file} is a folder")
    if not path.parent.is_dir():
        raise UsageError(f"{option}: there is no folder {path.parent}")
    try:
        if path.is_file():
            path.open("ab").close()
        elif not path.exists():  # else a pipe, whose reader would see it close
            tempfile.TemporaryFile(dir=path.parent).close()
    except OSError as error:
        raise _unwritable(option, file, error) from error


def _check_folder(name: str) -> None:
    """A site goes into a folder of its own, or pages of an earlier one would stay."""
    folder = Path(name)
    try:
        if not name or (folder.exists() and any(folder.iterdir())):
            raise UsageError(f"{name or 'an empty name'}: a site needs an empty folder")
        if not folder.exists() and not folder.parent.is_dir():
            raise UsageError(f"{name}: there is no folder {folder.parent}")
        tempfile.TemporaryFile(dir=folder if folder.exists() else folder.parent).close()
    except OSError as error:
        raise UnavailableError(
            f"{name} cannot be written ({error.strerror})"
        ) from error


def _unwritable(option: str, file: str, error: OSError) -> UnavailableError:
    """The error for a file that cannot be written."""
    return UnavailableError(f"{option}: {file} cannot be written ({error.strerror})")
