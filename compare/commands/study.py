"""`compare study`: an op's two sources, and their code, without running it."""

from __future__ import annotations

import argparse

from compare.code.architectures import DEFAULT_ARCHITECTURE
from compare.errors import EXIT_OK
from compare.options import LISTINGS, add_case, add_code, add_kernel, params_of
from compare.output import saying_what_mends_it, working, write_text

SUMMARY = "Study an op's two sources, and their code."
VIEWS = {
    "trace": "what a warp does, folded into loops",
    "mix": "instructions by what they are for, and what the launch takes",
    "memory": "what is loaded and stored, tensor by tensor",
    "who": "what the programmer sees to by hand, and what the compiler",
} | LISTINGS


def add_options(parser: argparse.ArgumentParser) -> None:
    """The case, the code, and which views of it."""
    add_case(parser)
    add_code(parser, DEFAULT_ARCHITECTURE)
    add_kernel(parser)
    for name, what in VIEWS.items():
        parser.add_argument(
            f"--{name}", action="store_true", help=f"instead of the sources: {what}"
        )
    for name, what in (("markdown", "as markdown"), ("csv", "a line for each cell")):
        parser.add_argument(
            f"--{name}", metavar="FILE", help=f"write the tables there, {what}"
        )


def run(options: argparse.Namespace) -> int:
    """Shows the views that were asked for, or the sources side by side."""
    chosen = [name for name in VIEWS if getattr(options, name)]
    writes_tables = bool(options.markdown or options.csv)
    with working() as progress:
        with saying_what_mends_it():
            from compare.report import collect_code
        request = collect_code.Request(
            op=options.op,
            shape=options.shape,
            dtype=options.dtype,
            params=params_of(options.op, options.param),
            architecture=options.arch,
            same_ptxas=options.same_ptxas,
            kernel=options.kernel - 1,
            rung=options.rung,
            shows_sass=writes_tables or "mix" in chosen or "sass" in chosen,
        )
        report = collect_code.study(request, progress)
    from compare.report import tables, terminal, views

    if writes_tables:
        kinds = (tables.resources, tables.mix, tables.moved, tables.traces)
        grids = [make(report) for make in kinds]
        if options.markdown:
            write_text(options, "markdown", tables.to_markdown(grids))
        if options.csv:
            write_text(options, "csv", tables.to_csv(grids))
    if chosen or not writes_tables:
        views.show(report, chosen, terminal.make_console())
    return EXIT_OK
