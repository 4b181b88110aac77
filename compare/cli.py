"""The command line: `python -m compare softmax`.

Torch takes seconds to import. So it is imported, by way of compare.run, only when a
command line makes sense and needs it.
"""

from __future__ import annotations

import argparse
import contextlib
import difflib
import errno
import io
import json
import os
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from compare.codegen.architectures import ARCHITECTURES, parse_architecture
from compare.errors import (
    BuildFailedError,
    CompareError,
    UnavailableError,
    UsageError,
)
from compare.parameters import OpSummary, parse_parameter, read_ops

if TYPE_CHECKING:
    from compare.report.model import Report

DTYPES = ("float32", "float16", "bfloat16")
BACKENDS = ("cuda", "cuda_inline", "triton")
DEFAULT_BACKENDS = ("cuda", "triton")

EXIT_OK = 0
EXIT_PARITY_FAILED = 1
EXIT_FOUND = 1
EXIT_UNAVAILABLE = UnavailableError.exit_code
EXIT_BUILD_FAILED = BuildFailedError.exit_code
EXIT_INTERNAL_ERROR = 70
EXIT_INTERRUPTED = 130

_DESCRIPTION = """\
Puts the CUDA C++ and the Triton implementation of an op under a microscope: are they
right, how fast are they, and what code did the two compilers make of them?
"""
_EPILOG = """\
Exit codes: 0 all is well (what was skipped is said), 1 parity failed or sanitize found
something, 2 the command line makes no sense, 3 the environment cannot do it, 4 a build
failed, 70 an error of compare itself (with a traceback), 130 interrupted.
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs a command line and returns its exit code."""
    _mend_streams()
    try:
        exit_code = _run(sys.argv[1:] if arguments is None else arguments)
        sys.stdout.flush()
        return exit_code
    except CompareError as error:
        sys.stderr.write(f"compare: {error}\n")
        return error.exit_code
    except BrokenPipeError:
        # Whoever read the output has seen enough, as `head` does.
        _discard_stdout()
        return EXIT_OK
    except SyntaxError as error:
        sys.stderr.write(f"compare: {error.filename}:{error.lineno}: {error.msg}\n")
        return EXIT_BUILD_FAILED
    except KeyboardInterrupt:
        sys.stderr.write("compare: interrupted\n")
        return EXIT_INTERRUPTED
    except Exception as error:
        if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
            _discard_stdout()
            sys.stderr.write(f"compare: a disk is full: {error}\n")
            return EXIT_UNAVAILABLE
        traceback.print_exc()
        return EXIT_INTERNAL_ERROR


def _mend_streams() -> None:
    """Makes writing possible where a stream is closed, or knows few characters."""
    if sys.stdout is None:
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115 (until the end)
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115 (until the end)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")


def _discard_stdout() -> None:
    # Without this, Python would complain when it flushes at its end.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _run(arguments: Sequence[str]) -> int:
    ops = read_ops()
    options = _parse(arguments, ops)
    if options.command == "list":
        return _list(ops)
    if options.command == "doctor":
        return _doctor(options)
    if options.command == "sanitize":
        return _sanitize(options)
    return _compare(options, ops)


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        """Says what is wrong, in one sentence."""
        raise UsageError(message.removeprefix("argument "))


def _parse(arguments: Sequence[str], ops: dict[str, OpSummary]) -> argparse.Namespace:
    parser = _parser(ops)
    commands = [*ops, "all", "list", "doctor", "sanitize"]
    if not arguments:
        raise UsageError(f"say what to compare: one of {', '.join(commands)}")
    if not arguments[0].startswith("-") and arguments[0] not in commands:
        close = difflib.get_close_matches(arguments[0], commands, n=1)
        guess = (
            f"did you mean {close[0]}?" if close else f"it has {', '.join(commands)}"
        )
        raise UsageError(f"there is no op or command {arguments[0]!r}; {guess}")
    options = parser.parse_args(arguments)
    if options.command in ops:
        _params(ops[options.command], options.param)  # raises for what makes no sense
    _check_output(options)
    return options


def _params(op: OpSummary, texts: list[str]) -> dict[str, Any]:
    """All parameters of the op: as given, or their defaults."""
    params = {each.name: each.default for each in op.parameters.values()}
    try:
        return params | dict(parse_parameter(op, text) for text in texts)
    except ValueError as error:
        raise UsageError(f"--param: {error}") from error


def _check_output(options: argparse.Namespace) -> None:
    listings = [
        name for name in ("diff", "ptx", "sass") if getattr(options, name, None)
    ]
    if listings and options.json == "-":
        raise UsageError(
            f"--{listings[0]} and --json - would both write to stdout: "
            "give --json a file"
        )
    # Asked now rather than when the work is done.
    file = getattr(options, "json", None)
    if isinstance(file, str) and file != "-":
        _check_file(file)


def _check_file(file: str) -> None:
    path = Path(file)
    if not file:
        raise UsageError("--json: an empty name; give it a file, or - for stdout")
    if path.is_dir():
        raise UsageError(f"--json: {file} is a folder")
    if not path.parent.is_dir():
        raise UsageError(f"--json: there is no folder {path.parent}")
    try:
        if path.is_file():
            path.open("ab").close()
        elif not path.exists():  # else a pipe, whose reader would see it close
            tempfile.TemporaryFile(dir=path.parent).close()
    except OSError as error:
        raise _unwritable(file, error) from error


def _unwritable(file: str, error: OSError) -> UnavailableError:
    return UnavailableError(f"--json: {file} cannot be written ({error.strerror})")


def _parser(ops: dict[str, OpSummary]) -> argparse.ArgumentParser:
    parser = _Parser(
        prog="python -m compare",
        description=_DESCRIPTION,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    commands = parser.add_subparsers(
        dest="command", metavar="op | command", required=True, parser_class=_Parser
    )

    def add(name: str, summary: str) -> argparse.ArgumentParser:
        return commands.add_parser(
            name, help=summary, description=summary, allow_abbrev=False
        )

    for op in ops.values():
        _add_op_options(add(op.name, op.summary), op)
    _add_shared_options(add("all", "Compare every op."))
    add("list", "List the ops.")
    doctor = add("doctor", "Say what works here, what cannot, and what mends it.")
    doctor.add_argument("--json", action="store_true", help="as JSON on stdout")
    sanitize = add(
        "sanitize",
        "Look for races, bad accesses and deadlocks in an op's CUDA kernels.",
    )
    sanitize.add_argument("op", choices=ops)
    sanitize.add_argument(
        "--gpu",
        action="store_true",
        help="by compute-sanitizer on a GPU; by default by the emulator's own checker",
    )
    _add_json_option(sanitize)
    return parser


def _add_op_options(parser: argparse.ArgumentParser, op: OpSummary) -> None:
    parser.add_argument(
        "--shape",
        type=_shape,
        help="sizes joined by x, such as 1823x781; by default what suits the device",
    )
    known = ", ".join(
        f"{each.name}={each.default} ({each.type})" for each in op.parameters.values()
    )
    parser.add_argument(
        "--param",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help=f"a parameter of the op: {known or 'it has none'}",
    )
    _add_shared_options(parser)
    for name, what in (
        ("diff", "the PTX of both sides, aligned by what the instructions do"),
        ("ptx", "the PTX of both sides, with names made comparable"),
        ("sass", "the machine code of both sides, with names made comparable"),
    ):
        parser.add_argument(f"--{name}", action="store_true", help=f"also show {what}")


def _add_shared_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--dtype", choices=DTYPES, default="float32")
    parser.add_argument(
        "--backend",
        action="extend",
        nargs="+",
        choices=BACKENDS,
        help="which implementations, by default cuda and triton",
    )
    parser.add_argument(
        "--arch",
        type=_argument(parse_architecture),
        metavar="SM",
        help="the architecture to generate code for, by default that of the GPU, or "
        f"sm_90: one of {', '.join(each.name for each in ARCHITECTURES.values())}",
    )
    _add_json_option(parser)


def _add_json_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--json", metavar="FILE", help="write the report there as JSON; - is stdout"
    )


def _argument(parse: Callable[[str], Any]) -> Callable[[str], Any]:
    """A parser whose ValueErrors argparse shows as they are."""

    def checked(text: str) -> Any:
        try:
            return parse(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from error

    return checked


@_argument
def _shape(text: str) -> tuple[int, ...]:
    sizes = text.lower().split("x")
    if not all(size.isascii() and size.isdigit() for size in sizes):
        raise ValueError(f"{text!r} is no shape: join sizes by x, such as 1823x781")
    shape = tuple(map(int, sizes))
    if 0 in shape:
        raise ValueError(f"a tensor of shape {text} is empty, with nothing to compare")
    return shape


def _list(ops: dict[str, OpSummary]) -> int:
    width = max(map(len, ops))
    for op in ops.values():
        sys.stdout.write(f"{op.name:<{width}}  {op.summary}\n")
    return EXIT_OK


def _doctor(options: argparse.Namespace) -> int:
    from compare import doctor

    if sys.stderr.isatty():
        sys.stderr.write("trying what works here, which takes some seconds\n")

    doctor.show(doctor.examine(), as_json=options.json)
    return EXIT_OK


def _sanitize(options: argparse.Namespace) -> int:
    with contextlib.redirect_stdout(sys.stderr), _progress() as progress:
        progress("importing torch")
        with _saying_what_mends_it():
            from compare import sanitize, sanitize_gpu
        run = sanitize_gpu.sanitize if options.gpu else sanitize.sanitize
        report = run(options.op, progress)
    from compare.report import sanitizer, terminal

    if not _write_json(options, sanitize.to_json(report)):
        sanitizer.show(report, terminal.make_console())
    return EXIT_FOUND if report.findings else EXIT_OK


def _compare(options: argparse.Namespace, ops: dict[str, OpSummary]) -> int:
    # Whatever a library or a compiler prints is not part of the report.
    with contextlib.redirect_stdout(sys.stderr), _progress() as progress:
        reports = _reports(options, ops, progress)
    _write(options, reports)
    passed = all(report.passed for report in reports)
    return EXIT_OK if passed else EXIT_PARITY_FAILED


def _reports(
    options: argparse.Namespace,
    ops: dict[str, OpSummary],
    progress: Callable[[str], None],
) -> list[Report]:
    progress("importing torch")
    with _saying_what_mends_it():
        from compare import run

    reports = []
    for name in ops if options.command == "all" else [options.command]:
        request = run.Request(
            op=name,
            shape=getattr(options, "shape", None),
            dtype=options.dtype,
            params=_params(ops[name], getattr(options, "param", [])),
            backends=tuple(dict.fromkeys(options.backend or DEFAULT_BACKENDS)),
            architecture=options.arch,
        )
        reports.append(run.compare(request, progress))
    return reports


@contextlib.contextmanager
def _progress() -> Iterator[Callable[[str], None]]:
    """Shows on stderr, if that is a terminal, what is going on."""
    with _saying_what_mends_it():
        from rich.console import Console

        from compare.report.text import plain

    with Console(stderr=True).status("") as status:
        yield lambda what: status.update(plain(what))


@contextlib.contextmanager
def _saying_what_mends_it() -> Iterator[None]:
    try:
        yield
    except SyntaxError:
        raise
    except Exception as error:  # packages raise all kinds
        raise UnavailableError(
            f"a package cannot be imported ({type(error).__name__}: {error}): "
            "python -m compare doctor says what mends it"
        ) from error


def _write_json(options: argparse.Namespace, document: dict[str, Any]) -> bool:
    """Writes it to where --json says; whether that is stdout."""
    if not options.json:
        return False
    text = json.dumps(document, indent=2, allow_nan=False) + "\n"
    if options.json == "-":
        sys.stdout.write(text)
        return True
    try:
        Path(options.json).write_text(text, encoding="utf-8")
    except BrokenPipeError:
        raise
    except OSError as error:
        raise _unwritable(options.json, error) from error
    return False


def _write(options: argparse.Namespace, reports: list[Report]) -> None:
    from compare.report import model, terminal

    is_one = options.command != "all"
    if options.json:
        document = model.to_json(reports[0]) if is_one else model.all_to_json(reports)
        if _write_json(options, document):
            return
    console = terminal.make_console()
    if not is_one:
        terminal.show_all(reports, console)
        return
    terminal.show(reports[0], console)
    if options.diff:
        terminal.show_diff(reports[0], console)
    if options.ptx:
        terminal.show_listings(reports[0], "ptx", console)
    if options.sass:
        terminal.show_listings(reports[0], "sass", console)
