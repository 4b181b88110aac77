"""`compare mine.cu mine.py`: one's own kernels, in any two files or more.

No command has this name: the first word is a file or a folder. `study`, `sanitize` and
`bench` take files in place of an op, too.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from compare.code.architectures import DEFAULT_ARCHITECTURE, parse_architecture
from compare.commands.study import VIEWS
from compare.errors import (
    EXIT_FOUND,
    EXIT_OK,
    CompareError,
    UnavailableError,
    UsageError,
)
from compare.options import LISTINGS, add_arch, add_json, add_kernel_number, seconds
from compare.output import saying_what_mends_it, working, write_json, write_text
from compare.pairs import CUDA_SUFFIXES, sandbox

if TYPE_CHECKING:
    from compare.pairs.own_report import OwnReport
    from compare.pairs.pair import Request
    from compare.pairs.plan import Plan

# Commands that take files in place of an op.
COMMANDS = ("study", "sanitize", "bench")
# Its options that take a value; of those that take none, --help may ask for all of it.
_WITH_VALUE = (
    *("--inputs", "--reference", "--set", "--time-limit"),
    *("--arch", "--kernel", "--json", "--html"),
)
_FLAGS = ("--all-findings", *(f"--{each}" for each in VIEWS))
_USAGE = """\
python -m compare FILE [FILE ...] [options]

Compares kernels of one's own: CUDA or Triton, two files or two versions of one. A file
is mine.cu or mine.py, mine.cu:function where it has several, a description of a pair, a
problem and a solution of KernelBench's, or a folder. docs/own-kernels.md says more."""


def names_a_file(word: str) -> bool:
    """Whether a word of the command line is a file or a folder, and no op."""
    path = Path(word.partition(":")[0])
    return path.suffix in (*CUDA_SUFFIXES, ".py") or "/" in word or path.exists()


def first_word(arguments: Sequence[str]) -> str:
    """The first argument that is no option of these and no value of one.

    Empty if there is none, or an option before it that only ops have.
    """
    others = iter(arguments)
    for each in others:
        option, _, value = each.partition("=")
        if option in _WITH_VALUE:
            if not value:
                next(others, None)
        elif each not in _FLAGS:
            return "" if each.startswith("-") else each
    return ""


def add_options(parser: argparse.ArgumentParser, command: str) -> None:
    """What to call the functions with, and what this command shows of them."""
    parser.usage = _USAGE
    parser.add_argument("files", nargs="+", metavar="FILE")
    parser.add_argument(
        "--inputs",
        default="",
        metavar="EXPRESSION",
        help="what to call them with, in torch's names: 'randn(1823, 781), randn(781)'",
    )
    parser.add_argument(
        "--reference",
        default="",
        metavar="FUNCTION",
        help="what they should compute: torch.softmax:dim=-1, file.py:function, or "
        "'lambda x: x.exp()'",
    )
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="another value of a constant in a problem of KernelBench's, such as "
        "batch_size=4, for sizes that a CPU can run",
    )
    parser.add_argument(
        "--time-limit",
        type=seconds,
        default=120.0,
        metavar="SECONDS",
        help="how long a process may take that runs them, by default 120",
    )
    add_arch(parser, DEFAULT_ARCHITECTURE)
    add_kernel_number(parser)
    add_json(parser)
    parser.add_argument(
        "--html",
        metavar="FILE",
        help="write a page there that links sources, PTX and machine code",
    )
    for name, what in (VIEWS if command == "study" else LISTINGS).items():
        parser.add_argument(f"--{name}", action="store_true", help=f"also show {what}")
    parser.add_argument(
        "--all-findings",
        action="store_true",
        help="what the code differs in and what is alike, all of it",
    )
    parser.set_defaults(command=command)


def run(options: argparse.Namespace) -> int:
    """Compares, and reports on the terminal, as JSON or as a page."""
    reports, is_collection = _reports(options)
    _write(options, reports, is_collection)
    if not all(each.passed for each in reports):
        return EXIT_FOUND
    # What could not be tried has not passed: a judge must not take it for right.
    was_tried = all(each.was_tried for each in reports)
    return EXIT_OK if was_tried else UnavailableError.exit_code


def _reports(options: argparse.Namespace) -> tuple[list[OwnReport], bool]:
    sandbox.prepare()  # torch is imported there while it is here
    with working() as progress:
        with saying_what_mends_it():
            from compare.pairs import pair, plan
            from compare.timing import gpu_state
        if options.command == "bench" and (reason := gpu_state.obstacle()):
            raise UnavailableError(reason)
        planned = plan.plan(
            options.files, options.inputs, options.reference, options.set
        )
        _check_views(options, planned)
        requests = [_completed(each, options) for each in planned.requests]
        if not planned.is_collection:
            return [pair.compare(requests[0], progress)], False
        reports: list[OwnReport] = []
        refusals: list[UsageError] = []
        for number, each in enumerate(requests, start=1):
            name = each.entries[0].path.name
            progress(f"{number} of {len(requests)}: {name}")
            reports.append(_compared_or_failed(each, progress, refusals))
        # It is the command that is wrong then, and no file.
        if len(refusals) == len(reports):
            raise refusals[0]
        return reports, True


def _check_views(options: argparse.Namespace, planned: Plan) -> None:
    """Raises UsageError for a view of two files where there is a table of many."""
    if not planned.is_collection:
        return
    for name in ("html", *VIEWS):
        if vars(options).get(name):
            what = "page" if name == "html" else "code"
            raise UsageError(f"--{name}: a table of several files has no {what}")


def _completed(request: Request, options: argparse.Namespace) -> Request:
    from compare.pairs.sandbox import Limits

    problem = request.problem
    can_be_smaller = problem is not None and problem.style == "kernelbench"
    advice = "--set NAME=VALUE makes the problem smaller" if can_be_smaller else ""
    return replace(
        request,
        architecture=options.arch or parse_architecture(DEFAULT_ARCHITECTURE),
        kernel=options.kernel - 1,
        shows_code=options.command not in ("sanitize", "bench"),
        measures=options.command not in ("sanitize", "study"),
        limits=Limits(seconds=options.time_limit, advice=advice),
    )


def _compared_or_failed(
    request: Request, progress: Callable[[str], None], refusals: list[UsageError]
) -> OwnReport:
    """The report, or one that says why there is none: the others of a table go on.

    Where the command is no use for it, `refusals` gets the reason, too.
    """
    from compare.judge.acceptance import UNKNOWN
    from compare.judge.parity import Parity, Skipped
    from compare.pairs import own_report, pair

    paths = [each.path for each in request.entries]
    try:
        return pair.compare(request, progress)
    except UnavailableError as error:
        return own_report.failed(paths, Skipped(str(error)))
    except CompareError as error:
        reason = str(error)
        if isinstance(error, UsageError):
            refusals.append(error)
    except RuntimeError as error:  # such as torch's and Triton's, of many lines
        reason = str(error).strip().partition("\n")[0] or type(error).__name__
    return own_report.failed(paths, Parity("", UNKNOWN, UNKNOWN, reason))


def _write(
    options: argparse.Namespace, reports: Sequence[OwnReport], is_collection: bool
) -> None:
    from compare.report import code_views, comparison, terminal, views

    document = (
        comparison.all_to_json(list(reports))
        if is_collection
        else comparison.to_json(reports[0])
    )
    is_stdout_taken = write_json(options, document)
    if options.html:
        from compare.report import page
        from compare.report.page.simulated import extras_of

        html = page.render(reports[0], extras_of(reports[0]))
        is_stdout_taken |= write_text(options, "html", html)
    if is_stdout_taken:
        return
    console = terminal.make_console()
    if is_collection:
        terminal.show_table(list(reports), console)
        return
    report = reports[0]
    if options.command == "sanitize":
        terminal.show_checks(report, console)
        return
    if options.command == "study":
        views.show(report, [each for each in VIEWS if vars(options)[each]], console)
        return
    terminal.show(report, console, all_findings=options.all_findings)
    if options.diff:
        code_views.show_diff(report, console)
    for language in ("ptx", "sass"):
        if vars(options)[language]:
            code_views.show_listings(report, language, console)
