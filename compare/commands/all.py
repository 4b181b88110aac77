"""`compare all`: every op at once, in one table."""

from __future__ import annotations

import argparse
import sys

from compare.commands import op, site
from compare.errors import EXIT_FOUND, EXIT_OK
from compare.output import working, write_json
from compare.parameters import read_ops

SUMMARY = "Compare every op."


def add_options(parser: argparse.ArgumentParser) -> None:
    """Those that make sense for all."""
    op.add_shared_options(parser)
    parser.add_argument(
        "--html",
        dest="site",
        metavar="FOLDER",
        help="write a site there, as compare site does",
    )


def run(options: argparse.Namespace) -> int:
    """A line for each op."""
    names = list(read_ops())
    with working() as progress:
        reports = [
            op.compare_one(name, options, op.telling(progress, number, names))
            for number, name in enumerate(names)
        ]
    from compare.report import comparison, terminal

    said = (
        site.write({each.op: each for each in reports}, options) if options.site else ""
    )
    if not write_json(options, comparison.all_to_json(reports)):
        terminal.show_all(reports, terminal.make_console())
        sys.stdout.write(said)
    return EXIT_OK if all(report.passed for report in reports) else EXIT_FOUND
