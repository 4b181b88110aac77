"""`compare site`: every op, its ladder, times and code, and the docs, as a site."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from compare.code.architectures import DEFAULT_ARCHITECTURE
from compare.commands import op as op_command
from compare.errors import EXIT_FOUND, EXIT_OK, CompareError
from compare.options import add_code
from compare.output import saying_what_mends_it, working
from compare.parameters import read_ops

if TYPE_CHECKING:
    from compare.judge.parity import Skipped
    from compare.report.comparison import Report

SUMMARY = "Write a site of all ops and the docs, which loads nothing from elsewhere."


def add_options(parser: argparse.ArgumentParser) -> None:
    """Where to, and what the code is generated for."""
    parser.add_argument(
        "site",
        metavar="FOLDER",
        help="where the site goes: a new folder, or an empty one",
    )
    add_code(parser, f"that of the GPU, or {DEFAULT_ARCHITECTURE}")
    parser.set_defaults(dtype=None, backend=None)


def run(options: argparse.Namespace) -> int:
    """Compares every op, and writes pages of what is there."""
    names = list(read_ops())
    reports: dict[str, Report | Skipped] = {}
    with working() as progress:
        with saying_what_mends_it():
            from compare.judge.parity import Skipped
        for number, name in enumerate(names):
            tell = op_command.telling(progress, number, names)
            try:
                reports[name] = op_command.compare_one(name, options, tell)
            except CompareError as error:
                reports[name] = Skipped(str(error))
    sys.stdout.write(write(reports, options))
    passed = (each.passed for each in reports.values() if not isinstance(each, Skipped))
    return EXIT_OK if all(passed) else EXIT_FOUND


def write(reports: Mapping[str, Report | Skipped], options: argparse.Namespace) -> str:
    """Writes the site, and returns how large it is and what it lacks.

    Raises:
        CompareError: It cannot be written.
    """
    from compare.report import site

    with working() as progress:
        built = site.build(Path(options.site), reports, options.arch, progress)
    n_bytes = sum(built.sizes.values())
    home = Path(options.site, site.HOME)
    lines = [f"{home}: {len(built.sizes)} files, {n_bytes / 1e6:.1f} MB"]
    for what, ops in built.missing.items():
        who = "all ops" if len(ops) == len(reports) else ", ".join(ops)
        lines.append(f"{who}: {what}")
    return "\n".join(lines) + "\n"
