"""The command line: `python -m compare softmax`.

Torch takes seconds to import. So a command imports it only when its command line makes
sense.
"""

from __future__ import annotations

import argparse
import difflib
import errno
import functools
import importlib
import io
import os
import pkgutil
import sys
import traceback
from collections.abc import Mapping, Sequence
from types import ModuleType
from typing import NoReturn

from compare import commands, output
from compare.commands import op as op_command
from compare.commands import own_files
from compare.commands.study import VIEWS
from compare.errors import (
    EXIT_INTERNAL_ERROR,
    EXIT_INTERRUPTED,
    EXIT_OK,
    BuildFailedError,
    CompareError,
    UnavailableError,
    UsageError,
)
from compare.options import check_shapes, forward, params_of
from compare.parameters import OpSummary, backward_of, read_ops

_DESCRIPTION = """\
Puts the CUDA C++ and the Triton implementation of an op under a microscope, or kernels
of your own, as in `python -m compare mine.cu mine.py`: are they right, how fast are
they, and what code did the two compilers make of them?
"""
_EPILOG = """\
Exit codes: 0 all is well (what was skipped is said), 1 parity failed, sanitize found
something or a record is of older code, 2 the command line makes no sense, 3 the
environment cannot do it, 4 a build failed, 70 an error of compare itself (with a
traceback), 130 interrupted.
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs a command line and returns its exit code."""
    _mend_streams()
    try:
        options = parse(sys.argv[1:] if arguments is None else arguments)
        command = _commands().get(options.command, op_command)
        if hasattr(options, "files"):
            command = own_files
        exit_code: int = command.run(options)
        sys.stdout.flush()
        return exit_code
    except CompareError as error:
        sys.stderr.write(f"compare: {error}\n")
        return error.exit_code
    except BrokenPipeError:
        # The reader has seen enough, as `head` does.
        _discard_stdout()
        return EXIT_OK
    except SyntaxError as error:
        sys.stderr.write(f"compare: {error.filename}:{error.lineno}: {error.msg}\n")
        return BuildFailedError.exit_code
    except KeyboardInterrupt:
        sys.stderr.write("compare: interrupted\n")
        return EXIT_INTERRUPTED
    except Exception as error:
        if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
            _discard_stdout()
            sys.stderr.write(f"compare: a disk is full: {error}\n")
            return UnavailableError.exit_code
        traceback.print_exc()
        return EXIT_INTERNAL_ERROR


def _mend_streams() -> None:
    """Makes writing possible where a stream is closed, or knows few characters."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115 (until the end)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")


def _discard_stdout() -> None:
    # Without this, Python would complain when it flushes at its end.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


@functools.cache
def _commands() -> dict[str, ModuleType]:
    """The modules of all commands, by name. An op's has no summary of its own."""
    names = (each.name for each in pkgutil.iter_modules(commands.__path__))
    found = {
        name: importlib.import_module(f"compare.commands.{name}") for name in names
    }
    return {name: each for name, each in found.items() if hasattr(each, "SUMMARY")}


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        """Says what is wrong, in one sentence."""
        raise UsageError(message.removeprefix("argument "))


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """The options of a command line.

    Raises:
        UsageError: It makes no sense.
        UnavailableError: What it asks for cannot be written.
    """
    ops, modules = read_ops(), _commands()
    known = [*forward(), *modules]
    if not arguments:
        raise UsageError(f"say what to compare: one of {', '.join(known)}")
    if (command := _command_on_files(arguments, known)) is not None:
        return _parse_files(command, arguments)
    if not arguments[0].startswith("-") and arguments[0] not in known:
        close = difflib.get_close_matches(arguments[0], known, n=1)
        guess = f"did you mean {close[0]}?" if close else f"it has {', '.join(known)}"
        raise UsageError(f"there is no op or command {arguments[0]!r}; {guess}")
    options = _parser(ops, modules).parse_args(arguments)
    for name in getattr(options, "ops", []):
        if name not in ops:
            raise UsageError(f"there is no op {name!r}; it has {', '.join(ops)}")
    if options.command in ops:
        options.op = options.command
    if getattr(options, "backward", False):
        if backward_of(options.op) not in ops:
            raise UsageError(
                f"--backward: that of {options.op} has no kernel of its own"
            )
        options.op = backward_of(options.op)
    if hasattr(options, "op") and hasattr(options, "param"):
        params_of(options.op, options.param)  # raises for what makes no sense
    if hasattr(options, "op") and (shapes := getattr(options, "shape", None)):
        check_shapes(options.op, shapes if isinstance(shapes, list) else [shapes])
    output.check(options, listings=list(VIEWS))
    return options


def _command_on_files(arguments: Sequence[str], known: Sequence[str]) -> str | None:
    """The command that is given files, "" for none but the files; None without them."""
    command = arguments[0] if arguments[0] in own_files.COMMANDS else ""
    word = own_files.first_word(arguments[bool(command) :])
    is_file = word and word not in known and own_files.names_a_file(word)
    return command if is_file else None


def _parse_files(command: str, arguments: Sequence[str]) -> argparse.Namespace:
    parser = _Parser(prog="python -m compare", epilog=_EPILOG, allow_abbrev=False)
    own_files.add_options(parser, command)
    options = parser.parse_intermixed_args(arguments[bool(command) :])
    output.check(options, listings=list(VIEWS))
    return options


def _parser(
    ops: Mapping[str, OpSummary], modules: Mapping[str, ModuleType]
) -> argparse.ArgumentParser:
    parser = _Parser(
        prog="python -m compare",
        description=_DESCRIPTION,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    subparsers = parser.add_subparsers(
        dest="command", metavar="op | command", required=True, parser_class=_Parser
    )

    def add(name: str, summary: str) -> argparse.ArgumentParser:
        return subparsers.add_parser(
            name, help=summary, description=summary, allow_abbrev=False
        )

    for name in forward():
        op_command.add_options(add(name, ops[name].summary), ops[name])
    for name, module in modules.items():
        module.add_options(add(name, module.SUMMARY))
    return parser
