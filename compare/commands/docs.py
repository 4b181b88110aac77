"""`compare docs`: the generated parts of README and docs."""

from __future__ import annotations

import argparse
import sys

from compare.errors import EXIT_OK
from compare.output import saying_what_mends_it

SUMMARY = "Write the tables of README and docs anew, from the ops and the records."


def add_options(parser: argparse.ArgumentParser) -> None:
    """None."""


def run(options: argparse.Namespace) -> int:
    """Writes the pages, and lists them."""
    with saying_what_mends_it():
        from compare.report import readme
    sys.stdout.writelines(f"{file}\n" for file in readme.rewrite_pages())
    return EXIT_OK
