"""`compare <op>`: parity, times, generated code, and what differs.

No command has this name: every op is one, and its summary is the op's own.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from compare.code.architectures import DEFAULT_ARCHITECTURE, parse_architecture
from compare.errors import EXIT_FOUND, EXIT_OK
from compare.options import (
    DTYPES,
    LISTINGS,
    add_backends,
    add_backward,
    add_code,
    add_json,
    add_kernel,
    add_params,
    backends_of,
    params_of,
    shape,
)
from compare.output import saying_what_mends_it, working, write_json, write_text
from compare.parameters import OpSummary

if TYPE_CHECKING:
    from compare.report.comparison import Report


def add_options(parser: argparse.ArgumentParser, op: OpSummary) -> None:
    """Those of one op."""
    add_backward(parser)
    sizes = "x".join(op.shape_names) or "such as 1823x781"
    parser.add_argument(
        "--shape",
        type=shape,
        help=f"sizes joined by x, {sizes}; by default what suits the device",
    )
    known = ", ".join(
        f"{name}={each.default} ({each.type})" for name, each in op.parameters.items()
    )
    add_params(parser, f": {known or 'it has none'}")
    add_shared_options(parser)
    add_kernel(parser)
    parser.add_argument(
        "--html",
        metavar="FILE",
        help="write a page there that links sources, PTX and machine code",
    )
    for name, what in LISTINGS.items():
        parser.add_argument(f"--{name}", action="store_true", help=f"also show {what}")
    parser.add_argument(
        "--all-findings",
        action="store_true",
        help="what the code differs in and what is alike, all of it",
    )
    parser.add_argument(
        "--ladder",
        action="store_true",
        help="instead: the kernels that lead to this one, and what each step gains",
    )


def add_shared_options(parser: argparse.ArgumentParser) -> None:
    """Those that make sense for all ops at once, too."""
    parser.add_argument("--dtype", choices=DTYPES, help="by default float32")
    add_backends(parser)
    add_code(parser, f"that of the GPU, or {DEFAULT_ARCHITECTURE}")
    add_json(parser)


def run(options: argparse.Namespace) -> int:
    """Compares, and reports on the terminal, as JSON or as a page."""
    if options.ladder:
        return _climb(options)
    with working() as progress:
        report = compare_one(options.op, options, progress)
    _write(options, report)
    return EXIT_OK if report.passed else EXIT_FOUND


def telling(
    progress: Callable[[str], None], number: int, names: Sequence[str]
) -> Callable[[str], None]:
    """Tells also which of several ops it is that something is going on with."""
    where = f"{number + 1} of {len(names)}: {names[number]}: "
    return lambda what: progress(where + what)


def compare_one(
    name: str, options: argparse.Namespace, progress: Callable[[str], None]
) -> Report:
    """The report of one op.

    Raises:
        CompareError: It cannot be done.
    """
    with saying_what_mends_it():
        from compare.report import collect, collect_code
    request = collect_code.Request(
        op=name,
        shape=getattr(options, "shape", None),
        dtype=options.dtype or "float32",
        params=params_of(name, getattr(options, "param", ())),
        backends=backends_of(options),
        architecture=options.arch,
        same_ptxas=options.same_ptxas,
        kernel=getattr(options, "kernel", 1) - 1,
        rung=getattr(options, "rung", None),
    )
    return collect.compare(request, progress)


def _climb(options: argparse.Namespace) -> int:
    with working() as progress:
        with saying_what_mends_it():
            from compare.report import ladder
        result = ladder.climb(
            options.op,
            options.shape,
            options.dtype,
            options.arch or parse_architecture(DEFAULT_ARCHITECTURE),
            progress,
            params_of(options.op, options.param) if options.param else None,
        )
    from compare.report import terminal

    if not write_json(options, ladder.to_json(result)):
        ladder.show(result, terminal.make_console())
    return EXIT_OK


def _write(options: argparse.Namespace, report: Report) -> None:
    from compare.report import code_views, comparison, terminal

    is_stdout_taken = write_json(options, comparison.to_json(report))
    if options.html:
        from compare.report import page
        from compare.report.page.simulated import extras_of

        html = page.render(report, extras_of(report))
        is_stdout_taken |= write_text(options, "html", html)
    if is_stdout_taken:
        return
    console = terminal.make_console()
    terminal.show(report, console, all_findings=options.all_findings)
    if options.diff:
        code_views.show_diff(report, console)
    for language in ("ptx", "sass"):
        if getattr(options, language):
            code_views.show_listings(report, language, console)
