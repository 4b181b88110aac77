"""Sentences about foreign code, which name the user's file and line."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType

from compare.printable import printable

_LONGEST_MESSAGE = 300
# A frame as Python's fault handler prints it.
_FRAME = re.compile(r'^  File "(?P<path>.*)", line (?P<line>\d+) in ', re.MULTILINE)


def describe(error: BaseException, files: Sequence[Path]) -> str:
    """Returns what was raised, and where in the user's files.

    Args:
        error: What was raised, with its traceback.
        files: The user's files, by their absolute paths.

    Returns:
        Such as "mine.py:12: ZeroDivisionError: division by zero": the innermost frame
        in one of the files, if there is any, and the first line of the message.
    """
    place = place_of(error, files)
    name = printable(type(error).__name__)
    message = first_line(_message(error, files))
    return ": ".join(each for each in (place, name, message) if each)


def is_foreign(error: BaseException, files: Sequence[Path]) -> bool:
    """Returns whether any frame lies in one of the user's files, or it is about one."""
    return place_of(error, files) != ""


def place_of(error: BaseException, files: Sequence[Path]) -> str:
    """Returns where in the user's files it was raised, as "mine.py:12", or ""."""
    names = _names(files)
    if isinstance(error, SyntaxError) and error.filename in names:
        return _place(names[error.filename], error.lineno)
    place = ""
    traceback: TracebackType | None = error.__traceback__
    while traceback:
        path = _real_path(traceback.tb_frame.f_code.co_filename)
        if path in names:
            place = _place(names[path], traceback.tb_lineno)
        traceback = traceback.tb_next
    if not place and isinstance(error, OSError):
        place = names.get(str(error.filename), "")
    return place


def place_in_dump(dump: str, files: Sequence[Path]) -> str:
    """Returns the innermost place in the user's files of a fault handler's dump, or "".

    That of the thread which failed, if there is one, otherwise of any thread.
    """
    # The fault handler writes in ASCII.
    names = {
        path.encode("ascii", "backslashreplace").decode(): name
        for path, name in _names(files).items()
    }
    _, _, of_current_thread = dump.partition("Current thread")
    for text in (of_current_thread, dump):
        for frame in _FRAME.finditer(text):
            if frame["path"] in names:
                return _place(names[frame["path"]], int(frame["line"]))
    return ""


def names_of(files: Sequence[Path]) -> str:
    """Returns the files' names, for where the place is not known."""
    return ", ".join(printable(file.name) for file in files)


def first_line(text: str) -> str:
    """Returns the first line that is not empty, printable and not too long."""
    lines = (printable(line).strip() for line in text.splitlines())
    line = next(filter(None, lines), "")
    if len(line) > _LONGEST_MESSAGE:
        line = f"{line[: _LONGEST_MESSAGE - 1]}…"
    return line


def _message(error: BaseException, files: Sequence[Path]) -> str:
    names = _names(files)
    if isinstance(error, SyntaxError) and error.filename in names:
        return error.msg  # its str() repeats file and line
    if isinstance(error, OSError) and str(error.filename) in names:
        return error.strerror or ""  # its str() has the whole path
    try:
        return str(error)
    except BaseException as raised:  # __str__ is the user's, and may raise anything
        return f"(its __str__ raised {printable(type(raised).__name__)})"


def _names(files: Sequence[Path]) -> dict[str, str]:
    """The files' names by their paths, both as given and without symbolic links."""
    return {
        path: printable(file.name)
        for file in files
        for path in (str(file), os.path.realpath(file))
    }


def _real_path(path: str) -> str:
    # The code of importlib and of exec() has names such as "<string>". They are not
    # resolved: that fails where the working folder has been removed.
    return os.path.realpath(path) if os.path.isabs(path) else path


def _place(name: str, line: int | None) -> str:
    return f"{name}:{line}" if line else name
