"""`compare routes`: the ways to build an op's .cu."""

from __future__ import annotations

import argparse

from compare.errors import EXIT_OK
from compare.options import add_json, add_op
from compare.output import saying_what_mends_it, working, write_json

SUMMARY = "Compare the ways to build an op's .cu: prebuilt, load_inline, NVRTC."


def add_options(parser: argparse.ArgumentParser) -> None:
    """The op."""
    add_op(parser)
    add_json(parser)


def run(options: argparse.Namespace) -> int:
    """Builds and calls the op by each route."""
    with working() as progress:
        with saying_what_mends_it():
            from compare.timing import build_routes
        result = build_routes.compare_routes(options.op, progress)
    from compare.report import route_tables, terminal
    from compare.timing import times

    if not write_json(options, times.to_json(result)):
        route_tables.show(result, terminal.make_console())
    return EXIT_OK
