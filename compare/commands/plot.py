"""`compare plot`: bandwidth over size, from the records."""

from __future__ import annotations

import argparse
import sys

from compare.errors import EXIT_OK
from compare.options import add_folder
from compare.output import saying_what_mends_it, working

SUMMARY = "Draw bandwidth over size, from the records."


def add_options(parser: argparse.ArgumentParser) -> None:
    """What to draw, and where to."""
    parser.add_argument(
        "ops", nargs="*", metavar="op", help="by default all with a sweep"
    )
    parser.add_argument(
        "--from",
        dest="source",
        metavar="FILE",
        help="draw this file, of bench --sweep --json FILE, instead of the records",
    )
    add_folder(parser, "plots")


def run(options: argparse.Namespace) -> int:
    """Draws, and lists the files."""
    with working() as progress:
        with saying_what_mends_it():
            from compare.records import store
            from compare.report import plots
        progress("drawing")
        files = [
            file
            for each in store.choose(options.ops, options.source)
            for file in plots.draw(each, options.output)
        ]
    sys.stdout.writelines(f"{file}\n" for file in files)
    return EXIT_OK
