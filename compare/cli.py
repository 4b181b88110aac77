"""The command line: `python -m compare softmax`.

Torch takes seconds to import. So it is imported, by way of compare.run, only when a
command line makes sense and needs it.
"""

from __future__ import annotations

import argparse
import contextlib
import difflib
import json
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from compare.codegen.architectures import ARCHITECTURES, parse_architecture
from compare.errors import CompareError, UnavailableError, UsageError
from compare.parameters import OpSummary, parse_parameter, read_ops

if TYPE_CHECKING:
    from compare.report.model import Report

DTYPES = ("float32", "float16", "bfloat16")
BACKENDS = ("cuda", "cuda_inline", "triton")
DEFAULT_BACKENDS = ("cuda", "triton")

EXIT_OK = 0
EXIT_PARITY_FAILED = 1
EXIT_INTERRUPTED = 130

_DESCRIPTION = """\
Puts the CUDA C++ and the Triton implementation of an op under a microscope: are they
right, how fast are they, and what code did the two compilers make of them?
"""
_EPILOG = """\
Exit codes: 0 all is well (what was skipped is said), 1 parity failed, 2 the command
line makes no sense, 3 the environment cannot do it, 4 a build failed, 130 interrupted.
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs a command line and returns its exit code."""
    try:
        exit_code = _run(sys.argv[1:] if arguments is None else arguments)
        sys.stdout.flush()
        return exit_code
    except CompareError as error:
        sys.stderr.write(f"compare: {error}\n")
        return error.exit_code
    except BrokenPipeError:
        # Whoever read the output has seen enough, as `head` does. Without this, Python
        # would complain when it flushes at its end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_OK
    except KeyboardInterrupt:
        sys.stderr.write("compare: interrupted\n")
        return EXIT_INTERRUPTED


def _run(arguments: Sequence[str]) -> int:
    ops = read_ops()
    options = _parse(arguments, ops)
    if options.command == "list":
        return _list(ops)
    if options.command == "doctor":
        return _doctor(options)
    return _compare(options, ops)


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        """Says what is wrong, in one sentence."""
        raise UsageError(message.removeprefix("argument "))


def _parse(arguments: Sequence[str], ops: dict[str, OpSummary]) -> argparse.Namespace:
    parser = _parser(ops)
    commands = [*ops, "all", "list", "doctor"]
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
    if isinstance(file, str) and file != "-" and not Path(file).parent.is_dir():
        raise UsageError(f"--json: there is no folder {Path(file).parent}")


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
        nargs="+",
        choices=BACKENDS,
        default=DEFAULT_BACKENDS,
        help="which implementations, by default cuda and triton",
    )
    parser.add_argument(
        "--arch",
        type=_argument(parse_architecture),
        metavar="SM",
        help="the architecture to generate code for, by default that of the GPU, or "
        f"sm_90: one of {', '.join(each.name for each in ARCHITECTURES.values())}",
    )
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
            backends=tuple(dict.fromkeys(options.backend)),
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
    except (ImportError, OSError) as error:
        raise UnavailableError(
            f"a package cannot be imported ({error}): "
            "python -m compare doctor says what mends it"
        ) from error


def _write(options: argparse.Namespace, reports: list[Report]) -> None:
    from compare.report import model, terminal

    is_one = options.command != "all"
    if options.json:
        document = model.to_json(reports[0]) if is_one else model.all_to_json(reports)
        text = json.dumps(document, indent=2, allow_nan=False) + "\n"
        if options.json == "-":
            sys.stdout.write(text)
            return
        Path(options.json).write_text(text, encoding="utf-8")
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
