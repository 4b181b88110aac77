"""`compare record`: runs that are kept, and the pages that are made from them."""

from __future__ import annotations

import argparse
import sys

from compare import repository
from compare.errors import EXIT_FOUND, EXIT_OK, UsageError
from compare.output import saying_what_mends_it, working, write_json
from compare.parameters import read_ops
from compare.records import check

SUMMARY = "Measure on a GPU, and write it into records, README and docs."


def add_options(parser: argparse.ArgumentParser) -> None:
    """The ops, and what to do instead of measuring."""
    parser.add_argument("ops", nargs="*", metavar="op", help="by default all")
    instead = parser.add_mutually_exclusive_group()
    instead.add_argument(
        "--redraw",
        action="store_true",
        help="measure nothing: write plots and pages from what is recorded",
    )
    instead.add_argument(
        "--check",
        action="store_true",
        help="measure nothing: list the records, and which are of older code than this",
    )
    parser.add_argument(
        "--json", metavar="FILE", help="write the list there as JSON; - is stdout"
    )


def run(options: argparse.Namespace) -> int:
    """Measures, redraws or checks."""
    if options.check:
        found = check.check(options.ops)
        if not write_json(options, check.to_json(found)):
            sys.stdout.write(check.text(found))
        return EXIT_FOUND if any(each.older for each in found) else EXIT_OK
    if options.json:
        raise UsageError("--json: it is --check whose list can be written as JSON")
    with working() as progress:
        with saying_what_mends_it():
            from compare.report import readme, recording
        if options.redraw:
            progress("drawing plots and rewriting README and docs")
            files = readme.redraw()
        else:
            files = recording.record(options.ops or list(read_ops()), progress)
    sys.stdout.writelines(f"{file}\n" for file in files)
    if not options.redraw and repository.commit() is None:
        sys.stderr.write("compare: git knows no commit here, so none is recorded\n")
    return EXIT_OK
